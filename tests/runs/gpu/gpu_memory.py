"""What a run says where a GPU has too little memory, an old driver, or none: in builds of
DP_CUDA=host, which pretend."""
import re

import harness
from harness import Skipped, check, run_json, same, train, train_well

LAYERS = """\
    - conv2d: {filters: 64, kernel: 3, padding: 1}
    - batchnorm: {}
    - relu: {}
    - maxpool: {size: 2}
    - flatten: {}
    - dense: {units: 10}
"""
MIB = 2**20
MEMORY = 96 * MIB
SAYS = re.compile(r"cuda:0 \(the host\), 96\.0 MiB, (?:[\d.]+) MiB free: activations of 2000 rows "
                  r"need [\d.]+ MiB, weights .*, gradients .*, optimizer state .*; "
                  r"train\.micro_batch (\d+) would fit \(now 2000\): out of memory$")


TWO = re.compile(r"cuda:0 \(the host\), 192\.0 MiB, [\d.]+ MiB free for 2 ranks: "
                 r"activations of 1000 rows need .*; "
                 r"train\.micro_batch (\d+) would fit \(now 1000\): out of memory$")


def flags():
    if "DP_CUDA:STRING=host" not in (harness.build / "CMakeCache.txt").read_text():
        raise Skipped("only builds with DP_CUDA=host pretend to have less memory")
    return ["--device", "cuda", "--steps", "1", "--set", "train.global_batch=2000"]


def config():
    data = harness.small_data(harness.scratch / "data", train=2000, test=10)
    return harness.small_cfg(LAYERS, data=data)


def case_too_little_memory_is_one_line_with_advice_that_works():
    cfg, words = config(), flags()
    env = {"DP_CUDA_MEMORY": str(MEMORY)}
    result = train(cfg, *words, "--out", harness.scratch / "refused", env=env)
    same(result.code, 69, f"exit code without memory\n{result}")
    same((len(result.errors), result.warnings), (1, []), f"lines\n{result}")
    match = SAYS.search(result.errors[0])
    check(match, f"what needs how much\n{result}")
    advised = ["--set", f"train.micro_batch={match[1]}"]
    out = harness.scratch / "advised"
    train_well(cfg, *words, *advised, "--out", out, env=env)
    peak = run_json(out)["ranks"][0]["peak_device_bytes"]
    check(MEMORY / 4 < peak < MEMORY, f"{peak} bytes at most, of {MEMORY}")


def case_check_says_which_numbers_of_ranks_fit_their_gpus():
    result = train(config(), *flags()[:2], "--set", "train.global_batch=2000", "--check", ranks=0,
                   env={"DP_CUDA_MEMORY": str(MEMORY)})
    same(result.code, 0, f"exit code\n{result}")
    told = dict(re.findall(r"^ *(\d) ranks? .*rows\) (.*)$", result.out, re.M))
    same((told["1"], told["8"]), ("does NOT fit the GPU", "fits here"), f"what fits\n{result}")
    check(re.search(r"^cuda:0 \(the host\), one for each rank: 96\.0 MB, [\d.]+ MB available$",
                    result.out, re.M), f"the GPU\n{result}")


def case_ranks_that_share_a_gpu_share_its_memory():
    baseline = harness.scratch / "baseline.json"
    baseline.write_text('{"single_rank_samples_per_second": 1000}')
    cfg, words = config(), [*flags(), "--set", "comm.strategy=staged", "--baseline", baseline]
    env = {"DP_CUDA_MEMORY": str(2 * MEMORY), "DP_CUDA_GPUS": "1"}
    result = train(cfg, *words, "--out", harness.scratch / "refused", ranks=2, env=env)
    same((result.code, len(result.errors)), (69, 1), f"exit code and lines\n{result}")
    match = TWO.search(result.errors[0])
    check(match, f"what needs how much\n{result}")
    out = harness.scratch / "advised"
    train_well(cfg, *words, "--set", f"train.micro_batch={match[1]}", "--out", out, ranks=2,
               env=env)
    for rank in run_json(out)["ranks"]:
        peak = rank["peak_device_bytes"]
        check(peak < MEMORY, f"{peak} bytes at most, of {MEMORY}")


def case_without_memory_for_a_second_state_one_rank_alone_is_not_measured():
    data = harness.small_data(harness.scratch / "data", train=8, test=2)
    layers = ("flatten: {}", "dense: {units: 110000}", "dense: {units: 10}")
    cfg = harness.small_cfg("".join(f"    - {layer}\n" for layer in layers), data=data)
    state = 3 * 4 * (64 + 1 + 10) * 110000  # 94 MiB
    out = harness.scratch / "out"
    result = train_well(cfg, *flags()[:2], "--set", "comm.strategy=staged", "--steps", "2", "--set",
                        "train.global_batch=2", "--set", "checkpoint.every_steps=0", "--out", out,
                        ranks=2, env={"DP_CUDA_GPUS": "2", "DP_CUDA_MEMORY": str(state + 75 * MIB)})
    found = run_json(out)
    same((found["exit"], found["baseline"]["source"]), ("finished", "not measured"), result)
    same(result.err.count("no memory to measure one rank alone"), 1, result)


def case_a_driver_or_gpu_that_is_too_old_or_missing_is_one_line():
    words = flags()
    for variable, value, text in (
        ("DRIVER", "12040",
         "device cuda: the NVIDIA driver is too old: it serves CUDA 12.4, this program needs"),
        ("DRIVER", "0", "device cuda: no NVIDIA driver is installed here"),
        ("CAPABILITY", "75",
         "device cuda: GPU 0 has compute capability 7.5, this program needs 8.0"),
    ):
        env = {f"DP_CUDA_{variable}": value}
        result = train(config(), *words, "--out", harness.scratch / f"cuda-{value}", env=env)
        same(result.code, 69, f"exit code with {env}\n{result}")
        same(len(result.errors), 1, f"lines\n{result}")
        check(text in result.errors[0], f"{text!r} in\n{result}")
        plain = train_well(config(), "--steps", "1", "--out", harness.scratch / f"cpu-{value}",
                           env=env)
        told = f"computing on cpu, not {text.removeprefix('device ')}"
        check(told in plain.out, f"{told!r} in\n{plain}")
    seen = train_well(config(), "--steps", "1", "--out", harness.scratch / "cuda")
    check("computing on" not in seen.out, f"a fallback that is none in\n{seen}")


harness.main(globals())
