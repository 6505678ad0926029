"""The processes that a test has started, which carry its mark in their environment."""
import contextlib
import os
import pathlib
import signal
import time

MARK = "LOCKSTEP_TEST_MARK"  # in the environment of every process that a test starts


def marked(mark):
    """The ids of living processes that carry the mark."""
    found = []
    wanted = f"{MARK}={mark}".encode()
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                if "State:\tZ" not in (folder / "status").read_text():
                    found.append(int(folder.name))
    return found


def described(mark):
    """What the living processes that carry the mark do: each thread's name and where it waits."""
    lines = []
    for pid in marked(mark):
        folder = pathlib.Path(f"/proc/{pid}")
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            lines.append(f"{pid}: {words[:160]}")
            for task in sorted((folder / "task").iterdir()):
                name, wait = ((task / file).read_text().strip() for file in ("comm", "wchan"))
                state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
                lines.append(f"    {name}: {state} {wait}")
    return "\n".join(lines)


def tasks_of(mark):
    """Thread -> its state, and nanoseconds that it has been on a processor, of the living ones."""
    found = {}
    for pid in marked(mark):
        with contextlib.suppress(OSError):
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                state = (task / "stat").read_text().rsplit(")", 1)[1].split()[0]
                found[task.name] = state, int((task / "schedstat").read_text().split()[0])
    return found


def unserved(mark, seconds=1):
    """Whether a thread can run all that time, and gets no processor: a virtual machine may lose one
    for minutes."""
    before = tasks_of(mark)
    time.sleep(seconds)
    after = tasks_of(mark)
    return any(state == "R" and after.get(task) == (state, ran)
               for task, (state, ran) in before.items())


def end_all(mark):
    for pid in marked(mark):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def all_gone(mark, seconds):
    """Whether all processes of the mark end within that time."""
    end = time.monotonic() + seconds
    while marked(mark):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True
