"""Whole runs on GPUs, with ranks as processes: who takes which, every way to share gradients there,
and how it ends when there is none, or something fails. In a build of DP_CUDA=host GPUs are
simulated; without device cuda all of it is skipped.
"""
import json
import re
import signal
import struct
import subprocess
import time

import harness
import trace
from harness import (Skipped, Started, check, mlp_layers, run_json, same, small_cfg, train,
                     train_well, weights)

# Of its 5.2 MiB more than one piece is on its way (collectives/exchange/staging.h).
WIDE = mlp_layers(1000, 1300)
DROPPED = """\
    - conv2d: {filters: 4, kernel: 3}
    - batchnorm: {}
    - relu: {}
    - dropout: {rate: 0.2}
    - flatten: {}
    - dense: {units: 10}
"""
BRANCHED = """\
    - conv2d: {filters: 4, kernel: 3, padding: 1}
    - concat:
        branches:
          - []
          - [conv2d: {filters: 4, kernel: 3, padding: 1}, silu: {}]
          - [concat: {branches: [[relu: {}], [conv2d: {filters: 2, kernel: 1}]]}]
    - flatten: {}
    - dense: {units: 10}
"""


def gpus(count, **more):
    """The environment of a machine with so many of them."""
    listed = subprocess.run([harness.build / "ddp_train", "--list", "devices"], check=True,
                            capture_output=True, text=True).stdout
    line = [line for line in listed.splitlines() if line.startswith("cuda ")]
    if not line:
        raise Skipped("this build has no device cuda")
    if "DP_CUDA:STRING=host" not in (harness.build / "CMakeCache.txt").read_text():
        raise Skipped("the number of GPUs can be chosen with DP_CUDA=host only")
    return {"DP_CUDA_GPUS": str(count), **more}


def flags(strategy, *more):
    """Of a run that does not measure one rank alone, which would be more than half of its time."""
    baseline = harness.scratch / "baseline.json"
    baseline.write_text('{"single_rank_samples_per_second": 1000}')
    return ["--device", "cuda", "--set", f"comm.strategy={strategy}", "--baseline", baseline, *more]


def case_every_way_to_share_on_gpus_gives_the_same_bits():
    cfg = small_cfg(WIDE)
    lanes = ("--set", "train.lanes=4", "--steps", "2")
    expected = None
    for ranks, count, strategy in ((1, 1, "auto"), (2, 1, "ipc"), (2, 1, "staged:over=shm"),
                                   (4, 2, "auto"), (2, 2, "zero1:over=ipc")):
        out = harness.scratch / f"{ranks}-{count}-{strategy.split(':')[0]}"
        result = train_well(cfg, *flags(strategy, *lanes), "--out", out, ranks=ranks,
                            env=gpus(count))
        expected = expected or weights(out)
        check(weights(out) == expected, f"other bits: {strategy} on {ranks} ranks, {count} GPUs")
        shares = re.search(r"(\d) ranks share (\d) GPUs?, up to (\d) on each", result.out)
        same(shares and shares.groups(), None if ranks <= count else
             (str(ranks), str(count), str(ranks // count)), f"who shares, with {strategy}")
        if strategy == "auto" and ranks > 1:
            same(run_json(out)["strategy"], "ipc", "what auto takes")


def case_nccl_is_taken_where_each_rank_has_a_gpu():
    out = harness.scratch / "out"
    result = train_well(small_cfg(), "--device", "cuda", "--out", out, ranks=3, env=gpus(3))
    same(run_json(out)["strategy"], "nccl", "what auto takes")
    check(run_json(out)["single_rank_samples_per_second"] > 0, "one rank alone was measured")
    check("nccl (one rank a GPU)" in result.out, result)
    before_tables = result.out.split("\nrank host")[0]
    check("share" not in before_tables.replace("sharing by", ""), result)


def case_a_dry_run_shows_the_gpu_of_each_rank():
    result = train_well(small_cfg(), "--device", "cuda", "--dry-run", ranks=3, env=gpus(2))
    same(re.findall(r"rank (\d): .*, (cuda:\d) \(the host\)$", result.out, re.M),
         [("0", "cuda:0"), ("1", "cuda:1"), ("2", "cuda:0")], "GPUs of ranks")
    check("; device cuda (the host); fp32;" in result.out, f"the first line of\n{result.out}")


def case_an_nccl_that_is_too_old_is_named():
    out, env = harness.scratch / "out", gpus(2, DP_CUDA_NCCL="old")
    result = train_well(small_cfg(), *flags("auto"), "--out", out, ranks=2, env=env)
    same(run_json(out)["strategy"], "ipc", "what auto takes")
    check("not nccl: NCCL is 2.16; 2.18 or newer is needed" in result.out, result)
    refused(train(small_cfg(), *flags("nccl"), ranks=2, env=env), 69,
            "nccl cannot run here: NCCL is 2.16; 2.18 or newer is needed")


def case_another_engine_of_convolutions_is_reported_when_a_run_goes_on():
    cfg, env = small_cfg(), gpus(1)
    for index, (then, now) in enumerate((("cublas", "cudnn"), ("cudnn", "cudnn"))):
        out = harness.scratch / f"out-{index}"
        words = [cfg, *flags("auto"), "--out", out]
        train_well(*words, "--steps", 2, "--set", f"device.conv={then}", env=env)
        result = train_well(*words, "--steps", 3, "--set", f"device.conv={now}", "--resume",
                            env=env)
        line = re.search("going on from .*", result.out)[0]
        told = "device.conv cublas -> cudnn 9" in line and "the bits will differ" in line
        same(told, then != now, f"another engine in {line}")


def case_a_missing_compiler_of_engines_is_one_warning():
    for lacking, name in (("nvrtc", "libnvrtc.so.13"), ("builtins", "libnvrtc-builtins.so.13.0"),
                          ("", None)):
        for layers in harness.CONV_LAYERS, mlp_layers(16, 10):
            convolves = "conv2d" in layers
            result = train_well(small_cfg(layers), *flags("auto"), "--steps", 2, "--out",
                                harness.scratch / f"out-{lacking}-{convolves}",
                                env=gpus(1, DP_HOST_LACKS=lacking))
            told = [line for line in result.warnings if "cuDNN cannot compile engines here" in line]
            same(len(told), int(name is not None and convolves), f"warnings of\n{result}\n")
            check(not told or f"since {name} is not in LD_LIBRARY_PATH" in told[0], result)


# Measuring would find out before the first step that an engine fails, and so would the check that
# float32 is not rounded.
UNTRIED = ("--set", "device.tune=off", "--set", "train.precision=bf16")


def case_a_convolution_that_cudnn_fails_at_is_computed_by_cublas():
    bits = []
    for state in "failing", "off":
        out = harness.scratch / state
        result = train_well(small_cfg(), *flags("ipc", *UNTRIED), "--steps", 6,
                            "--out", out, ranks=2, env=gpus(1, DP_HOST_CUDNN=state))
        bits.append(weights(out))
        for rank in range(2):
            told = [line for line in result.err.splitlines()
                    if "cuDNN fails at a convolution" in line and f"rank {rank}" in line]
            same(len(told), int(state == "failing"), f"warnings of rank {rank}\n{result}\n")
    same(bits[0] == bits[1], True, "the bits are those of cublas")


def case_where_ranks_do_not_reach_each_other_gradients_are_staged():
    sealed = "not ipc: memory cannot be shared with other processes: out of memory"
    for more, why in (({"DP_CUDA_IPC": "off"}, "not ipc"), ({"DP_CUDA_PEERS": "off"}, ""),
                      ({"DP_HOST_LACKS": "handles"}, sealed)):
        out = harness.scratch / f"out{len(why)}"
        count = 1 if why else 3
        result = train_well(small_cfg(), *flags("auto"), "--out", out, "--set", "train.lanes=2",
                            ranks=2, env=gpus(count, **more))
        same(run_json(out)["strategy"], "staged:over=shm", "what auto takes")
        check(re.search(r"not nccl: .*; not ipc: ", result.out) and why in result.out, result)


def train_with_one_that_differs(rank, variables, *arguments, **how):
    """As train(), with variables that one rank alone has."""
    script, plain = harness.scratch / "started", harness.program
    settings = " ".join(f"{name}={value}" for name, value in variables.items())
    script.write_text(f'#!/bin/sh\ntest "$OMPI_COMM_WORLD_RANK" = {rank} && export {settings}\n'
                      f'exec {harness.build / plain} "$@"\n')
    script.chmod(0o755)
    harness.program = script
    try:
        return train(*arguments, **how)
    finally:
        harness.program = plain


def case_one_rank_whose_memory_cannot_be_offered_is_a_reason_for_all():
    cases = [(rank, "handles", small_cfg()) for rank in range(2)]
    cases.append((1, "large-handles", small_cfg(WIDE)))  # found out with the gradient itself
    for number, (rank, lacking, cfg) in enumerate(cases):
        out = harness.scratch / f"out{number}"
        result = train_with_one_that_differs(rank, {"DP_HOST_LACKS": lacking}, cfg,
                                             *flags("auto"), "--steps", 1, "--out", out, ranks=2,
                                             env=gpus(1))
        same(result.code, 0, f"exit code\n{result}")
        same(run_json(out)["strategy"], "staged:over=shm", "what auto takes")
        check("not ipc: memory cannot be shared with other processes: " in result.out, result)
    refused(train(small_cfg(), *flags("ipc"), ranks=2, env=gpus(1, DP_HOST_LACKS="handles")), 69,
            "ipc cannot run here: memory cannot be shared with other processes")


def refused(result, code, text):
    check(result.code == code, f"exit code {code} expected:\n{result}")
    check(len(result.errors) == 1, f"one line expected:\n{result}")
    check(re.search(text, result.errors[0]), f"{text} expected:\n{result}")


def case_what_a_machine_lacks_is_one_line_and_exit_code_69():
    cfg = small_cfg()
    hidden = gpus(2, CUDA_VISIBLE_DEVICES="")
    for ranks in (0, 2):
        refused(train(cfg, "--device", "cuda", ranks=ranks, env=hidden), 69, "device cuda: .*GPU")
    refused(train(cfg, *flags("nccl"), ranks=2, env=gpus(1)), 69,
            "nccl cannot run here: ranks share a GPU.*these can: ipc")
    refused(train(cfg, *flags("nccl"), ranks=2, env=gpus(2, CUDA_VISIBLE_DEVICES="1")), 69,
            "nccl cannot run here: ranks share a GPU")


def case_what_one_rank_alone_cannot_do_ends_the_job():
    wanted = flags("staged", "--set", "device.graph=on")
    for state in ("off", "busy"):
        result = train_with_one_that_differs(1, {"DP_CUDA_GRAPHS": state}, small_cfg(), *wanted,
                                             ranks=2, env=gpus(1), timeout=20)
        same(result.code, 69, f"exit code\n{result}")
        said = [line for line in result.errors if "rank 1" in line and
                "device.graph is 'on', but a step cannot be recorded: " in line]
        check(len(said) == 1 and "(null)" not in said[0], result)
    for rank in 0, 1:
        cudnn = flags("staged", "--set", "device.conv=cudnn")
        result = train_with_one_that_differs(rank, {"DP_HOST_CUDNN": "off"}, small_cfg(), *cudnn,
                                             ranks=2, env=gpus(1), timeout=20)
        refused(result, 69, rf"rank {rank} .*device\.conv: cudnn: ")
        result = train_with_one_that_differs(rank, {"DP_HOST_CUDNN": "failing"}, small_cfg(),
                                             *cudnn, *UNTRIED, ranks=2, env=gpus(1), timeout=20)
        refused(result, 69, rf"rank {rank} .*device\.conv: cudnn fails at a convolution ")


def case_a_step_of_one_rank_waits_for_the_gpu_alone_and_copies_its_batch_alone():
    out = harness.scratch / "alone"
    few = [f"--set={key}" for key in ("train.global_batch=4", "data.samples=64",
                                      "data.test_samples=4", "train.eval_every=0")]
    train_well(harness.ROOT / "models/lenet.cfg", *flags("auto", *few), "--synthetic",
               "--steps", 16, "--out", out, env=gpus(1))
    rank = run_json(out)["ranks"][0]
    ms, copied = rank["step_ms"], rank["copied"]
    check(ms["backward"] > 10 * ms["exposed_comm"], f"a step of one rank: {ms}")
    tail = run_json(out)["buckets"][-1]  # it is ready when the GPU has it
    check(tail["ready_ms"] > 0.9 * ms["backward"], f"{tail} of {ms}")
    # And not what is copied to find out how fast that is.
    check(0 < copied["to_device"] < 2 * copied["input"], f"bytes a step: {copied}")


def case_recorded_steps_change_no_bit_of_a_run_that_evaluates_saves_and_goes_on():
    cfg, env = small_cfg(DROPPED), gpus(1)
    schedule = ["--set", "optimizer.schedule.name=cosine", "--set", "train.precision=fp16", "--set",
                "checkpoint.every_steps=8", "--set", "train.eval_every=1", "--set",
                "train.steps=27", "--set", "train.global_batch=64"]  # 600 rows: short last batches
    bits = {}
    for graph, parts in (("off", [()]), ("on", [("--set", "model.recompute=2")]),
                         ("auto", [("--steps", 14), ("--resume",)])):
        for part in parts:
            result = train_well(cfg, *flags("ipc", *schedule), *part, "--out",
                                harness.scratch / graph, "--set", f"device.graph={graph}", ranks=2,
                                env=env)
            same("recorded once, then replayed" in result.out, graph != "off", f"{result}")
            same("going on from" in result.out, "--resume" in part, f"{result}")
        bits[graph] = weights(harness.scratch / graph)
    check(bits["on"] == bits["off"], "other bits when steps are recorded")
    check(bits["auto"] == bits["off"], "other bits when a recorded run goes on")


def check_streams(traced, computes, shares):
    """Spans of the GPU's streams by lane: what it does, in the steps that were traced."""
    trace.check_nesting(traced)
    for pid in (0, 1):
        steps, found = traced.spans("step", pid), {}
        for span in (e for e in traced.spans(pid=pid) if e["cat"] == "gpu"):
            found.setdefault(traced.lane(span), set()).add(span["name"])
            # Clocks are compared to half of a round trip, a few milliseconds on a busy machine.
            check(steps[0]["ts"] - 5000 < span["ts"] and
                  span["ts"] + span["dur"] < steps[-1]["ts"] + steps[-1]["dur"] + 5000, f"{span}")
        same(found["GPU compute"], computes, f"work of the compute stream of rank {pid}")
        same(found["GPU copy"], {"batch to GPU 32"}, f"batches of rank {pid}")
        for lane, names in shares.items():
            check(names <= found[lane], f"{lane} of rank {pid}: {found}")


def case_a_trace_has_lanes_of_the_streams_of_each_gpu():
    layers = {f"{way} {layer}" for way in ("forward", "backward") for layer in range(3)}
    down, up = {"to host 0", "to host 1"}, {"from host 0", "from host 1"}
    cases = (("ipc", "on", {"part 0", "update 0"}, {"GPU communication": {"sum 0"}}),
             ("nccl", "off", layers | {"update 0"}, {"GPU communication": {"sum 0"}}),
             ("staged", "off", layers | {"update 0"}, {"GPU copy 2": down, "GPU copy 3": up}))
    for strategy, graph, computes, shares in cases:
        out = harness.scratch / strategy
        # A batch that is not ready when the one before has been queued is copied where it is used:
        # with --cached-input all are ready.
        train_well(small_cfg(mlp_layers(16)), *flags(strategy, "--set", f"device.graph={graph}"),
                   "--cached-input", "--set", "comm.overlap=on", "--steps", 9, "--set",
                   "train.global_batch=64", "--out", out, "--trace", ":steps=5-8", ranks=2,
                   env=gpus(2, DP_CUDA_CLOCK="1"))
        check_streams(trace.Trace(out / "trace.json"), computes, shares)


def case_an_operation_that_fails_ends_the_job_with_a_reason():
    result = train(small_cfg(), *flags("nccl"), ranks=2, env=gpus(2, DP_CUDA_NCCL="fail:3"))
    check(result.code == 70, result)
    check(any("nccl" in line and "error" in line for line in result.errors), result)


def case_ddp_bench_measures_every_way_that_can_run():
    harness.program = "ddp_bench"
    quick = ["-n", 2, "-w", 1, "--format", "json", "--strategies"]
    ways = ["nccl", "ipc", "staged", "shm", "zero1:over=ipc"]
    try:
        sizes = train_well("-b", "1K", "-e", "5M", "-f", 5000, *quick, ",".join(ways), ranks=2,
                           env=gpus(2))
        shared = train_well("-b", "1K", "-e", "1K", *quick, "nccl,ipc", "--bound", ranks=2,
                            env=gpus(1))
        buckets = train_well("--buckets", small_cfg(), *quick, ",".join(ways), ranks=2,
                             env=gpus(2))
    finally:
        harness.program = "ddp_train"
    for result, parts in ((sizes, 2), (buckets, None)):
        rows = json.loads(result.out)
        same([row["strategy"] for row in rows if row.get("bucket", "sum") == "sum"],
             ways * (parts or 1), f"strategies of\n{result}\n")
        same([row["wrong"] for row in rows], [0] * len(rows), f"wrong sums of\n{result}\n")
        check(all(row["predicted_us"] is None for row in rows if row.get("bucket") != "tail"),
              f"a prediction:\n{result}")
    same([(row["strategy"], row["bound_us"]) for row in json.loads(shared.out)], [("ipc", None)],
         f"what runs on one GPU:\n{shared}\n")
    check("skipped nccl: ranks share a GPU" in shared.err, f"{shared}")


def case_a_rank_that_dies_ends_the_job_whatever_shares_gradients():
    for strategy, count in (("nccl", 2), ("ipc", 1), ("staged", 1)):
        run = Started([small_cfg(), *flags(strategy), "--steps", "100000", "--out",
                       harness.scratch / strategy], ranks=2, env=gpus(count))
        metrics = harness.scratch / strategy / "metrics.jsonl"
        end = time.monotonic() + 30
        while not (metrics.exists() and '"step"' in metrics.read_text()):
            check(time.monotonic() < end, "no step was made")
            time.sleep(0.05)
        harness.os.kill(run.ranks()[1], signal.SIGKILL)
        begin = time.monotonic()
        result = run.finish(20)
        check(result.code != 0 and time.monotonic() - begin < 10, f"{strategy}:\n{result}")


def numbers(path):
    """Name -> numbers, of the averages and weights in a safetensors file."""
    return {name: struct.unpack(f"<{len(raw) // 4}f", raw)
            for name, (kind, _, raw) in harness.safetensors(path).items() if kind == "F32"}


def case_branches_and_averaged_weights_are_those_of_the_host():
    cfg, found = small_cfg(BRANCHED), {}
    for device in ("cuda", "cpu", "ref"):
        out = harness.scratch / device
        train_well(cfg, *flags("auto", "--set", "train.ema=0.75", "--steps", "4")[2:], "--device",
                   device, "--out", out, ranks=2, env=gpus(1))
        latest = out / "checkpoints/latest"
        found[device] = numbers(latest / "model.safetensors") | numbers(
            latest / "optimizer.safetensors")
        check(any(name.endswith(".ema") for name in found[device]), f"no average on {device}")
    for device in ("cpu", "ref"):
        same(sorted(found["cuda"]), sorted(found[device]), f"tensors of cuda and {device}")
        for name, theirs in found[device].items():
            most = max(abs(a - b) for a, b in zip(found["cuda"][name], theirs, strict=True))
            check(most < 1e-5 * max(1.0, *map(abs, theirs)),
                  f"{name}: cuda and {device} differ by {most}")


if __name__ == "__main__":
    harness.main(globals())
