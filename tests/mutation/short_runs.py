#!/usr/bin/env python3
"""Two short runs, of the program in a build, whose weights must be those of the first time:

    short_runs.py BUILD lanes|restart FOLDER

FOLDER keeps the hashes of that first time.
"""
import hashlib
import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "runs"))

import harness  # noqa: E402
from harness import check, same, small_cfg, train  # noqa: E402

SETS = ("checkpoint.every_steps=4", "train.eval_every=0", "comm.plan_cache=false")


def flags(*more):
    return [word for setting in (*SETS, *more) for word in ("--set", setting)]


def lanes(out):
    """Two ranks, whose bits are those of any."""
    result = train(small_cfg(), *flags("train.lanes=4", "train.global_batch=48"), "--steps", 12,
                   "--out", out, ranks=2)
    same((result.code, result.errors), (0, []), f"the end of\n{result}\n")


def restart(out):
    """Three ranks around a ring; one is killed, and all go on."""
    words = [small_cfg(), *flags("comm.strategy=ring", "optimizer.name=adamw",
                                 "optimizer.lr=0.002"), "--steps", 12, "--out", out]
    result = train(*words, ranks=3, env={"DP_FAULT": "kill:rank=1,step=9"})
    same((result.code, len(result.errors)), (137, 1), f"the end of\n{result}\n")
    result = train(*words, "--resume", ranks=3)
    same((result.code, result.errors), (0, []), f"the end of\n{result}\n")


def main():
    harness.build = pathlib.Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        harness.scratch = pathlib.Path(folder)
        harness.PATIENCE = 3600  # whoever starts this has a limit
        out = harness.scratch / "out"
        {"lanes": lanes, "restart": restart}[sys.argv[2]](out)
        latest = out / "checkpoints/latest"
        found = "".join(hashlib.sha256((latest / name).read_bytes()).hexdigest() + "\n"
                        for name in ("model.safetensors", "optimizer.safetensors"))
        losses = [line["loss"] for line in harness.metrics(out, "step")]
    found += f"{losses}\n"
    expected = pathlib.Path(sys.argv[3]) / sys.argv[2]
    if expected.exists():
        check(expected.read_text() == found, "other weights, optimizer state or losses")
    else:
        os.makedirs(expected.parent, exist_ok=True)
        expected.write_text(found)


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        sys.exit(f"{error}")
