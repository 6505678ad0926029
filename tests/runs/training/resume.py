"""Runs that are interrupted, in whatever way, and go on: they end with the files of one that was
never interrupted.
"""
import os
import re
import shutil
import signal
import subprocess
import time

import harness
from harness import (ENDLESS, Started, check, endless, metrics, mlp_layers, run_json, same,
                     small_cfg, steps_done, train, train_well, weights)
from refusals import refuse

# All that has a state of its own, or depends on the number of a step.
FULL = """\
    - conv2d: {filters: 6, kernel: 3, padding: 1, bias: false}
    - batchnorm: {}
    - relu: {}
    - maxpool: {size: 2}
    - flatten: {}
    - dropout: {rate: 0.2}
    - dense: {units: 16}
    - relu: {}
    - dense: {units: 10}
"""
FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST")
ADAMW = ("--set", "optimizer.name=adamw", "--set", "optimizer.lr=0.01",
         "--set", "optimizer.clip_norm=0.5")
COSINE = ("--set", "optimizer.schedule.name=cosine", "--set", "optimizer.schedule.warmup_steps=5")


def strategy(name):
    return "--set", f"comm.strategy={name}"


def latest(out):
    """The bytes of all files of the newest checkpoint."""
    return {name: (out / "checkpoints/latest" / name).read_bytes() for name in FILES}


def same_end(whole, out, what):
    for name, data in latest(whole).items():
        check(latest(out)[name] == data, f"{name} differs: {what}")


def case_interrupted_and_resumed_equals_uninterrupted():
    cfg = small_cfg(FULL)  # 12 steps an epoch
    for number, (ranks, flags) in enumerate((
        (2, ()),
        (2, (*ADAMW, "--set", "comm.overlap=on")),
        (3, (*ADAMW, *COSINE, *strategy("zero1:over=ring"))),
        (2, (*COSINE, *strategy("shm"), "--set", "comm.overlap=on")),
        (3, (*strategy("ring"), "--set", "comm.bucket_mb=0.004")),
        (2, strategy("mpi")),
        (4, (*strategy("zero1:over=shm"), "--set", "optimizer.clip_norm=0.1")),
        (3, (*ADAMW, *strategy("ps"), "--set", "comm.servers=1")),
        (2, ("--set", "comm.compressor=onebit")),
        (2, ("--set", "comm.compressor=powersgd:rank=2")),
        (3, ("--set", "comm.compressor=topk:ratio=0.05", *strategy("ring"))),
    )):
        whole, out = harness.scratch / f"whole-{number}", harness.scratch / f"out-{number}"
        train_well(cfg, *flags, "--steps", 30, "--out", whole, ranks=ranks)
        train_well(cfg, *flags, "--steps", 7, "--out", out, ranks=ranks)
        stops = [7]
        if number % 3 == 0:  # twice; the plan that `auto` chose is taken over
            train_well(cfg, *flags, "--steps", 19, "--out", out, "--resume", ranks=ranks)
            same(run_json(out)["resumed_from"], 7, "resumed_from")
            stops.append(19)
        train_well(cfg, *flags, "--steps", 30, "--out", out, "--resume=auto", ranks=ranks)
        same_end(whole, out, f"{ranks} ranks, {flags}")
        for key in ("strategy", "steps", "final"):
            same(run_json(out)[key], run_json(whole)[key], f"{key} of {flags}")
        lines = [[{k: o[k] for k in ("step", "loss", "lr")} for o in metrics(folder, "step")]
                 for folder in (whole, out)]
        same(lines[1], lines[0], f"the steps in metrics.jsonl of {flags}")
        same([o["step"] for o in metrics(out, "resume")], stops, "resume lines")


def case_a_run_has_ended_only_with_its_report():
    cfg = small_cfg(FULL)
    out = harness.scratch / "out"
    train_well(cfg, *ADAMW, "--steps", 15, "--out", out, ranks=2)  # evaluated only for the end
    whole = run_json(out)
    (out / "run.json").unlink()  # as if killed in the evaluation after the last checkpoint
    lines = (out / "metrics.jsonl").read_text().splitlines(keepends=True)
    (out / "metrics.jsonl").write_text("".join(l for l in lines if '"step":15' not in l
                                               or '"type":"step"' in l))
    end = latest(out)
    result = train_well(cfg, *ADAMW, "--steps", 15, "--out", out, "--resume", ranks=2)
    check("nothing is left to do" not in result.out, f"it did nothing:\n{result}")
    for key in ("exit", "steps", "final", "strategy"):
        same(run_json(out)[key], whole[key], key)
    same(run_json(out)["resumed_from"], 15, "resumed_from")
    same([line["step"] for line in metrics(out, "eval")], [12, 15], "evaluations")
    same(metrics(out)[-1]["type"], "end", "the last line")
    same(latest(out), end, "the checkpoint")
    result = train_well(cfg, *ADAMW, "--steps", 15, "--out", out, "--resume", ranks=2)
    check("nothing is left to do" in result.out, f"not reported:\n{result}")


def threads_of(pid):
    """How many threads of a process are left; 0: it is gone."""
    try:
        return len(os.listdir(f"/proc/{pid}/task"))
    except FileNotFoundError:
        return 0


def interrupt(cfg, flags, out, ranks, victim, number, code):
    """Sends a signal to one rank of a run without end, 100 steps further than it has come."""
    begun = steps_done(out)
    # Schedules keep the length of the configuration.
    words = (cfg, *endless()[2:], "--steps", ENDLESS)
    started = Started([*words, *flags, "--out", out, "--resume=auto"], ranks)
    started.wait_for("100 steps", lambda: steps_done(out) >= begun + 100)
    pids = started.ranks().values()
    started.signal(number, victim)
    result = started.finish()
    same(result.code, code, f"the exit code of\n{result}\n")
    # On a busy machine a thread that writes a checkpoint ends late, since it makes way for others;
    # what a process that is not gone has begun is not touched.
    end = time.monotonic() + harness.PATIENCE
    while any(threads_of(pid) > 1 for pid in pids):
        check(time.monotonic() < end, f"not all of {pids} end")
        time.sleep(0.02)


def finish_both(cfg, flags, out, whole, ranks):
    """Lets the interrupted run end soon, and another one do as many steps at once."""
    steps = steps_done(out) + 50
    for folder, more in ((out, ("--resume=auto",)), (whole, ())):
        train_well(cfg, *flags, "--steps", steps, "--out", folder, *more, ranks=ranks)
    check(run_json(out)["resumed_from"] >= 100, f"from {run_json(out)['resumed_from']}")
    same([o["step"] for o in metrics(out, "step")], list(range(1, steps + 1)), "steps in metrics")


def case_a_run_goes_on_after_a_rank_was_killed():
    cfg = small_cfg(FULL)
    flags = (*ADAMW, "--set", "checkpoint.every_steps=30", "--set", "train.eval_every=0")
    for victim in (0, 1):
        out, whole = harness.scratch / f"out-{victim}", harness.scratch / f"whole-{victim}"
        train_well(cfg, *flags, "--steps", 5, "--out", out, ranks=2)
        for _ in range(2):
            interrupt(cfg, flags, out, 2, victim, signal.SIGKILL, 137)
            if (out / "run.json").exists():  # mpirun may be quicker than the rank that writes it
                same(run_json(out)["exit"], "error", "how a run with a killed rank has ended")
        finish_both(cfg, flags, out, whole, 2)
        same_end(whole, out, f"rank {victim} was killed")
        same(list((out / "checkpoints").glob(".tmp*")), [], "what a killed run left")


def case_a_run_goes_on_after_it_was_asked_to_stop():
    cfg = small_cfg(FULL)
    flags = (*ADAMW, "--set", "early_stop.patience=1000000")
    out, whole = harness.scratch / "out", harness.scratch / "whole"
    for _ in range(2):
        interrupt(cfg, flags, out, 2, 1, signal.SIGUSR1, 75)
    finish_both(cfg, flags, out, whole, 2)
    same_end(whole, out, "stopped by SIGUSR1")
    found, wanted = ([{k: v for k, v in o.items() if k not in ("time", "seconds")}
                      for o in metrics(folder, "eval")] for folder in (out, whole))
    same(found, wanted, "the evaluations")


def case_a_torn_checkpoint_is_reported_and_the_one_before_is_used():
    cfg = small_cfg(FULL)
    flags = ("--set", "checkpoint.every_steps=5")
    whole, out = harness.scratch / "whole", harness.scratch / "out"
    train_well(cfg, *flags, "--steps", 20, "--out", whole, ranks=2)
    train_well(cfg, *flags, "--steps", 13, "--out", out, ranks=2)
    model = out / "checkpoints/latest/model.safetensors"
    model.write_bytes(model.read_bytes()[:-9])
    result = train_well(cfg, *flags, "--steps", 20, "--out", out, "--resume", ranks=2)
    check(re.search(r"step-00000013: model\.safetensors does not match MANIFEST",
                    result.warnings[0]), f"not reported:\n{result}")
    same(run_json(out)["resumed_from"], 10, "resumed_from")
    same_end(whole, out, "after a torn checkpoint")


def case_the_number_of_ranks_and_the_strategy_may_change():
    cfg = small_cfg()  # without dropout and statistics, so that only rounding differs
    whole = harness.scratch / "whole"
    train_well(cfg, *ADAMW, "--steps", 20, "--out", whole, ranks=2)
    saved = harness.scratch / "saved"
    train_well(cfg, *ADAMW, "--steps", 7, "--out", saved, ranks=2)
    for ranks, flags, told in ((1, (), "ranks 2 -> 1"), (4, strategy("zero1:over=ring"), "2 -> 4"),
                               (2, strategy("ring"), "zero1:over=shm -> ring"), (2, (), None)):
        out = harness.scratch / f"out-{ranks}-{len(flags)}"
        shutil.copytree(saved, out, symlinks=True)
        result = train_well(cfg, *ADAMW, *flags, "--steps", 20, "--out", out, "--resume",
                            ranks=ranks)
        line = re.search("going on from .*", result.out)[0]
        same("the bits will differ" in line, told is not None, f"in {line}")
        check(told is None or told in line, f"no {told!r} in {line}")
        harness.close(metrics(out, "step")[-1]["loss"], metrics(whole, "step")[-1]["loss"], 1e-3,
                      f"the loss on {ranks} ranks")
        check(told is not None or weights(out) == weights(whole), "other bits on as many ranks")


def case_what_a_compressor_remembers_is_split_or_dropped():
    cfg = small_cfg()
    for name in ("topk:ratio=0.05", "onebit", "powersgd:rank=2"):
        flags = ("--set", f"comm.compressor={name}")
        saved = harness.scratch / f"saved-{name[:4]}"
        train_well(cfg, *flags, "--steps", 7, "--out", saved, ranks=4)
        arrays = harness.safetensors(saved / "checkpoints/latest/optimizer.safetensors")
        own = [key for key in arrays if "compressor." in key and ".rank" not in key]
        warm = name.startswith("powersgd")
        same(own, ["compressor.warm"] if warm else [], f"arrays of {name}")
        changes = [(4, name, "", ()), (2, name, "split", ()), (2, "none", "dropped", ())]
        if warm:
            changes += [(4, "powersgd:rank=3", "dropped", ()), (1, name, "dropped", ())]
        if name.startswith("topk"):
            changes.append((4, "topk:momentum=0,ratio=0.05", "", ()))
        # Who owns a part of a sum follows from how gradients are cut and shared.
        moved = "split" if name == "onebit" else ""
        changes += [(4, name, moved, flags) for flags in (
            ("--set", "comm.bucket_mb=0.004", "--set", "comm.first_bucket_mb=0.004"),
            strategy("zero1:over=ring"))]
        for number, (ranks, set_to, told, more) in enumerate(changes):
            out = harness.scratch / f"out-{name[:4]}-{number}"
            result = train(cfg, "--set", f"comm.compressor={set_to}", *more, "--steps", 9, "--out",
                           out, f"--resume={saved}", ranks=ranks)
            same(result.code, 0, f"the exit code of\n{result}\n")
            text = result.out + result.err
            same(text.count(f"residuals of 4 ranks are split evenly over {ranks}"),
                 int(told == "split"), f"how often it is reported that they are split:\n{result}")
            same(text.count("remembered is dropped"), int(told == "dropped"),
                 f"how often it is reported that they are dropped:\n{result}")


def case_start_vectors_do_not_depend_on_how_gradients_are_cut():
    cfg = small_cfg(mlp_layers(64))
    vectors = []
    for number, megabytes in enumerate((25, 0.02)):
        out = harness.scratch / f"out-{number}"
        train_well(cfg, "--set", "comm.compressor=powersgd:rank=2", *strategy("direct"), "--set",
                   f"comm.bucket_mb={megabytes}", "--set", "comm.first_bucket_mb=0.004", "--steps",
                   2, "--out", out, ranks=2)
        vectors.append(harness.safetensors(out / "checkpoints/latest/optimizer.safetensors")
                       ["compressor.warm"])
    same(vectors[1], vectors[0], "compressor.warm")


def case_with_lanes_another_number_of_ranks_gives_the_same_bits():
    cfg = small_cfg(FULL)
    flags = (*ADAMW, *COSINE, "--set", "train.lanes=4", "--set", "checkpoint.every_steps=5",
             "--set", "checkpoint.keep_every=10")
    whole, killed = harness.scratch / "whole", harness.scratch / "killed"
    train_well(cfg, *flags, "--steps", 30, "--out", whole, ranks=1)
    # What `auto` chose without lanes need not keep the order of sums.
    free = harness.scratch / "free"
    train_well(cfg, *strategy("ring"), "--out", free, ranks=2)
    train_well(cfg, "--steps", 8, "--out", free, "--resume", "--set", "train.lanes=4", ranks=2)
    # Killed on four ranks, gone on with on two, then one with another strategy, then two.
    interrupt(cfg, flags, killed, 4, 3, signal.SIGKILL, 137)
    for path in (killed / "checkpoints").iterdir():  # what it did until it was killed
        if path.is_symlink():
            path.unlink()
        elif path.name != "step-00000010":
            shutil.rmtree(path)
    check((killed / "checkpoints/step-00000010").is_dir(), "no checkpoint of step 10 was kept")
    for steps, ranks, extra in ((17, 2, ()), (24, 1, strategy("zero1:over=shm")),
                                (30, 2, strategy("shm"))):
        result = train_well(cfg, *flags, *extra, "--steps", steps, "--out", killed, "--resume",
                            ranks=ranks)
        check("the bits stay the same" in result.out, f"not reported:\n{result}")
    for name in FILES[:2]:
        check(latest(killed)[name] == latest(whole)[name], f"{name} differs on other ranks")


def case_what_changes_the_bits_is_named():
    cfg = small_cfg(FULL)
    saved = harness.scratch / "saved"
    train_well(cfg, "--set", "train.lanes=2", "--steps", 3, "--out", saved)
    other = harness.small_data(harness.scratch / "other", classes=9)  # other labels, as many rows
    for number, (key, value, name) in enumerate((
        ("optimizer.lr", 0.09, "optimizer.lr 0.1 -> 0.09"),
        ("optimizer.clip_norm", 1, "optimizer.clip_norm 0 -> 1"),
        ("optimizer.schedule.warmup_steps", 9, "optimizer.schedule.warmup_steps 0 -> 9"),
        ("model.layers[5].dropout.rate", 0.3, "model.layers"),
        ("data.normalize", "{mean: [0.5], std: [0.5]}", "data.normalize.mean [] -> [0.5]"),
        ("data.dir", other, "training labels"),
        ("data.cache", "batch", "repeated batch none -> the first"),
        ("data.cache", "decoded", None),
        ("checkpoint.every_steps", 7, None),
        ("train.steps", 9, None),  # the learning rate is constant
    )):
        result = train_well(cfg, "--set", "train.lanes=2", "--set", f"{key}={value}", "--steps", 4,
                            "--out", harness.scratch / f"out-{number}", f"--resume={saved}")
        line = re.search("going on from .*", result.out)[0]
        same("the bits will differ" in line, name is not None, f"in {line}")
        check(name is None or f"; {name}" in line, f"no {name!r} in {line}")


def case_what_cannot_go_on_is_refused():
    cfg = small_cfg(FULL)
    out = harness.scratch / "out"
    train_well(cfg, "--out", out, ranks=2)
    fresh = harness.scratch / "fresh"
    refuse(66, r"/nonexistent: no checkpoint is there", cfg, "--resume=/nonexistent", out=fresh)
    refuse(66, r"data: no checkpoint is there", cfg, f"--resume={harness.scratch / 'data'}",
           out=fresh, ranks=(2,))
    refuse(64, r"--resume wants \[=PATH\]", cfg, "--resume=", ranks=(0,))
    refuse(64, r"holds a run already: choose another --out, or go on with --resume", cfg,
           out=out, ranks=(2,))
    more = ("--steps", 20, f"--resume={out}")
    refuse(78, r"holds another model: '6\.weight' is \[16, 96\], the model's is \[12, 96\]; ", cfg,
           *more, "--set", "model.layers[6].dense.units=12", out=out)
    refuse(78, r"optimizer\.name sgd -> adamw; .*--init .*step-00000006/model\.safetensors", cfg,
           *more, *ADAMW, out=out, ranks=(2,))
    refuse(78, r"train\.global_batch 50 -> 60, train\.seed 1 -> 2;", cfg, *more, "--seed", 2,
           "--set", "train.global_batch=60", out=out, ranks=(2,))
    for name in FILES:
        (out / "checkpoints/latest" / name).write_bytes(b"")
    result = train(cfg, "--steps", 20, "--out", out, "--resume", ranks=2)
    same(result.code, 65, f"the exit code of\n{result}\n")
    check(re.search("none of 1 checkpoint is whole", result.errors[0]), f"{result}")
    same(result.err.splitlines()[-1], result.errors[0], "the last line on stderr")
    refuse(65, r"step-00000006/MANIFEST: no line for model", cfg, "--steps", 20,
           f"--resume={out}/checkpoints/step-00000006", out=fresh, ranks=(2,))


def case_a_finished_run_is_left_as_it_is():
    cfg = small_cfg()
    out = harness.scratch / "out"
    train_well(cfg, "--out", out, ranks=2)

    def files():
        return {path: (path.stat().st_mtime_ns, path.stat().st_size)
                for path in sorted(out.rglob("*"))}

    before = files()
    for flags in ((), ("--steps", 3)):
        result = train_well(cfg, "--out", out, "--resume", *flags, ranks=2)
        check("nothing is left to do" in result.out, f"not reported:\n{result}")
        same(files(), before, "the files")


def read_only(folder):
    """What to start a program with that must not write there, also as root."""
    wrapper = ["unshare", "-m", "sh", "-c",
               'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"', str(folder)]
    if subprocess.run([*wrapper, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise harness.Skipped("no right to mount a folder read-only")
    return wrapper


def case_what_others_put_beside_checkpoints_stays():
    cfg = small_cfg()
    out = harness.scratch / "out"
    train_well(cfg, "--out", out, ranks=2)
    (out / "checkpoints/latest").unlink()
    theirs = [out / "checkpoints" / name for name in
              ("latest", "step-00000008/thesis.txt", ".tmp-notes/thesis.txt",
               "step-00000006/thesis.txt")]
    for path in theirs:
        path.parent.mkdir(exist_ok=True)
        path.write_text("thesis")
    result = train_well(cfg, "--out", out, "--resume", "--steps", 10, "--set",
                        "checkpoint={every_steps: 2, keep: 1}", ranks=2)
    check("step 6 of 10" in result.out, f"it does not go on from step 6:\n{result}")
    theirs[1] = out / "checkpoints/step-00000008.other-1/thesis.txt"
    for path in theirs:
        same(path.read_text(), "thesis", path)
    text = "\n".join(result.warnings)
    for pattern in (r"latest is not a symbolic link", r"renamed to \S+/step-00000008\.other-1",
                    r"cannot delete \S+/step-00000006"):
        check(re.search(pattern, text), f"no {pattern!r} in\n{result}")
    check((out / "checkpoints/step-00000010/MANIFEST").exists(), "the last one is not there")
    check(not (out / "checkpoints/step-00000008").exists(), "the one before is still there")


def case_where_nothing_can_be_written_the_last_checkpoint_stays():
    cfg = small_cfg()
    out = harness.scratch / "out"
    train_well(cfg, "--out", out, ranks=2)
    good = latest(out)
    wrapper, pattern = (), r"checkpoints/.*Permission denied"
    if os.geteuid() != 0:
        (out / "checkpoints").chmod(0o555)
    else:  # whom no permission stops
        wrapper, pattern = read_only(out / "checkpoints"), r"checkpoints/.*Read-only file system"
    arguments = [cfg, "--out", out, "--resume", "--steps", 8]
    result = Started(arguments, ranks=2, wrapper=wrapper).finish()
    same(result.code, 74, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    check(re.search(pattern, result.errors[0]), f"no cause:\n{result}")
    same(result.complaints, result.errors, "what stands on stderr")
    report = run_json(out)
    same((report["exit"], report["steps"]), ("error", 8), "exit and steps in run.json")
    check("the last checkpoint cannot be written" in report["reason"], report["reason"])
    same([line["exit"] for line in metrics(out, "end")], ["finished", "error"], "end lines")
    (out / "checkpoints").chmod(0o755)
    same({name: (out / "checkpoints/step-00000006" / name).read_bytes() for name in FILES}, good,
         "the checkpoint before")


def case_a_run_whose_last_weights_are_not_numbers_has_diverged():
    cfg = small_cfg()
    out = harness.scratch / "out"
    flags = ("--set", "optimizer.lr=1e6", "--set", "optimizer.weight_decay=1000",
             "--set", "failure_stop.nan=false")
    result = train(cfg, *flags, "--out", out, ranks=2)
    same(result.code, 77, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    same((run_json(out)["exit"], run_json(out)["steps"]), ("diverged", 6), "run.json")
    check("weights are not numbers" in run_json(out)["reason"], run_json(out)["reason"])
    check("files: " in result.out and "model.safetensors" not in result.out,
          f"a file that is not there is named:\n{result}")


def case_a_run_that_is_to_go_on_without_numbers_does_all_steps():
    cfg = small_cfg()
    out = harness.scratch / "out"
    flags = ("--set", "optimizer.lr=1e6", "--set", "optimizer.weight_decay=1000",
             "--set", "failure_stop.nan=false", "--set", "checkpoint.every_steps=10")
    for ranks in (0, 2):
        out = harness.scratch / f"out-{ranks}"
        result = train(cfg, *flags, "--steps", 30, "--out", out, ranks=ranks)
        same(result.code, 77, f"the exit code of\n{result}\n")
        same(run_json(out)["steps"], 30, "steps")
        same(len(result.warnings), 2, f"warnings in\n{result}\n")
        for step, line in zip((10, 20), result.warnings):
            check(re.search(rf"step {step}: '\S+' has numbers that are not finite: .*lower "
                            rf"optimizer\.lr.*no checkpoint of step {step}; training goes on", line)
                  and "training diverged" not in line, f"{result}")
        check("step 30: '" in result.errors[0] and "training diverged" not in result.errors[0],
              f"what was asked to go on is said to have diverged:\n{result}")


if __name__ == "__main__":
    harness.main(globals())
