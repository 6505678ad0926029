"""Lockstep from Python: reads what runs leave, and drives a training. Needs no build of its own:
liblockstep.so is called through ctypes, and only once a training is created.

    import lockstep

    run = lockstep.read_run("runs/first")
    print(run.summary["samples_per_second"], [step["loss"] for step in run.of("step")])

    with lockstep.Training("models/lenet.cfg", {"train.global_batch": 128}, out="runs/mine") as t:
        while not t.done:
            print(t.step().loss)
        print(t.evaluate())
        t.save()

Alone the process is one rank; under mpirun every process is a rank, and all run the program.
"""
import atexit
import collections
import ctypes
import json
import os
import pathlib
import sys

__all__ = ["Run", "read_run", "Training", "Step", "Evaluation", "LockstepError"]

Step = collections.namedtuple("Step", "step rows loss accuracy lr samples_per_second skipped")
Evaluation = collections.namedtuple("Evaluation", "loss accuracy")


class LockstepError(RuntimeError):
    """The library has printed one line on stderr: what is wrong, where, what to do."""


# ---- what a run leaves ----


class Run:
    """The files of a run that has ended, goes on, or was killed.

    path     the folder
    summary  run.json; None while there is none
    config   config.yaml, as text; None where it is missing
    lines    metrics.jsonl: a list of dicts, in order; a last line that is torn is left out
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        if not self.path.is_dir():
            raise FileNotFoundError(f"{self.path}: no folder of a run")
        summary, self.config = self._text("run.json"), self._text("config.yaml")
        self.summary = None if summary is None else self._json(summary, "run.json")
        *lines, _ = (self._text("metrics.jsonl") or "").split("\n")
        self.lines = [self._json(line, f"metrics.jsonl:{number}")
                      for number, line in enumerate(lines, 1)]

    def _text(self, name):
        try:
            return (self.path / name).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return None

    def _json(self, text, name):
        try:
            return json.loads(text)
        except ValueError as error:
            raise ValueError(f"{self.path / name}: is damaged: {error}") from None

    def of(self, kind):
        """The lines of one type: "start", "step", "eval" ..."""
        return [line for line in self.lines if line.get("type") == kind]


def read_run(path):
    return Run(path)


# ---- training ----

ERR_INTERNAL = 5  # of enum dp_status


class _Options(ctypes.Structure):  # struct dp_lockstep_options
    _fields_ = [("config", ctypes.c_char_p), ("text", ctypes.c_char_p),
                ("sets", ctypes.POINTER(ctypes.c_char_p)), ("set_count", ctypes.c_int),
                ("out", ctypes.c_char_p), ("resume", ctypes.c_char_p), ("init", ctypes.c_char_p)]


class _Step(ctypes.Structure):  # struct dp_lockstep_step
    _fields_ = [("step", ctypes.c_uint64), ("rows", ctypes.c_size_t), ("loss", ctypes.c_double),
                ("accuracy", ctypes.c_double), ("lr", ctypes.c_double),
                ("samples_per_second", ctypes.c_double), ("skipped", ctypes.c_bool)]


class _Job:
    """The library and all ranks, once in a process."""

    def __init__(self):
        # Threads that spin at barriers take the cores from other programs. Read when libgomp loads.
        if "OMP_WAIT_POLICY" not in os.environ:
            os.environ.setdefault("GOMP_SPINCOUNT", "5000")
        self.library = ctypes.CDLL(_library_path())
        for name, result in (("steps", ctypes.c_uint64), ("done", ctypes.c_bool)):
            getattr(self.library, f"dp_lockstep_{name}").restype = result
        self.library.dp_lockstep_destroy.restype = None
        self.world = ctypes.c_void_p()
        self.library.dp_status_text.restype = ctypes.c_char_p
        self.status = 0  # what the program came to
        self.training = None  # one that is open
        self.check(self.library.dp_lockstep_join(ctypes.byref(self.world)))
        self.hook, sys.excepthook = sys.excepthook, self.fail
        atexit.register(self.leave)

    def check(self, status):
        if status != 0:
            self.status = status
            raise LockstepError(self.library.dp_status_text(status).decode())

    def fail(self, kind, error, trace):
        """A program that ends by an exception: other ranks may wait for this one for ever."""
        self.hook(kind, error, trace)
        self.status = self.status or ERR_INTERNAL

    def leave(self):
        """SystemExit calls no hook, and the exit code is not known here yet. Where it is not 0,
        other ranks may wait in a training."""
        sys.stdout.flush()
        if self.training is None or self.status != 0:
            self.library.dp_lockstep_leave(self.world, self.status)
        else:
            self.library.dp_lockstep_leave_at_exit(self.world)


_job = None


def _library_path():
    """LOCKSTEP_LIBRARY, or the library of the installation that this file belongs to, or the one
    that the system finds."""
    name = "liblockstep.so.@DP_SOVERSION@"
    beside = pathlib.Path(__file__).resolve().parent / "@DP_LIBRARY_FROM_PYTHON@" / name
    return os.environ.get("LOCKSTEP_LIBRARY") or (str(beside) if beside.exists() else name)


def _bytes(text):
    return None if text is None else os.fspath(text).encode()


class Training:
    """A training, as model.cfg (a path, or `text` itself) says, with settings over it: a dict of
    keys and values, or a list of "key=value". See runtime/lockstep.h for out, resume and init."""

    def __init__(self, config=None, settings=(), *, text=None, out=None, resume=None, init=None):
        global _job
        self._training = ctypes.c_void_p()
        self._left = False  # by an exception
        _job = _job or _Job()
        if _job.training is not None and _job.training._left:
            _job.training.close()
        if isinstance(settings, dict):
            settings = [f"{key}={json.dumps(value) if not isinstance(value, str) else value}"
                        for key, value in settings.items()]
        sets = (ctypes.c_char_p * len(settings))(*[_bytes(one) for one in settings])
        options = _Options(_bytes(config), _bytes(text), sets, len(settings), _bytes(out),
                           _bytes(resume), _bytes(init))
        _job.check(_job.library.dp_lockstep_create(_job.world, ctypes.byref(options),
                                                   ctypes.byref(self._training)))
        _job.training = self

    @property
    def rank(self):
        return _job.library.dp_lockstep_rank(_job.world)

    @property
    def ranks(self):
        return _job.library.dp_lockstep_ranks(_job.world)

    def _open(self):
        if not self._training:
            raise ValueError("this training is closed")
        return self._training

    @property
    def steps(self):
        """Steps done so far, over all runs."""
        return _job.library.dp_lockstep_steps(self._open())

    @property
    def done(self):
        return _job.library.dp_lockstep_done(self._open())

    def step(self):
        """One step, of all ranks."""
        out = _Step()
        _job.check(_job.library.dp_lockstep_step(self._open(), ctypes.byref(out)))
        return Step(*(getattr(out, name) for name in Step._fields))

    def evaluate(self):
        loss, accuracy = ctypes.c_double(), ctypes.c_double()
        _job.check(_job.library.dp_lockstep_evaluate(self._open(), ctypes.byref(loss),
                                                     ctypes.byref(accuracy)))
        return Evaluation(loss.value, accuracy.value)

    def save(self):
        """Writes a checkpoint into `out`, and returns when it is on disk."""
        _job.check(_job.library.dp_lockstep_save(self._open()))

    def close(self):
        if self._training:
            _job.library.dp_lockstep_destroy(self._training)
            self._training = ctypes.c_void_p()
            _job.training = None

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        """An exception of the program may be of this rank alone, and all ranks close a training
        together: it stays open until the next one is made, or the program ends."""
        self._left = kind is not None and not issubclass(kind, LockstepError)
        if not self._left:
            self.close()
