"""What a run measures of its layers and its machine. No figure is compared with a clock: only what
must hold on any machine, also on a busy one.
"""
import json
import math

import harness
from harness import check, close, run_json, same, train_well

MODEL = """
name: small
data: {source: synthetic}
train: {global_batch: 16, steps: 44}
model:
  input: [8, 8, 3]
  layers:
    - conv2d: {filters: 8, kernel: 3, padding: 1}
    - batchnorm: {}
    - relu: {}
    - maxpool: {size: 2}
    - flatten: {}
    - dense: {units: 24}
    - relu: {}
    - dense: {units: 10}
"""
# Conv, dense, dense: a multiply and an add count 2; the input of the first has no gradient.
PRODUCTS = 2 * 2 * 64 * 8 * 27 + 3 * 2 * 128 * 24 + 3 * 2 * 24 * 10


def positive(value):
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0


def check_parts(summary, *more):
    """Each part of a step next to its limit, where that is known."""
    parts = {part["name"]: part for part in summary["parts"]}
    check({"forward and backward", "products", "other layers", "input", *more} <= set(parts),
          f"parts with limits are {sorted(parts)}")
    for part in parts.values():
        check(part["limit"] and positive(part["ms"]) and positive(part["limit_ms"]), f"{part}")
        close(part["of_limit"], part["limit_ms"] / part["ms"], 1e-6, f"of_limit of {part}")
        check(part["of_limit"] <= 1 + 1e-6, f"faster than its limit: {part}")
    has_disk = positive(summary["limits"]["disk_write_gbs"])
    same("a checkpoint" in parts, has_disk, "whether writing a checkpoint has a limit")
    same(summary["limits"]["disk_read_gbs"], None, "reading of synthetic data")


def train(name, *more, ranks=0):
    (harness.scratch / "small.cfg").write_text(MODEL)
    train_well("small.cfg", "--out", name, *more, ranks=ranks)
    return run_json(harness.scratch / name)


def kept():
    return harness.scratch / "cache/lockstep/limits.json"


def case_a_run_of_one_rank_knows_its_layers_and_its_machine():
    summary = train("one")
    layers = {layer["name"]: layer for layer in summary["layers"]}
    same([layers[n]["kind"] for n in ("0", "1", "5", "7", "loss")],
         ["conv2d", "batchnorm", "dense", "dense", "loss"], "kinds of layers")
    close(sum(layer["share"] for layer in layers.values()), 1, 1e-6, "shares of layers")
    for layer in layers.values():
        check(layer["forward_ms"] + layer["backward_ms"] > 0, f"no time: {layer}")
        check(layer["implementation"], f"computed by nothing: {layer}")
    ms = sum(layers[n]["forward_ms"] + layers[n]["backward_ms"] for n in ("0", "5", "7"))
    flops = sum(layers[n]["gflops"] * (layers[n]["forward_ms"] + layers[n]["backward_ms"])
                for n in ("0", "5", "7")) * 1e6
    close(flops, 16 * PRODUCTS, 1e-6, f"FLOPs of the products, in {ms} ms")
    limits = summary["limits"]
    for key in ("gemm_gflops", "conv_gflops", "peak_gflops", "copy_gbs", "cache_gbs", "compute_ms",
                "input_samples_per_second", "bound_samples_per_second"):
        check(positive(limits[key]), f"limits.{key} is {limits[key]}")
    for key in ("allreduce_gbs", "sum_ms", "host_device_gbs"):
        same(limits[key], None, f"limits.{key} of one rank on a host")
    check(positive(summary["mfu"]) and summary["mfu"] <= 1, f"mfu is {summary['mfu']}")
    for layer in layers.values():
        check(not layer["limit"] or layer["gflops"] <= layer["limit"] * (1 + 1e-6),
              f"faster than its limit: {layer}")
    check_parts(summary)
    mflops = sum(layer["gflops"] * (layer["forward_ms"] + layer["backward_ms"])
                 for layer in layers.values()) / 16
    close(summary["mfu"], mflops * summary["samples_per_second"] / limits["peak_gflops"] / 1e3,
          1e-3, "mfu by its parts")
    rates = json.loads(kept().read_text())["rates"]
    hosts = [rate for rate in rates.values() if "peak_gflops" in rate]
    same(len(hosts), 1, "hosts in limits.json")
    close(hosts[0]["peak_gflops"], limits["peak_gflops"], 1e-6, "the kept peak")


def case_ranks_know_how_fast_they_sum():
    summary = train("two", "--set", "comm.plan_cache=false", ranks=2)
    check(not kept().exists(), "limits.json, with comm.plan_cache off")
    limits = summary["limits"]
    close(limits["allreduce_gbs"],
          4 * 4352 / min(limits["sum_ms"], limits["whole_sum_ms"]) / 1e6, 0.5, "allreduce_gbs")
    check_parts(summary, "sum over ranks")
    for rank in summary["ranks"]:
        check(positive(rank["peak_gflops"]) and positive(rank["copy_gbs"]), f"{rank}")
    close(sum(rank["peak_gflops"] for rank in summary["ranks"]) / 2, limits["peak_gflops"], 1e-6,
          "the mean of peaks")


if __name__ == "__main__":
    harness.main(globals())
