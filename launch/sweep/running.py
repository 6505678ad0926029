"""Does the runs of a sweep that are not finished: one after another, or as jobs of Slurm."""
from sweep import plan, results
from sweep.failure import say
from sweep.local import Stopped
from sweep.progress import Progress


def begin_progress(sweep, waiting):
    progress = Progress(len(sweep.runs), len(sweep.runs) - len(waiting))
    if progress.number > 0:
        say(f"{progress.number} of them are finished already")
    return progress


def finish(sweep, progress, run, note, coming):
    """A run has ended: notes how, and shows it. coming: the runs that are left; None: not known."""
    folder = sweep.folder
    found = results.read_run(folder.run_folder(run))
    if note["status"] == "finished" and found is None:
        note = dict(note, status="failed", error="it wrote no run.json")
    folder.write_note(run, **note)
    folder.drop_checkpoints(run)
    sweep.write()
    progress.tell(run, note, results.figures(found or {}), coming)


def one_by_one(sweep, place):
    """Stopped: the run that was under way is marked so."""
    waiting = sweep.waiting()
    progress = begin_progress(sweep, waiting)
    for number, run in enumerate(waiting):
        place.signals.check()
        folder = sweep.folder.begin(run)
        try:
            note = place.do(run, plan.flags_of(run, sweep.args), folder)
        except Stopped:
            sweep.folder.write_note(run, "interrupted")
            raise
        finish(sweep, progress, run, note, waiting[number + 1:])


def as_jobs(sweep, slurm):
    """Collects what has ended, submits what was not, and waits, as the flags say."""
    args, waiting = sweep.args, sweep.waiting()
    progress = begin_progress(sweep, waiting)

    def ended(run, note):
        finish(sweep, progress, run, note, [])

    submitted = [run for run in waiting
                 if (sweep.folder.known(run) or {}).get("status") == "submitted"]
    going = slurm.collect_all(sweep, submitted, ended)
    if args.collect:
        return
    new = [run for run in waiting if run not in submitted]
    slurm.submit(sweep, new, lambda run: plan.flags_of(run, args))
    if not args.no_wait:
        slurm.wait(sweep, going + new, ended)
