#!/usr/bin/env python3
"""Pictures of one's own in class folders: trained on as they are, alike on any number of ranks."""
import struct
import zlib

import harness
from harness import check, run_json, same, train, train_well, weights

MODEL = """\
data: {{source: folder, dir: "{dir}"}}
train: {{global_batch: 12, epochs: 3, seed: 4, lanes: 4}}
optimizer: {{name: adamw, lr: 0.005}}
model:
  input: [12, 16, 3]
  layers:
    - conv2d: {{filters: 4, kernel: 3, padding: 1}}
    - relu: {{}}
    - flatten: {{}}
    - dense: {{units: {units}}}
"""


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, pixel):
    """An 8-bit colour picture; pixel(x, y) is three bytes."""
    rows = b"".join(
        b"\0" + b"".join(bytes(pixel(x, y)) for x in range(width)) for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


def pictures(name, sets=(("train", 24), ("test", 8))):
    """A folder of cool and warm pictures, each of a size of its own."""
    folder = harness.scratch / name
    for subset, count in sets:
        for label, word in enumerate(("cool", "warm")):
            into = folder / subset / word
            into.mkdir(parents=True)
            for i in range(count):
                light = (37 * i) % 60
                left, right = (30 + light, 190 + light)[:: 1 if label == 0 else -1]
                (into / f"{i}.png").write_bytes(
                    png(9 + i, 30 - i, lambda x, y: (left, (x * y) % 251, right))
                )
    return folder


def model(folder, units=2):
    path = harness.scratch / f"{folder.name}-{units}.cfg"
    path.write_text(MODEL.format(dir=folder, units=units))
    return path


def case_pictures_are_trained_on_alike_on_any_number_of_ranks():
    cfg = model(pictures("plain"))
    found = []
    for ranks in (1, 2):
        out = harness.scratch / f"out-{ranks}"
        text = train_well(cfg, "--out", out, ranks=ranks).out
        check("data folder: 48 training rows, " in text, text)
        report = run_json(out)
        same(report["final"]["test_accuracy"], 1.0, f"accuracy on {ranks} ranks")
        same((report["classes"], report["skipped_samples"]), (["cool", "warm"], 0), "classes")
        found.append(weights(out))
    same(found[1], found[0], "the weights of 2 ranks")


def case_a_run_goes_on_with_the_same_classes_only():
    folder = pictures("renamed", (("train", 6), ("test", 2)))
    cfg, out = model(folder), harness.scratch / "renamed-out"
    train_well(cfg, "--out", out, "--steps", 1)
    train_well(cfg, "--out", out, "--steps", 2, "--resume")
    for subset in ("train", "test"):
        (folder / subset / "warm").rename(folder / subset / "tepid")
    result = train(cfg, "--out", out, "--steps", 3, "--resume", ranks=2)
    same((result.code, len(result.errors)), (78, 1), f"exit code and errors of\n{result}\n")
    check("class 1 (counted from 0) was 'warm', and is 'tepid' now" in result.errors[0],
          f"{result}")


def case_a_part_is_held_out_where_there_is_no_test_set():
    folder = pictures("one-set", (("train", 20),)) / "train"
    held = train_well(model(folder), "--set", "data.test_fraction=0.25", "--dry-run").out
    check("data folder: 30 training rows, " in held, held)
    both = train_well(model(folder), "--set", "data.test_fraction=0.25", "--dry-run", ranks=2).out
    check("data folder: 30 training rows, " in both, both)


def case_what_is_no_picture_is_named():
    folder = pictures("damaged")
    torn = folder / "train/warm/3.png"
    for content in (torn.read_bytes()[:60], b"no picture", b""):
        torn.write_bytes(content)
        for ranks in (1, 2):
            result = train(model(folder), "--out", harness.scratch / "none", ranks=ranks)
            same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
            check(str(torn) in result.errors[0], f"not named:\n{result}")


def case_too_few_outputs_and_no_pictures_are_refused():
    folder = pictures("classes")
    for label in ("a", "b", "c"):
        (folder / "train" / label).mkdir()
        (folder / "train" / label / "0.png").write_bytes(png(4, 4, lambda x, y: (1, 2, 3)))
    result = train(model(folder), "--out", harness.scratch / "none", ranks=2)
    check(result.code in (65, 78) and len(result.errors) == 1, f"{result}")
    check("5" in result.errors[0] and "2" in result.errors[0], f"{result}")
    empty = harness.scratch / "empty"
    empty.mkdir()
    for folder, code in ((empty, 65), (harness.scratch / "nowhere", 66)):
        result = train(model(folder), "--out", harness.scratch / "none")
        same((result.code, len(result.errors)), (code, 1), f"exit code and errors of\n{result}\n")


if __name__ == "__main__":
    harness.main(globals())
