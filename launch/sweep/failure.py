"""Errors: one line that says what, where and what to do, and an exit code of docs/sweep.md."""
import contextlib
import errno
import sys

USAGE, BAD_DATA, NO_INPUT, NOT_AVAILABLE = 64, 65, 66, 69
INTERNAL, CANNOT_WRITE, STOPPED, CONFIGURATION = 70, 74, 75, 78


class Failure(Exception):
    """Ends the program with this line and this exit code."""

    def __init__(self, text, code):
        super().__init__(text)
        self.code = code


def one_line(text):
    """Without line feeds, and without bytes that a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in str(text)).strip()


def complain(word, text):
    with contextlib.suppress(OSError):
        sys.stderr.write(f"lockstep: {word}: {one_line(text)}\n")
        sys.stderr.flush()


def say(text=""):
    """A line for the user; one who closed the pipe or the terminal has read enough, and the sweep
    goes on."""
    try:
        print(text, flush=True)
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):
            raise Failure("cannot write all of the output; check where stdout goes",
                          CANNOT_WRITE) from error
