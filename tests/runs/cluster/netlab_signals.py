"""launch/netlab: signals that come while it makes the hosts, when there is no command yet to pass
them on to, and those for mpirun on its hosts.
"""
import contextlib
import fcntl
import os
import pathlib
import pty
import re
import signal
import subprocess
import termios
import time
import uuid

import harness
from harness import Started, check, same, small_cfg, steps_done
from netlab import NETLAB, children, links, need_lab, stamps


def listens(pid):
    """Whether netlab keeps its signals, SIGUSR1 and others, for when it waits for them."""
    mask = re.search(r"^SigBlk:\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(mask.group(1), 16) >> (signal.SIGUSR1 - 1) & 1 == 1


def first_processes(pid):
    return children(pid) if listens(pid) else []


def begin_at(*what):
    """As try_at(), again where a busy machine let the moment pass unseen."""
    for _ in range(10):
        result = try_at(*what)
        if result is not None:
            return result
    raise AssertionError("no moment to act came in ten labs")


def try_at(ready, act, script, prepare=lambda: None):
    """Starts a lab on a terminal of its own and does act(terminal, process) as soon as
    ready(process id): the exit code, and what the terminal shows; None: it never was.
    """
    need_lab()
    before = links()
    terminal, inner = pty.openpty()
    mark = uuid.uuid4().hex

    def take_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        prepare()

    process = subprocess.Popen(
        [NETLAB, "8", "--", "sh", "-c", script], stdin=inner, stdout=inner, stderr=inner,
        start_new_session=True, preexec_fn=take_terminal, env=harness.environment(mark))
    os.close(inner)
    text, end = b"", time.monotonic() + harness.PATIENCE
    try:
        while not ready(process.pid):
            if process.poll() is not None or time.monotonic() > end:
                return None
        act(terminal, process)
        with contextlib.suppress(OSError):  # no process has the terminal open any more
            while data := os.read(terminal, 65536):
                text += data
        code = process.wait(harness.PATIENCE)
    finally:
        harness.end_all(mark)
        process.wait()
        os.close(terminal)
    same(links(), before, "interfaces and named namespaces")
    check(process.pid not in [stamp["pid"] for _, stamp in stamps()], "the folder was left")
    return code, text.decode()


SOON = 22  # seconds: mpirun_watchdog.py takes 20 at most, and netlab ends it after 30
# What a command says that no signal ended, also on a machine so busy that a signal comes late.
UNHEARD = f"sleep {harness.PATIENCE - 20}; echo done"
# Moments before there is a command.
BEGINNING = {
    "before the first process of the lab": listens,
    "when the first process of the lab lives": first_processes,
    "when the first host lives": lambda pid: any(map(children, first_processes(pid))),
}


def case_ctrl_c_while_the_hosts_are_made_ends_the_lab():
    for moment, ready in BEGINNING.items():
        code, text = begin_at(ready, lambda terminal, _: os.write(terminal, b"\3"), UNHEARD)
        same(code, 130, f"the exit code after Ctrl-C {moment}, with {text!r},")
        check("done" not in text and "Traceback" not in text, f"Ctrl-C {moment}: {text!r}")


def case_a_signal_before_there_is_a_command_ends_the_lab():
    for number in (signal.SIGTERM, signal.SIGHUP):
        for moment, ready in BEGINNING.items():
            code, text = begin_at(ready, lambda _, process: process.send_signal(number),
                                  UNHEARD)
            same((code, "done" in text), (128 + number, False), f"{number.name} {moment}: {text!r}")


def case_under_nohup_a_lab_goes_on():
    for moment, ready in BEGINNING.items():
        code, text = begin_at(ready, lambda _, process: os.killpg(process.pid, signal.SIGHUP),
                              "sleep 2; echo done",
                              lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        same((code, "done" in text), (0, True), f"SIGHUP {moment}: {text!r}")


def case_mpirun_ends_its_ranks_when_netlab_is_asked_to():
    need_lab()
    for number in (signal.SIGTERM, signal.SIGINT):
        out = harness.scratch / number.name
        started = Started([small_cfg(), *harness.endless(), "--out", out], 2,
                          wrapper=[str(NETLAB), "2", "--"])
        started.wait_for("step 5", lambda: steps_done(out) >= 5)
        came = time.monotonic() - started.begin
        started.signal(number)
        doing = ""
        try:
            started.process.wait(SOON)
        except subprocess.TimeoutExpired:
            doing = f"{SOON} s later these ran:\n{harness.described(started.mark)}"
        result = started.finish()
        same(result.code, 1, f"{number.name} came after {came:.1f} s, and the exit code of\n"
             f"{result}\n{doing}\n")


if __name__ == "__main__":
    harness.main(globals())
