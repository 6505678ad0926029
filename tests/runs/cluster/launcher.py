"""launch/mpirun is mpirun to whoever starts it: exit codes, stdin, signals, the terminal's keys,
and its death; only it comes back where mpirun does not. Where a host is cut off: hosts.py.
"""
import contextlib
import importlib.util
import os
import pathlib
import pty
import re
import signal
import subprocess
import time
import types

import harness
from harness import Started, check, same

MPIRUN = harness.ROOT / "launch/mpirun"
# In place of mpirun: what it is started with, and each signal that it gets. Where a
# signal comes just before a read waits, Python runs its handler after the read: hence the pipe.
STAND_IN = """#!/usr/bin/env python3
import os, select, signal, sys
came, told = os.pipe()
os.set_blocking(told, False)
signal.set_wakeup_fd(told)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGTSTP, signal.SIGCONT):
    signal.signal(number, lambda number, frame: None)
print("up", os.getpid(), flush=True)
while True:
    if came in select.select([0, came], [], [])[0]:
        for number in os.read(came, 64):
            print(signal.Signals(number).name, flush=True)
            if number == signal.SIGTSTP:
                os.kill(os.getpid(), signal.SIGSTOP)
    elif os.read(0, 64) in (b"end\\n", b""):
        sys.exit(int(sys.argv[1]))
"""


def stand_in():
    """The environment in which mpirun is what STAND_IN says."""
    folder = harness.scratch / "bin"
    folder.mkdir(exist_ok=True)
    (folder / "mpirun").write_text(STAND_IN)
    (folder / "mpirun").chmod(0o755)
    return dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")


class Terminal:
    """launch/mpirun as the foreground job of a terminal, from which and to which all goes."""

    def __init__(self):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execve(MPIRUN, ["mpirun", "9"], stand_in())
        self.text = ""
        # The whole line: an unbuffered Python writes it in pieces.
        self.wait_for("\n")
        self.mpirun = int(re.match(r"up (\d+)", self.text)[1])

    def wait_for(self, text, times=1):
        end = time.monotonic() + harness.PATIENCE
        while self.text.count(text) < times and time.monotonic() < end:
            self.text += os.read(self.fd, 4096).decode()
        check(self.text.count(text) >= times, f"no {text} in {self.text!r}")

    def wait_until_taken(self, number):
        """What comes while the same signal waits is one with it."""
        end = time.monotonic() + harness.PATIENCE
        status = pathlib.Path(f"/proc/{self.pid}/status")
        while time.monotonic() < end:
            waiting = re.search(r"^ShdPnd:\s*(\w+)", status.read_text(), re.M)[1]
            if not int(waiting, 16) >> (number - 1) & 1:
                return
            time.sleep(0.01)
        raise AssertionError(f"{number.name} is not taken")

    def press(self, key):
        os.write(self.fd, key)

    def finish(self):
        """The exit code."""
        self.press(b"end\n")
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        with contextlib.suppress(OSError):  # at the end of a terminal
            while data := os.read(self.fd, 4096):
                self.text += data.decode()
        os.close(self.fd)
        return code


def case_what_goes_in_and_comes_out_is_mpiruns():
    done = subprocess.run([MPIRUN, "-np", "2", "sh", "-c", "cat; exit 7"], input="to rank 0\n",
                          capture_output=True, text=True, timeout=harness.PATIENCE, check=False)
    same((done.returncode, done.stdout), (7, "to rank 0\n"), "exit code and output")


def case_a_program_that_is_not_there_is_one_line():
    for words, told in ((["gone"], "none of these is a program here: gone; "),
                        (["./gone", "a.cfg"], "none of these is a program here: ./gone a.cfg; "),
                        ([], "it got no program; "), (["false"], None)):
        done = subprocess.run([MPIRUN, "-np", "2", *words], capture_output=True, text=True,
                              timeout=harness.PATIENCE, check=False)
        same(done.returncode, 127 if told else 1, f"exit code of {words}: {done.stderr}")
        last = done.stderr.splitlines()[-1] if done.stderr else ""
        check(last.startswith(f"launch/mpirun: error: {told}") if told else not last,
              f"{words}: {done.stderr}")


def case_keys_of_the_terminal_reach_mpirun_once():
    terminal = Terminal()
    terminal.press(b"\x03")
    terminal.wait_for("SIGINT")
    os.kill(terminal.pid, signal.SIGUSR1)
    terminal.wait_for("SIGUSR1")
    terminal.press(b"\x03")
    terminal.wait_for("SIGINT", 2)
    terminal.wait_until_taken(signal.SIGINT)
    os.kill(terminal.pid, signal.SIGINT)  # of a process, though in the foreground
    terminal.wait_for("SIGINT", 3)
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.wait_for("SIGTERM")
    same(terminal.finish(), 9, "the exit code")
    same(terminal.text.count("SIGINT"), 3, f"SIGINTs in {terminal.text!r}")


def wait_until_stopped(pid):
    end = time.monotonic() + harness.PATIENCE
    stat = pathlib.Path(f"/proc/{pid}/stat")
    while stat.read_text().rsplit(")", 1)[1].split()[0] != "T":
        check(time.monotonic() < end, f"process {pid} does not stop")
        time.sleep(0.01)


def case_a_job_that_is_stopped_goes_on():
    terminal = Terminal()
    terminal.press(b"\x1a")
    terminal.wait_for("SIGTSTP")
    pid, status = os.waitpid(terminal.pid, os.WUNTRACED)
    check(pid == terminal.pid and os.WIFSTOPPED(status), "Ctrl-Z does not stop it")
    # The stand-in says so before it stops: what continues it earlier is lost.
    wait_until_stopped(terminal.mpirun)
    os.killpg(terminal.pid, signal.SIGCONT)
    terminal.wait_for("SIGCONT")
    same(terminal.finish(), 9, "the exit code")


def case_mpirun_does_not_outlive_it():
    process = subprocess.Popen([MPIRUN, "9"], env=stand_in(), stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, text=True)
    mpirun = int(process.stdout.readline().split()[1])
    process.kill()
    process.wait(harness.PATIENCE)
    end = time.monotonic() + harness.PATIENCE
    while pathlib.Path(f"/proc/{mpirun}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    check(not pathlib.Path(f"/proc/{mpirun}").exists(), "mpirun goes on")
    process.stdin.close()
    process.stdout.close()


def job_that_mpirun_does_not_end(byte, then):
    """The result of a job whose rank writes that byte for launch/mpirun, and then does this."""
    program = harness.scratch / "tell"
    program.write_text(f"#!/bin/sh\nprintf '{byte}' >\"${{LOCKSTEP_LAUNCHER#*:}}\"\n{then}\n")
    program.chmod(0o755)
    harness.program = program
    result = Started([], 1).finish()
    harness.program = "ddp_train"
    return result


def case_a_code_that_a_rank_reports_is_that_of_a_job_that_mpirun_does_not_end():
    result = job_that_mpirun_does_not_end("L", "sleep 600")
    same(result.code, ord("L"), f"the exit code of\n{result}\n")


def case_a_job_that_has_done_all_ends_well_though_mpirun_does_not_return():
    # As where its host is cut off: mpirun itself is stopped.
    result = job_that_mpirun_does_not_end("\\377", "kill -STOP $PPID")
    same(result.code, 0, f"the exit code of\n{result}\n")
    check("mpirun does not end" in result.err, f"no warning:\n{result}")


class Hours:
    """Stands in for the watchdog's clock and for the signals that it waits for: no time passes but
    to what is planned next, (second, signal or byte of a rank). Its mpirun never ends.
    """

    def __init__(self, plan):
        handler = signal.getsignal(signal.SIGINT)
        spec = importlib.util.spec_from_file_location("watchdog", f"{MPIRUN}_watchdog.py")
        self.watchdog = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.watchdog)
        signal.signal(signal.SIGINT, handler)
        self.watchdog.NOT_BACK = b""
        self.now, self.plan = 0, list(plan)
        self.read_end, self.write_end = os.pipe2(os.O_NONBLOCK)
        self.watchdog.time = types.SimpleNamespace(monotonic=lambda: self.now)
        self.watchdog.signal = types.SimpleNamespace(
            **{**vars(signal), "sigwaitinfo": self.wait, "sigtimedwait": self.wait})

    def wait(self, _, left=None):
        if left is not None and (not self.plan or self.plan[0][0] > self.now + left):
            self.now += left
            return None
        self.now, what = self.plan.pop(0)
        if isinstance(what, signal.Signals):
            return types.SimpleNamespace(si_signo=what, si_code=0)
        os.write(self.write_end, bytes([what]))
        return types.SimpleNamespace(si_signo=signal.SIGIO, si_code=0)

    def end(self):
        """The exit code, and when mpirun was killed."""
        def ignore():
            for number in self.watchdog.ENDING:
                signal.signal(number, signal.SIG_IGN)

        with subprocess.Popen(["sleep", "600"], preexec_fn=ignore) as mpirun:
            code = self.watchdog.wait_for(mpirun.pid, False, self.read_end,
                                          self.watchdog.grace([]))
        os.close(self.read_end)
        os.close(self.write_end)
        return code, self.now


def case_after_a_signal_that_ends_the_job_no_word_of_a_rank_gives_mpirun_more_time():
    begun, done, gone = 0, 255, 76
    for plan, expected in (
        ([(0, signal.SIGINT)], (1, 20)),
        ([(0, signal.SIGINT), (19, done)], (1, 20)),
        ([(0, signal.SIGTERM), (5, signal.SIGTERM), (6, done)], (1, 20)),
        ([(0, signal.SIGTERM), (19, gone)], (gone, 20)),
        ([(0, signal.SIGTERM), (2, gone)], (gone, 10)),
        ([(0, signal.SIGTERM), (19, 74)], (74, 20)),
        ([(0, begun), (1, signal.SIGTERM)], (gone, 21)),
        ([(0, signal.SIGUSR1), (19, done)], (0, 39)),
        ([(0, done), (19, signal.SIGINT)], (0, 20)),
        ([(0, begun), (1, done)], (0, 21)),
        ([(0, 74), (1, done)], (74, 20)),
        ([(0, begun)], (gone, 60)),
    ):
        same(Hours(plan).end(), expected, f"exit code and seconds of {plan}")


def other_mpirun(name, script):
    """The environment in which `script` is an mpirun of that name."""
    path = harness.scratch / "other" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}")
    path.chmod(0o755)
    return path, dict(os.environ, LOCKSTEP_MPIRUN=str(path))


def run_other(env, *words):
    return subprocess.run([MPIRUN, *words], env=env, stdin=subprocess.DEVNULL, check=False,
                          capture_output=True, text=True)


def case_mpichs_mpirun_leaves_dead_ranks_to_ours_and_its_signals_get_128():
    _, env = other_mpirun("mpiexec.hydra", 'echo "$@"\nexit $3\n')
    for code, expected in ((0, 0), (3, 3), (9, 137), (15, 143), (66, 66), (75, 75)):
        done = run_other(env, "-np", str(code))
        same(done.stdout, f"-disable-auto-cleanup -np {code}\n", "the arguments of mpiexec")
        same(done.returncode, expected, f"the exit code for {code}")


def case_requests_go_to_mpichs_ranks_which_are_not_its_children():
    """Its mpiexec may return 0 after the one that stops them, and is ended by SIGUSR2."""
    rank = harness.scratch / "rank"
    rank.write_text("""trap "echo saves" USR2
trap "echo stops; exit 75" USR1
echo begins
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 0.3; done
""")
    _, env = other_mpirun("mpiexec.hydra", f"sh -c 'PMI_RANK=0 sh {rank}; exit $?'\nexit $?\n")
    with subprocess.Popen([MPIRUN], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True) as process:
        for number, expected in ((signal.SIGUSR2, "begins"), (signal.SIGUSR1, "saves"),
                                 (None, "stops")):
            same(process.stdout.readline(), f"{expected}\n", "what the rank does")
            if number:
                process.send_signal(number)
        same(process.wait(harness.PATIENCE), 75, "the exit code")


def case_a_signal_that_comes_before_mpichs_ranks_is_theirs_once_they_are_there():
    """Its mpiexec loses one that comes before it has started them."""
    rank = harness.scratch / "rank"
    rank.write_text("""trap "exit 75" TERM
for i in $(seq 100); do sleep 0.1; done
""")
    _, env = other_mpirun("mpiexec.hydra", f"""trap "lost=1" TERM
echo begins
while [ -z "$lost" ]; do sleep 0.1; done
sh -c 'PMI_RANK=0 sh {rank}; exit $?'
exit $?
""")
    with subprocess.Popen([MPIRUN], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True) as process:
        same(process.stdout.readline(), "begins\n", "what mpiexec does")
        process.send_signal(signal.SIGTERM)
        # 143: it came before the rank had its handler.
        check(process.wait(harness.PATIENCE) in (75, 143), f"exit code {process.returncode}")


def case_mpichs_line_about_an_abort_is_left_out_and_nothing_else():
    """What MPICH 4.0.2 printed; and others that begin as it does."""
    line = ("Abort(70) on node 1 (rank 1 in comm 0): application called "
            "MPI_Abort(MPI_COMM_WORLD, 70) - process 1\n")
    _, env = other_mpirun("mpiexec.hydra", f"""cat {harness.scratch}/text >&2
exit 70
""")
    for other in ("Abort(1) on node 0: Fatal error in MPI_Init\n", "A", "Abort(", "Abort(2)\n", ""):
        (harness.scratch / "text").write_text(f"lockstep: error\n{line}{other}")
        done = run_other(env)
        same((done.stderr, done.returncode), (f"lockstep: error\n{other}", 70), f"for {other!r}")


def case_lines_of_open_mpi_5_about_ranks_that_have_ended_are_left_out():
    """What 5.0.11 printed; and others that begin as it does."""
    head = "[vm-1.local:02397] PMIX ERROR: PMIX_ERR_"
    line = (f"{head}UNREACH in file /openmpi-5.0.11/3rd-party/openpmix/src/server/pmix_server.c at "
            "line 3146\n")
    path, env = other_mpirun("mpirun", f"""cat {harness.scratch}/text >&2
exit 78
""")
    (path.parent / "prterun").touch(0o755)
    env["PRTE_MCA_prte_execute_quiet"] = "1"
    line += ("\0001 more process has sent help message help-mpi-api.txt / mpi-abort\n"
             "\00012 more processes have sent help message help-mpi-ft.txt / module:untested:x\n"
             "1 more process has sent help message help-mpi-ft.txt-2026-03-01 09:47:22 / module:x\n"
             "\n")
    for other in (f"{head}LOST in file x\n", "[", "[vm:1", "[vm:1]", "[1/3] done\n", head, "3",
                  "3 more process", "3 more processes have sent help message help-x.txt / a\n"):
        (harness.scratch / "text").write_text(f"lockstep: error\n{line}{other}")
        done = run_other(env)
        same((done.stderr, done.returncode), (f"lockstep: error\n{other}", 78), f"for {other!r}")


def case_the_banner_of_open_mpi_5_is_left_out_and_nothing_else():
    rule = "-" * 74
    banner = (f"{rule}\nprterun detected that one or more processes exited with non-zero status,\n"
              f"thus causing the job to be terminated.\n\n   Exit code:    66\n{rule}\n"
              f"{rule}\nMPI_ABORT was invoked on rank 1 in communicator MPI_COMM_WORLD\n"
              f"  Proc: [[715,1],1]\n  Errorcode: 66\n{rule}\n\0"
              f"{rule}\nWARNING: The selected 'osc' module 'sm' is not tested for post-failure\n"
              f"operation, yet you have requested support for fault tolerance.\n{rule}\n\0")
    others = (f"{rule}\nThere are not enough slots\n{rule}\n", f"{rule}\n", f"{rule[:9]}", "-\n",
              f"{rule}\nprterun detected that one or more processes\n", "a\0\n")
    path, env = other_mpirun("mpirun", f"""cat {harness.scratch}/text >&2
printf 'last line, not ended' >&2
exit 66
""")
    (path.parent / "prterun").touch(0o755)
    env["PRTE_MCA_prte_execute_quiet"] = "1"
    for other in others:
        text = f"lockstep: error\n{banner}{other}"
        (harness.scratch / "text").write_text(text)
        for quiet, expected in (("1", f"lockstep: error\n{other}"), ("0", text)):
            done = run_other({**env, "PRTE_MCA_prte_execute_quiet": quiet})
            same(done.stderr, f"{expected}last line, not ended", f"stderr of {other!r}")
            same(done.returncode, 66, "the exit code")


if __name__ == "__main__":
    harness.main(globals())
