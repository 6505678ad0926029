"""Records: packed by ddp_data, trained on to the bits of what was packed."""
import contextlib
import os
import pathlib
import pty
import re
import signal
import struct
import subprocess
import time

import harness
from harness import check, run_json, same, train, train_well, weights
from own_pictures import pictures

PICTURES = """\
data: {{source: {source}, dir: "{dir}"}}
train: {{global_batch: 12, epochs: 2, seed: 4, lanes: 4}}
optimizer: {{name: adamw, lr: 0.005}}
model:
  input: [12, 16, 3]
  layers:
    - conv2d: {{filters: 4, kernel: 3, padding: 1}}
    - relu: {{}}
    - flatten: {{}}
    - dense: {{units: 2}}
"""

IMAGES = """\
data: {{source: {source}, dir: "{dir}"}}
train: {{global_batch: 50, steps: 14, lanes: 2}}
model:
  input: [8, 8, 1]
  layers:
    - flatten: {{}}
    - dense: {{units: 10}}
"""


def ddp_data(*arguments, code=0):
    """What the program says; a failure in one line."""
    done = subprocess.run([harness.build / "ddp_data", *map(str, arguments)], text=True,
                          capture_output=True, timeout=60, check=False)
    same(done.returncode, code, f"exit code of\n{done}\n")
    if code:
        same(done.stderr.count("\n"), 1, f"lines of\n{done.stderr}")
    return done.stderr if code else done.stdout


def trained(text, source, folder, ranks, *flags):
    """The weights, and the report."""
    cfg = harness.scratch / f"{source}-{pathlib.Path(folder).name}.cfg"
    cfg.write_text(text.format(source=source, dir=folder))
    out = harness.scratch / f"out-{cfg.stem}-{ranks}-{len(flags)}"
    train_well(cfg, "--out", out, *flags, ranks=ranks)
    return weights(out), run_json(out)


def _config(packed, text):
    cfg = harness.scratch / f"{packed}.cfg"
    cfg.write_text(text.format(source="records", dir=harness.scratch / packed))
    return cfg


def case_pictures_train_to_the_same_bits_packed_or_not():
    folder, scratch = pictures("pets"), harness.scratch
    ddp_data("pack", folder, scratch / "files")
    said = ddp_data("pack", folder, scratch / "pixels", "--decode", "--zstd", 3)
    check("which every epoch saves" in said and "zstd: " in said, said)
    expected, report = trained(PICTURES, "folder", folder, 1)
    for name, ranks in (("files", 1), ("files", 2), ("pixels", 2)):
        found, other = trained(PICTURES, "records", scratch / name, ranks)
        same(found, expected, f"weights from {name} on {ranks} ranks")
        same(other["classes"], report["classes"], "classes")
        ddp_data("verify", scratch / name)
    for name in ("files", "pixels"):
        ddp_data("unpack", scratch / name, scratch / f"{name}-again")
        found, _ = trained(PICTURES, "folder", scratch / f"{name}-again", 2)
        same(found, expected, f"weights from unpacked {name}")
        ddp_data("unpack", scratch / name, scratch / f"{name}-again", code=64)


def case_pictures_are_made_smaller_as_pixels_or_files():
    folder, scratch = pictures("pets"), harness.scratch
    for name, flags, saved in (("pixels", ["--decode"], "which every epoch saves"),
                               ("files", [], "of processor time in every epoch, instead of")):
        said = ddp_data("pack", folder, scratch / name, "--resize=8", *flags)
        check("resized 60 of 64 pictures: " in said and saved in said, said)
        check("48 to train on, 16 to test with" in ddp_data("info", scratch / name), "info")
        ddp_data("verify", scratch / name)
        ddp_data("unpack", scratch / name)
        made = sorted((scratch / f"{name}.unpacked").glob("*/*/*"))
        sides = {min(struct.unpack(">II", path.read_bytes()[16:24])) for path in made}
        same((len(made), sides), (64, {7, 8}), f"pictures and shorter sides of {name}")
    train_well(_config("files", PICTURES), "--out", scratch / "out-small", ranks=2)


NUMBERS = """\
data: {{source: {source}, dir: "{dir}"}}
train: {{global_batch: 10, steps: 12, lanes: 2, loss: mse}}
optimizer: {{name: sgd, lr: 0.01}}
model: {{input: [3], layers: [dense: {{units: {units}}}]}}
"""


def case_labels_that_are_numbers_train_to_the_same_bits_packed_or_not():
    for labels in (1, 2):
        folder = harness.scratch / f"numbers{labels}"
        folder.mkdir()
        for name, rows in (("train", 60), ("test", 20)):
            lines = [",".join(f"{0.37 * i * (k + 1) % 2.5 - 1:.3f}" for k in range(3 + labels))
                     for i in range(rows)]
            (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
        packed = harness.scratch / f"packed{labels}"
        ddp_data("pack", folder, packed, "--label-numbers", labels)
        check(f"labels: {labels} number" in ddp_data("info", packed), "info")
        ddp_data("verify", packed)
        text = NUMBERS.replace("{units}", str(labels))
        expected, _ = trained(text, "csv", folder, 1)
        found, _ = trained(text, "records", packed, 2)
        same(found, expected, f"weights of {labels} numbers a label")
        ddp_data("unpack", packed)
        found, _ = trained(text, "npy", f"{packed}.unpacked", 2)
        same(found, expected, "weights from what was unpacked")
    said = ddp_data("pack", folder, harness.scratch / "many", "--label-numbers", 5, code=65)
    check("has 5 fields a line, of which 5 were to be the label" in said, said)
    result = train(_config("packed2", IMAGES), "--out", harness.scratch / "none")
    same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")


def case_arrays_train_to_the_same_bits_packed_or_not():
    folder = harness.small_data(harness.scratch / "idx")
    said = ddp_data("pack", folder, harness.scratch / "packed", "--shard-mb", 1)
    check("packed 800 samples of source idx into 2 shards" in said, said)
    expected, _ = trained(IMAGES, "idx", folder, 1)
    for ranks in (1, 2):
        found, _ = trained(IMAGES, "records", harness.scratch / "packed", ranks)
        same(found, expected, f"weights on {ranks} ranks")
    disks = [harness.scratch / name for name in ("disk one", "disk-two")]
    for disk, names in zip(disks, (("index.json", "shard-00001.rec"), ("shard-00000.rec",))):
        disk.mkdir()
        for name in names:
            (disk / name).symlink_to(harness.scratch / "packed" / name)
    cfg = harness.scratch / "disks.cfg"
    text = IMAGES.replace('"{dir}"', f"[{disks[0]}, {disks[1]}]")
    cfg.write_text(text.format(source="records"))
    train_well(cfg, "--out", harness.scratch / "striped", "--set", "data.cache=none", ranks=2)
    same(weights(harness.scratch / "striped"), expected, "weights from two folders")
    listed = f"[{disks[0]}, {disks[1]}]"
    check("600 to train on, 200 to test with" in ddp_data("info", listed), "info of two folders")
    ddp_data("verify", listed)
    check("shuffled" in ddp_data("time", listed), "time of two folders")
    for source, lines in (("records", f"{disks[0]}/shard-00000.rec: is missing, with 600"),
                          ("npy", "data.dir: a list of folders needs data.source records")):
        result = train(cfg, "--set", f"data.source={source}", "--set",
                       f"data.dir=[{disks[0]}, {harness.scratch}]", ranks=2)
        same((result.code, len(result.errors)), (66 if source == "records" else 78, 1), f"{result}")
        check(lines in result.errors[0], f"{result}")
    cache = harness.scratch / "cache"
    found, _ = trained(IMAGES, "records", harness.scratch / "packed", 2, "--set",
                       f"data.local_cache={cache}")
    same(found, expected, "weights from copies")
    same(sorted(path.suffix for path in cache.iterdir()), [".rec", ".rec"], "copies")
    ddp_data("unpack", harness.scratch / "packed")
    found, _ = trained(IMAGES, "npy", harness.scratch / "packed.unpacked", 2)
    same(found, expected, "weights from what was unpacked")
    check("shuffled" in ddp_data("time", harness.scratch / "packed"), "time")


def case_what_info_says_of_numbers_that_are_all_the_same_is_taken_by_a_run():
    folder, packed = harness.scratch / "same", harness.scratch / "packed"
    folder.mkdir()
    for name in ("train", "test"):
        (folder / f"{name}.csv").write_text("".join(f"{i % 2},7,7,7\n" for i in range(20)))
    ddp_data("pack", folder, packed)
    found = re.search(r"^normalize: \{mean: .*\}$", ddp_data("info", packed), re.MULTILINE)[0]
    cfg = harness.scratch / "same.cfg"
    cfg.write_text(f"data: {{source: records, dir: {packed}, {found}}}\ntrain: {{steps: 2}}\n"
                   "model: {input: [3], layers: [{dense: {units: 2}}]}\n")
    train_well(cfg, "--out", harness.scratch / "out")


def case_a_folder_that_is_named_as_a_list_is_written_with_its_place():
    folder, named = harness.small_data(harness.scratch / "idx"), harness.scratch / "[packed]"
    ddp_data("pack", folder, named)
    here = harness.scratch
    for name, code in (("[packed]", 78), ("./[packed]", 0), (named, 0)):
        done = subprocess.run([harness.build / "ddp_data", "verify", name], text=True, cwd=here,
                              capture_output=True, timeout=60, check=False)
        same(done.returncode, code, f"exit code of\n{done}\n")
        check((f"and one folder has that name: write ./{name} for it" in done.stderr)
              == (code != 0), done.stderr)
    train_well(_config("[packed]", IMAGES), "--steps", 2, "--out", here / "out")


def case_damage_is_named_by_verify_and_by_a_run():
    folder, packed = harness.small_data(harness.scratch / "idx"), harness.scratch / "packed"
    ddp_data("pack", folder, packed)
    shard = packed / "shard-00000.rec"
    whole = shard.read_bytes()
    shard.write_bytes(whole[:9000] + bytes([whole[9000] ^ 1]) + whole[9001:])
    words = "shard-00000.rec: block 0 (samples 0 to 599 of the training set, counted from 0): is"
    check(words in ddp_data("verify", packed, code=65), "verify")
    cfg = harness.scratch / "damaged.cfg"
    cfg.write_text(IMAGES.format(source="records", dir=packed))
    for ranks in (1, 2):
        result = train(cfg, "--out", harness.scratch / "none", ranks=ranks)
        same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
        check(words in result.errors[0], f"{result}")
    result = train(cfg, "--set", "data.on_bad_sample=skip", "--out", harness.scratch / "none",
                   ranks=2)
    same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")
    check(1 <= result.err.count(words) <= 2, f"more than a warning a rank:\n{result}")
    shard.unlink()
    check("is missing, with 600 samples" in ddp_data("info", packed, code=66), "a missing shard")
    result = train(cfg, "--out", harness.scratch / "none", ranks=2)
    same((result.code, len(result.errors)), (66, 1), f"exit code and errors of\n{result}\n")


def case_mistakes_are_refused():
    folder = harness.small_data(harness.scratch / "idx")
    full = harness.scratch / "full"
    full.mkdir()
    (full / "letter").write_text("dear")
    check("has not made" in ddp_data("pack", folder, full, code=64), "a folder of others")
    same([path.name for path in full.iterdir()], ["letter"], "what is left there")
    for wrong in (["pack", folder], ["paint", folder], [], ["info", folder, folder],
                  ["pack", folder, "x", "--zstd", "99"], ["pack", folder, "x", "--resize", "9"],
                  ["pack", folder, "x", "--label-numbers", "2"],
                  ["pack", folder, "x", "--quality", "101"],
                  ["pack", folder, "x", "--source", "none"], ["pack", folder, "x", "--fast"]):
        ddp_data(*wrong, code=64)
    ddp_data("pack", harness.scratch / "nowhere", harness.scratch / "x", code=66)
    ddp_data("info", harness.scratch / "nowhere", code=66)


def on_terminal(command):
    """What is seen of a command that is interrupted once it shows progress."""
    ours, its = pty.openpty()
    running = subprocess.Popen(command, stdout=its, stderr=its)
    os.close(its)
    said = b""
    while b"left" not in said:
        said += os.read(ours, 4096)
    running.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # the other end is closed
        while True:
            said += os.read(ours, 4096)
    same(running.wait(), 75, f"exit code with {said}")
    os.close(ours)
    return said.decode()


def case_an_interrupted_pack_leaves_nothing_and_starts_over():
    folder, packed = harness.small_data(harness.scratch / "idx", 40000, 10), \
        harness.scratch / "packed"
    command = [harness.build / "ddp_data", "pack", folder, packed, "--zstd", "19"]
    for number, left in ((signal.SIGINT, False), (signal.SIGKILL, True)):
        running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for _ in range(2000):
            if (packed / "shard-00000.rec.part").exists():
                break
            time.sleep(0.005)
        running.send_signal(number)
        said = running.communicate()[1]
        same(running.returncode, -9 if left else 75, f"exit code with {said}")
        same(packed.exists(), left, "whether the folder is there")
        check(left or "nothing is left there" in said, said)
        check(not (packed / "index.json").exists(), "an index of half a pack")
    said = on_terminal(command)
    check("\r\x1b[Klockstep: warning: " in said and "samples/s, " in said, f"{said!r}")
    ddp_data("pack", folder, packed)
    ddp_data("verify", packed)
    same(sorted(path.name for path in packed.iterdir()),
         ["index.json", "shard-00000.rec", "shard-00001.rec"], "the files")


if __name__ == "__main__":
    harness.main(globals())
