"""What a sweep says while it runs: a line for each run, with the time that is left."""
import statistics

from sweep.failure import one_line, say
from sweep.table import percent, rate


def clock(seconds):
    seconds = round(seconds)
    if seconds < 100:
        return f"{seconds} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


class Progress:
    def __init__(self, count, kept):
        self.count, self.number, self.seconds = count, kept, {}

    def expected(self, run):
        """Seconds: of the same run in another repeat, else of as many ranks, else of any."""
        for alike in (lambda a: (a.ranks, a.overrides()) == (run.ranks, run.overrides()),
                      lambda a: a.ranks == run.ranks, lambda a: True):
            known = [s for a, s in self.seconds.items() if alike(a)]
            if known:
                return statistics.fmean(known)
        return None

    def left(self, runs):
        """Of all these, in words."""
        seconds = [self.expected(run) for run in runs]
        if not seconds or None in seconds:
            return ""
        return f"; about {clock(sum(seconds))} left"

    def tell(self, run, note, figures, coming):
        self.number += 1
        took = note["seconds"]
        if took is not None:
            self.seconds[run] = took
        if note["status"] == "finished":
            text = (f"{rate(figures.get('samples_per_second'))} samples/s, efficiency "
                    f"{percent(figures.get('scaling_efficiency'))}")
        else:
            text = f"FAILED with exit code {note['exit_code']}: {note['error']}"
        say(one_line(f"[{self.number}/{self.count}] {run.text}, repeat {run.repeat}: {text}"
                     + (f"; {took:.1f} s" if took is not None else "") + self.left(coming)))
