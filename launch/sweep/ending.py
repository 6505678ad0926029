"""How ddp_sweep and ddp_tune end."""
from sweep.failure import CANNOT_WRITE, STOPPED, Failure, complain
from sweep.local import Stopped


def exit_code_of(program):
    """Calls it; what it raises becomes a line and an exit code."""
    try:
        return program()
    except Failure as failure:
        complain("error", failure)
        return failure.code
    except Stopped:
        complain("error", "stopped by a signal; the same command goes on")
        return STOPPED
    except OSError as error:
        complain("error", f"{error.filename or 'a file'}: {error.strerror}")
        return CANNOT_WRITE
