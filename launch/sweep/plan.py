"""Which runs there are, and in which order they are done.

A run is one start of ddp_train. A point is a place on a curve: a run in a mode. Two points may have
one run: on one rank the strong and the weak curve of a batch begin alike.
"""
import dataclasses
import hashlib
import itertools
import re

from sweep.failure import USAGE, Failure
from sweep.options import MOST_RUNS

# What a run would write beside its figures, only for a sweep to throw it away. First in the command
# line, so that --set of the user wins.
PLAIN = ("report.tensorboard=false", "checkpoint.every_steps=0")
MOST_NAME = 100  # letters of a folder's name


@dataclasses.dataclass(frozen=True)
class Run:
    """One training. settings: ((key, value), ...), of all --set."""
    ranks: int
    strategy: str
    compressor: str
    global_batch: int
    settings: tuple
    repeat: int

    @property
    def name(self):
        """Of its folder; two runs of a sweep never have the same."""
        words = [f"p{self.ranks}", self.strategy, self.compressor, f"b{self.global_batch}",
                 *(f"{key.rpartition('.')[2]}={value}" for key, value in self.settings),
                 f"r{self.repeat}"]
        whole = "-".join(words)
        plain = re.sub(r"[^\w.=-]+", "_", whole, flags=re.ASCII)
        if plain == whole and len(plain) <= MOST_NAME:
            return plain
        mark = hashlib.sha256(repr(dataclasses.astuple(self)).encode()).hexdigest()[:8]
        return f"{plain[:MOST_NAME]}-{mark}"

    @property
    def text(self):
        """For people, in one line."""
        return ", ".join([f"{self.ranks} rank{'s' if self.ranks > 1 else ''}", self.strategy,
                          self.compressor, f"batch {self.global_batch}",
                          *(f"{key}={value}" for key, value in self.settings)])

    def overrides(self):
        """The --set of ddp_train, without --set."""
        return [f"comm.strategy={self.strategy}", f"comm.compressor={self.compressor}",
                f"train.global_batch={self.global_batch}",
                *(f"{key}={value}" for key, value in self.settings)]


@dataclasses.dataclass(frozen=True)
class Point:
    """A run on a curve. batch: the global batch of one rank of that curve."""
    mode: str
    batch: int
    run: Run

    @property
    def curve(self):
        """What all points of a curve have in common."""
        return (self.mode, self.run.strategy, self.run.compressor, self.batch, self.run.settings)


def points_of(args, defaults):
    """All points; defaults: strategy, compressor and global_batch of the model."""
    modes = ("strong", "weak") if args.mode == "both" else (args.mode,)
    swept = [[(key, value) for value in values] for key, values in args.settings]
    found = []
    for strategy, compressor, batch, settings, mode, ranks, repeat in itertools.product(
            args.strategy or [defaults["strategy"]], args.compressor or [defaults["compressor"]],
            args.batch or [defaults["global_batch"]], itertools.product(*swept), modes, args.ranks,
            range(1, args.repeat + 1)):
        rows = batch * ranks if mode == "weak" else batch
        found.append(Point(mode, batch, Run(ranks, strategy, compressor, rows, settings, repeat)))
    if len(found) > MOST_RUNS:
        raise Failure(f"{len(found)} runs: more than {MOST_RUNS}", USAGE)
    return found


def order_of(points, repeats):
    """The runs, each once, repeats outermost, so that a drift of the machine meets all
    combinations alike. Each repeat begins at another one, since the first runs of a series may find
    another machine than the last."""
    ordered = []
    for repeat in range(1, repeats + 1):
        runs = list(dict.fromkeys(p.run for p in points if p.run.repeat == repeat))
        turn = (repeat - 1) * len(runs) // repeats
        ordered += runs[turn:] + runs[:turn]
    return ordered


def flags_of(run, args):
    """The arguments of ddp_train but --out."""
    words = [args.model_path]
    for override in (*PLAIN, *run.overrides()):
        words += ["--set", override]
    if args.steps is not None:
        words += ["--steps", str(args.steps)]
    return [*words, *args.flags]


def identity(args, defaults, text):
    """What makes a sweep this one: what a folder of another sweep differs in. text: the resolved
    configuration of the model."""
    return {
        "model": hashlib.sha256(text.encode()).hexdigest(),
        "ranks": args.ranks, "strategy": args.strategy or [defaults["strategy"]],
        "compressor": args.compressor or [defaults["compressor"]],
        "batch": args.batch or [defaults["global_batch"]], "mode": args.mode,
        "set": [[key, values] for key, values in args.settings], "repeat": args.repeat,
        "steps": args.steps, "flags": args.flags, "mpirun": args.mpirun, "hosts": args.hosts,
    }
