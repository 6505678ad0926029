"""Data of one's own in files of arrays and numbers: trained on as they are, alike on any number of
ranks."""
import array
import random

import harness
from harness import check, run_json, same, train, train_well, weights

MODEL = """\
data: {{source: {source}, dir: "{dir}"{more}}}
train: {{global_batch: 20, epochs: 4, seed: 4, lanes: 4}}
optimizer: {{name: adamw, lr: 0.02}}
model:
  input: {input}
  layers:
{layers}"""

FLAT = """\
    - dense: {units: 8}
    - relu: {}
    - dense: {units: 3}
"""


def points(count, seed):
    """Three clouds in four dimensions, and which cloud each point is of."""
    chance = random.Random(seed)
    rows, labels = [], []
    for i in range(count):
        label = i % 3
        labels.append(label)
        rows.append([chance.gauss(500.0 * (label == axis) + 7.0, 90.0) for axis in range(4)])
    return rows, labels


def npy(path, descr, shape, data):
    """A file as numpy.save writes it."""
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    head = (head + " " * (-(len(head) + 11) % 64) + "\n").encode()
    path.write_bytes(b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head + data)


def model(source, folder, more="", name="model.cfg"):
    path = harness.scratch / name
    path.write_text(MODEL.format(source=source, dir=folder, more=more, input="[4]", layers=FLAT))
    return path


NORMALIZED = ", normalize: {mean: [7, 7, 7, 7], std: [200, 200, 200, 200]}"


def alike(cfg, rows):
    """Trains on 1 and on 2 ranks, well, to the same weights; returns what is said at the start."""
    found = []
    for ranks in (1, 2):
        out = harness.scratch / f"{cfg.stem}-{ranks}"
        text = train_well(cfg, "--out", out, ranks=ranks).out
        check(f": {rows} training rows, " in text, text)
        accuracy = run_json(out)["final"]["test_accuracy"]
        check(accuracy > 0.9, f"accuracy on {ranks} ranks is {accuracy}")
        found.append(weights(out))
    same(found[1], found[0], "the weights of 2 ranks")


def case_arrays_of_numpy_are_trained_on_alike_on_any_number_of_ranks():
    folder = harness.scratch / "arrays"
    folder.mkdir()
    for subset, count in (("train", 120), ("test", 30)):
        rows, labels = points(count, subset)
        numbers = array.array("f", [x for row in rows for x in row])
        npy(folder / f"{subset}_images.npy", "<f4", f"({count}, 4)", numbers.tobytes())
        npy(folder / f"{subset}_labels.npy", "<i8", f"({count},)",
            array.array("q", labels).tobytes())
    alike(model("npy", folder, NORMALIZED), 120)


def case_lines_of_numbers_are_trained_on_alike_on_any_number_of_ranks():
    folder = harness.scratch / "table"
    folder.mkdir()
    lines = ["a,b,c,d,kind"]
    for row, label in zip(*points(150, "csv")):
        lines.append(",".join([*map(repr, row), str(label)]))
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    more = NORMALIZED + ", label: last, test_fraction: 0.2"
    alike(model("csv", folder, more), 120)
    lines[77] = "1,2,3,4,dog"
    (folder / "train.csv").write_text("\n".join(lines))
    for ranks in (0, 2):
        result = train(model("csv", folder, more), "--out", harness.scratch / "none", ranks=ranks)
        same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
        check("train.csv: line 78: field 5 is no number: 'dog'" in result.errors[0], f"{result}")


def case_bad_lines_are_replaced_where_that_is_wanted_alike_on_all_ranks():
    folder = harness.scratch / "ragged"
    folder.mkdir()
    lines = [",".join([str(label), *map(repr, row)]) for row, label in zip(*points(1200, "bad"))]
    lines[77] = "1,2,3"
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    cfg = model("csv", folder, NORMALIZED + ", test_fraction: 0.1, on_bad_sample: skip")
    found = []
    for ranks in (1, 2):
        out = harness.scratch / f"ragged-{ranks}"
        result = train_well(cfg, "--out", out, "--steps", 50, ranks=ranks)
        check("train.csv: line 78: has 3 fields, the first line has 5" in result.err, f"{result}")
        same(run_json(out)["skipped_samples"], 1, "bad samples")
        found.append(weights(out))
    same(found[1], found[0], "the weights of 2 ranks")
    lines[500] = lines[501] = "4,nan,1,1,1"
    (folder / "train.csv").write_text("\n".join(lines) + "\n")
    result = train(cfg, "--out", harness.scratch / "none", ranks=2)
    same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
    check("3 of 1200 samples are bad, the first is " in result.errors[0]
          and "train.csv: line 78: data.on_bad_sample" in result.errors[0], f"{result}")


def case_the_samples_of_a_model_are_not_those_of_another_source():
    """As of models/resnet50.cfg, for which a source is named later."""
    folder = harness.scratch / "later"
    folder.mkdir()
    (folder / "train.csv").write_text("".join(f"{i % 2},{i},{i % 7},3,4\n" for i in range(60)))
    cfg = model("synthetic", folder, ", samples: 50, test_fraction: 0.1")
    flags = ["--steps", 1, "--set", "data.source=csv"]
    for more, told in (((), 0), (("--set", "data.samples=50"), 1)):
        result = train_well(cfg, *flags, *more, "--out", harness.scratch / f"out{told}", ranks=0)
        same(sum("data.samples: has no effect" in line for line in result.warnings), told,
             f"warnings with {more}\n{result}")


def case_what_is_odd_about_a_table_is_a_warning():
    folder = harness.scratch / "odd"
    folder.mkdir()
    rows = "".join(f"1,{i},{i % 7},3,4\n" for i in range(60))
    (folder / "train.csv").write_text("1,2,3,4,0\n" + rows)
    (folder / "test.csv").write_text(rows)
    cfg = model("csv", folder, ", test_fraction: 0.1, test_samples: 7, window: 30, "
                "remote_wait_s: 9")
    result = train_well(cfg, "--out", harness.scratch / "out", "--steps", 1, ranks=2)
    for words in ("the first line of train.csv counts up: it is taken as a row",
                  "data.test_samples: has no effect with data.source csv, ",
                  "has a test set, which is used: data.test_fraction has no effect",
                  "data.window: has no effect without data.shuffle=window",
                  "data.remote_wait_s: has no effect, since data.dir is not the address",
                  "all training rows have class 1: there is nothing to learn"):
        same(sum(words in line for line in result.warnings), 1, f"times {words!r} in {result}")


def case_float32_pictures_that_nothing_scales_are_a_warning():
    folder, out = harness.scratch / "pixels", harness.scratch / "out"
    folder.mkdir()
    for subset, count in (("train", 40), ("test", 20)):
        pixels = array.array("f", (float((at * 37 + row * row) % 200) for row in range(count)
                                   for at in range(64)))
        npy(folder / f"{subset}_images.npy", "<f4", f"({count}, 8, 8)", pixels.tobytes())
        npy(folder / f"{subset}_labels.npy", "<i8", f"({count},)",
            array.array("q", (row % 3 for row in range(count))).tobytes())
    cfg = harness.scratch / "pixels.cfg"
    cfg.write_text(MODEL.format(source="npy", dir=folder, more="", input="[8, 8, 1]",
                                layers="    - flatten: {}\n" + FLAT))
    told = "pixels: float32 numbers from 0 to 199, which are taken as they are; are these pixels?"
    for more, times in (((), 1), (("--set", "data.cache=none"), 1),
                        (("--set", "data.normalize.mean=0", "--set", "data.normalize.std=255"), 0)):
        result = train_well(cfg, "--dry-run", "--out", out, *more)
        same(sum(told in line for line in result.warnings), times, f"times with {more} in {result}")


CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck".split()


def case_cifar10_is_trained_on_with_the_names_of_its_classes():
    folder = harness.scratch / "cifar10"
    folder.mkdir()
    for name, count in (("data_batch_1", 30), ("data_batch_2", 20), ("test_batch", 10)):
        (folder / f"{name}.bin").write_bytes(b"".join(
            bytes([i % 10]) + bytes(i + 200 * (at // 300 == i % 10) for at in range(3072))
            for i in range(count)))
    (folder / "batches.meta.txt").write_text("\n".join(CIFAR10) + "\n\n")
    out = harness.scratch / "out"
    cfg = harness.scratch / "cifar10.cfg"
    cfg.write_text(MODEL.format(source="cifar10", dir=folder, more=", label: last",
                                input="[32, 32, 3]",
                                layers="    - flatten: {}\n    - dense: {units: 10}\n"))
    result = train_well(cfg, "--out", out, ranks=2)
    check(": 50 training rows, " in result.out, f"{result}")
    check("data.label: has no effect with data.source cifar10" in result.warnings[0], f"{result}")
    report = run_json(out)
    same((report["classes"], report["final"]["test_accuracy"]), (CIFAR10, 1.0), "the report")


if __name__ == "__main__":
    harness.main(globals())
