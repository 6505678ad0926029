"""A run as a process of this machine, which does not outlive us."""
import ctypes
import os
import signal
import subprocess

from sweep.failure import NOT_AVAILABLE, Failure

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
LIBC = ctypes.CDLL(None)  # loaded here: between fork and exec that could wait for ever


def start(command, folder):
    """Its output goes to stdout.txt and stderr.txt in the folder. A signal of the terminal does not
    reach it: it has a group of its own, and is told once, by us. If we are killed it gets SIGTERM:
    else it would go on beside those that are started later. To be called by the main thread: the
    kernel sends that signal when the thread that has called this ends."""
    us = os.getpid()

    def end_with_us():
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != us:  # killed before
            os._exit(1)

    with open(folder / "stdout.txt", "wb") as out, open(folder / "stderr.txt", "wb") as err:
        try:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                    start_new_session=True, preexec_fn=end_with_us)
        except OSError as error:
            raise Failure(f"cannot run {error.filename}: {error.strerror}",
                          NOT_AVAILABLE) from error
