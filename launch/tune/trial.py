"""One training: its command, its evaluations while it runs, its result."""
import contextlib
import json
import os
import signal
import subprocess
import time

from sweep import child
from sweep.failure import NOT_AVAILABLE
from sweep.folder import last_line, read_json
from sweep.jobs import POLL_S, result_of, why_failed
from sweep.local import exit_code, meaning

GRACE_S = 30  # for a run that is asked to end: it saves first


def share_of(cores, slot, slots):
    """The CPUs of one of several trials at a time; all of them where there are too few."""
    if len(cores) < slots:
        return sorted(cores)
    return sorted(cores)[slot * len(cores) // slots:(slot + 1) * len(cores) // slots]


class Trial:
    """A run of ddp_train under way, wherever that is. Those below have: stop(), which asks it to
    end; ended(), which becomes true some time later; wait(), after stop(), until then; code, why()
    and seconds, when it has."""

    def __init__(self, folder):
        self.folder, self.began = folder, time.monotonic()
        self.read, self.rest, self.pruned, self.asked = 0, b"", False, None
        folder.mkdir(parents=True, exist_ok=True)

    def evaluations(self):
        """The new ones in metrics.jsonl since the last call, as objects."""
        with contextlib.suppress(OSError):
            with open(self.folder / "run/metrics.jsonl", "rb") as file:
                file.seek(self.read)
                data = file.read()
            self.read += len(data)
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                with contextlib.suppress(ValueError):
                    found = json.loads(line)
                    if isinstance(found, dict) and found.get("type") == "eval":
                        yield found

    def run(self):
        """Its run.json, or None."""
        return read_json(self.folder / "run/run.json")

    @property
    def seconds(self):
        return time.monotonic() - self.began


class LocalTrial(Trial):
    """On this machine, on these CPUs."""

    def __init__(self, folder, command, cpus):
        super().__init__(folder)
        self.process = child.start(command, folder)
        with contextlib.suppress(OSError):
            os.sched_setaffinity(self.process.pid, cpus)

    def stop(self):
        self.asked = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGTERM)

    def wait(self):
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def ended(self):
        """One that was asked to end and does not is killed."""
        if self.process.poll() is not None:
            return True
        if self.asked is not None and time.monotonic() - self.asked > GRACE_S:
            os.killpg(self.process.pid, signal.SIGKILL)
        return False

    @property
    def code(self):
        return exit_code(self.process.returncode)

    def why(self):
        """Why it has failed, in a line."""
        return last_line(self.folder / "stderr.txt") or meaning(self.code)


class JobTrial(Trial):
    """As a job of Slurm, with its nodes for itself. gone: Slurm does not know it any more."""

    def __init__(self, folder, command, slurm, ranks):
        super().__init__(folder)
        self.slurm, self.gone = slurm, False
        self.task, = slurm.submit(folder / "command", [slurm.command(ranks, command, folder)],
                                  ranks)

    def stop(self):
        self.asked = time.monotonic()
        self.slurm.cancel(self.task)

    def ended(self):
        return result_of(self.folder) is not None or self.gone

    def wait(self):
        while time.monotonic() - self.asked < GRACE_S and not self.ended():
            self.gone = not self.slurm.alive([self.task])
            time.sleep(POLL_S / 4)

    @property
    def code(self):
        return (result_of(self.folder) or (NOT_AVAILABLE,))[0]

    def why(self):
        return why_failed(self.folder, (result_of(self.folder) or (None,))[0])
