"""ddp_top: jobs of this host and runs in a folder, on a terminal and elsewhere."""
import os
import pty
import re
import select
import subprocess
import time
import uuid

import harness
from harness import begin, check, same, small_cfg, train_well

RANK = r"^ +(\d+) \S+ +(\d+) +(\d+) \S.* [\d,.]+ +[\d.]+ %"


def top(*arguments, env=None):
    harness.program = "ddp_top"
    try:
        return harness.Started(arguments, env=env).finish()
    finally:
        harness.program = "ddp_train"


def top_well(*arguments):
    result = top(*arguments)
    check(result.code == 0 and not result.err, f"it failed:\n{result}")
    check("\x1b" not in result.out, f"control characters for a file:\n{result.out!r}")
    return result.out


def on_terminal(folder, until):
    """What ddp_top writes to a terminal until until(text); then q is pressed, and it must end."""
    master, slave = pty.openpty()
    process = subprocess.Popen([harness.build / "ddp_top", folder], stdin=slave, stdout=slave,
                               stderr=subprocess.STDOUT,
                               env=harness.environment(uuid.uuid4().hex))
    os.close(slave)
    text, pressed, end = "", False, time.monotonic() + harness.PATIENCE
    try:
        while time.monotonic() < end:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    text += os.read(master, 65536).decode()
                except OSError:
                    break
                if not pressed and until(text):
                    os.write(master, b"q")
                    pressed = True
            elif process.poll() is not None:
                break
        same(process.wait(max(1, end - time.monotonic())), 0, f"the exit code of {text!r}")
    finally:
        process.kill()
        process.wait()
        os.close(master)
    return text


def case_a_job_is_seen_while_it_runs_and_its_run_after_that():
    started, out = begin(small_cfg())
    text = top_well()
    rows = [row for row in re.findall(RANK, text, re.M)]
    ids = {int(process) for _, process, _ in rows}
    check(set(started.ranks().values()) <= ids, f"ranks {started.ranks()} are not in\n{text}")
    text = top_well(out, "--once")
    same({int(rank): int(process) for rank, process, _ in re.findall(RANK, text, re.M)},
         started.ranks(), f"the ranks in\n{text}")
    check(f"\n{os.path.realpath(out)}\n" in text and "samples/s" in text, text)
    # On a terminal it looks again, and steps go on.
    seen = on_terminal(out, lambda t: len(set(re.findall(r"small: step (\d+) of", t))) >= 3)
    check(seen.startswith("\x1b[?1049h") and seen.rstrip().endswith("\x1b[?1049l"),
          f"the screen is not left as it was: {seen[:40]!r} {seen[-40:]!r}")
    started.signal(9, 0)
    started.finish()
    text = top_well(out)
    check("small: error after" in text and str(list(ids)[0]) not in text, text)
    check(re.search(r"^ +0 \S+ +- +- +-$", text, re.M), f"what is not known in\n{text}")


def case_a_run_that_has_ended_has_its_figures():
    out = harness.scratch / "out"
    train_well(small_cfg(), "--out", out, ranks=2)
    text = top_well(out)
    check("small: finished after 6 steps" in text and "verdict: " in text, text)
    same(len(re.findall(r"^ +\d+ \S+ +[\d,.]+ +[\d.]+ % +[\d.]+ MiB$", text, re.M)), 2,
         f"ranks in\n{text}")


def case_wrong_usage_and_missing_runs_have_their_codes():
    broken = harness.scratch / "broken"
    broken.mkdir()
    (broken / "run.json").write_text("{")
    for code, arguments in ((64, ("--wrong",)), (64, ("a", "b")), (66, (harness.scratch / "no",)),
                            (66, (harness.scratch,)), (65, (broken,))):
        result = top(*arguments)
        same((result.code, len(result.err.splitlines())), (code, 1), f"what came of {result}")
    check("RUN" in top_well("--help") and "lockstep" in top_well("--version"), "no help")


harness.main(globals())
