#!/usr/bin/env python3
"""Bottlenecks that are planted so strongly that any machine, also a busy one, must find them: the
verdict has the right word, an action and a prediction. benchmarks/planted has the figures.
"""
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
    detail = run_json(harness.scratch / "run")["verdict_detail"]
    check(0 < detail["share"] <= 1 and detail["evidence"] and detail["action"], f"{detail}")
    check(detail["predicted_samples_per_second"] > 0, f"{detail}")
    check("a steady step of " in result.out and "losses" in result.out, f"not explained:\n{result}")
    return detail


def case_a_rank_that_sleeps_is_a_straggler():
    detail = found(SMALL, ranks=2, env={"DP_FAULT": "slow:rank=1,ms=60"})
    same(detail["bound"], "straggler", f"the bound, of {detail}")
    check("rank 1 on " in detail["evidence"], f"{detail}")


def case_a_source_that_is_slow_is_input():
    detail = found(PICTURES)
    same(detail["bound"], "input", f"the bound, of {detail}")
    check("augment" in detail["evidence"], f"{detail}")


def case_a_checkpoint_each_step_is_memory():
    detail = found(SMALL.replace("units: 16", "units: 16384"), "--set", "checkpoint.every_steps=1",
                   "--set", "train.steps=12")
    same(detail["bound"], "memory", f"the bound, of {detail}")
    check("checkpoint.every_steps" in detail["action"], f"{detail}")


def case_a_report_explains_a_run_that_has_ended():
    found(SMALL, ranks=2, env={"DP_FAULT": "slow:rank=1,ms=60"})
    harness.program = "ddp_report"
    try:
        result = harness.train("run", "--explain", "--no-page")
    finally:
        harness.program = "ddp_train"
    same(result.code, 0, f"the exit code of\n{result}")
    check("waiting for ranks that are late" in result.out and "verdict: straggler" in result.out,
          f"it is not explained:\n{result}")


if __name__ == "__main__":
    harness.main(globals())
