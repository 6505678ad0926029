"""What becomes of a trained model: it is evaluated, asked about files, and taken to PyTorch."""
import csv
import io
import json
import pathlib
import shutil
import struct
import subprocess
import sys

import harness
from harness import (ROOT, Skipped, check, close, metrics, run_json, same, small_cfg, train,
                     train_well)
from own_pictures import model, pictures, png

CLASSES = ["cool", "warm"]


def ask(program, *arguments, code=0, **how):
    """Runs ddp_predict or ddp_export."""
    before, harness.program = harness.program, program
    try:
        result = train(*arguments, **how)
    finally:
        harness.program = before
    same(result.code, code, f"exit code of\n{result}\n")
    return result


def table(text):
    return list(csv.DictReader(io.StringIO(text)))


def objects(text):
    return [json.loads(line) for line in text.splitlines()]


def evaluated(*arguments, **how):
    return json.loads(train_well("--json", *arguments, **how).out)


def figures(found):
    return [found[name] for name in ("test_loss", "test_accuracy", "test_top5_accuracy")]


# ---- ddp_train --evaluate ----


def case_an_evaluation_has_the_bits_of_training_s_own():
    out, cfg = harness.scratch / "out", small_cfg()
    train_well(cfg, "--set", "train.lanes=2", "--set", "train.precision=bf16", "--out", out,
               ranks=2)
    own = metrics(out, "eval")[-1]
    before = sorted(path.name for path in out.iterdir())
    for ranks in (0, 2):
        found = evaluated("--evaluate", out, ranks=ranks)
        same(figures(found), figures(own), f"figures on {ranks} ranks")
        same((found["step"], found["test_rows"]), (6, 200), "step and rows")
    same(figures(evaluated("--evaluate", out / "checkpoints/latest")), figures(own), "figures")
    line = train_well("--evaluate", out).out
    check(f"step 6: test loss {own['test_loss']:.4f}, test accuracy" in line, f"it says: {line}")
    three = train("--evaluate", out, "--json", ranks=3)  # lanes cannot be divided by it
    close(json.loads(three.out)["test_loss"], own["test_loss"], 1e-3, "loss on 3 ranks")
    same(len(three.warnings), 1, f"warnings of\n{three}\n")
    same(sorted(path.name for path in out.iterdir()), before, "files of the run")


def case_whatever_a_run_trained_with_one_rank_evaluates_it():
    cfg = small_cfg()
    for flags in (["comm.servers=1", "comm.strategy=ps", "train.mode=async", "train.staleness=1"],
                  ["train.local_steps=3"], ["train.eval_rank=true", "data.input_ranks=1"],
                  ["comm.compressor=topk", "comm.strategy=ring"]):
        out = harness.scratch / flags[-1]
        sets = [word for flag in flags for word in ("--set", flag)]
        train_well(cfg, *sets, "--out", out, ranks=3)
        found = evaluated("--evaluate", out)
        close(found["test_loss"], metrics(out, "eval")[-1]["test_loss"], 1e-5, f"loss of {flags}")


def case_an_evaluation_takes_other_data_and_no_other_model():
    out, cfg = harness.scratch / "out", small_cfg()
    train_well(cfg, "--out", out)
    other = harness.small_data(harness.scratch / "other", test=70)
    same(evaluated("--evaluate", out, "--set", f"data.dir={other}")["test_rows"], 70, "rows")
    for code, words, flags in ((78, "train.seed=2", ["--set", "train.seed=2"]),
                               (64, "leave out --out", ["--out", "x"]),
                               (64, "leave out --steps", ["--steps", "3"])):
        result = train("--evaluate", out, *flags, ranks=2)
        same((result.code, len(result.errors)), (code, 1), f"exit code and errors of\n{result}\n")
        check(words in result.err, f"{words} is not in\n{result}")
    for path, code in (("nothing", 66), (harness.scratch, 66)):
        result = train("--evaluate", path)
        same((result.code, len(result.errors)), (code, 1), f"exit code and errors of\n{result}\n")
    alone = shutil.copytree(out / "checkpoints/latest", harness.scratch / "alone")
    same(train("--evaluate", alone).code, 66, "exit code without a configuration")
    same(figures(evaluated(cfg, "--evaluate", alone)), figures(metrics(out, "eval")[-1]),
         "figures of a checkpoint that lies alone")
    for file in (out / "checkpoints").glob("step-*/model.safetensors"):
        file.write_bytes(file.read_bytes()[:-1])
    same(train("--evaluate", out).code, 65, "exit code with a torn checkpoint")
    same(train("--json", cfg).code, 64, "exit code of --json alone")


# ---- ddp_predict ----


def case_predictions_of_pictures_are_those_of_the_evaluation():
    folder = pictures("planted")
    out = harness.scratch / "out"
    train_well(model(folder), "--out", out)
    files = sorted((folder / "test").glob("*/*.png"))
    right = {str(file): file.parent.name for file in files}
    rows = table(ask("ddp_predict", out, *files).out)
    same([row["file"] for row in rows], list(map(str, files)), "files")
    same(list(rows[0]), ["file", "class", "probability"], "columns")
    accuracy = sum(row["class"] == right[row["file"]] for row in rows) / len(rows)
    same(accuracy, evaluated("--evaluate", out)["test_accuracy"], "accuracy")
    check(accuracy > 0.7, f"accuracy of planted pictures is {accuracy}")
    again = objects(ask("ddp_predict", out, *files, "--json", "--top", "9", "--batch", "3").out)
    for row, other in zip(rows, again, strict=True):
        same(other["class"], row["class"], "class in JSON")
        close(other["probability"], float(row["probability"]), 1e-5, "probability in JSON")
        same(sorted(best["class"] for best in other["top"]), CLASSES, "classes of --top")
        close(sum(best["probability"] for best in other["top"]), 1, 1e-5, "sum")
        check(other["top"][0]["probability"] >= other["top"][1]["probability"], "they are sorted")
    with open(files[0], "rb") as picture:
        piped = subprocess.run([harness.build / "ddp_predict", out, "-"], stdin=picture,
                               capture_output=True, text=True, check=True).stdout
    same(table(piped)[0] | {"file": ""}, rows[0] | {"file": ""}, "prediction of standard input")


def case_a_bad_file_is_one_line_and_the_others_go_on():
    folder = pictures("planted", sets=(("train", 6), ("test", 2)))
    out = harness.scratch / "out"
    train_well(model(folder), "--steps", "1", "--out", out)
    good = folder / "test/cool/0.png"
    torn, empty, text, other = (harness.scratch / name
                                for name in ("torn", "empty", "text", "a,b.png"))
    torn.write_bytes(good.read_bytes()[:60])
    empty.write_bytes(b"")
    text.write_text("1,2,3\n")
    shutil.copy(good, other)
    result = ask("ddp_predict", out, torn, good, empty, "gone.png", text, other, code=65)
    same([row["file"] for row in table(result.out)], [str(good), str(other)], "files")
    lines = result.complaints
    wanted = ((torn, "damaged"), (empty, "empty"), ("gone.png", "No such"), (text, "3 fields a"))
    for line, (name, word) in zip(lines, wanted, strict=True):
        check(line.startswith(f"lockstep: error: {name}: ") and word in line, f"it says: {line}")
    same(ask("ddp_predict", out, good, "gone.png", code=66).complaints,
         ["lockstep: error: gone.png: No such file or directory"], "what it says")
    same(ask("ddp_predict", out, torn, "gone.png", code=65).out, "", "where nothing is predicted")
    for code, arguments in ((64, [out]), (64, [out, good, "--top", "0"]), (66, ["gone", good]),
                            (64, [out, good, "--format", "xml"])):
        same(len(ask("ddp_predict", *arguments, code=code).errors), 1, "errors")


def npy(shape, values, kind):
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    body = struct.pack(f"<{len(values)}{'B' if kind == '|u1' else 'f'}", *values)
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head + body


def case_arrays_and_lines_are_predicted_row_by_row():
    out, cfg = harness.scratch / "out", small_cfg()
    train_well(cfg, "--set", "train.epochs=3", "--out", out)
    data = (harness.scratch / "data" / harness.IDX_FILES[2]).read_bytes()[16:]
    labels = (harness.scratch / "data" / harness.IDX_FILES[3]).read_bytes()[8:]
    rows, one, floats, lines = (harness.scratch / name
                                for name in ("rows.npy", "one.npy", "floats.npy", "lines.csv"))
    rows.write_bytes(npy([200, 8, 8], data, "|u1"))
    one.write_bytes(npy([8, 8], data[:64], "|u1"))
    floats.write_bytes(npy([200, 8, 8, 1], [byte / 255 for byte in data], "<f4"))
    lines.write_text("label" + 64 * ",x" + "\n" + "".join(
        ",".join([str(labels[i])] + [f"{b / 255:.9g}" for b in data[64 * i : 64 * i + 64]]) + "\n"
        for i in range(3)) + "1,2\n")
    found = table(ask("ddp_predict", out, rows, "--batch", "64").out)
    same([row["file"] for row in found], [f"{rows}[{i}]" for i in range(200)], "names of rows")
    right = sum(int(row["class"]) == label for row, label in zip(found, labels)) / 200
    same(right, run_json(out)["final"]["test_accuracy"], "accuracy")
    others = table(ask("ddp_predict", out, one, floats).out)
    same(others[0]["class"], found[0]["class"], "class of a single sample")
    for row, other in zip(found, others[1:], strict=True):
        close(float(other["probability"]), float(row["probability"]), 1e-4, "of floats")
    result = ask("ddp_predict", out, "--format", "jsonl", lines, code=65)
    for i, other in enumerate(objects(result.out)):
        same((other["row"], other["class"]), (i, found[i]["class"]), "row and class of a line")
    same(i, 2, "last row")
    check("line 5: has 2 fields" in result.err, f"it says: {result.err}")


def case_numbers_come_as_they_are():
    folder = harness.scratch / "line"
    folder.mkdir()
    for name in ("train.csv", "test.csv"):
        (folder / name).write_text("".join(f"{2 * x},{x},1\n" for x in range(-4, 5)))
    cfg = harness.scratch / "line.cfg"
    cfg.write_text(f"data: {{source: csv, dir: {folder}}}\n"
                   "train: {global_batch: 9, steps: 200, loss: mse}\n"
                   "optimizer: {name: sgd, lr: 0.1}\n"
                   "model: {input: [2], layers: [dense: {units: 1}]}\n")
    out = harness.scratch / "out"
    train_well(cfg, "--out", out)
    test = folder / "plain.csv"
    test.write_text("3,1\n-2,1\n")
    rows = table(ask("ddp_predict", out, test).out)
    for row, right in zip(rows, (6, -4), strict=True):
        check(abs(float(row["value"]) - right) < 1e-3, f"twice the first number is {row}")
    found = json.loads(train_well("--evaluate", out, "--json").out)
    same(found["test_accuracy"], None, "accuracy of numbers")
    check(found["test_mean_absolute_error"] < 1e-3, f"it found {found}")


# ---- ddp_export ----


def python_with_torch():
    """One that has PyTorch, which is too large to be installed for a test."""
    for python in (sys.executable, ROOT / "benchmarks/.venv/bin/python",
                   harness.os.environ.get("LOCKSTEP_TORCH_PYTHON", "")):
        try:
            if subprocess.run([python, "-c", "import torch, safetensors"], capture_output=True,
                              check=False).returncode == 0:
                return python
        except OSError:
            continue
    raise Skipped("no Python with torch and safetensors here; LOCKSTEP_TORCH_PYTHON may name one")


COMPARE = """
import json, struct, sys, torch
sys.path.insert(0, sys.argv[1])
import exported
data = torch.frombuffer(bytearray(open(sys.argv[2], "rb").read()[16:]), dtype=torch.uint8)
net = exported.load()
with torch.no_grad():
    outputs = net(exported.preprocess(data.reshape(-1, *exported.INPUT)))
print(json.dumps(outputs.softmax(1).tolist()))
"""

RESIDUAL_LAYERS = """\
    - conv2d: {filters: 8, kernel: 3, padding: 1, bias: false}
    - batchnorm: {}
    - relu: {}
    - residual:
        body:
          - conv2d: {filters: 16, kernel: 3, padding: 1, stride: 2}
          - batchnorm: {}
          - gelu: {}
          - groupnorm: {groups: 4}
          - conv2d: {filters: 16, kernel: 3, padding: 1, groups: 16}
          - silu: {}
          - residual: {body: [conv2d: {filters: 16, kernel: 1, groups: 4}, leaky_relu: {}]}
        shortcut: [conv2d: {filters: 16, kernel: 1, stride: 2}]
    - concat: {branches: [[], [conv2d: {filters: 8, kernel: 3, padding: 1}, relu: {}]]}
    - avgpool: {size: 2, stride: 1, padding: 1}
    - maxpool: {size: 2}
    - flatten: {}
    - repeat: {times: 2, layers: [dense: {units: 24}, batchnorm: {}, dropout: {rate: 0.25}]}
    - layernorm: {}
    - dense: {units: 10}
"""


def case_the_exported_module_loads_strictly_and_predicts_alike():
    out, cfg = harness.scratch / "out", small_cfg(RESIDUAL_LAYERS)
    train_well(cfg, "--set", "data.normalize={mean: [0.2860], std: [0.3530]}", "--out", out)
    written = harness.scratch / "exported.py"
    ask("ddp_export", out, written)
    compile(written.read_text(), str(written), "exec")
    for line in ("MEAN = [0.286]\n", "STD = [0.353]\n"):
        check(line in written.read_text(), f"{line} is not in the module")
    python = python_with_torch()
    data = harness.scratch / "data" / harness.IDX_FILES[2]
    done = subprocess.run([python, "-c", COMPARE, str(harness.scratch), str(data)],
                          capture_output=True, text=True, check=False)
    same(done.returncode, 0, f"exit code of PyTorch:\n{done.stderr}\n")
    theirs = json.loads(done.stdout)
    rows = harness.scratch / "rows.npy"
    rows.write_bytes(npy([200, 8, 8], data.read_bytes()[16:], "|u1"))
    ours = objects(ask("ddp_predict", out, rows, "--json", "--top", "10").out)
    for row, other in zip(ours, theirs, strict=True):
        for best in row["top"]:
            # Both round in float32; the classes of a row share out 1.
            check(abs(best["probability"] - other[int(best["class"])]) < 2e-5,
                  f"PyTorch says {other}, ddp_predict {row}")


def case_what_cannot_be_exported_is_said():
    out = harness.scratch / "out"
    train_well(small_cfg(), "--steps", "1", "--out", out)
    for code, arguments in ((64, [out]), (64, [out, "model.onnx"]), (66, ["gone", "m.py"]),
                            (74, [out, "/proc/m.py"])):
        same(len(ask("ddp_export", *arguments, code=code).errors), 1, "errors")


if __name__ == "__main__":
    harness.main(globals())
