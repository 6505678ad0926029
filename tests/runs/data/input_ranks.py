"""Ranks that only read: data.input_ranks. Weights and losses are those of a run whose ranks read
their own rows; runs end, stop and go on as others do, hosts that only train need no files, and the
report says whether they pay.
"""
import os
import re
import signal

import harness
from broken import has_mpich
from harness import begin, check, metrics, run_json, same, small_cfg, steps_done, train, train_well
from hosts import on_hosts, start
from own_pictures import many, model

AUGMENT = ("--set", "data.augment=[{random_crop: {padding: 2}}, {flip: {}}, {mixup: {}}]")


def readers(count, *more):
    return ("--set", f"data.input_ranks={count}", *AUGMENT, *more)


def steps(number):
    # A rank alone has one thread, too, where mpirun binds it to no core, as MPICH's.
    return ("--threads", 1, "--set", f"train.steps={number}")


def pack():
    """The small data set as records."""
    packed = harness.scratch / "packed"
    harness.program = "ddp_data"
    try:
        result = train("pack", harness.scratch / "data", packed)
    finally:
        harness.program = "ddp_train"
    same(result.code, 0, f"the exit code of\n{result}\n")
    return packed


def streamed(packed):
    """Records that are read when they are needed."""
    return ("--set", "data.source=records", "--set", f"data.dir={packed}", "--set",
            "data.cache=none")


def check_same(out, other):
    """Two runs came to the same."""
    for kind, key in (("step", "loss"), ("eval", "test_loss"), ("eval", "test_accuracy")):
        same([line[key] for line in metrics(out, kind)],
             [line[key] for line in metrics(other, kind)], key)
    check(harness.weights(out) == harness.weights(other), "other weights")


def case_batches_are_those_that_ranks_would_read_themselves():
    cfg = small_cfg()
    plain = {}
    for ranks in (1, 2):
        plain[ranks] = harness.scratch / f"plain-{ranks}"
        train_well(cfg, *steps(30), *AUGMENT, "--out", plain[ranks], ranks=ranks)
    for ranks, count, flags in ((1, 1, ()), (1, 2, ()), (2, 1, ("--set", "comm.strategy=ring")),
                                (2, 2, streamed(pack()))):
        out = harness.scratch / f"out-{ranks}-{count}"
        result = train_well(cfg, *steps(30), *readers(count, *flags), "--out", out,
                            ranks=ranks + count)
        check_same(out, plain[ranks])
        summary = run_json(out)
        same(summary["world_size"], ranks, "world_size")
        same(len(summary["ranks"]), ranks, "ranks")
        same(summary["input_ranks"]["count"], count, "input ranks")
        check(summary["input_ranks"]["work_ms"] > 0, f"no work in {summary['input_ranks']}")
        check(re.search(r"training waits \S+ ms a step for batches; reading\s+them itself would "
                        r"take \S+ ms of its cores: they (save\s+time|do\s+not\s+pay)",
                        re.sub(r"\n +", " ", result.out)), f"nothing about input:\n{result}")
    same(run_json(plain[2])["input_ranks"],
         {"count": 0, "wait_ms": None, "work_ms": None, "verdict": None}, "without them")


def case_readers_servers_and_an_evaluator_go_together():
    cfg = small_cfg()
    plain, out = harness.scratch / "plain", harness.scratch / "out"
    flags = (*steps(24), "--set", "comm.servers=1", "--set", "comm.strategy=ps")
    train_well(cfg, *flags, *AUGMENT, "--out", plain, ranks=2)
    result = train_well(cfg, *flags, *readers(1), "--set", "train.eval_rank=true", "--set",
                        "report.price_per_hour=3", "--set", "report.price_per=rank", "--out", out,
                        ranks=4)
    check_same(out, plain)
    for words in ("1 rank, from rank 2 on, reads for the others", "rank 3 evaluates"):
        check(words in result.out, f"no {words!r}:\n{result}")
    summary = run_json(out)
    harness.close(summary["samples_per_dollar"], summary["samples_per_second"] * 3600 / (3 * 4),
                  1e-6, "samples per dollar")


def case_a_stopped_run_goes_on_with_the_same_bits():
    cfg = small_cfg()
    whole, out = harness.scratch / "whole", harness.scratch / "out"
    train_well(cfg, *steps(30), *AUGMENT, "--out", whole, ranks=2)
    for last, count in ((5, 1), (13, 2), (30, 1)):
        train_well(cfg, *steps(30), *readers(count), "--steps", last, "--out", out, "--resume",
                   ranks=2 + count)
    check(harness.weights(out) == harness.weights(whole), "other weights")


def case_requests_reach_all_ranks_from_one_that_reads():
    started, out = begin(small_cfg(), *readers(1), "--set", "train.eval_every=0", ranks=3, steps=30)
    started.signal(signal.SIGUSR2, 2)
    started.wait_for("a checkpoint", (out / "checkpoints/latest").is_symlink)
    done = steps_done(out)
    started.wait_for("a later step", lambda: steps_done(out) > done)
    started.signal(signal.SIGUSR1, 2)
    result = started.finish()
    same(result.code, 75, f"the exit code of\n{result}\n")
    summary = run_json(out)
    check(re.fullmatch(rf"stopped after step {summary['steps']}: SIGUSR1 on rank 2 \(.+\)",
                       summary["reason"]), f"reason {summary['reason']!r}")
    same(os.readlink(out / "checkpoints/latest"), f"step-{summary['steps']:08}", "what is saved")


def case_a_rank_that_is_killed_or_stopped_is_named():
    started, _ = begin(small_cfg(), *readers(1), "--set", "train.eval_every=0", ranks=3, steps=30)
    started.signal(signal.SIGKILL, 2)
    result = started.finish()
    same(result.code, 128 + signal.SIGKILL, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"errors of\n{result}\n")
    check("rank 2, of this host, has died" in result.errors[0], f"it is not named:\n{result}")

    started, out = begin(small_cfg(), *readers(1), "--set", "train.eval_every=0", "--set",
                         "train.hang_timeout_s=2", ranks=3, steps=30, name="stopped")
    started.signal(signal.SIGSTOP, 2)
    result = started.finish()
    same(result.code, 76, f"the exit code of\n{result}\n")
    same(run_json(out)["exit"], "hung", "exit")
    check(re.search(r"error: .*did not arrive: rank 2 \(\S+\): stopped by a signal", result.err),
          f"it is not named:\n{result}")


def case_a_sample_that_cannot_be_read_ends_the_job():
    cfg = small_cfg()
    packed = pack()
    shard = next(packed.glob("shard-*.rec"))
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 64
    shard.write_bytes(data)
    result = train(cfg, *steps(30), *streamed(packed), "--set", "data.input_ranks=1", ranks=2)
    same(result.code, 65, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"errors of\n{result}\n")
    check(shard.name in result.errors[0], f"the shard is not named:\n{result}")


EPOCH = 20  # steps


def spoil(folder):
    for path in folder.rglob("*.png"):
        path.write_bytes(b"no picture")


def fail_together(name, trains, readers, *keys, after=0, flags=()):
    """A run whose pictures are all bad, or become so while rank 0 sleeps after that step: batches
    that are read ahead of it are still good. What it has left."""
    folder, _ = many(name, 12 * EPOCH)
    out = harness.scratch / f"{name}-out"
    keys = ("data.cache=none", "train.lanes=0", f"data.input_ranks={readers}", *keys)
    sets = [word for key in keys for word in ("--set", key)]
    if after == 0:
        spoil(folder / "train")
    run = harness.Started([model(folder), *sets, *flags, *harness.known_baseline(), "--out", out],
                          trains + readers + ("train.eval_rank=true" in keys),
                          {"DP_FAULT": f"slow:step={after},rank=0,ms=400"} if after else {})
    if after > 0:
        run.wait_for(f"step {after}", lambda: steps_done(out) >= after)
        spoil(folder)
    return run.finish()


def case_ranks_that_fail_at_the_same_moment_say_one_line():
    evaluator, alone = "train.eval_rank=true", ("--data-only",)
    for i, (trains, readers, keys, after, flags) in enumerate((
            (2, 2, (), 0, ()),  # two that read
            (2, 1, (), EPOCH - 3, ()),  # one that reads, and those that train, of the test set
            (1, 2, (evaluator,), EPOCH - 3, ()), (2, 2, (), 0, alone), (2, 0, (), 0, alone))):
        result = fail_together(str(i), trains, readers, *keys, after=after, flags=flags)
        same((result.code, len(result.errors)), (65, 1), f"the end of\n{result}\n")
        check(re.search(r"error: rank \d \(.+\): .+/\d+\.png: is no PNG and no JPEG",
                        result.errors[0]), f"no picture is named:\n{result}")


def case_what_cannot_be_is_refused_with_one_line():
    cfg = small_cfg()
    result = train(cfg, "--set", "data.input_ranks=2", ranks=2)
    same(result.code, 78, f"the exit code of\n{result}\n")
    same(len(result.complaints), 1, f"lines of\n{result}\n")
    check("data.input_ranks: of 2 ranks none is left to train" in result.err, f"{result}")


def case_hosts_that_only_train_need_no_files():
    if has_mpich():
        raise harness.Skipped("launch/netlab starts Open MPI's ranks on its hosts")
    cfg, data = small_cfg(), harness.scratch / "data"
    packed, plain = pack(), harness.scratch / "plain"
    train_well(cfg, *steps(12), *AUGMENT, "--out", plain, ranks=1)
    hide = f"mount -t tmpfs none {data} && mount -t tmpfs none {packed}"
    evaluator, raw = ("--set", "train.eval_rank=true"), ("--set", "data.cache=raw")
    runs = [(flags, start(ranks, ranks, cfg, *steps(12), *readers(1, *flags), "--out",
                          harness.scratch / f"guest-{i}", before=on_hosts(guests, hide)))
            for i, (ranks, guests, flags) in enumerate((
                (2, ["h1"], ()), (2, ["h1"], streamed(packed)),
                (3, ["h1", "h3"], (*streamed(packed), *raw, *evaluator))))]
    for i, (flags, run) in enumerate(runs):
        result = run.finish()
        same((result.code, result.complaints), (0, []), f"the end of {flags}:\n{result}\n")
        check_same(harness.scratch / f"guest-{i}", plain)
    refused = start(2, 2, cfg, *steps(12), *readers(1), "--out", harness.scratch / "none",
                    before=on_hosts(["h2"], f"mount -t tmpfs none {data}")).finish()
    same((refused.code, len(refused.errors)), (66, 1), f"the end of\n{refused}\n")
    check("rank 1 (h2): " in refused.errors[0], f"{refused}")


def case_input_alone_and_without_input():
    cfg = small_cfg()
    result = train_well(cfg, *readers(1), *steps(20), "--data-only", ranks=2)
    check(re.search(r"input alone: 20 batches, \S+ samples/s over all ranks, 1 input rank\n",
                    result.out), f"{result}")
    plain, out = harness.scratch / "plain", harness.scratch / "out"
    train_well(cfg, *AUGMENT, *steps(20), "--cached-input", "--out", plain, ranks=2)
    train_well(cfg, *readers(1), *steps(20), "--cached-input", "--out", out, ranks=3)
    check_same(out, plain)


if __name__ == "__main__":
    harness.main(globals())
