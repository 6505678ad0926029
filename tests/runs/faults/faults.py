"""A fault at every call that changes a file, and at every allocation (tests/run --long), or at
every few: a run that is killed there, or whose disk or memory fails there, loses nothing. Resumed,
it ends with the same bits as one without faults. On one rank, and on each of two.
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


def run(cfg, out, *flags, fault="", ranks=0):
    """Like harness.train(), which looks for processes that outlive the run: this one has none, or
    mpirun waits for them."""
    command = [harness.build / "ddp_train", cfg, *FLAGS, "--out", out, *flags]
    if ranks > 0:
        command = [harness.ROOT / "launch/mpirun", "-np", str(ranks), *command]
    env = harness.environment("disk_faults", {"OMP_NUM_THREADS": "1", "DP_FAULT": fault})
    begin = time.monotonic()
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False,
                          timeout=harness.PATIENCE)
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    return harness.Result(command, code, done.stdout, done.stderr, time.monotonic() - begin)


def hurt(cfg, fault, expected, codes, ranks=0, begun=None):
    """A run with the fault, and the one that goes on; begun: what the first goes on with."""
    out = harness.scratch / re.sub(r"\W", "-", fault)
    if begun is not None:
        shutil.copytree(begun, out, symlinks=True)
    result = run(cfg, out, *(["--resume"] if begun is not None else []), fault=fault, ranks=ranks)
    check(result.code in (0, *codes), f"code {result.code} of\n{result}")
    silent = (0, KILLED) if ranks == 0 else (0,)
    same(len(result.errors), int(result.code not in silent), f"errors of\n{result}\n")
    if out.exists():
        again = run(cfg, out, "--resume", ranks=ranks)
        check(again.code == 0, f"after {fault}\n{result}\nthis fails:\n{again}")
        check(weights(out) == expected, f"other bits after\n{result}\n{again}")
        left = [path.name for path in out.rglob("*") if ".tmp-" in path.name]
        same(left, [], f"what is left after\n{result}\n")
        shutil.rmtree(out)
    return result.code


def run_whole(cfg, out, fault, counted, ranks):
    """A run without faults; returns how many places it has for one, of each rank that has any."""
    result = run(cfg, out, "--log-level", "debug", fault=f"{fault}=1000000", ranks=ranks)
    check(result.code == 0, f"{result}")
    return [int(number) for number in re.findall(rf"debug: (\d+) {counted}", result.err)]


def try_all(cfg, faults, codes, least, *how):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda one: hurt(cfg, one[0], one[1], codes, *how, *one[2:]),
                              faults))
    check(sum(code != 0 for code in found) >= least * len(found), f"{faults[0]} changed {found}")


def each(fault, counted, codes, stride, least):
    """The fault at every place, or every so many: at least this share of them ends the run. The
    number of places varies a little, since the page is written when it is due.
    """
    cfg = small_cfg()
    whole = harness.scratch / "whole"
    [places] = run_whole(cfg, whole, fault, counted, 0)
    check(places > 40, f"only {places} {counted}")
    try_all(cfg, [(f"{fault}={at}", weights(whole))
                  for at in range(1, places + 1, 1 if LONG else stride)], codes, least)


def each_of_two(rank, fault, counted, codes, some):
    """The same on one of two ranks, of a run that starts, and of one that goes on, in turns."""
    cfg, begun, whole = small_cfg(), harness.scratch / "begun", harness.scratch / "whole"
    check(run(cfg, begun, "--steps", "2", ranks=2).code == 0, "it does not begin")
    kind, where = fault.split(":")
    fault = f"{kind}:rank={rank},{where}"
    # Only one of the ranks changes files, and only allocations of one are counted.
    [places] = run_whole(cfg, whole, fault, counted, 2)
    step = max(1, places // (300 if LONG else some))
    try_all(cfg, [(f"{fault}={at}", weights(whole), *([begun] if number % 2 else []))
                  for number, at in enumerate(range(1, places + 1, step))], codes, 0.4, 2)
    shutil.rmtree(whole)


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


def case_the_one_of_two_ranks_that_changes_files_is_killed():
    each_of_two(0, "kill:write", "calls changed files", [KILLED], 6)


def case_either_of_two_ranks_has_no_memory():
    for rank in (0, 1):
        each_of_two(rank, "nomem:alloc", "allocations", [69, 70], 8)
        shutil.rmtree(harness.scratch / "begun")


if __name__ == "__main__":
    harness.main(globals())
