"""Jobs of Slurm, for ddp_sweep and ddp_tune: tasks of an array, which all have the same resources.
Each task runs launch/slurm/array.sbatch, which takes its command from a line of a file, and leaves
its exit code in its folder.
"""
import os
import shlex
import shutil
import subprocess
import time

from sweep.failure import NOT_AVAILABLE, USAGE, Failure
from sweep.folder import last_line, write_text
from sweep.local import meaning

POLL_S = 2
CALL_S = 60  # squeue and sbatch answer at once, or after a restart of their daemon
RESULT = "exit_code"  # "CODE SECONDS", written by the task
# States of a job after which its task will not begin, or go on.
DEAD = ("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "TIMEOUT")
LOST = "its job has ended without a result: cancelled, at its time limit, or lost with its node"


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


def result_of(folder):
    """(exit code, seconds) of the task that has this folder, or None."""
    try:
        os.listdir(folder)  # or a network's file system may not know of a new file yet
        code, seconds = map(int, (folder / RESULT).read_text(encoding="utf-8").split())
    except (OSError, ValueError):
        return None
    return code, seconds


def why_failed(folder, code):
    """In a line. code: None if it left none."""
    return LOST if code is None else last_line(folder / "stderr.txt") or meaning(code)


class Jobs:
    """more: flags of sbatch, as text; array: the path of array.sbatch."""

    def __init__(self, more, array):
        self.array, self.looked = array, None
        try:
            self.more = shlex.split(more)
        except ValueError as error:
            raise Failure(f"--sbatch {more}: {error}", USAGE) from error

    @staticmethod
    def check():
        for program in ("sbatch", "squeue", "scancel"):
            if shutil.which(program) is None:
                raise Failure(f"--slurm: {program} is not here: Slurm is not installed on this "
                              "machine", NOT_AVAILABLE)
        done = call("squeue", "-h", "-t", "RUNNING")
        if done.returncode != 0:
            raise Failure(f"--slurm: {last_of(done)}", NOT_AVAILABLE)

    @staticmethod
    def command(ranks, words, folder):
        """A line for a task: ranks that run words, with their output in the folder."""
        started = ["srun", "--mpi=pmix", f"--ntasks={ranks}", "--kill-on-bad-exit=1",
                   f"--output={folder}/stdout.txt", f"--error={folder}/stderr.txt", *words]
        return f"{shlex.join(started)}; echo $? $SECONDS >{shlex.quote(str(folder / RESULT))}"

    def submit(self, file, lines, ranks):
        """Writes the lines to a file, a task each; returns "JOB_TASK" of each. A task has its
        nodes for itself: what else runs there would be measured, too."""
        write_text(file, "\n".join(lines) + "\n")
        done = call("sbatch", "--parsable", f"--array=0-{len(lines) - 1}", f"--ntasks={ranks}",
                    "--exclusive", *self.more, self.array, str(file))
        if done.returncode != 0:
            raise Failure(last_of(done), NOT_AVAILABLE)
        job = done.stdout.strip().partition(";")[0]
        return [f"{job}_{task}" for task in range(len(lines))]

    @staticmethod
    def alive(tasks):
        """Those that wait, or run."""
        numbers = sorted({task.partition("_")[0] for task in tasks})
        if not numbers:
            return set()
        done = call("squeue", "-h", "-r", "-o", "%F_%K %T", "-j", ",".join(numbers))
        if done.returncode != 0 and "Invalid job id" not in done.stderr:  # one long forgotten
            raise Failure(last_of(done), NOT_AVAILABLE)
        states = dict(line.split()[:2] for line in done.stdout.splitlines() if " " in line)
        return {task for task in tasks if states.get(task, "GONE") not in (*DEAD, "GONE")}

    def now_and_then(self, tasks):
        """As alive(), but Slurm is asked every POLL_S seconds only; None between."""
        if self.looked is not None and time.monotonic() - self.looked < POLL_S:
            return None
        found = self.alive(tasks)
        self.looked = time.monotonic()
        return found

    @staticmethod
    def cancel(task):
        """Asks its ranks to end, or takes it out of the queue."""
        call("scancel", task)
