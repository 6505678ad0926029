"""Runs as array jobs of Slurm: one array for each number of ranks, since all tasks of an array have
the same resources. Each task runs launch/slurm/array.sbatch, which takes its command from a file in
DIR/slurm, and leaves its exit code in its run's folder. Waiting may end and be taken up again at
any time: what is submitted is told by DIR/slurm/jobs.json.
"""
import os
import shlex
import shutil
import subprocess
import time

from sweep.failure import NOT_AVAILABLE, USAGE, Failure, say
from sweep.folder import last_line, make_folder, read_json, write_json, write_text
from sweep.local import Signals, meaning

POLL_S = 2
CALL_S = 60  # squeue and sbatch answer at once, or after a restart of their daemon
RESULT = "exit_code"  # "CODE SECONDS", written by the task
# States of a job after which its task will not begin, or go on.
DEAD = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "TIMEOUT")


def call(*words):
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=CALL_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"{words[0]} does not answer within {CALL_S} s", NOT_AVAILABLE) from error
    return done


def last_of(done):
    """The last line on stderr: "sbatch: error: ..."."""
    return ([line for line in done.stderr.splitlines() if line.strip()]
            or [f"{done.args[0]} failed"])[-1]


class Slurm:
    def __init__(self, args, tools):
        self.args, self.tools, self.signals = args, tools, Signals()
        try:
            self.more = shlex.split(args.sbatch)
        except ValueError as error:
            raise Failure(f"--sbatch {args.sbatch}: {error}", USAGE) from error

    def check(self):
        for program in ("sbatch", "squeue"):
            if shutil.which(program) is None:
                raise Failure(f"--slurm: {program} is not here: Slurm is not installed on this "
                              "machine", NOT_AVAILABLE)
        done = call("squeue", "-h", "-t", "RUNNING")
        if done.returncode != 0:
            raise Failure(f"--slurm: {last_of(done)}", NOT_AVAILABLE)

    # ---- what is submitted ----

    @staticmethod
    def jobs_file(folder):
        return folder.path / "slurm" / "jobs.json"

    def jobs(self, folder):
        """Name of a run -> "JOB_TASK"."""
        return (read_json(self.jobs_file(folder)) or {}).get("jobs") or {}

    def alive(self, jobs):
        """Those of the names whose task waits, or runs."""
        numbers = sorted({task.partition("_")[0] for task in jobs.values()})
        if not numbers:
            return set()
        done = call("squeue", "-h", "-r", "-o", "%F_%K %T", "-j", ",".join(numbers))
        if done.returncode != 0 and "Invalid job id" not in done.stderr:  # one long forgotten
            raise Failure(last_of(done), NOT_AVAILABLE)
        states = dict(line.split()[:2] for line in done.stdout.splitlines() if " " in line)
        return {name for name, task in jobs.items() if states.get(task, "GONE") not in
                (*DEAD, "GONE")}

    # ---- submitting ----

    def command(self, run, flags, folder):
        """A shell command for a task."""
        words = ["srun", "--mpi=pmix", f"--ntasks={run.ranks}", "--kill-on-bad-exit=1",
                 f"--output={folder}/stdout.txt", f"--error={folder}/stderr.txt",
                 self.tools.train, *flags, "--out", str(folder)]
        name = shlex.quote(str(folder / RESULT))
        return f"{shlex.join(words)}; echo $? $SECONDS >{name}"

    def submit(self, sweep, runs, flags_of):
        folder = sweep.folder
        make_folder(folder.path / "slurm")
        jobs = self.jobs(folder)
        for ranks in sorted({run.ranks for run in runs}):
            own = [run for run in runs if run.ranks == ranks]
            file = folder.path / "slurm" / f"commands-{ranks}-{len(jobs)}"
            lines = []
            for run in own:
                place = folder.begin(run)
                lines.append(self.command(run, flags_of(run), place))
            write_text(file, "\n".join(lines) + "\n")
            # A run has its nodes for itself: what else runs there would be measured, too.
            done = call("sbatch", "--parsable", f"--array=0-{len(own) - 1}", f"--ntasks={ranks}",
                        "--exclusive", *self.more, self.tools.array, str(file))
            if done.returncode != 0:
                raise Failure(last_of(done), NOT_AVAILABLE)
            job = done.stdout.strip().partition(";")[0]
            for task, run in enumerate(own):
                jobs[run.name] = f"{job}_{task}"
                folder.write_note(run, "submitted", job=f"{job}_{task}")
            write_json(self.jobs_file(folder), {"jobs": jobs})
            say(f"submitted job {job}: {len(own)} run{'s' if len(own) > 1 else ''} of {ranks} "
                f"rank{'s' if ranks > 1 else ''}")

    # ---- collecting ----

    def collect(self, sweep, run, alive):
        """The note of a run that has ended, or None: it goes on."""
        folder = sweep.folder.run_folder(run)
        try:
            os.listdir(folder)  # or a network's file system may not know of a new file yet
            code, seconds = map(int, (folder / RESULT).read_text(encoding="utf-8").split())
        except (OSError, ValueError):
            if run.name in alive:
                return None
            code, seconds = None, None
        note = {"status": "finished" if code == 0 else "failed", "exit_code": code,
                "seconds": seconds, "error": None, "job": self.jobs(sweep.folder).get(run.name)}
        if code is None:
            note["error"] = ("its job has ended without a result: cancelled, at its time limit, or "
                             "lost with its node")
        elif code != 0:
            note["error"] = last_line(folder / "stderr.txt") or meaning(code)
        return note

    def collect_all(self, sweep, waiting, ended):
        """Those of the runs that go on. ended(run, note) is called for each of the others."""
        jobs = {name: task for name, task in self.jobs(sweep.folder).items()
                if name in {run.name for run in waiting}}
        alive = self.alive(jobs)
        left = []
        for run in waiting:
            note = self.collect(sweep, run, alive) if run.name in jobs else None
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
