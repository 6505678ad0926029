"""Whole runs in every precision: what they say, what they save, and how one in fp16 can end."""
import re
import struct

import harness
from harness import (check, metrics, run_json, safetensors, same, small_cfg, train, train_well,
                     weights)

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
SAYS = {
    "fp32": "; fp32; ",
    "tf32": "; tf32 as fp32; ",
    "bf16": r"; bf16 (arithmetic|storage, float32 arithmetic); ",
    "fp16": "; fp16 storage, float32 arithmetic; ",
}
NORMED = """\
    - conv2d: {filters: 8, kernel: 3, padding: 1, bias: false}
    - batchnorm: {}
    - relu: {}
    - maxpool: {size: 2}
    - flatten: {}
    - dense: {units: 10}
"""


def setting(**values):
    return [flag for key, value in values.items()
            for flag in ("--set", f"{key.replace('__', '.')}={value}")]


def case_every_precision_learns_and_says_how_it_computes():
    cfg = small_cfg(NORMED)
    losses = {}
    for precision in PRECISIONS:
        out = harness.scratch / precision
        text = train_well(cfg, "--out", out, *setting(train__precision=precision), ranks=2).out
        check(re.search(SAYS[precision], text.splitlines()[0]),
              f"the banner of {precision}:\n{text}")
        report = run_json(out)
        same(report["precision"], precision, "run.json precision")
        same(metrics(out, "start")[0]["precision"], precision, "precision in metrics.jsonl")
        same(report["skipped_steps"], 0, f"skipped steps of {precision}")
        steps = metrics(out, "step")
        losses[precision] = [step["loss"] for step in steps]
        check(losses[precision][-1] < 0.9 * losses[precision][0], f"{precision} learns nothing")
        scales = {step.get("loss_scale") for step in steps}
        same(scales, {65536} if precision == "fp16" else {None}, f"loss scales of {precision}")
    same(losses["tf32"], losses["fp32"], "losses of tf32")
    for precision, bound in (("bf16", 2e-2), ("fp16", 2e-3)):  # some roundings of 2^-9 and 2^-12
        for one, other in zip(losses[precision], losses["fp32"]):
            check(0 < abs(one - other) < bound, f"{precision}: loss {one}, {other} in fp32")


def case_checkpoints_hold_float32_master_weights():
    cfg = small_cfg(NORMED)
    for precision in ("bf16", "fp16"):
        first, again = harness.scratch / f"{precision}-1", harness.scratch / f"{precision}-2"
        set_it = setting(train__precision=precision, comm__strategy="zero1")
        train_well(cfg, "--out", first, *set_it, ranks=2)
        model = first / "checkpoints/latest/model.safetensors"
        narrow = 0
        for name, (kind, _, data) in safetensors(model).items():
            same(kind, "I64" if name.endswith("tracked") else "F32", f"the type of {name}")
            if name.endswith("weight"):
                words = struct.unpack(f"<{len(data) // 4}I", data)
                narrow += all(word & 0x1FFF == 0 for word in words)
        same(narrow, 0, "weights that 16 bits could hold")
        still = setting(optimizer__lr=0, train__steps=1)
        train_well(cfg, "--init", model, "--out", again, *set_it, *still, ranks=3)
        for name, (_, _, data) in safetensors(model).items():
            if "running" not in name and "tracked" not in name:
                found = safetensors(again / "checkpoints/latest/model.safetensors")[name][2]
                check(found == data, f"{precision}: {name} did not survive --init")


def case_lanes_give_the_same_bits_in_narrow_types():
    cfg = small_cfg(NORMED)
    for precision in ("bf16", "fp16"):
        expected = None
        for ranks, more in ((1, {}), (2, {"comm__strategy": "shm"}),
                            (4, {"comm__strategy": "zero1"})):
            out = harness.scratch / f"{precision}-{ranks}"
            train_well(cfg, "--out", out, ranks=ranks,
                       *setting(train__precision=precision, train__lanes=4, **more))
            expected = expected or weights(out)
            check(weights(out) == expected, f"{precision}: other bits on {ranks} ranks")


def case_a_loss_scale_under_one_ends_the_run():
    cfg = small_cfg()
    for ranks in (1, 2):
        out = harness.scratch / f"out-{ranks}"
        result = train(cfg, "--out", out, "--steps", 40, ranks=ranks,
                       *setting(train__precision="fp16", optimizer__lr=1000000))
        same(result.code, 77, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"the number of errors in\n{result}\n")
        where = r"first in the output of layer \d \(dense\)"
        check(re.search(rf"the loss scale falls under 1, .* {where};", result.errors[0]),
              f"the error of\n{result}")
        told = re.findall(rf"step \d+ skipped: .* {where}; now 32768", result.err + result.out)
        same(len(told), 1, f"skips that are reported in\n{result}\n")
        report = run_json(out)
        same(report["exit"], "diverged", "run.json exit")
        same(report["skipped_steps"], 17, "skipped steps: 65536 is halved 16 times, then no more")
        steps = metrics(out, "step")
        same([step["loss_scale"] for step in steps[-3:]], [4, 2, 1], "the last loss scales")
        check(all(step["skipped"] for step in steps[-17:]), "skips in metrics.jsonl")
        check(not steps[0]["skipped"], "the first step is good")


def case_check_counts_the_bytes_of_the_type():
    rows = {}
    for precision in ("fp32", "bf16"):
        text = train_well(harness.ROOT / "models/lenet.cfg", "--check",
                          *setting(train__precision=precision)).out
        found = re.search(r"^ 1 rank +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)", text, re.M)
        rows[precision] = [float(found[i]) for i in range(1, 5)]
    wide, narrow = rows["fp32"], rows["bf16"]
    check(abs(narrow[0] - 1.5 * wide[0]) < 0.2, f"weights and masters: {rows}")
    same(narrow[1:3], wide[1:3], "gradients and optimizer state")
    check(narrow[3] < 0.7 * wide[3], f"activations: {rows}")


if __name__ == "__main__":
    harness.main(globals())
