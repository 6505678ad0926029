#!/usr/bin/env python3
"""Ranks that make no progress: the job ends by itself, names who did not arrive, and leaves a
run.json; a job that was suspended as a whole goes on.
"""
import re
import signal
import time

import harness
from harness import begin, check, run_json, same, small_cfg, steps_done, train

QUICK = ("--set", "train.hang_timeout_s=2", "--set", "train.eval_every=0")


def hang(fault, culprit, row):
    """A run with this fault: `row` is the table's row of the rank that is named."""
    out = harness.scratch / fault.replace(":", "-")
    result = train(small_cfg(), *harness.endless(), *QUICK, "--out", out, ranks=2,
                   env={"DP_FAULT": fault})
    same(result.code, 76, f"the exit code of\n{result}\n")
    for what in (r"warning: rank \d \(\S+\): no progress for 1\.\d s: did not arrive: "
                 rf"rank {culprit} \(\S+\): ", r"\nrank host +step bucket phase +since_s ", row,
                 rf"error: rank \d \(\S+\): no progress for 2\.\d s: did not arrive: "
                 rf"rank {culprit} \(\S+\): .*; the job ends"):
        check(re.search(what, result.err), f"no {what!r} in\n{result}")
    check(f"did not arrive: rank {1 - culprit}" not in result.err, f"both are named:\n{result}")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    summary = run_json(out)
    same(summary["exit"], "hung", f"exit in run.json of\n{result}\n")
    check(summary["reason"].startswith(f"did not arrive: rank {culprit} "), summary["reason"])
    same([rank["rank"] for rank in summary["ranks"]], [0, 1], "ranks in run.json")
    page = (out / "report.html").read_text()
    check("<strong>hung</strong>" in page and "http-equiv=\"refresh\"" not in page, "report.html")
    return summary


def case_a_stopped_rank_ends_the_job_and_is_named():
    for rank in (0, 1):
        summary = hang(f"stop:rank={rank},bucket=0,step=7", rank,
                       rf"\n +{rank} \S+ +7 +- step +2\.\d  stopped by a signal")
        same(summary["steps"], 6, "steps in run.json")


def case_a_rank_that_sleeps_in_a_step_is_named():
    hang("slow:rank=1,step=5,bucket=0,ms=60000", 1, r"\n +1 \S+ +5 +- step +2\.\d  sleeping")


def case_a_rank_that_stops_between_steps_is_named():
    hang("stop:rank=1,step=4", 1, r"\n +1 \S+ +4 +- other +2\.\d  stopped by a signal")


def case_a_job_that_was_suspended_goes_on():
    started, out = begin(small_cfg(), *QUICK)
    pids = started.ranks().values()
    for number, seconds in ((signal.SIGSTOP, 4), (signal.SIGCONT, 0)):
        for rank in sorted(started.ranks()):
            started.signal(number, rank)
        time.sleep(seconds)
    done = steps_done(out)
    started.wait_for("a later step", lambda: steps_done(out) > done + 5)
    check(list(started.ranks().values()) == list(pids), "other processes")
    started.signal(signal.SIGTERM)
    result = started.finish()
    check("no progress" not in result.err, f"it counted as a hang:\n{result}")


if __name__ == "__main__":
    harness.main(globals())
