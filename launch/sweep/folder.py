"""The folder of a sweep.

    DIR/sweep.json           what the sweep is, and all that is known of its points
    DIR/sweep.csv, .html     the same for spreadsheets and browsers
    DIR/.lock                held by the process that runs the sweep
    DIR/points/NAME/         one run: what ddp_train writes, and of ours
        point.json           how it went: "running", "finished", "failed", "interrupted"
        stdout.txt, stderr.txt

point.json is also the sign that a folder may be deleted: only a sweep writes it, before the run.
"""
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import time

from sweep.failure import BAD_DATA, CANNOT_WRITE, CONFIGURATION, USAGE, Failure, one_line

SCHEMA, POINT_SCHEMA = "lockstep.sweep/1", "lockstep.point/1"
MANIFEST = "point.json"
RUN_LOCK = ".lockstep.lock"  # in the folder of a run: held by ddp_train
LEFT_S = 30  # for the run of a sweep that was killed: it is asked to end then, and may be saving


def write_text(path, text):
    """Whole or not at all. Names of files need not be UTF-8; what is written is."""
    scratch = path.with_name(path.name + ".new")
    try:
        with open(scratch, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(scratch, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            scratch.unlink()
        raise Failure(f"{path}: cannot write: {error.strerror}", CANNOT_WRITE) from error


def write_json(path, value):
    write_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def read_json(path):
    """An object, or None where there is none that can be read."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def make_folder(path):
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failure(f"{path}: cannot make this folder: {error.strerror}",
                      CANNOT_WRITE) from error


def difference(old, new):
    """In words, what one identity has that the other has not, or None."""
    for key in new:
        if old.get(key) != new[key]:
            if key == "model":
                return "of another model file, or of other DP_* variables"
            return f"with {key} {json.dumps(old.get(key))}, not {json.dumps(new[key])}"
    return None


def is_held(path):
    """Whether a process holds this lock."""
    with contextlib.suppress(FileNotFoundError):
        with open(path, "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
    return False


def wait_until_free(folder):
    """Until no run writes there."""
    end = time.monotonic() + LEFT_S
    while is_held(folder / RUN_LOCK):
        if time.monotonic() > end:
            raise Failure(f"{folder}: a run of an earlier sweep goes on here: end it first", USAGE)
        time.sleep(0.1)


class Folder:
    """The folder of one sweep, locked while this object lives."""

    def __init__(self, path, identity):
        """Makes it, or opens what is there; Failure where that is something else."""
        self.path = path
        self.mark = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
        occupied = path.exists() and (not path.is_dir() or any(path.iterdir()))
        self.check_what_is_there(occupied, identity)
        make_folder(path / "points")
        self.lock = self.take_lock()

    def check_what_is_there(self, occupied, identity):
        if not occupied:
            return
        sweep = self.path / "sweep.json"
        if not sweep.exists():
            left = {"points", "slurm", ".lock", "sweep.json.new", "sweep.csv", "sweep.html"}
            if self.path.is_dir() and {p.name for p in self.path.iterdir()} <= left:
                return
            raise Failure(f"{self.path} holds something else than a sweep: take another --out",
                          USAGE)
        known = read_json(sweep)
        if known is None or known.get("schema") != SCHEMA or not isinstance(
                known.get("identity"), dict):
            raise Failure(f"{sweep} is damaged: delete it to go on with the points that are there, "
                          "or take another --out", BAD_DATA)
        other = difference(known["identity"], identity)
        if other is not None:
            raise Failure(f"{self.path} holds a sweep {one_line(other)}: take another --out, or "
                          "the arguments of that sweep", CONFIGURATION)

    def take_lock(self):
        try:
            lock = open(self.path / ".lock", "w", encoding="utf-8")
        except OSError as error:
            raise Failure(f"{self.path}: cannot write: {error.strerror}", CANNOT_WRITE) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                lock.close()
                raise Failure(f"{self.path}: another ddp_sweep works here", USAGE) from error
        return lock

    # ---- runs ----

    def run_folder(self, run):
        return self.path / "points" / run.name

    def note(self, run):
        """The manifest of a run, or None."""
        note = read_json(self.run_folder(run) / MANIFEST)
        return note if note is not None and note.get("schema") == POINT_SCHEMA else None

    def known(self, run):
        """The manifest of a run of this very sweep, or None."""
        note = self.note(run)
        return note if note is not None and note.get("sweep") == self.mark else None

    def write_note(self, run, status, **more):
        write_json(self.run_folder(run) / MANIFEST,
                   {"schema": POINT_SCHEMA, "status": status, "run": run.text, "sweep": self.mark,
                    **more})

    def is_finished(self, run):
        note = self.known(run)
        return note is not None and note.get("status") == "finished"

    def begin(self, run):
        """An empty folder for it, with the manifest alone; removes what an earlier try left, once
        that has ended."""
        folder = self.run_folder(run)
        if folder.exists():
            if self.note(run) is None and any(folder.iterdir()):
                raise Failure(f"{folder} was not made by a sweep: move it away", USAGE)
            wait_until_free(folder)
            shutil.rmtree(folder, ignore_errors=True)
        make_folder(folder)
        self.write_note(run, "running")
        return folder

    def drop_checkpoints(self, run):
        """A sweep wants figures: of its runs the last weights are not kept."""
        shutil.rmtree(self.run_folder(run) / "checkpoints", ignore_errors=True)


def last_line(path):
    """The line that says why a run has failed: the last error of ddp_train, else the last line."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 65536))
            lines = [one_line(line) for line in file.read().decode(errors="replace").splitlines()]
    except OSError:
        return ""
    lines = [line for line in lines if line]
    errors = [line for line in lines if line.startswith("lockstep: error:")]
    return (errors or lines or [""])[-1].removeprefix("lockstep: error: ")
