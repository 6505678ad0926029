"""Kills and stops at random moments; in the end the bits are those of a run that nobody stopped."""
import os
import random
import signal
import time

import harness
import lab
from harness import Started, check, same
from lab import LIMIT_S, QUICK, attempt, case, cfg, judge, says

GROUP = "kills"
LAST = 1500
BASE = ("--set", "train.lanes=2", "--set", "comm.strategy=zero1:over=shm", "--set",
        f"train.steps={LAST}", "--set", "checkpoint.every_steps=37", "--quiet")


def flags():
    path = harness.scratch / "base.json"
    path.write_text('{"schema": "lockstep.run/1", "single_rank_samples_per_second": 1000}')
    return (*QUICK, *BASE, "--baseline", path)


def deliver(started, number, ranks, target):
    """Whatever of it still lives."""
    try:
        started.signal(number, target if ranks else None)
    except (KeyError, ProcessLookupError):
        pass


def until_finished(ranks, numbers, targets, rounds=7):
    """Each round is hit once, at a random moment; the last one is left alone."""
    like, out, codes = harness.scratch / "like", harness.scratch / "out", []
    attempt(cfg(), *flags(), "--out", like, codes={0}, ranks=ranks)
    for _ in range(rounds):
        started = Started([cfg(), *flags(), "--out", out, "--resume"], ranks)
        begin = harness.steps_done(out)
        step = begin + random.randrange(1, LAST // (rounds + 1))
        end = time.monotonic() + LIMIT_S
        while harness.steps_done(out) < step and started.process.poll() is None:
            check(time.monotonic() < end, f"step {step} does not come")
            time.sleep(0.001)
        time.sleep(random.uniform(0, 0.05))
        number = random.choice(numbers)
        deliver(started, number, ranks, random.choice(targets))
        if number == signal.SIGSTOP:
            time.sleep(random.uniform(0, 1))
            for target in targets:
                deliver(started, signal.SIGCONT, ranks, target)
        codes.append(started.finish(LIMIT_S).code)
    attempt(cfg(), *flags(), "--out", out, "--resume", codes={0}, ranks=ranks)
    check(harness.weights(out) == harness.weights(like), f"other bits after {codes}")
    steps = [line["step"] for line in harness.metrics(out, "step")]
    same(steps, list(range(1, LAST + 1)), "the steps in metrics.jsonl")
    left = [path.name for path in (out / "checkpoints").iterdir() if path.name[0] == "."]
    same(left, [], "what is left in checkpoints/")
    return f"{codes}, the same bits"


for name, number in (("SIGKILL", [9]), ("SIGTERM and SIGINT", [15, 2]), ("SIGUSR1", [10]),
                     ("SIGSTOP, then SIGCONT", [19]), ("SIGHUP and SIGQUIT", [1, 3]),
                     ("SIGPIPE", [13]), ("SIGUSR2", [12]), ("any", [1, 2, 9, 10, 12, 13, 15, 19])):
    @case(GROUP, f"{name} at random, alone, 7 times", "goes on to the same bits")
    def _(number=number):
        return until_finished(0, number, [None])

for name, number, targets in (("SIGKILL to a rank", [9], [0, 1]), ("SIGKILL to mpirun", [9],
                                                                   [None]),
                              ("SIGUSR1 to any", [10], [0, 1, None]),
                              ("SIGTERM to a rank", [15], [0, 1]),
                              ("SIGTERM to mpirun", [15], [None]),
                              ("SIGSTOP to a rank, then SIGCONT", [19], [0, 1]),
                              ("SIGPIPE and SIGHUP to any", [13, 1], [0, 1, None])):
    @case(GROUP, f"2 ranks, {name} at random, 4 times", "goes on to the same bits")
    def _(number=number, targets=targets):
        return until_finished(2, number, targets, 4)


@case(GROUP, "4 ranks, two are killed at once", "137, one line")
def _():
    started, _ = harness.begin(cfg(), *QUICK, ranks=4)
    for rank in (1, 3):
        started.signal(9, rank)
    result = started.finish(LIMIT_S)
    check(result.code == 137, f"{result}")
    lab.tame(result)
    return says(result)


@case(GROUP, "a rank is killed while mpirun is stopped: a zombie", "the other tells, and ends")
def _():
    started, _ = harness.begin(cfg(), *QUICK)
    started.signal(signal.SIGSTOP)
    started.signal(9, 1)
    survivor, end = started.ranks().get(0), time.monotonic() + 15
    while survivor and not dead(survivor) and time.monotonic() < end:
        time.sleep(0.05)  # it may wait for mpirun to end it
    started.signal(signal.SIGCONT)
    result = started.finish(LIMIT_S)
    judge(result, {137})
    return says(result)


def state(pid):
    try:
        return open(f"/proc/{pid}/stat", encoding="ascii").read().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "X"


def dead(pid):
    return state(pid) in "ZX"


@case(GROUP, "bench on 2 ranks, a rank is killed at a random moment, 4 times", "137, one line")
def _():
    codes = []
    for _ in range(4):
        harness.program = "ddp_bench"
        try:
            started = Started(["-b", "1K", "-e", "4M", "-n", 1000], 2)
        finally:
            harness.program = "ddp_train"
        time.sleep(1 + random.uniform(0, 2))
        deliver(started, 9, 2, random.choice((0, 1)))
        result = started.finish(LIMIT_S)
        lab.tame(result)
        codes.append(result.code)
        check(result.code in {0, 137}, f"{result}")
    return f"{codes}"


@case(GROUP, "bench alone, each signal that ends", "128 + signal")
def _():
    codes = []
    for number in (1, 2, 9, 15):
        harness.program = "ddp_bench"
        try:
            started = Started(["-b", "1K", "-e", "4M", "-n", 100000])
        finally:
            harness.program = "ddp_train"
        time.sleep(0.5)
        deliver(started, number, 0, None)
        result = started.finish(LIMIT_S)
        same(result.code, 128 + number, f"{result}")
        codes.append(result.code)
    return f"{codes}"


@case(GROUP, "a storm of SIGUSR2, SIGCONT, SIGWINCH, SIGCHLD and SIGURG, then SIGUSR1", "75")
def _():
    started, _ = harness.begin(cfg(), *QUICK, ranks=0)
    for _ in range(3000):
        try:
            os.kill(started.process.pid, random.choice((12, 18, 28, 17, 23)))
        except ProcessLookupError:
            break
    started.signal(10)
    result = started.finish(LIMIT_S)
    judge(result, {75})
    return says(result)
