"""train.ema: an average of the weights, which is evaluated, kept in checkpoints, and taken by the
programs that use a trained model."""
import json
import shutil
import struct
import subprocess

import harness
from harness import check, close, metrics, run_json, same, small_cfg, train, train_well
from use import COMPARE, ask, evaluated, npy, objects, python_with_torch

DECAY = 0.75
EMA = ["--set", f"train.ema={DECAY}", "--set", "train.lanes=2"]


def tensors(out, file, step="latest"):
    """{name: numbers} of a safetensors file of a checkpoint."""
    raw = (out / "checkpoints" / step / f"{file}.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    found = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if entry.get("dtype") == "F32":
            begin, end = entry["data_offsets"]
            found[name] = struct.unpack(f"<{(end - begin) // 4}f", raw[8 + size:][begin:end])
    return found


def averages(out, step="latest"):
    return {name: values for name, values in tensors(out, "optimizer", step).items()
            if name.endswith(".ema")}


def case_the_average_is_that_of_the_weights_of_all_steps():
    out = harness.scratch / "out"
    train_well(small_cfg(), *EMA, "--steps", "3", "--set", "checkpoint.every_steps=1", "--set",
               "checkpoint.keep=9", "--out", out, ranks=2)
    train_well(small_cfg(), *EMA, "--steps", "1", "--set", "optimizer.lr=0", "--out",
               harness.scratch / "first")
    wanted = tensors(harness.scratch / "first", "model")
    for step in (1, 2, 3):
        weights = tensors(out, "model", f"step-{step:08}")
        found = averages(out, f"step-{step:08}")
        same(sorted(found), sorted(f"{name}.ema" for name in weights), "names of averages")
        for name, values in weights.items():
            wanted[name] = [DECAY * old + (1 - DECAY) * new
                            for old, new in zip(wanted[name], values, strict=True)]
            for one, other in zip(found[f"{name}.ema"], wanted[name], strict=True):
                check(abs(one - other) < 1e-6, f"step {step}, {name}: {one}, not {other}")


def case_any_ranks_and_a_resumed_run_give_the_same_bits():
    for precision in ("fp32", "fp16"):
        files = []
        for ranks, stop in ((1, None), (2, None), (2, 2)):
            out = harness.scratch / f"{precision}-{ranks}-{stop}"
            flags = [*EMA, "--set", f"train.precision={precision}", "--out", out]
            if stop:
                train_well(small_cfg(), *flags, "--steps", stop, ranks=ranks)
                train_well(small_cfg(), *flags, "--resume", ranks=1)
            else:
                train_well(small_cfg(), *flags, ranks=ranks)
            files.append((tensors(out, "model"), averages(out),
                          metrics(out, "eval")[-1]["test_loss"]))
        same(files[1], files[0], f"weights and averages of 2 ranks in {precision}")
        same(files[2], files[0], f"those of a resumed run in {precision}")


def case_the_average_is_evaluated_and_used():
    out, cfg = harness.scratch / "out", small_cfg()
    train_well(cfg, *EMA, "--set", "optimizer.lr=0.2", "--out", out, ranks=2)
    own = metrics(out, "eval")[-1]
    close(run_json(out)["final"]["test_loss"], own["test_loss"], 1e-9, "the last loss")
    same(evaluated("--evaluate", out)["test_loss"], own["test_loss"], "loss of --evaluate")
    plain = evaluated("--evaluate", out, "--set", "train.ema=0")["test_loss"]
    check(plain != own["test_loss"], "the weights are evaluated, not their average")
    rows = harness.scratch / "rows.npy"
    data = harness.scratch / "data" / harness.IDX_FILES[2]
    rows.write_bytes(npy([200, 8, 8], data.read_bytes()[16:], "|u1"))
    predicted = objects(ask("ddp_predict", out, rows, "--json", "--top", "10").out)
    written = harness.scratch / "exported.py"
    ask("ddp_export", out, written)
    check("optimizer.safetensors" in written.read_text(), "the module knows no average")
    python = python_with_torch()
    done = subprocess.run([python, "-c", COMPARE, str(harness.scratch), str(data)],
                          capture_output=True, text=True, check=False)
    same(done.returncode, 0, f"exit code of PyTorch:\n{done.stderr}\n")
    for row, other in zip(predicted, json.loads(done.stdout), strict=True):
        for best in row["top"]:
            check(abs(best["probability"] - other[int(best["class"])]) < 2e-5,
                  f"PyTorch says {other}, ddp_predict {row}")


def case_where_no_rank_has_all_weights_it_is_refused():
    cfg = small_cfg()
    for words, *flags in (("comm.strategy zero1", "comm.strategy=zero1"),
                          ("train.local_steps", "train.local_steps=2"),
                          ("train.eval_rank", "train.eval_rank=true"),
                          ("comm.strategy zero1 or servers", "comm.strategy=ps",
                           "comm.servers=1")):
        sets = [word for flag in flags for word in ("--set", flag)]
        result = train(cfg, "--check", "--set", "train.ema=0.9", *sets)
        same((result.code, len(result.errors)), (78, 1), f"exit code and errors of\n{result}\n")
        check("train.ema: cannot go with" in result.err and words in result.err, f"{result}")
    out = harness.scratch / "out"
    train_well(cfg, "--steps", "1", "--out", out)
    result = train(cfg, "--steps", "2", "--set", "train.ema=0.9", "--out", out, "--resume")
    same((result.code, len(result.errors)), (78, 1), f"exit code and errors of\n{result}\n")
    check("train.ema" in result.err, f"{result}")
    shutil.rmtree(out)


if __name__ == "__main__":
    harness.main(globals())
