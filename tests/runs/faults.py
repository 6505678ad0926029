#!/usr/bin/env python3
"""A fault at every call that changes a file, and at every allocation (tests/run --long), or at
every few: a run that is killed there, or whose disk or memory fails there, loses nothing. Resumed,
it ends with the same bits as one without faults.
"""
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import time

import harness
from harness import check, same, small_cfg

FLAGS = ("--steps", "4", "--set", "checkpoint.every_steps=2", "--set", "checkpoint.keep=1", "--set",
         "train.eval_every=0", "--set", "report.html=true")
WEIGHTS = "checkpoints/latest/model.safetensors"
KILLED = 128 + signal.SIGKILL
LONG = bool(os.environ.get("DP_TEST_LONG"))


def weights(out):
    return (out / WEIGHTS).read_bytes()


def run(cfg, out, *flags, fault=""):
    """Like harness.train(), which looks for processes that outlive the run: this one has none."""
    command = [harness.build / "ddp_train", cfg, *FLAGS, "--out", out, *flags]
    env = harness.environment("disk_faults", {"OMP_NUM_THREADS": "1", "DP_FAULT": fault})
    begin = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False,
                          timeout=harness.PATIENCE)
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    return harness.Result(command, code, done.stdout, done.stderr, time.monotonic() - begin)


def hurt(cfg, fault, expected, codes):
    """A run with the fault, and the one that goes on."""
    out = harness.scratch / re.sub(r"\W", "-", fault)
    result = run(cfg, out, fault=fault)
    check(result.code in (0, *codes), f"code {result.code} of\n{result}")
    same(len(result.errors), int(result.code not in (0, KILLED)), f"errors of\n{result}\n")
    if out.exists():
        again = run(cfg, out, "--resume")
        check(again.code == 0, f"after {fault}\n{result}\nthis fails:\n{again}")
        check(weights(out) == expected, f"other bits after\n{result}\n{again}")
        left = [path.name for path in out.rglob("*") if ".tmp-" in path.name]
        same(left, [], f"what is left after\n{result}\n")
        shutil.rmtree(out)
    return result.code


def each(fault, counted, codes, stride, least):
    """The fault at every place, or every so many: at least this share of them ends the run. The
    number of places varies a little, since the page is written when it is due.
    """
    cfg = small_cfg()
    whole = harness.scratch / "whole"
    result = run(cfg, whole, "--log-level", "debug", fault=f"{fault}=1000000")
    check(result.code == 0, f"{result}")
    places = int(re.search(rf"(\d+) {counted}", result.err).group(1))
    expected = weights(whole)
    check(places > 40, f"only {places} {counted}")
    faults = [f"{fault}={at}" for at in range(1, places + 1, 1 if LONG else stride)]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda one: hurt(cfg, one, expected, codes), faults))
    check(sum(code != 0 for code in found) >= least * len(found), f"{fault} changed {found}")


def each_call(fault, codes, stride, least):
    each(f"{fault}:write", "calls changed files", codes, stride, least)


def case_killed_before_any_change_of_a_file():
    each_call("kill", [KILLED], 3, 0.8)


def case_killed_within_any_write():
    each_call("torn", [KILLED], 5, 0.8)


def case_a_disk_that_is_full_from_any_write_on():
    each_call("full", [74], 7, 0.5)


def case_a_disk_that_fails_once_at_any_call():
    each_call("eio", [74], 11, 0.1)  # only the last checkpoint must be written


def case_no_memory_at_any_allocation():
    each("nomem:alloc", "allocations", [69, 70], 5, 0.5)


if __name__ == "__main__":
    harness.main(globals())
