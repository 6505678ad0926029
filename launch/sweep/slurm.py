"""Runs of a sweep as jobs of Slurm (jobs.py): one array for each number of ranks. Waiting may end
and be taken up again at any time: what is submitted is told by DIR/slurm/jobs.json.
"""
import time

from sweep.failure import say
from sweep.folder import make_folder, read_json, write_json
from sweep.jobs import POLL_S, Jobs, result_of, why_failed
from sweep.local import Signals


class Slurm:
    def __init__(self, args, tools):
        self.args, self.tools, self.signals = args, tools, Signals()
        self.slurm = Jobs(args.sbatch, tools.array)

    def check(self):
        self.slurm.check()

    # ---- what is submitted ----

    @staticmethod
    def jobs_file(folder):
        return folder.path / "slurm" / "jobs.json"

    def jobs(self, folder):
        """Name of a run -> "JOB_TASK"."""
        return (read_json(self.jobs_file(folder)) or {}).get("jobs") or {}

    # ---- submitting ----

    def submit(self, sweep, runs, flags_of):
        folder = sweep.folder
        make_folder(folder.path / "slurm")
        jobs = self.jobs(folder)
        for ranks in sorted({run.ranks for run in runs}):
            own = [run for run in runs if run.ranks == ranks]
            lines = []
            for run in own:
                place = folder.begin(run)
                lines.append(self.slurm.command(
                    ranks, [self.tools.train, *flags_of(run), "--out", str(place)], place))
            tasks = self.slurm.submit(folder.path / "slurm" / f"commands-{ranks}-{len(jobs)}",
                                      lines, ranks)
            for task, run in zip(tasks, own):
                jobs[run.name] = task
                folder.write_note(run, "submitted", job=task)
            write_json(self.jobs_file(folder), {"jobs": jobs})
            say(f"submitted job {tasks[0].partition('_')[0]}: {len(own)} run"
                f"{'s' if len(own) > 1 else ''} of {ranks} rank{'s' if ranks > 1 else ''}")

    # ---- collecting ----

    def collect(self, sweep, run, task, alive):
        """The note of a run that has ended, or None: it goes on."""
        folder = sweep.folder.run_folder(run)
        result = result_of(folder)
        if result is None and task in alive:
            return None
        code, seconds = result or (None, None)
        return {"status": "finished" if code == 0 else "failed", "exit_code": code,
                "seconds": seconds, "job": task,
                "error": None if code == 0 else why_failed(folder, code)}

    def collect_all(self, sweep, waiting, ended):
        """Those of the runs that go on. ended(run, note) is called for each of the others."""
        jobs = {name: task for name, task in self.jobs(sweep.folder).items()
                if name in {run.name for run in waiting}}
        alive = self.slurm.alive(jobs.values())
        left = []
        for run in waiting:
            note = (self.collect(sweep, run, jobs[run.name], alive) if run.name in jobs else None)
            if note is None:
                left.append(run)
            else:
                ended(run, note)
        return left

    def wait(self, sweep, waiting, ended):
        while waiting:
            waiting = self.collect_all(sweep, waiting, ended)
            if waiting:
                self.signals.waiting = True
                self.signals.check()
                time.sleep(POLL_S)
                self.signals.waiting = False
