"""Bottlenecks that are planted so strongly that any machine, also a busy one, must find them: the
verdict has the right word, an action and a prediction. benchmarks/planted has the figures.
"""
import os
import re
import subprocess
import sys

import harness
from harness import check, run_json, same, train_well

SMALL = """
data: {source: synthetic}
train: {global_batch: 8, steps: 24}
checkpoint: {every_steps: 0}
model:
  input: [8, 8, 1]
  layers: [flatten: {}, dense: {units: 16}, relu: {}, dense: {units: 10}]
"""
WIDE = """
data: {source: synthetic}
train: {global_batch: 64, steps: 100}
checkpoint: {every_steps: 0}
model:
  input: [8, 8, 1]
  layers: [flatten: {}, dense: {units: 768}, relu: {}, dense: {units: 768}, relu: {},
           dense: {units: 10}]
"""
PICTURES = """
data:
  source: synthetic
  workers: 1
  augment: [random_resized_crop: {size: 32}, flip: {}]
train: {global_batch: 128, steps: 24}
model:
  input: [32, 32, 3]
  layers: [avgpool: {size: 8}, flatten: {}, dense: {units: 10}]
"""


def found(model, *flags, ranks=0, env=None):
    """The verdict on a run of the model."""
    (harness.scratch / "planted.cfg").write_text(model)
    result = train_well("planted.cfg", "--out", "run", "--explain", *flags, ranks=ranks, env=env)
    summary = run_json(harness.scratch / "run")
    detail = summary["verdict_detail"]
    check(0 < detail["share"] <= 1 and detail["evidence"] and detail["action"], f"{detail}")
    predicted = detail["predicted_samples_per_second"]
    check(predicted is None or predicted > summary["samples_per_second"], f"{detail}")
    check("a steady step of " in result.out and "losses" in result.out, f"not explained:\n{result}")
    same(result.out.count("verdict: "), 1, f"verdicts in\n{result}")
    return detail


def check_word(detail, word, evidence):
    """On a machine where others take more of the time than was planted, that is what is said."""
    if "other programs had" not in detail["evidence"]:
        same(detail["bound"], word, f"the bound, of {detail}")
        check(detail["predicted_samples_per_second"] is not None, f"no prediction: {detail}")
        check(evidence in detail["evidence"] + detail["action"], f"{detail}")


def case_a_rank_that_sleeps_is_a_straggler():
    detail = found(SMALL, ranks=2, env={"DP_FAULT": "slow:rank=1,ms=60"})
    check_word(detail, "straggler", "rank 1 on ")


def case_a_source_that_is_slow_is_input():
    detail = found(PICTURES)
    check_word(detail, "input", "augment")


def case_a_checkpoint_each_step_is_memory():
    detail = found(SMALL.replace("units: 16", "units: 16384"), "--set", "checkpoint.every_steps=1",
                   "--set", "train.steps=12")
    check_word(detail, "memory", "checkpoint.every_steps")


def case_another_program_on_the_same_core_is_contention():
    core = min(os.sched_getaffinity(0))
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"],
                             preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    mine = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})  # which the run has of this process
        (harness.scratch / "planted.cfg").write_text(WIDE)
        result = train_well("planted.cfg", "--out", "run")
    finally:
        os.sched_setaffinity(0, mine)
        other.kill()
        other.wait()
    detail = run_json(harness.scratch / "run")["verdict_detail"]
    same(detail["bound"], "contention", f"the bound, of {detail}")
    for text in (detail["evidence"], " ".join(result.out.split())):
        check(re.search(r"other programs had [\d.]+ of the 1 CPU of rank 0 on ", text), text)
    used = run_json(harness.scratch / "run")["ranks"][0]["utilisation"]
    check(used["queued_ms"] > 0 and 0 < used["busy"] <= 1.1, f"{used}")


def case_a_report_explains_a_run_that_has_ended():
    detail = found(SMALL, ranks=2, env={"DP_FAULT": "slow:rank=1,ms=60"})
    harness.program = "ddp_report"
    try:
        result = harness.train("run", "--explain", "--no-page")
    finally:
        harness.program = "ddp_train"
    same(result.code, 0, f"the exit code of\n{result}")
    words = " ".join(result.out.split())
    same(words.count(f"verdict {detail['bound']}:"), 1, f"verdicts of the report in\n{result}")
    check("waiting for ranks that are late" in result.out and "verdict: " not in result.out,
          f"it is not explained, or says the verdict again:\n{result}")


if __name__ == "__main__":
    harness.main(globals())
