"""Runs mpirun with our arguments, and limits how long it takes to end a job: mpirun waits for ever
until an unreachable host confirms that its ranks have ended. launch/mpirun starts this.

A rank that ends the job writes its exit code into a pipe of ours (base/system/launcher.c); a signal
may also make mpirun end the job. If mpirun has not returned some time later it is killed. The exit
code then is the rank's, or 1 after a signal, as mpirun's would be; after a signal we first wait for
the ranks of this host, which may be saving. Where a rank of another host ends the job, the ranks of
this one write BEGUN when mpirun ends them. Then it is as after a signal, but the code is HOST_GONE:
mpirun would have returned if it could reach all hosts. Where rank 0 has written DONE, and mpirun
has not returned when no rank of this host runs any more, the code is 0: a host was cut off after
the job had done all. After a signal that ends the job no word of a rank gives mpirun more time:
whoever has sent it may wait no longer. All waiting is without polling.

Signals sent to us are passed to mpirun. It gets those of the terminal (Ctrl-C, Ctrl-Z) by itself.

LOCKSTEP_MPIRUN names another mpirun than the first of the PATH. MPICH's (Hydra) kills all ranks as
soon as one ends, and returns 0 if that one does: it is asked to leave that to the ranks, which find
out who died; its exit code for a signal becomes 128 + the signal. Requests to save or to stop go to
the ranks of this host. Open MPI 5's (PRRTE) prints a banner about each job that fails, also if
asked not to, and now and then a line about a rank that it cannot reach any more, or about banners
of several ranks; its ranks one about MPI's memory of a host where it has to outlive dead ranks; a
rank of MPICH that ends the job prints a line about that: these are left out, so that our line is
last.
"""
import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C while the rest is read: no traceback

import contextlib
import ctypes
import fcntl
import os
import pathlib
import re
import sys
import threading
import time

# mpirun needs four of these timeouts to end ranks on all hosts; the slack is for a busy machine.
# Where a rank has given up a host it is short: mpirun would wait for that host for ever.
KILL_TIMEOUT, KILL_TIMEOUTS, SLACK_S, SHORT_S = "odls_base_sigkill_timeout", 4, 16, 4
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Requests to stop or to save: MPICH's mpirun may return 0 after it has passed them on, and SIGUSR2
# ends it.
REQUESTS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
PASSED_ON = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTSTP, signal.SIGCONT)
# Ignored signals, as under nohup, stay ignored.
WATCHED = {signal.SIGCHLD, signal.SIGIO,
           *(number for number in PASSED_ON if signal.getsignal(number) != signal.SIG_IGN)}
# Where it is not known why mpirun ends the job it may just be slow, on a busy machine.
UNKNOWN_CAUSE = 3
BEGUN, DONE, HOST_GONE = 0, 255, 76  # two bytes in the pipe; an exit code
NOT_BACK = (b"launch/mpirun: warning: the job has done all, but mpirun does not end: is a host's"
            b" network cut? It was killed\n")
NOT_STARTED = (1, 131, 132, 133, 134)  # Open MPI's exit codes where the program cannot be
ELSEWHERE = ("app", "wd", "wdir", "path", "prefix", "am", "tune")  # so that we cannot know
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
FATAL = (4, 6, 7, 8, 9, 11, 15)  # exit codes of MPICH's mpirun that are signals, not a rank's code
RULE = b"-" * 74 + b"\n"  # before and after what PRRTE prints
BANNERS = (b"prterun detected that one or more processes", b"prterun noticed that process rank",
           b"prterun has exited due to process rank", b"MPI_ABORT was invoked on rank",
           b"is not tested for post-failure\n")
# What it prints where more ranks than one have sent such a text, on a busy machine with the time.
MORE = b" more process"
MORE_SENT = re.compile(
    rb"\d+ more process(es)? ha(s|ve) sent help message help-mpi-(api|ft)\.txt(-[\d: -]+)? / .*\n")
ABORT, CALLED = b"Abort(", b"): application called MPI_Abort("  # what MPICH prints for MPI_Abort
# What PRRTE prints where a rank ends before it is told that the job does; and its begin.
UNREACHED = re.compile(
    rb"\[[\w.-]+:\d+\] PMIX ERROR: PMIX_ERR_UNREACH in file .*pmix_server\.c .*\n")
UNREACHED_BEGIN = re.compile(rb"\[[\w.-]*(:\d*(\]( PMIX ERROR: .*\n?)?)?)?")


def grace(words):
    """Seconds that mpirun with these arguments has to end a job."""
    text = os.environ.get(f"OMPI_MCA_{KILL_TIMEOUT}", "1")
    if KILL_TIMEOUT in words[:-1]:
        text = words[words.index(KILL_TIMEOUT) + 1]
    return SLACK_S + KILL_TIMEOUTS * (int(text) if text.isdecimal() else 1)


def program():
    """The mpirun to start, and whether it is MPICH's, and whether it is PRRTE's. It is started by
    its name: to Open MPI's a path means --prefix."""
    name = os.environ.get("LOCKSTEP_MPIRUN") or "mpirun"
    folders = [""] if "/" in name else os.get_exec_path()
    found = next((path for path in (os.path.join(folder, name) for folder in folders)
                  if os.access(path, os.X_OK) and not os.path.isdir(path)), name)
    real = os.path.realpath(found)
    return (name, "hydra" in os.path.basename(real),
            os.access(os.path.join(os.path.dirname(real), "prterun"), os.X_OK))


def may_be_noise(line):
    """Whether a line, or what has come of it, begins like one that is left out."""
    after = line.lstrip(b"0123456789")
    return (line.startswith(ABORT) or ABORT.startswith(line)
            or (after != line and (after.startswith(MORE) or MORE.startswith(after)))
            or UNREACHED_BEGIN.fullmatch(line) is not None)


def is_noise(line):
    return (line.startswith(ABORT) and CALLED in line) or any(
        pattern.fullmatch(line) for pattern in (UNREACHED, MORE_SENT))


def next_piece(kept, more):
    """(a line, or lines between rules, that comes next; whether it is left out); None while that
    may depend on what is still to come."""
    line = kept[: kept.find(b"\n") + 1] or kept
    if may_be_noise(line):
        return None if more and not line.endswith(b"\n") else (line, is_noise(line))
    if line != RULE and not RULE.startswith(line):
        return line, False
    end = kept.find(b"\n" + RULE) + 1
    if end == 0 and more and len(kept) < 8192:
        return None
    piece = kept[: end + len(RULE)] if end > 0 else line
    return piece, end > 0 and any(text in piece for text in BANNERS)


def copy_without_banner(source, target):
    """All that comes, at once but for what may be a banner, until nothing more can come. PRRTE ends
    texts with a NUL, which may come after a line of a rank, or with an empty line."""
    kept = b""  # the beginning of a banner, or of a line that may be left out; NULs before it
    left_out = False  # the last piece was: its end may come after it
    while True:
        data = os.read(source, 65536)
        kept += data
        out = b""
        while kept:
            bare = kept.lstrip(b"\0\n" if left_out else b"\0")
            nuls = b"" if left_out else kept[: len(kept) - len(bare)]
            found = next_piece(bare, data) if bare else None if data else (b"", False)
            if found is None:
                kept = nuls + bare
                break
            piece, left_out = found
            out += b"" if left_out else nuls + piece
            kept = bare[len(piece):]
        with contextlib.suppress(OSError):
            while out:
                out = out[os.write(target, out):]
        if not data:
            return


def filter_stderr():
    """The end of a pipe that mpirun gets as its stderr, and the thread that copies from it."""
    ends = os.pipe()
    thread = threading.Thread(target=copy_without_banner, args=(ends[0], 2), daemon=True)
    return ends[1], thread


def open_pipe():
    """The end to read from, which sends SIGIO, and the name by which ranks of this host open it."""
    ends = os.pipe()
    fcntl.fcntl(ends[0], fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(ends[0], fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
    return ends[0], f"{os.uname().nodename}:/proc/{os.getpid()}/fd/{ends[1]}"


def start(words, mask, name, error):
    """Forks mpirun, words[0], which is killed when we die; returns its process id. Its stderr is
    `error`."""
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.environ["LOCKSTEP_LAUNCHER"] = name
        if error != 2:
            os.dup2(error, 2)
        try:
            os.execvp(words[0], words)
        except OSError as why:
            with contextlib.suppress(OSError):
                os.write(2, f"launch/mpirun: cannot run {words[0]}: {why.strerror}\n".encode())
            os._exit(127 if isinstance(why, FileNotFoundError) else 126)
    return pid


def lacks_program(words, code):
    """A line about it, where Open MPI 4 has ended so since it was given no program: with
    orte_execute_quiet it says nothing itself. None: a word may be one, or the code is another."""
    if code not in NOT_STARTED or any(word.lstrip("-") in ELSEWHERE for word in words):
        return None
    words = [word for word in words if not word.startswith("-") and not word.isdecimal()]
    for word in words:
        for folder in [""] if "/" in word else os.get_exec_path():
            path = os.path.join(folder, word)
            if os.path.isfile(path) and os.access(path, os.X_OK):
                return None
    found = f"none of these is a program here: {' '.join(words)}" if words else "it got no program"
    return (f"launch/mpirun: error: {found}; give one, as in launch/mpirun -np 2 build/ddp_train"
            " model.cfg\n")


def ranks_of(parent, hydra):
    """The process ids of this host's ranks that still run: children of mpirun or, with MPICH, of a
    process that it has started for them. What starts those of another host is not looked below."""
    found = []
    with contextlib.suppress(OSError):
        for task in pathlib.Path(f"/proc/{parent}/task").iterdir():
            for pid in map(int, (task / "children").read_text().split()):
                with contextlib.suppress(OSError):
                    words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                    ranked = any(word.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK="))
                                 for word in words)
                    found += [pid] if ranked else ranks_of(pid, hydra) if hydra else []
    return found


def signal_ranks(pids, number):
    """To all processes of a rank, if it is a group, as mpirun does."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-pid if os.getpgid(pid) == pid else pid, number)


def kill(mpirun, hydra):
    signal_ranks(ranks_of(mpirun, hydra), signal.SIGKILL)
    os.kill(mpirun, signal.SIGKILL)
    os.waitpid(mpirun, 0)


def pass_on(info, mpirun, hydra):
    """The signal, if it ends the job and no rank was there for it: MPICH's mpirun may then lose it.
    """
    sent = info.si_code <= 0  # by a process, not by the terminal
    ranks = ranks_of(mpirun, hydra) if hydra and sent and info.si_signo in REQUESTS else []
    if ranks:
        signal_ranks(ranks, info.si_signo)
    elif sent:
        os.kill(mpirun, info.si_signo)
    if info.si_signo == signal.SIGTSTP:
        os.kill(os.getpid(), signal.SIGSTOP)
    return info.si_signo if hydra and sent and not ranks and info.si_signo in ENDING else 0


def sooner(deadline, seconds):
    """So many seconds from now, or the deadline if that comes first."""
    limit = time.monotonic() + seconds
    return limit if deadline is None else min(deadline, limit)


def wait_for(mpirun, hydra, pipe, grace_s):
    """Waits until mpirun ends, or kills it; returns the exit code."""
    code, deadline = 1, None
    reported, asked = False, False  # a rank has written its exit code; a signal ends the job
    late, tries = 0, 0  # a signal for ranks that are not there yet
    while True:
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        info = signal.sigwaitinfo(WATCHED) if left is None else signal.sigtimedwait(WATCHED, left)
        if info is None:
            ranks = ranks_of(mpirun, hydra)
            tries -= 1
            if late and ranks:
                signal_ranks(ranks, late)
                late = 0
            elif reported or not (ranks or (late and tries > 0)):
                kill(mpirun, hydra)
                if code == 0:
                    os.write(2, NOT_BACK)
                return code
            deadline = time.monotonic() + 1
        elif info.si_signo == signal.SIGCHLD:
            pid, status = os.waitpid(mpirun, os.WNOHANG)
            if pid == mpirun:
                ended = os.waitstatus_to_exitcode(status)
                return 128 - ended if ended < 0 else ended
        elif info.si_signo == signal.SIGIO:
            with contextlib.suppress(BlockingIOError):
                codes = os.read(pipe, 4096)
                known = [byte for byte in codes if byte not in (BEGUN, DONE)]
                if known and not reported:
                    code, reported = known[0], True
                    grace_s -= SLACK_S - SHORT_S if code == HOST_GONE else 0
                    deadline = sooner(deadline if asked else None, grace_s)
                elif DONE in codes and not (reported or asked):
                    code, deadline = 0, time.monotonic() + grace_s
                elif deadline is None:
                    code, deadline = HOST_GONE, time.monotonic() + UNKNOWN_CAUSE * grace_s
        else:
            found = pass_on(info, mpirun, hydra)
            if info.si_signo in ENDING and not asked:
                late, tries = found, grace_s
                asked, deadline = True, sooner(deadline, 1 if late else grace_s)


def main():
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    pipe, name = open_pipe()
    words = sys.argv[1:]
    mpirun, hydra, prrte = program()
    quiet = hydra or (prrte and
                      os.environ.get("PRTE_MCA_prte_execute_quiet", "0") not in ("", "0"))
    error, copier = filter_stderr() if quiet else (2, None)
    pid = start([mpirun, *["-disable-auto-cleanup"] * hydra, *words], mask, name, error)
    if quiet:  # after the fork, which copies no threads
        os.close(error)
        copier.start()
    code = wait_for(pid, hydra, pipe, grace(words))
    if quiet:
        copier.join(1)
    lacks = None if hydra or prrte else lacks_program(words, code)
    if lacks is not None:
        with contextlib.suppress(OSError):
            os.write(2, lacks.encode(errors="surrogateescape"))
        return 127
    return 128 + code if hydra and code in FATAL else code


if __name__ == "__main__":
    sys.exit(main())
