"""Ranks whose weights differ, by faults on purpose (DP_FAULT): found, named, stopped or restored;
and what is said about faults that cannot be.
"""
import re

import harness
from harness import check, metrics, run_json, same, small_cfg, train, train_well, weights

FLIP = "flip:step=4,rank=1,tensor=0.weight,element=7,bit=22"
WHERE = (r"bucket \d+, tensor 0\.weight, element 7 is -?\d[\d.e-]* {} -?\d[\d.e-]* "
         r"\(1 of 72 elements")


def broken(cfg, out, strategy, ranks, fault, *flags):
    return train(cfg, "--out", harness.scratch / out, "--steps", 9, "--set",
                 f"comm.strategy={strategy}", *flags, ranks=ranks, env={"DP_FAULT": fault})


def check_line(lines, *patterns):
    same(len(lines), 1, f"lines in {lines}")
    for pattern in patterns:
        check(re.search(pattern, lines[0]), f"no '{pattern}' in {lines[0]}")


def announced(result):
    """The other warnings, without the one about the fault."""
    lines = result.warnings
    told = [line for line in lines if "this run breaks something on purpose: DP_FAULT=" in line]
    same(len(told), 1, f"announcements of the fault in\n{result}\n")
    return [line for line in lines if line not in told]


def case_a_flipped_bit_stops_all_ranks_and_is_named():
    cfg = small_cfg()
    for strategy in ("ring", "shm"):
        for ranks, who, between in (
            (2, r"rank 0 \(\S+\) and rank 1 \(\S+\) differ, and no majority of 2 ranks", "and"),
            (3, r"rank 1 \(\S+\) differs from the other 2 ranks", "instead of"),
        ):
            name = f"{strategy}-{ranks}"
            result = broken(cfg, name, strategy, ranks, FLIP, "--set", "train.check_every=4")
            same(result.code, 70, f"the exit code of\n{result}\n")
            check_line(result.errors, "after step 4 " + who, WHERE.format(between),
                       "test the memory of")
            same(announced(result), [], "warnings")
            report = run_json(harness.scratch / name)
            same(report["exit"], "error", "exit in run.json")
            same(report["restored"], 0, "restored in run.json")
            same(len(metrics(harness.scratch / name, "step")), 4, "steps")
            same(metrics(harness.scratch / name, "end")[0]["exit"], "error",
                 "exit in metrics.jsonl")


def case_the_line_the_summary_and_the_metrics_name_one_step():
    # Slices are compared in every step, all state in some: found before, or after, an update.
    for every in (0, 4):
        out = harness.scratch / f"every-{every}"
        result = broken(small_cfg(), out.name, "ring", 3, FLIP, "--set",
                        f"train.check_every={every}")
        same(result.code, 70, f"the exit code of\n{result}\n")
        check_line(result.errors, "after step 4 ")
        report = run_json(out)
        same((report["steps"], report["reason"]), (4, "after step 4: ranks disagree"), "run.json")
        same(metrics(out, "step")[-1]["step"], 4, "the last step in metrics.jsonl")
        same(metrics(out, "end")[0]["steps"], 4, "steps in metrics.jsonl")


def case_a_majority_restores_and_training_goes_on():
    cfg = small_cfg()
    for strategy in ("ring", "shm", "zero1:over=ring"):
        name = strategy.split(":")[0]
        result = broken(cfg, name, strategy, 3, FLIP, "--set", "train.check_every=4",
                        "--set", "train.on_divergence=restore")
        same(result.code, 0, f"the exit code of\n{result}\n")
        same(result.errors, [], "errors")
        check_line(announced(result),
                   r"after step 4 rank 1 \(\S+\) differs from the other 2 ranks",
                   WHERE.format("instead of"), "; restored from rank 0$")
        report = run_json(harness.scratch / name)
        same(report["exit"], "finished", "exit in run.json")
        same(report["restored"], 1, "restored in run.json")
        same(report["steps"], 9, "steps in run.json")


def case_nothing_is_saved_that_differs():
    cfg = small_cfg()
    for step, flags in ((9, ()), (5, ("--set", "checkpoint.every_steps=5"))):
        out = harness.scratch / f"stop-{step}"
        fault = FLIP.replace("step=4", f"step={step}")
        result = broken(cfg, out.name, "shm", 3, fault, *flags)
        same(result.code, 70, f"the exit code of\n{result}\n")
        check_line(result.errors, rf"after step {step} rank 1 \(\S+\) differs")
        same(run_json(out)["exit"], "error", "exit in run.json")
        check(not (out / "checkpoints").exists(), "it was saved")
        out = harness.scratch / f"restore-{step}"
        result = broken(cfg, out.name, "shm", 3, fault, *flags, "--set",
                        "train.on_divergence=restore")
        same(result.code, 0, f"the exit code of\n{result}\n")
        check_line(announced(result), rf"after step {step} .*; restored from rank 0$")
        plain = harness.scratch / f"plain-{step}"
        train_well(cfg, "--out", plain, "--steps", 9, "--set", "comm.strategy=shm", ranks=3)
        same(weights(out) == weights(plain), True, "equal to the weights without a fault")


def case_what_is_restored_before_a_save_is_what_training_goes_on_with():
    cfg = small_cfg()
    flags = ("--set", "train.precision=bf16", "--set", "checkpoint.every_steps=5")
    result = broken(cfg, "out", "shm", 3, FLIP, *flags, "--set", "train.on_divergence=restore")
    same(result.code, 0, f"the exit code of\n{result}\n")
    check_line(announced(result), r"after step 5 .*; restored from rank 0$")
    plain = harness.scratch / "plain"
    train_well(cfg, *flags, "--out", plain, "--steps", 9, "--set", "comm.strategy=shm", ranks=3)
    check(weights(plain) == weights(harness.scratch / "out"), "not the weights without a fault")


def case_two_ranks_cannot_restore():
    result = broken(small_cfg(), "out", "ring", 2, FLIP, "--set", "train.on_divergence=restore")
    same(result.code, 70, f"the exit code of\n{result}\n")
    check_line(result.errors, "no majority of 2 ranks shows which is right")
    same(run_json(harness.scratch / "out")["restored"], 0, "restored in run.json")


def case_ranks_that_share_one_copy_of_the_weights_cannot_differ():
    cfg = small_cfg()
    result = broken(cfg, "out", "zero1:over=shm", 2, FLIP, "--set", "train.check_every=1")
    same(result.code, 0, f"the exit code of\n{result}\n")
    check_line(announced(result), r"share one copy of the weights \(zero1:over=shm\): a flip is of "
                                  "all, and they do not differ")
    plain = harness.scratch / "plain"
    train_well(cfg, "--out", plain, "--steps", 9, ranks=2)
    check(weights(plain) != weights(harness.scratch / "out"), "the flip changed nothing")


def case_comparing_changes_nothing():
    cfg = small_cfg()
    found = set()
    for every in (0, 1, 4):
        out = harness.scratch / f"every-{every}"
        result = train_well(cfg, "--out", out, "--steps", 9, "--set", "comm.strategy=ring", "--set",
                            f"train.check_every={every}", ranks=2)
        same(result.warnings, [], "warnings")
        found.add(weights(out))
    same(len(found), 1, "kinds of weights")


def case_faults_that_cannot_be_are_one_line():
    cfg = small_cfg()
    for ranks, fault, line in (
        (0, "flop:step=1", "unknown fault 'flop' (did you mean 'flip'?)"),
        (0, "flip:setp=1",
         "flip: unknown option 'setp'; known are: step, rank, what, tensor, bucket, element, bit"),
        (0, "flip:step=0", "flip: step: expected an integer from 1 to 2147483647, found '0'"),
        (0, "flip:step", "flip: expected key=value, found 'step'"),
        (0, "flip:tensor=0.wieght",
         "flip: the model has no tensor '0.wieght'; its first is 0.weight"),
        (0, "flip:tensor=0.bias,element=8", "flip: 0.bias has 8 elements, not 9"),
        (2, "flip:tensor=0.bias,rank=2", "flip: there is no rank 2: this run has 2"),
    ):
        result = train(cfg, "--out", harness.scratch / "out", ranks=ranks, env={"DP_FAULT": fault})
        same(result.code, 78, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"lines in\n{result}\n")
        check(result.errors[0].endswith(f": DP_FAULT: {line}"), f"{result.errors} for {fault}")
        check(not (harness.scratch / "out").exists(), "a refused run made a folder")


if __name__ == "__main__":
    harness.main(globals())
