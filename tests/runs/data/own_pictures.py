"""Pictures of one's own in class folders: trained on as they are, alike on any number of ranks."""
import re
import shutil
import signal
import struct
import subprocess
import zlib

import harness
from harness import ROOT, check, metrics, run_json, same, train, train_well, weights

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


def refused(cfg, code, *words, ranks=(1, 2)):
    for count in ranks:
        result = train(cfg, "--out", harness.scratch / "none", ranks=count)
        same((result.code, len(result.errors)), (code, 1), f"exit code and errors of\n{result}\n")
        for word in words:
            check(str(word) in result.errors[0], f"'{word}' is not in\n{result}")


def case_what_is_no_picture_is_named():
    folder = pictures("damaged")
    torn = folder / "train/warm/3.png"
    for content, why in ((torn.read_bytes()[:60], "is damaged"), (b"no picture", "is no PNG"),
                         (b"", "is empty"), (png(20000, 1, lambda x, y: (x % 256, 0, 0)),
                                             "is 20000 x 1 pixels; at most 16384")):
        torn.write_bytes(content)
        refused(model(folder), 65, torn, why, ranks=(2,) if why == "is damaged" else (0,))


def case_folders_that_cannot_be_meant_are_refused():
    folder = pictures("odd", (("train", 3), ("test", 1)))
    cfg = model(folder)
    for name, why in (("train/new", "a class without a PNG or JPEG"),
                      ("test/new", "a class that is only in test"),
                      ("train/red\033[31m", "the name has control characters"),
                      ("train/two\nlines", "the name has control characters")):
        (folder / name).mkdir()
        refused(cfg, 65, why, ranks=(2,) if name == "test/new" else (0,))
        (folder / name).rmdir()
    (folder / "train/warm/out.png").symlink_to("/etc/hostname")
    refused(cfg, 65, folder / "train/warm/out.png", "a link out of the data folder", ranks=(0,))


def many(name, count):
    """A folder of small pictures, alternately of two classes, and their paths."""
    folder = harness.scratch / name
    for subset, size in (("train", count), ("test", 20)):
        for i in range(size):
            path = folder / subset / ("cool", "warm")[i % 2] / f"{i:04}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            colour = (40 + i % 50, i % 251, 200) if i % 2 == 0 else (200, i % 251, 40 + i % 50)
            path.write_bytes(png(3, 3, lambda x, y: colour))
    return folder, sorted((folder / "train").rglob("*.png"))


def case_a_bad_picture_is_replaced_where_that_is_wanted_alike_on_all_ranks():
    folder, paths = many("skipped", 1080)
    paths[700].write_bytes(paths[700].read_bytes()[:-20])
    cfg = model(folder)
    refused(cfg, 65, paths[700], ranks=(2,))
    skip = ("--set", "data.on_bad_sample=skip", "--set", "train.epochs=1")
    found = []
    for ranks in (1, 2):
        out = harness.scratch / f"skipped-{ranks}"
        result = train_well(cfg, *skip, "--out", out, ranks=ranks)
        check(f"{paths[700]}: is damaged" in result.err, f"not named:\n{result}")
        check("1 bad sample is replaced" in result.err, f"not counted:\n{result}")
        report = run_json(out)
        same((report["skipped_samples"], report["steps"]), (1, 90), "bad samples, and steps")
        found.append((weights(out), [line["loss"] for line in metrics(out, "step")]))
    same(found[1], found[0], "weights and losses of 2 ranks")
    paths[3].write_bytes(b"")
    for ranks in (0, 2):
        result = train(cfg, *skip, "--out", harness.scratch / "none", ranks=ranks)
        same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
        check(f"2 of 1100 samples are bad, the first is {paths[3]}: " in result.errors[0],
              f"{result}")


def case_a_folder_that_vanishes_in_the_middle_of_an_epoch_ends_nothing():
    folder = pictures("vanishing")
    started, out = harness.begin(model(folder), "--set", "train.eval_every=0", name="vanished")
    shutil.rmtree(folder)
    done = harness.steps_done(out)
    started.wait_for("another epoch", lambda: harness.steps_done(out) > done + 8)
    started.signal(signal.SIGUSR1, 0)
    result = started.finish()
    same((result.code, run_json(out)["exit"]), (75, "stopped"), f"the end of\n{result}\n")
    refused(model(folder), 66, folder, ranks=(0,))


def case_five_lines_of_the_documents_train_on_pictures():
    text = (ROOT / "docs/data.md").read_text()
    mark = r"<!-- not run: [^\n]*own_pictures.py[^\n]* -->"
    block = re.search(mark + r"\n```sh\n(.*?)```", text, re.S)[1]
    same(len(block.splitlines()), 5, "the number of lines")
    top = harness.scratch / "five"
    top.mkdir()
    for name in ("launch", "models"):
        (top / name).symlink_to(ROOT / name)
    (top / "build").symlink_to(harness.build)
    pictures("five/pets", (("", 30),))
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=top, text=True,
                          env=harness.environment(""), stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    check(done.returncode == 0, done.stdout)
    report = run_json(top / "runs/pets")
    same((report["world_size"], report["classes"]), (2, ["cool", "warm"]), "the run")
    check(report["final"]["test_accuracy"] > 0.9, f"it learns nothing:\n{done.stdout}")
    check("result      accuracy " in done.stdout, f"no report:\n{done.stdout}")


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
