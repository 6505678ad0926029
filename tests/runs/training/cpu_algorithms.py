"""Whole runs on processors that choose oneDNN's implementations by measuring: once, for later runs,
and for the run that goes on. On GPUs: algo_tuning.py.
"""
import json

import harness
from algo_tuning import cached, measured
from harness import check, known_baseline, same, small_cfg, train_well, weights

OTHER = "x64:gemm:jit"  # which is hardly ever the fastest


def one(name, *more, ranks=2):
    """A run into a folder of that name; what it printed, its bits, and what its first layer took.
    """
    out = harness.scratch / name
    result = train_well(small_cfg(), "--out", out, *known_baseline(), *more, ranks=ranks)
    layers = json.loads((out / "run.json").read_text())["layers"]
    took = next(layer["implementation"] for layer in layers if layer["kind"] == "conv2d")
    return result, weights(out), took


def plant(other=OTHER):
    """Another implementation in place of each that the cache has."""
    kept = json.loads(cached().read_text())
    for choices in kept["machines"].values():
        for choice in choices.values():
            choice["how"] = other
    cached().write_text(json.dumps(kept))


def case_what_was_measured_is_kept_and_taken():
    first, bits, took = one("first")
    count, known = measured(first)
    check(count >= 2 and known == 0, first)
    kept = json.loads(cached().read_text())["machines"]
    check(all("oneDNN" in name for name in kept), kept)
    second, again, _ = one("second")
    same((measured(second), again == bits), ((0, count), True), "what is known, and the bits")
    plant()
    _, other, taken = one("planted")
    check(OTHER in taken and OTHER not in took, f"{took}, then {taken}")
    plan = harness.scratch / "first/config.yaml"
    pinned, again, taken = one("pinned", "--plan", plan)
    same((measured(pinned)[0], again == bits, taken), (0, True, took), "with the plan")
    _, again, taken = one("off", "--set", "device.tune=off")
    check(OTHER not in taken, taken)
    part, _, _ = one("torn", "--steps", "3")
    cached().unlink()
    result, again, taken = one("torn", "--resume")
    same((measured(part)[0], measured(result)[0], again == other), (0, 0, True),
         f"what a run that goes on takes:\n{result}\n")


def case_lanes_and_runs_that_can_keep_nothing_measure_nothing():
    for name, setting in (("lanes", "train.lanes=2"), ("nowhere", "comm.plan_cache=false")):
        result, _, _ = one(name, "--set", setting)
        same((measured(result), cached().exists()), (None, False), f"of\n{result}\n")


if __name__ == "__main__":
    harness.main(globals())
