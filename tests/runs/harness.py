"""What the tests of whole runs share: starting a program as its user does, small data sets, and a
table of cases. Each tests/runs/<room>/<subject>.py ends with harness.main(globals()), which runs
every function named case_<sentence> of that file: tests/runs/run.py BUILD SUBJECT [NAME...].
"""
import contextlib
import fcntl
import gzip
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
import uuid

from marked import MARK, all_gone, described, end_all, marked, unserved

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[1:1] = map(str, (ROOT / "tests/runs").glob("*/"))  # subjects use what others have
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
PATIENCE = 120  # seconds until what must come counts as a hang, also on a busy machine
ENDLESS = 10**9  # steps that no machine gets through while a test runs
IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)

build = pathlib.Path()  # the build folder; set by main()
scratch = pathlib.Path()  # a fresh folder for each case; set by main()
program = "ddp_train"  # what is started
CROWDED = re.compile(  # warnings on small machines, and on busy ones
    r"\d+ ranks share \d+ cores? of this node|warning: ranks have not met for 60 s")
# mpirun's own, now and then: where the agent that it starts on a host was quicker than itself, and
# where it closes what its event loop still has.
RACE = re.compile(r".*plm:[rs]sh: Warning: setpgid.*\n|\[warn\] Epoll .* Bad file descriptor\n")


class Skipped(Exception):
    """This machine cannot run the case; the text says why."""


# ---- starting programs ----


class Result:
    """What a finished command left: exit code, stdout, stderr, seconds."""

    def __init__(self, command, code, out, err, seconds):
        self.command, self.code, self.out = command, code, out
        self.err = RACE.sub("", err)
        self.seconds = seconds

    def __str__(self):
        return (
            f"$ {' '.join(map(str, self.command))}\n"
            f"exit code {self.code} after {self.seconds:.1f} s\n"
            f"--- stdout\n{self.out}--- stderr\n{self.err}"
        )

    @property
    def errors(self):
        return [line for line in self.err.splitlines() if line.startswith("lockstep: error:")]

    @property
    def warnings(self):
        """All but what `crowded` has."""
        told = [line for line in self.err.splitlines() if line.startswith("lockstep: warning:")]
        return [line for line in told if not CROWDED.search(line)]

    @property
    def crowded(self):
        """The warnings of too few cores, or too busy ones, which depend on the machine."""
        return [line for line in self.err.splitlines() if CROWDED.search(line)]

    @property
    def complaints(self):
        """The lines on stderr, but for what `crowded` has."""
        return [line for line in self.err.splitlines() if not CROWDED.search(line)]


def command_of(arguments, ranks):
    """The command line of the program: alone (ranks 0), or under mpirun."""
    command = [str(build / program), *map(str, arguments)]
    return [str(ROOT / "launch/mpirun"), "-np", str(ranks), *command] if ranks else command


def environment(mark, extra=None):
    """That of a program under test; `extra` has more, or None for what is to be left out."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DP_", "DDP_", "OMPI_COMM_", "PMIX_", "PMI_"))
        and name != "OMPI_MCA_odls_base_sigkill_timeout"
    }
    kept[MARK] = mark
    kept["XDG_CACHE_HOME"] = str(scratch / "cache")  # nothing is left with the user
    kept["ASAN_OPTIONS"] = "detect_leaks=0"
    # What Open MPI finds out at each start, and where no special network is, finds to be this.
    kept.setdefault("OMPI_MCA_pml", "ob1")
    if os.access("/dev/shm", os.W_OK):
        kept.setdefault("OMPI_MCA_osc_sm_backing_directory", "/dev/shm")
    kept.update(extra or {})
    return {name: value for name, value in kept.items() if value is not None}


class Started:
    """A command that is running; finish() waits for it, and for all processes it started."""

    def __init__(self, arguments, ranks=0, env=None, cwd=None, wrapper=()):
        self.command = [*wrapper, *command_of(arguments, ranks)]
        self.mark = uuid.uuid4().hex
        self.begin = time.monotonic()
        self.out_file = tempfile.TemporaryFile()
        self.err_file = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self.out_file,
            stderr=self.err_file,
            env=environment(self.mark, env),
            cwd=cwd or scratch,
            restore_signals=False,  # SIGXFSZ stays ignored, so that a full disk is an error
        )

    def ranks(self):
        """Rank -> process id, of the ranks that are running."""
        found = {}
        for pid in sorted(marked(self.mark)):  # with MPICH a rank's guard comes before it
            with contextlib.suppress(OSError):
                for item in pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    if item.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK=")):
                        found[int(item.split(b"=")[1])] = pid
        return found

    def wait_for(self, what, truth):
        """Returns once truth() holds; fails if the command ends before."""
        end = time.monotonic() + PATIENCE
        while not truth():
            if self.process.poll() is not None or time.monotonic() > end:
                raise AssertionError(f"{what} did not come:\n{self.finish(0.1)}")
            time.sleep(0.01)

    def signal(self, number, rank=None):
        """Sends a signal to a rank, or to what was started."""
        if rank is None:
            self.process.send_signal(number)
        else:
            os.kill(self.ranks()[rank], number)

    # What is on stdout and stderr so far; the place where the command writes on is left alone.

    def printed(self):
        return os.pread(self.out_file.fileno(), 1 << 20, 0).decode(errors="replace")

    def complained(self):
        return os.pread(self.err_file.fileno(), 1 << 20, 0).decode(errors="replace")

    def wait(self, timeout):
        """Its exit code. That a process can run, and gets no processor, is no hang of it."""
        for _ in range(PATIENCE):
            try:
                return self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                if not unserved(self.mark):
                    raise
            timeout = 1
        raise subprocess.TimeoutExpired(self.command, timeout)

    def finish(self, timeout=PATIENCE):
        try:
            code = self.wait(timeout)
            seconds = time.monotonic() - self.begin
            code = 128 - code if code < 0 else code
            left = "" if all_gone(self.mark, 10) else described(self.mark)
        except subprocess.TimeoutExpired:
            seconds, code, left = time.monotonic() - self.begin, None, ""
            doing = described(self.mark)
        finally:
            end_all(self.mark)
            self.process.wait()
        result = Result(self.command, code, self.text(self.out_file), self.text(self.err_file),
                        seconds)
        if code is None:
            raise AssertionError(f"still running after {timeout} s:\n{result}\n{doing}")
        if left:
            raise AssertionError(f"processes outlived the command:\n{result}\n{left}")
        return result

    @staticmethod
    def text(file):
        file.seek(0)
        return file.read().decode(errors="replace")


def train(*arguments, ranks=0, env=None, cwd=None, timeout=PATIENCE):
    """Runs ddp_train to its end, whatever that is."""
    return Started(arguments, ranks, env, cwd).finish(timeout)


def train_well(*arguments, **how):
    """Runs ddp_train, which must succeed without an error."""
    result = train(*arguments, **how)
    check(result.code == 0 and not result.errors, f"it failed:\n{result}")
    return result


def known_baseline():
    """Flags of a run that does not measure one rank alone: over 40 steps that takes 2.4 seconds."""
    baseline = scratch / "baseline.json"
    baseline.write_text('{"schema": "lockstep.run/1", "single_rank_samples_per_second": 1000}')
    return ("--baseline", baseline)


def endless():
    """Flags of a run that goes on until something ends it; it measures no baseline."""
    return ("--set", f"train.steps={ENDLESS}", "--set", "checkpoint.every_steps=0",
            *known_baseline())


def steps_done(out):
    """The last step that metrics.jsonl tells of."""
    path = pathlib.Path(out) / "metrics.jsonl"
    if not path.exists():
        return 0
    with open(path, "rb") as lines:
        lines.seek(max(0, path.stat().st_size - 8192))
        found = re.findall(rb'"type":"step",.*?"step":(\d+),', lines.read())
    return int(found[-1]) if found else 0


def begin(cfg, *flags, ranks=2, steps=5, name="out", **how):
    """A run without end that has done some steps: the command, and its folder."""
    out = scratch / name
    started = Started([cfg, *endless(), *flags, "--out", out], ranks, **how)
    started.wait_for(f"step {steps}", lambda: steps_done(out) >= steps)
    return started, out


def cores():
    """How many cores the CPUs belong to that we may use, as the program counts: where the system
    does not tell, each hardware thread is one."""
    found = set()
    for cpu in os.sched_getaffinity(0):
        siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        found.add(siblings.read_text() if siblings.exists() else cpu)
    return len(found)


def little_memory(kilobytes):
    """What to start a program with, and its environment, so that it has no more to share."""
    folder = scratch / "tiny"
    folder.mkdir(exist_ok=True)
    wrapper = ["unshare", "-m", "sh", "-c",
               f'mount -t tmpfs -o size={kilobytes}k tmpfs "$0" && exec "$@"', str(folder)]
    if subprocess.run([*wrapper, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise Skipped("no right to mount a small file system")
    return wrapper, {"OMPI_MCA_osc_sm_backing_directory": str(folder)}


# ---- checks ----


def check(truth, text):
    if not truth:
        raise AssertionError(text)


def same(found, expected, what):
    check(found == expected, f"{what} is {found!r}, not {expected!r}")


def close(found, expected, relative, what):
    near = abs(found - expected) <= relative * max(abs(found), abs(expected))
    check(near, f"{what} is {found!r}, not {expected!r} within {relative:.1%}")


# ---- what runs write ----


def run_json(out):
    return json.loads((pathlib.Path(out) / "run.json").read_text())


def metrics(out, kind=None):
    """The objects of metrics.jsonl; all, or those of one type."""
    lines = (pathlib.Path(out) / "metrics.jsonl").read_text().splitlines()
    objects = [json.loads(line, parse_constant=lambda text: check(False, text)) for line in lines]
    return [o for o in objects if kind in (None, o["type"])]


def safetensors(path):
    """Name -> (type, shape, bytes) of a safetensors file."""
    data = pathlib.Path(path).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length :]
    return {
        name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
        for name, entry in header.items()
    }


def weights(out):
    """The bytes of a run's last model."""
    return (pathlib.Path(out) / "checkpoints/latest/model.safetensors").read_bytes()


# ---- small data and small models ----


def idx_bytes(magic, dims, body):
    return struct.pack(f">{1 + len(dims)}I", magic, *dims) + bytes(body)


def small_data(folder, train=600, test=200, side=8, classes=10, zipped=False):
    """Writes four IDX files of images that a small network learns: bright in one place per class.
    Returns the folder."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contents = []
    for rows in (train, test):
        images, labels = bytearray(), bytearray()
        for row in range(rows):
            label = (row * 7 + row // 3) % classes
            labels.append(label)
            for pixel in range(side * side):
                noise = (row * 131 + pixel * 29) % 61
                images.append(noise + (150 if pixel % classes == label else 0))
        contents.append(idx_bytes(0x803, (rows, side, side), images))
        contents.append(idx_bytes(0x801, (rows,), labels))
    for name, content in zip(IDX_FILES, contents):
        if zipped:
            (folder / f"{name}.gz").write_bytes(gzip.compress(content, 1))
        else:
            (folder / name).write_bytes(content)
    return folder


SMALL_CFG = """\
name: small
data: {{source: idx, dir: {dir}}}
train: {{global_batch: 50, steps: 6}}
optimizer: {{name: sgd, lr: 0.1, momentum: 0.9}}
model:
  input: [8, 8, 1]
  layers:
{layers}"""

CONV_LAYERS = """\
    - conv2d: {filters: 8, kernel: 3, padding: 1}
    - relu: {}
    - maxpool: {size: 2}
    - flatten: {}
    - dense: {units: 16}
    - relu: {}
    - dense: {units: 10}
"""


def mlp_layers(*hidden):
    """The layers of a model of so many units each, relu between them, and 10 classes."""
    wide = "".join(f"    - dense: {{units: {units}}}\n    - relu: {{}}\n" for units in hidden)
    return f"    - flatten: {{}}\n{wide}    - dense: {{units: 10}}\n"


def small_cfg(layers=CONV_LAYERS, name="small.cfg", data=None):
    """Writes a configuration of a small model on small data, both in the case's own folder."""
    folder = data or scratch / "data"
    if not (folder / IDX_FILES[0]).exists():
        small_data(folder)
    path = scratch / name
    path.write_text(SMALL_CFG.format(dir=folder, layers=layers))
    return path


def fashion():
    """Ends the case where the real data set is not installed."""
    if not (FASHION / "train-images-idx3-ubyte.gz").exists():
        raise Skipped("Debian's package dataset-fashion-mnist is not installed")


def python_with(name, *packages, often=False):
    """A Python that has these packages of PyPI, in a folder next to the build, made once; ends the
    case where they cannot be installed. `often`: many processes import them, so they are compiled
    once, which takes longer than importing them once."""
    folder = build / f"python-{name}"
    with open(build / f"python-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another test may want the same
        if not (folder / "installed").exists():
            install_python(folder, packages, often)
            (folder / "installed").touch()
    return folder / "bin/python"


def install_python(folder, packages, often):
    # A pip that can install elsewhere spares making another.
    outer = [sys.executable, "-m", "pip", "--python"]
    shared = subprocess.run([*outer, sys.executable, "--version"], capture_output=True,
                            check=False).returncode == 0
    pip = [*outer, folder] if shared else [folder / "bin/python", "-m", "pip"]
    for command in ([sys.executable, "-m", "venv", *["--without-pip"] * shared, folder],
                    [*pip, "install", "-q", *["--no-compile"] * (not often), *packages]):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE,
                                  check=False)
        except (OSError, subprocess.TimeoutExpired) as why:
            raise Skipped(f"{packages[0]} cannot be installed: {why}") from why
        if done.returncode != 0:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise Skipped(f"{packages[0]} cannot be installed: {' '.join(last)}")


# ---- running the cases of a file ----


def cpu_seconds():
    """Those of all processes that have ended so far and that somebody waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_case(function):
    """"ok", "skipped" or "FAILED"; prints what happened, and the seconds of clock and of CPU."""
    global scratch
    begin, used = time.monotonic(), cpu_seconds()
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-runs-"))
    word, text = "ok", ""
    try:
        function()
    except Skipped as why:
        word, text = "skipped", f": {why}"
    except Exception as error:  # a case that ends by any other one has failed too
        word = "FAILED"
        text = f"\n{error}" if isinstance(error, AssertionError) else "\n" + traceback.format_exc()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    name = function.__name__.removeprefix("case_").replace("_", " ")
    print(f"{word:7s} {time.monotonic() - begin:5.1f} s {cpu_seconds() - used:5.1f} s CPU  {name}"
          f"{text}", flush=True)
    if word == "skipped":
        print(f"skipped: {name}{text}")  # as tests/run looks for it
    return word


def main(names):
    """Runs the cases of a file, in the order they stand there; those named on the command line."""
    global build
    build = pathlib.Path(sys.argv[1]).resolve()
    # What is ignored here, a child ignores.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    cases = [value for name, value in names.items() if name.startswith("case_")]
    if sys.argv[2:]:
        cases = [case for case in cases if any(name.replace(" ", "_") in case.__name__
                                               for name in sys.argv[2:])]
    words = [run_case(case) for case in cases]
    print(f"{words.count('ok')} of {len(words)} cases passed, {words.count('FAILED')} failed")
    if words and words.count("skipped") == len(words):
        sys.exit(77)
    sys.exit(1 if "FAILED" in words or not words else 0)
