"""Streams that are closed, full, or something else than they should be."""
import itertools

import harness
from harness import check
from lab import (MPIRUN, QUICK, attempt, case, cfg, each, python, same_weights, says, shell, whole)

GROUP = "streams"
SUMS = ("-b", 64, "-e", 256, "-n", 1, "-w", 0)
LONG = (*QUICK, "--set", "train.steps=400000", "--baseline", "base.json")


def out_of(name="out"):
    return harness.scratch / name


def trains_well(wrapper, codes=frozenset({0}), **how):
    result = attempt(cfg(), *QUICK, "--out", out_of(), wrapper=wrapper, codes=codes, **how)
    same_weights(out_of())
    whole(out_of())
    return says(result)


def closing(fds):
    return shell('exec "$@" ' + " ".join("<&- >&- 2>&-".split()[fd] for fd in fds))


CLOSED = [fds for count in (1, 2, 3) for fds in itertools.combinations(range(3), count)]


@case(GROUP, "train alone, each set of streams closed", "0, files as ever")
def _():
    return each(CLOSED, lambda fds: trains_well(closing(fds)))


@case(GROUP, "bench alone, each set of streams closed", "0")
def _():
    return each(CLOSED, lambda fds: attempt(*SUMS, program="ddp_bench", wrapper=closing(fds),
                                            codes={0}).code)


def try_mpirun(wrapper):
    result = attempt(cfg(), *QUICK, "--out", out_of(), ranks=2, wrapper=wrapper, codes={0})
    whole(out_of())
    return result.code


@case(GROUP, "launch/mpirun -np 2, each set of streams closed", "0, files as ever")
def _():
    return each(CLOSED, lambda fds: try_mpirun(closing(fds)))


@case(GROUP, "train alone, stdout /dev/full", "0 and a warning")
def _():
    return trains_well(shell('exec "$@" >/dev/full'))


@case(GROUP, "train alone, stderr /dev/full", "0")
def _():
    return trains_well(shell('exec "$@" 2>/dev/full'))


@case(GROUP, "a refusal, stderr /dev/full", "78")
def _():
    return says(attempt(cfg(), "--set", "a=b", wrapper=shell('exec "$@" 2>/dev/full'), codes={78},
                        told=False))


@case(GROUP, "bench alone, stdout /dev/full", "74")
def _():
    return says(attempt(*SUMS, program="ddp_bench", wrapper=shell('exec "$@" >/dev/full'),
                        codes={74}))


@case(GROUP, "launch/mpirun -np 2, stdout and stderr /dev/full", "an end, files as ever")
def _():
    result = attempt(cfg(), *QUICK, "--out", out_of(), ranks=2, codes=range(256),
                     wrapper=shell('exec "$@" >/dev/full 2>&1'))
    whole(out_of())
    return says(result)


PIPES = {
    "| head -1": '"$@" | head -1; exit ${PIPESTATUS[0]}',
    "| true": '"$@" | true; exit ${PIPESTATUS[0]}',
    "2>&1 | true": '"$@" 2>&1 | true; exit ${PIPESTATUS[0]}',
}
for pipe, script in PIPES.items():
    @case(GROUP, f"train alone {pipe}", "75, saved, goes on")
    def _(script=script):
        (harness.scratch / "base.json").write_text(
            '{"schema": "lockstep.run/1", "single_rank_samples_per_second": 1000}')
        result = attempt(cfg(), *LONG, "--log-level", "info", "--out", out_of(), codes={75},
                         told="2>" not in script, wrapper=shell(script))
        step = harness.run_json(out_of())["steps"]
        attempt(cfg(), *LONG, "--out", out_of(), "--resume", "--steps", step + 5, codes={0})
        return says(result)

    @case(GROUP, f"train alone {pipe}, SIGPIPE ignored", "0")
    def _(script=script):
        return trains_well(shell(f"trap '' PIPE; {script}"))

    @case(GROUP, f"launch/mpirun -np 2 {pipe}", "an end, a whole checkpoint or none")
    def _(script=script):
        result = attempt(cfg(), *QUICK, "--out", out_of(), ranks=2, wrapper=shell(script),
                         codes=range(256), told=False)
        if (out_of() / "checkpoints/latest").exists():
            attempt(cfg(), *QUICK, "--out", out_of(), "--resume", codes={0})
        return says(result)

    @case(GROUP, f"bench alone {pipe}", "0, 74, or the signal")
    def _(script=script):
        return says(attempt(*SUMS, program="ddp_bench", codes={0, 74, 141}, told=False,
                            wrapper=shell(script)))


ODD = {
    "stdout a file opened to read": shell('exec "$@" 1</etc/passwd'),
    "stdout a folder": shell('exec "$@" 1<.'),
    "stderr a folder": shell('exec "$@" 2<.'),
    "stdin opened to write": shell('exec "$@" 0>sink'),
    "stdin a folder": shell('exec "$@" <.'),
    "stdout a socket whose peer has left": python(
        "signal.signal(signal.SIGPIPE, signal.SIG_IGN)\n"
        "a, b = socket.socketpair(); os.dup2(a.fileno(), 1); b.close()"),
    "stdout a socket of datagrams that nobody reads": python(
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "a.setblocking(False); os.set_inheritable(b.fileno(), True); os.dup2(a.fileno(), 1)"),
    "stdout a socket that is not connected": python(
        "signal.signal(signal.SIGPIPE, signal.SIG_IGN)\n"
        "s = socket.socket(); os.dup2(s.fileno(), 1)"),
    "stdout a full pipe that does not block": python(
        "r, w = os.pipe(); os.set_inheritable(r, True); os.set_blocking(w, False)\n"
        "os.write(w, bytes(1 << 16)); os.dup2(w, 1)"),
    "stdout a terminal that has gone": python(
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "m, s = pty.openpty(); os.dup2(s, 1); os.close(m)"),
    "all three a terminal that has gone": python(
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\nm, s = pty.openpty()\n"
        "for fd in range(3): os.dup2(s, fd)\nos.close(m)"),
    "200 more descriptors that are open": python(
        "for fd in range(3, 203): os.dup2(0, fd)"),
    "O_APPEND, O_DIRECT and O_NONBLOCK on stdout": python(
        "fd = os.open('sink', os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_DIRECT"
        " | os.O_NONBLOCK); os.dup2(fd, 1)"),
    "SIGPIPE, SIGXFSZ, SIGCHLD, SIGTERM ignored": python(
        "for n in (13, 25, 17, 15, 2, 10, 12): signal.signal(n, signal.SIG_IGN)"),
    "all signals blocked": python("signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))"),
}
for name, wrapper in ODD.items():
    @case(GROUP, f"train alone, {name}", "0, files as ever")
    def _(wrapper=wrapper):
        return trains_well(wrapper)



@case(GROUP, f"bench alone, each of these {len(ODD)}", "0, or 74")
def _():
    return each(ODD, lambda name: attempt(*SUMS, program="ddp_bench", codes={0, 74}, told=False,
                                          wrapper=ODD[name]).code)


SOME = ("all signals blocked", "200 more descriptors that are open",
        "SIGPIPE, SIGXFSZ, SIGCHLD, SIGTERM ignored", "stdout a file opened to read")


@case(GROUP, "launch/mpirun -np 2, odd streams and signals", "0, files as ever")
def _():
    return each(SOME, lambda name: try_mpirun(ODD[name]))


@case(GROUP, "each of 2 ranks, odd streams and signals", "0, files as ever")
def _():
    return each(SOME, lambda name: trains_well_each(ODD[name]))


def trains_well_each(wrapper):
    result = attempt(cfg(), *QUICK, "--out", out_of(), wrapper=[MPIRUN, "-np", "2", *wrapper],
                     codes={0})
    whole(out_of())
    return result.code


@case(GROUP, "a configuration from /dev/stdin that is closed", "78")
def _():
    result = attempt("/dev/stdin", "--check", wrapper=closing((0,)), codes={65, 66, 78})
    check(result.seconds < 30, "it waited")
    return says(result)
