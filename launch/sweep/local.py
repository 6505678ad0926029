"""Runs on this machine, on the hosts of a netlab, or on those of a host file: one after another,
each under launch/mpirun."""
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import threading
import time

from sweep import child
from sweep.failure import NO_INPUT, NOT_AVAILABLE, USAGE, Failure
from sweep.folder import last_line

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
GRACE_S = 30  # for a run that is asked to end; launch/mpirun takes 20 with a host cut off
ASK_S = 20  # a host may take so long to start a process


class Stopped(Exception):
    """A signal asked the sweep to end."""


class Signals:
    """Ends what waits, once."""

    def __init__(self):
        self.number, self.waiting = None, False
        for number in ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup
                signal.signal(number, self.take)

    def take(self, number, _frame):
        first, self.number = self.number is None, number
        if first and self.waiting:
            raise Stopped

    def check(self):
        if self.number is not None:
            raise Stopped


def cores():
    """Those that we may use; hardware threads of a core count once."""
    found = set()
    for cpu in os.sched_getaffinity(0):
        siblings = pathlib.Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        found.add(siblings.read_text() if siblings.exists() else cpu)
    return len(found)


# ---- hosts of a host file ----


def read_hostfile(path):
    """The names of its hosts."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Failure(f"--hostfile {path}: {getattr(error, 'strerror', None) or 'not a text'}",
                      NO_INPUT) from error
    names = [words[0] for words in (line.partition("#")[0].split() for line in lines) if words]
    if not names:
        raise Failure(f"--hostfile {path}: no host in it", NO_INPUT)
    return list(dict.fromkeys(names))


def ask(host, mpirun, results):
    """Whether mpirun can start a process there."""
    try:
        results[host] = subprocess.run(
            [mpirun, "--host", host, "-np", "1", "true"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=ASK_S,
            check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        results[host] = False


def check_hosts(hosts, mpirun):
    results = {}
    threads = [threading.Thread(target=ask, args=(host, mpirun, results)) for host in hosts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    silent = [host for host in hosts if not results[host]]
    if silent:
        raise Failure(f"{', '.join(silent)}: mpirun starts no process there within {ASK_S} s; try "
                      f"ssh {silent[0]} true", NOT_AVAILABLE)


# ---- starting runs ----


def exit_code(status):
    return 128 - status if status < 0 else status


class Local:
    """Starts runs one after another, and waits for each."""

    def __init__(self, args, tools):
        self.args, self.tools, self.signals = args, tools, Signals()
        self.cores = cores()
        try:
            self.more = shlex.split(args.mpirun)
        except ValueError as error:
            raise Failure(f"--mpirun {args.mpirun}: {error}", USAGE) from error

    def check(self):
        """That runs can be started here."""
        if shutil.which("mpirun") is None:
            raise Failure("mpirun is not installed: apt-get install openmpi-bin", NOT_AVAILABLE)
        if self.args.hostfile is not None:
            check_hosts(read_hostfile(self.args.hostfile), self.tools.mpirun)
        if self.args.netlab is not None:
            words = self.lab()
            done = subprocess.run([*words, "true"], stdin=subprocess.DEVNULL, capture_output=True,
                                  text=True, check=False)
            if done.returncode != 0:
                raise Failure(f"--netlab: {(done.stderr.strip().splitlines() or ['failed'])[-1]}",
                              done.returncode)

    def lab(self):
        hosts, rate = self.args.netlab
        return [self.tools.netlab, str(hosts), *(["--rate", rate] if rate else []), "--"]

    def computes_on_gpus(self):
        """As far as can be seen without starting a rank."""
        return self.args.device in ("cuda", "gpu") or (
            self.args.device in (None, "auto") and os.path.exists("/dev/nvidiactl"))

    def command(self, run, flags, folder):
        """Ranks divide all cores, so one rank would have more of the machine than one of eight. So
        each has one core where that is possible. Ranks that feed GPUs divide all of them."""
        bind = []
        if self.args.hostfile is not None:
            bind = ["--hostfile", str(self.args.hostfile)]
        elif self.args.netlab is None and not self.more and \
                run.ranks <= self.cores and not self.computes_on_gpus():
            bind = ["--map-by", "core", "--bind-to", "core"]
        lab = self.lab() if self.args.netlab is not None else []
        return [*lab, self.tools.mpirun, "-np", str(run.ranks), *bind, *self.more,
                self.tools.train, *flags, "--out", str(folder)]

    def do(self, run, flags, folder):
        """The end of a run: status, exit code, line of the error, seconds. Stopped passes through
        once the run has ended."""
        begin = time.monotonic()
        code = self.wait_for(child.start(self.command(run, flags, folder), folder))
        return {"status": "finished" if code == 0 else "failed", "exit_code": code,
                "error": None if code == 0 else last_line(folder / "stderr.txt") or meaning(code),
                "seconds": round(time.monotonic() - begin, 3)}

    def wait_for(self, process):
        try:
            self.signals.waiting = True  # before the look, so that none comes between
            self.signals.check()
            code = process.wait()
            self.signals.waiting = False
            return exit_code(code)
        except Stopped:
            self.signals.waiting = False
            process.send_signal(signal.SIGINT)
            try:
                process.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            raise


def meaning(code):
    if code > 128:
        try:
            return f"killed by {signal.Signals(code - 128).name}"
        except ValueError:
            pass
    return f"exit code {code}"
