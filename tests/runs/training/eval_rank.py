"""A rank that evaluates while the others train: train.eval_rank. Weights, losses and accuracies are
those of a run without it; what it finds belongs to the right step; runs end, stop and go on as
others do.
"""
import math
import os
import re
import signal

import harness
from algo_tuning import cached
from cpu_algorithms import plant
from harness import (CONV_LAYERS, begin, check, idx_bytes, metrics, mlp_layers, run_json, same,
                     small_cfg, steps_done, train, train_well)
from refusals import side_by_side

EVALUATOR = ("--set", "train.eval_rank=true")
NORM_LAYERS = CONV_LAYERS.replace("    - relu: {}\n", "    - batchnorm: {}\n    - relu: {}\n", 1)
SLOW_LAYERS = ("    - conv2d: {filters: 64, kernel: 3, padding: 1}\n    - relu: {}\n" * 2
               + "    - flatten: {}\n    - dense: {units: 10}\n")
FOUND = ("step", "epoch", "train_loss", "test_loss", "test_accuracy")


def setting(**keys):
    return [word for key, value in keys.items()
            for word in ("--set", f"{key.replace('__', '.')}={value}")]


def evaluations(out):
    """What was found after which step; each once, in order."""
    found = [tuple(line[key] for key in FOUND) for line in metrics(out, "eval")]
    same([line[0] for line in found], sorted({line[0] for line in found}), "evaluated steps")
    return found


def check_same(out, other, steps):
    """Two runs came to the same, evaluated after these steps."""
    same([line[0] for line in evaluations(out)], steps, "evaluations")
    same(evaluations(out), evaluations(other), "what was found")
    same([line["loss"] for line in metrics(out, "step")],
         [line["loss"] for line in metrics(other, "step")], "losses")
    same(run_json(out)["final"], run_json(other)["final"], "final")
    check(harness.weights(out) == harness.weights(other), "other weights")


def case_what_it_finds_is_what_the_others_would_find():
    runs = (
        (1, mlp_layers(16), setting(train__steps=30), [12, 24, 30]),
        (2, NORM_LAYERS, setting(train__steps=30, comm__strategy="ring", train__precision="bf16"),
         [12, 24, 30]),
        (3, CONV_LAYERS, setting(train__steps=24, comm__strategy="ps", comm__servers=1), [12, 24]),
        (2, NORM_LAYERS, setting(train__steps=24, train__lanes=4, checkpoint__every_steps=5),
         [12, 24]),
        (2, CONV_LAYERS, setting(train__steps=30, train__local_steps=5, train__eval_every=0), [30]),
    )
    for i, (ranks, layers, flags, steps) in enumerate(runs):
        cfg = small_cfg(layers, f"{i}.cfg")
        plain, out = harness.scratch / f"plain-{i}", harness.scratch / f"out-{i}"
        train_well(cfg, *flags, "--out", plain, ranks=ranks)
        result = train_well(cfg, *flags, *EVALUATOR, "--out", out, ranks=ranks + 1)
        check_same(out, plain, steps)
        check(f"rank {ranks} evaluates" in result.out, f"nobody says so:\n{result}")
        summary = run_json(out)
        same(summary["world_size"], run_json(plain)["world_size"], "world_size")
        same(len(summary["ranks"]), len(run_json(plain)["ranks"]), "ranks")


def case_it_takes_the_algorithms_that_the_others_have_agreed_on():
    cfg = small_cfg(CONV_LAYERS)

    def run(name, *flags, ranks=2):
        out = harness.scratch / name
        train_well(cfg, *flags, "--steps", 24, "--out", out, ranks=ranks)
        return out

    fresh = run("fresh", *EVALUATOR, ranks=3)  # with what is measured now
    check_same(fresh, run("known"), [12, 24])
    if not cached().exists():
        return  # a processor or a library without a choice
    plant("ref:any")
    planted = run("planted")
    check_same(run("evaluated", *EVALUATOR, ranks=3), planted, [12, 24])
    preferred = run("preferred", "--set", "device.tune=off")
    check(evaluations(planted) != evaluations(preferred), "what is planted has the same bits")


def case_cost_counts_all_ranks():
    flags = setting(train__steps=12, report__price_per_hour=3, report__price_per="rank")
    out = harness.scratch / "out"
    train_well(small_cfg(), *flags, *EVALUATOR, "--out", out, ranks=3)
    summary = run_json(out)
    same(summary["world_size"], 2, "world_size")
    harness.close(summary["samples_per_dollar"], summary["samples_per_second"] * 3600 / (3 * 3),
                  1e-6, "samples per dollar")
    harness.close(summary["scaling_efficiency"], summary["samples_per_second"] /
                  (2 * summary["single_rank_samples_per_second"]), 1e-6, "efficiency")


def case_early_stop_decides_one_evaluation_later_and_evaluates_the_end():
    cfg = small_cfg()
    flags = setting(train__steps=240, early_stop__patience=2, early_stop__metric="test_accuracy")
    plain, out = harness.scratch / "plain", harness.scratch / "out"
    train_well(cfg, *flags, "--out", plain, ranks=2)
    train_well(cfg, *flags, *EVALUATOR, "--out", out, ranks=3)
    last = run_json(plain)["steps"]
    check(last < 200, f"no early stop, but {last} steps")
    same(run_json(out)["exit"], "early_stopped", "exit")
    same(run_json(out)["steps"], last + 12, "steps")
    found = evaluations(out)
    same(found[:-1], evaluations(plain), "what was found before the end")
    same(found[-1][0], last + 12, "the last evaluation")
    result = train_well(cfg, *flags, *EVALUATOR, "--out", out, "--resume", ranks=3)
    check("nothing is left to do" in result.out, f"it goes on:\n{result}")


def case_a_run_that_is_stopped_anywhere_goes_on_with_the_same_bits():
    cfg = small_cfg(NORM_LAYERS)
    flags = setting(train__steps=40, early_stop__patience=3, early_stop__metric="test_loss",
                    early_stop__min_delta=0.5)
    whole, out = harness.scratch / "whole", harness.scratch / "out"
    train_well(cfg, *flags, *EVALUATOR, "--out", whole, ranks=3)
    for steps in (7, 12, 13, 24, 29):  # within an evaluation, where one is due, right after it
        train_well(cfg, *flags, *EVALUATOR, "--steps", steps, "--out", out, "--resume", ranks=3)
    train_well(cfg, *flags, *EVALUATOR, "--out", out, "--resume", ranks=3)
    check(harness.weights(out) == harness.weights(whole), "other weights")
    same(run_json(out)["exit"], run_json(whole)["exit"], "exit")
    same(run_json(out)["steps"], run_json(whole)["steps"], "steps")
    scheduled = [line for line in evaluations(out) if line[0] % 12 == 0 or line[0] == 40]
    same(scheduled, evaluations(whole), "what was found")


def begin_evaluated(name, *flags):
    """A run without end of two ranks and an evaluator, which has evaluated."""
    started, out = begin(small_cfg(), *EVALUATOR, *flags, ranks=3, steps=30, name=name)
    started.wait_for("an evaluation", lambda: len(metrics(out, "eval")) > 1)
    return started, out


def case_a_request_to_any_rank_stops_all_after_the_same_step():
    for number, rank in ((signal.SIGUSR1, None), (signal.SIGUSR1, 2), (signal.SIGTERM, 2)):
        started, out = begin_evaluated(f"out-{number}-{rank}", "--log-level", "info")
        started.signal(number, rank)
        result = started.finish()
        same(result.code, 75, f"the exit code of\n{result}\n")
        summary = run_json(out)
        where = r"[0-2]" if rank is None else rank
        name = signal.Signals(number).name
        check(re.fullmatch(rf"stopped after step {summary['steps']}: {name} on rank {where} "
                           r"\(.+\)", summary["reason"]), f"reason {summary['reason']!r}")
        saved = os.readlink(out / "checkpoints/latest")
        same(saved, f"step-{summary['steps']:08}", "what is saved")
        evaluations(out)


def case_a_request_to_the_evaluator_to_save_is_passed_on():
    started, out = begin_evaluated("out")
    started.signal(signal.SIGUSR2, 2)
    started.wait_for("a checkpoint", (out / "checkpoints/latest").is_symlink)
    done = steps_done(out)
    started.wait_for("a later step", lambda: steps_done(out) > done)
    started.signal(signal.SIGUSR1)
    same(started.finish().code, 75, "the exit code")


def case_a_killed_evaluator_ends_the_job_and_is_named():
    started, _ = begin_evaluated("out")
    started.signal(signal.SIGKILL, 2)
    result = started.finish()
    same(result.code, 128 + signal.SIGKILL, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"errors of\n{result}\n")
    check("rank 2, of this host, has died" in result.errors[0], f"it is not named:\n{result}")
    check(len(result.complaints) == 2 and "rank 2 has died; go on with: " in result.complaints[1],
          f"what is on stderr:\n{result}")


def case_an_evaluator_that_stands_still_ends_the_job_and_is_named():
    # The others wait for it, in rounds of messages, where its next result is due.
    started, _ = begin_evaluated("out", "--set", "train.hang_timeout_s=2")
    started.signal(signal.SIGSTOP, 2)
    result = started.finish()
    same((result.code, len(result.errors)), (76, 1), f"exit code and errors of\n{result}\n")
    check(re.search(r"did not arrive: rank 2 \(\S+\): stopped by a signal, phase \w+; the job",
                    result.errors[0]), f"it is not named alone:\n{result}")


def case_a_trainer_that_stands_still_is_named_while_the_evaluator_works():
    # From step 24 on it evaluates for many seconds; the next result is due after step 48.
    rows, data = 300000, harness.small_data(harness.scratch / "many")
    for name, dims in zip(harness.IDX_FILES[2:], ((rows, 8, 8), (rows,))):
        (data / name).write_bytes(idx_bytes(0x801 + len(dims) - 1, dims, bytes(math.prod(dims))))
    cfg = small_cfg(SLOW_LAYERS, data=data)
    for fault, ranks in (("stop:rank=1,step=44;slow:rank=0,ms=50", 3),
                         ("stop:rank=0,step=44;slow:rank=0,ms=50", 2)):
        result = train(cfg, *EVALUATOR, *harness.known_baseline(), *setting(
            train__hang_timeout_s=2, train__steps=1000, train__eval_every=2), "--out",
            harness.scratch / f"out-{ranks}", ranks=ranks, env={"DP_FAULT": fault})
        same((result.code, len(result.errors)), (76, 1), f"exit code and errors of\n{result}\n")
        check(re.search(rf"did not arrive: rank {ranks - 2} \(\S+\): stopped by a signal, "
                        r"phase \w+; the job", result.errors[0]), f"not named alone:\n{result}")
        check(re.search(rf"\n +{ranks - 1} \S+ +0 +- (?!idle )", result.err),
              f"the evaluator had done its work:\n{result}")


def case_what_cannot_be_is_refused_with_one_line():
    cfg = small_cfg()

    def refused(ranks, flags, words):
        out = harness.scratch / f"out-{ranks}"
        result = train(cfg, *EVALUATOR, *flags, "--out", out, ranks=ranks)
        same(result.code, 78, f"the exit code of\n{result}\n")
        same(len(result.complaints), 1, f"lines of\n{result}\n")
        check(words in result.err, f"not {words!r}:\n{result}")
        check(not (out / "config.yaml").exists(), "files are left")

    side_by_side(refused, (
        (1, (), "train.eval_rank: of 1 rank none is left to train: start more of them"),
        (2, setting(comm__servers=1), "train.eval_rank: of 2 ranks none is left to train"),
        (3, setting(comm__strategy="none"), "train.eval_rank: cannot go with comm.strategy"),
        (4, setting(train__lanes=4), "train.lanes: 4 lanes cannot be shared evenly by 3"),
    ))


def case_without_training_it_has_nothing_to_do():
    cfg = small_cfg()
    for flag, words in (("--dry-run", "rank 2 evaluates"), ("--data-only", "input alone: ")):
        result = train_well(cfg, *EVALUATOR, flag, ranks=3)
        check(words in result.out, f"no {words!r}:\n{result}")
    result = train_well(cfg, *EVALUATOR, "--print-config")
    check("eval_rank: true" in result.out, f"{result}")


if __name__ == "__main__":
    harness.main(globals())
