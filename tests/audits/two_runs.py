"""Two runs at once."""
import fcntl
import shutil

import harness
import lab
from harness import Started, check, same
from lab import LIMIT_S, QUICK, attempt, case, cfg, judge, says

GROUP = "two runs"
FLAGS = (*QUICK, "--set", "train.steps=3000", "--set", "checkpoint.every_steps=500", "--quiet")


def both(out_of, flags, ranks, codes, cwd=None):
    started = [Started([cfg(), *FLAGS, *out_of(i), *flags], ranks, cwd=cwd) for i in range(2)]
    results = [one.finish(LIMIT_S) for one in started]
    for result in results:
        judge(result, codes)
    return sorted(result.code for result in results)


for ranks in (0, 2):
    for flags in ((), ("--resume",)):
        @case(GROUP, f"the same --out, {ranks or 1} rank(s) {' '.join(flags)}", "0 and 64")
        def _(ranks=ranks, flags=flags):
            out = harness.scratch / "out"
            codes = both(lambda i: ("--out", out), flags, ranks, {0, 64})
            check(0 in codes and (flags or codes == [0, 64]), f"{codes}")
            steps = [line["step"] for line in harness.metrics(out, "step")]
            same(steps, list(range(1, 3001)), "the steps in metrics.jsonl")
            same(harness.run_json(out)["exit"], "finished", "exit")
            return f"{codes}"

    @case(GROUP, f"the same cache and the same second, {ranks or 1} rank(s)", "0 and 0")
    def _(ranks=ranks):
        codes = both(lambda i: (), ("--set", "comm.plan_cache=true"), ranks, {0},
                     cwd=harness.scratch)
        runs = list((harness.scratch / "runs").iterdir())
        same(len(runs), 2, f"runs in {runs}")
        for out in runs:
            harness.run_json(out)
        return f"{codes}"


@case(GROUP, "one goes on with a checkpoint that the other is pruning", "0, or 65 and 66")
def _():
    first, out = harness.begin(cfg(), *QUICK, "--set", "checkpoint.every_steps=5",
                               "--set", "checkpoint.keep=1", ranks=0)
    first.wait_for("a checkpoint", (out / "checkpoints/latest").exists)
    heard = []
    for number in range(12):
        result = attempt(cfg(), *QUICK, "--out", harness.scratch / f"b{number}", "--steps", 1,
                         f"--resume={out}", codes={0, 65, 66})
        heard.append(result.code)
        check(first.process.poll() is None, "the first has ended")
    first.process.kill()
    first.finish(LIMIT_S)
    return f"{heard}"


@case(GROUP, "a folder that is locked by hostile text", "64, tame")
def _():
    out = harness.scratch / "out"
    out.mkdir()
    for text in ("1 \x1b[2Jhost\n", "99999999999999999999 x", "-1 x", "\0" * 200, "1 " + "h" * 300):
        with open(out / ".lockstep.lock", "w", encoding="utf-8") as lock:
            lock.write(text)
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            result = attempt(cfg(), *QUICK, "--out", out, codes={64})
    return says(result)


@case(GROUP, "a lock that a dead run left", "0, and gone")
def _():
    out = harness.scratch / "out"
    out.mkdir()
    (out / ".lockstep.lock").write_text("1 somehost\n")
    result = attempt(cfg(), *QUICK, "--out", out, codes={0})
    check(not (out / ".lockstep.lock").exists(), "it is left")
    return says(result)


@case(GROUP, "the folder of a running run is copied, and gone on with", "0")
def _():
    first, out = harness.begin(cfg(), *QUICK, "--set", "checkpoint.every_steps=5", ranks=0)
    first.wait_for("a checkpoint", (out / "checkpoints/latest").exists)
    copy = harness.scratch / "copy"
    for _ in range(5):
        shutil.rmtree(copy, ignore_errors=True)
        lab.subprocess.run(["cp", "-a", out, copy], check=False, stderr=-3)
        result = attempt(cfg(), *QUICK, "--out", copy, "--resume", "--steps", 3, codes={0, 65})
    first.process.kill()
    first.finish(LIMIT_S)
    return says(result)


@case(GROUP, "two benches at once, 2 ranks each", "0 and 0")
def _():
    harness.program = "ddp_bench"
    try:
        started = [Started(["-b", 64, "-e", 4096, "-n", 2, "-w", 0], 2) for _ in range(2)]
        for one in started:
            judge(one.finish(LIMIT_S), {0})
    finally:
        harness.program = "ddp_train"
    return "0 and 0"

