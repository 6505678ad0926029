"""Ranks that train at their own pace, over MPI: train.mode async with a staleness. They learn, meet
where something is due, end together, and go on from a checkpoint.
"""
import math
import os
import re
import signal

import harness
from harness import (begin, check, endless, known_baseline, metrics, mlp_layers, run_json, same,
                     small_cfg, steps_done, train, train_well)
from own_pictures import many, model
from refusals import side_by_side

NO_EVALUATION = ("--set", "train.eval_every=0")


def stale(staleness=2, servers=1, mode="async"):
    return ("--set", f"train.mode={mode}", "--set", f"train.staleness={staleness}",
            "--set", f"comm.servers={servers}", *known_baseline())


def check_whole(out, trainers, servers, steps, resumed=0):
    """A line for each step, in order; each gradient counted once by each server."""
    same([line["step"] for line in metrics(out, "step")], list(range(1, steps + 1)), "steps")
    check(all(math.isfinite(line["loss"]) for line in metrics(out, "step")), "a loss is no number")
    summary = run_json(out)
    same(summary["steps"], steps, "steps in run.json")
    same(summary["world_size"], trainers, "world_size")
    same(len(summary["ranks"]), trainers, "ranks in run.json")
    same(sum(summary["staleness"]), servers * trainers * (steps - resumed), "gradients counted")
    check(os.path.isdir(out / f"checkpoints/step-{steps:08}"), "no checkpoint of the last step")
    return summary


def case_ranks_at_their_own_pace_learn():
    cfg = small_cfg()
    for ranks, servers, staleness in ((2, 1, 1), (3, 1, 2), (4, 2, 4)):
        out = harness.scratch / f"out-{ranks}-{servers}"
        result = train_well(cfg, *stale(staleness, servers), "--set", "train.epochs=5",
                            "--set", "checkpoint.every_steps=7", "--out", out, ranks=ranks)
        summary = check_whole(out, ranks - servers, servers, 60)
        check(summary["final"]["test_accuracy"] > 0.9, f"it learns nothing:\n{result}")
        same([line["step"] for line in metrics(out, "eval")], [12, 24, 36, 48, 60], "evaluations")
        kept = sorted(path.name for path in (out / "checkpoints").iterdir())
        same(kept, ["latest", "step-00000049", "step-00000056", "step-00000060"], "checkpoints")
        check("at their own pace" in result.out and "staleness: weights of" in result.out,
              f"nobody says so:\n{result}")
        most = (ranks - servers - 1) * (2 * staleness + 1)
        check(len(summary["staleness"]) <= most + 1, f"too stale: {summary['staleness']}")


def case_without_staleness_the_bits_are_those_of_synchronous_training():
    cfg = small_cfg()
    train_well(cfg, *stale(0), "--out", harness.scratch / "async", ranks=3)
    train_well(cfg, *stale(0, mode="sync"), "--out", harness.scratch / "sync", ranks=3)
    check(harness.weights(harness.scratch / "async") == harness.weights(harness.scratch / "sync"),
          "other bits")
    same(run_json(harness.scratch / "async")["staleness"], [], "staleness")


def case_an_interrupted_run_goes_on():
    cfg = small_cfg()
    out = harness.scratch / "out"
    train_well(cfg, *stale(), "--steps", 17, "--out", out, ranks=4)
    train_well(cfg, *stale(), "--set", "train.steps=60", "--out", out, "--resume", ranks=4)
    check_whole(out, 3, 1, 60, resumed=17)
    check(run_json(out)["final"]["test_accuracy"] > 0.9, "it learns nothing")
    train_well(cfg, "--set", "train.steps=70", "--out", out, "--resume", ranks=2)  # in step
    same(run_json(out)["steps"], 70, "steps")


def case_a_synchronous_run_goes_on_at_every_ranks_own_pace():
    cfg = small_cfg()
    saved = harness.scratch / "saved"
    train_well(cfg, "--steps", 12, "--out", saved, ranks=3)  # by what auto takes without servers
    same(run_json(saved)["strategy"], "zero1:over=shm", "strategy")
    out = harness.scratch / "out"
    result = train_well(cfg, *stale(2, 1), "--set", "train.epochs=5", "--out", out,
                        f"--resume={saved}", ranks=3)
    check("comm.servers 0 -> 1" in result.out, f"not reported:\n{result}")
    check(run_json(out)["strategy"].startswith("ps"), run_json(out)["strategy"])
    check(run_json(out)["final"]["test_accuracy"] > 0.9, f"it learns nothing:\n{result}")


def case_one_trainer_has_the_bits_of_synchronous_steps():
    cfg = small_cfg()
    flags = ("--set", "train.steps=20", "--set", "checkpoint.every_steps=6")
    train_well(cfg, *stale(3, 2), *flags, "--out", harness.scratch / "async", ranks=3)
    train_well(cfg, *stale(0, 2, "sync"), *flags, "--out", harness.scratch / "sync", ranks=3)
    check(harness.weights(harness.scratch / "async") == harness.weights(harness.scratch / "sync"),
          "other bits")


def begin_stale(cfg, name, *flags):
    """A run without end of two trainers and two servers, once it has done some steps."""
    return begin(cfg, *stale(2, 2), *NO_EVALUATION, *flags, ranks=4, steps=30, name=name)


def case_a_request_to_any_rank_stops_all_after_the_same_step():
    cfg = small_cfg()
    for rank in (None, 0, 1, 2, 3):
        started, out = begin_stale(cfg, f"out-{rank}", "--log-level", "debug")
        started.signal(signal.SIGUSR1, rank)
        result = started.finish()
        same(result.code, 75, f"the exit code of\n{result}\n")
        summary = check_whole(out, 2, 2, run_json(out)["steps"])
        same(summary["exit"], "stopped", "exit")
        where = r"[0-3]" if rank is None else rank
        check(re.fullmatch(rf"stopped after step {summary['steps']}: SIGUSR1 on rank {where} "
                           r"\(.+\)", summary["reason"]), f"reason {summary['reason']!r}")
        ends = sorted(re.findall(r"rank (\d) ends after step (\d+)", result.err))
        same(ends, [(str(rank), str(summary["steps"])) for rank in range(4)], "ends of ranks")


def case_a_request_to_save_is_carried_out_and_the_run_goes_on():
    started, out = begin_stale(small_cfg(), "out")
    started.signal(signal.SIGUSR2, 3)
    started.wait_for("a checkpoint", (out / "checkpoints/latest").is_symlink)
    saved = os.readlink(out / "checkpoints/latest")
    behind = steps_done(out)
    started.wait_for("later steps", lambda: steps_done(out) > behind + 100)
    started.signal(signal.SIGUSR1, 3)
    same(started.finish().code, 75, "the exit code")
    last = run_json(out)["steps"]
    check_whole(out, 2, 2, last)
    kept = sorted(path.name for path in (out / "checkpoints").iterdir())
    same(kept, ["latest", saved, f"step-{last:08}"], "checkpoints: for the signal, and at the end")


def case_training_that_fails_ends_on_all_ranks():
    cfg = small_cfg(mlp_layers())
    out = harness.scratch / "out"
    result = train(cfg, *endless(), *stale(), *NO_EVALUATION, "--set",
                   "optimizer.schedule.name=step", "--set", "optimizer.schedule.step_size=10",
                   "--set", "optimizer.schedule.gamma=1000", "--out", out, ranks=4)
    same(result.code, 77, f"the exit code of\n{result}\n")
    same(run_json(out)["exit"], "diverged", "exit")
    check(not (out / "checkpoints").exists(), "something was saved")


def case_a_file_that_one_rank_cannot_read_ends_all_with_one_line():
    folder, pictures = many("pictures", 240)
    out = harness.scratch / "out"
    sets = [word for key in ("data.cache=none", "train.lanes=0", "train.epochs=100000")
            for word in ("--set", key)]
    started = harness.Started([model(folder), *sets, *stale(), *NO_EVALUATION, "--out", out], 3)
    started.wait_for("step 5", lambda: steps_done(out) >= 5)
    pictures[100].write_bytes(b"no picture")
    result = started.finish()
    same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
    check(re.search(rf"rank [01] .*{pictures[100].name}: is no PNG", result.errors[0]), f"{result}")


def case_a_killed_rank_ends_the_others():
    for rank in (1, 2):
        started, _ = begin_stale(small_cfg(), f"out-{rank}")
        started.signal(signal.SIGKILL, rank)
        result = started.finish()
        same(result.code, 137, f"the exit code of\n{result}\n")


def case_what_cannot_go_together_is_refused():
    cfg = small_cfg()
    rows = (
        (("--set", "train.mode=async"), "train.mode: async needs comm.servers"),
        ((*stale(1), "--set", "train.lanes=4"), "cannot go with train.lanes"),
        ((*stale(1), "--set", "optimizer.clip_norm=1"), "cannot go with optimizer.clip_norm"),
        ((*stale(1), "--set", "comm.compressor=fp16"), "cannot go with servers"),
        ((*stale(1), "--set", "train.local_steps=2"), "cannot go with servers"),
    )

    def refused(flags, text):
        result = train(cfg, *flags, "--out", harness.scratch / "out", ranks=2)
        same((result.code, len(result.errors)), (78, 1), f"code and errors of\n{result}\n")
        check(text in result.errors[0], f"no {text!r} in {result.errors[0]!r}")

    side_by_side(refused, rows)


if __name__ == "__main__":
    harness.main(globals())
