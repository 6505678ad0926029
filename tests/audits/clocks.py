"""Clocks that are wrong, and clocks that jump."""
import pathlib
import random
import shutil
import time

import harness
import lab
from harness import Started, same
from lab import QUICK, attempt, case, cfg, each_rank, same_weights, says, whole

GROUP = "clocks"


def faked(clock, rank_only=None):
    """With another date. Only the date: no system lets the monotonic clock jump."""
    if shutil.which("faketime") is None:
        raise harness.Skipped("no faketime here (Debian's package of that name)")
    library = next(pathlib.Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
    words = [f"LD_PRELOAD={library}", "DONT_FAKE_MONOTONIC=1", "FAKETIME_NO_CACHE=1", *clock]
    if rank_only is None:
        return ["env", *words]
    return lab.shell(f'[ "$OMPI_COMM_WORLD_RANK" = {rank_only} ] && exec env '
                     + " ".join(f"'{word}'" for word in words) + ' "$@"; exec "$@"')


for when in ("-56y", "-40y", "-1d", "+1d", "+12y", "+80y", "+290y", "@1970-01-01 00:00:00",
             "+0 x1000", "+0 x0.001"):
    @case(GROUP, f"train alone at {when}", "0, files as ever")
    def _(when=when):
        out = harness.scratch / "out"
        result = attempt(cfg(), *QUICK, "--out", out, wrapper=faked([f"FAKETIME={when}"]),
                         codes={0})
        same_weights(out)
        whole(out)
        return says(result)

for when in ("-40y", "+80y", "+0 x1000"):
    @case(GROUP, f"rank 1 of 2 at {when}", "0")
    def _(when=when):
        out = harness.scratch / "out"
        result = attempt(cfg(), *QUICK, "--out", out, codes={0},
                         wrapper=each_rank(faked([f"FAKETIME={when}"], 1)))
        whole(out)
        return says(result)


def goes_back_and_forth(ranks):
    """The date jumps up to 20 years at random while the run goes on, saves, and is asked to end."""
    clock, out = harness.scratch / "clock", harness.scratch / "out"
    clock.write_text("+0")
    wrapper = faked([f"FAKETIME_TIMESTAMP_FILE={clock}"])
    arguments = [cfg(), *QUICK, *harness.endless(), "--set", "checkpoint.every_steps=50",
                 "--set", "checkpoint.keep=2", "--max-time", "1h", "--out", out]
    started = Started(arguments, wrapper=each_rank(wrapper) if ranks else wrapper)
    started.wait_for("a step", lambda: harness.steps_done(out) > 0)
    for _ in range(20):
        clock.write_text(f"{random.uniform(-6e8, 6e8):+.0f}")
        time.sleep(0.1)
    step = harness.steps_done(out)
    started.wait_for("more steps", lambda: harness.steps_done(out) > step)
    started.signal(10)
    result = started.finish(lab.LIMIT_S)
    lab.judge(result, {75})
    left = sorted(path.name for path in (out / "checkpoints").glob("step-*"))
    same(len(left), 2, f"the checkpoints {left}")
    latest = int((out / "checkpoints/latest").readlink().name.removeprefix("step-"))
    again = attempt(cfg(), *QUICK, *harness.endless(), "--out", out, "--resume", "--steps",
                    latest + 3, codes={0}, ranks=ranks)
    same(harness.run_json(out)["resumed_from"], latest, f"where it went on\n{again}")
    return says(result)


for count in (0, 2):
    @case(GROUP, f"the date jumps while {count or 1} rank(s) train", "75, the newest goes on")
    def _(count=count):
        return goes_back_and_forth(count)


@case(GROUP, "each start at an earlier date than the one before", "0, the newest goes on")
def _():
    out = harness.scratch / "out"
    for number in range(1, 7):
        result = attempt(cfg(), *QUICK, "--set", "checkpoint.keep=2", "--out", out, "--resume",
                         "--steps", 2 * number, codes={0},
                         wrapper=faked([f"FAKETIME=-{number * 400}d"]))
        same(harness.run_json(out)["resumed_from"], 2 * number - 2 or None, "where it went on")
    left = sorted(path.name for path in (out / "checkpoints").glob("step-*"))
    same(left, ["step-00000010", "step-00000012"], "the checkpoints")
    return says(result)


@case(GROUP, "files of a checkpoint from the future, and from 1970", "0")
def _():
    for stamp in (0, 1, 2**33, 2**40):
        out = lab.finished(harness.scratch / f"out{stamp}")
        for path in (out / "checkpoints").rglob("*"):
            lab.os.utime(path, (stamp, stamp), follow_symlinks=False)
        result = attempt(cfg(), *QUICK, "--out", out, "--resume", "--steps", 9, codes={0})
        same(harness.run_json(out)["resumed_from"], 6, "where it went on")
    return says(result)


@case(GROUP, "--max-time 2s, the date jumps by a year", "75 after about 2 s")
def _():
    clock, out = harness.scratch / "clock", harness.scratch / "out"
    clock.write_text("+0")
    started = Started([cfg(), *QUICK, *harness.endless(), "--max-time", "2s", "--out", out],
                      wrapper=faked([f"FAKETIME_TIMESTAMP_FILE={clock}"]))
    started.wait_for("a step", lambda: harness.steps_done(out) > 0)
    clock.write_text("-1y")
    result = started.finish(lab.LIMIT_S)
    lab.judge(result, {75})
    harness.check(result.seconds >= 1.5, f"too early\n{result}")
    return says(result)
