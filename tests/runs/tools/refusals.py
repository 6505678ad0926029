"""Bad input, as a user gives it: one clear line that names the cause, the documented exit code, all
ranks gone within seconds, and nothing left behind that stands in the way of the next try.
"""
import concurrent.futures
import os
import pathlib
import re
import signal
import struct

import harness
from harness import CONV_LAYERS, IDX_FILES, check, same, small_cfg, small_data, train, train_well

SECONDS = 20  # within which every refusal is over, also on a busy machine


def refuse(code, pattern, *arguments, ranks=(0, 2), env=None, cwd=None, out=None):
    """ddp_train must refuse these arguments alone, alone and quiet, and under mpirun."""
    folder = harness.scratch / "out" if out is None else pathlib.Path(out)
    before = contents(folder)
    ways = [(0, ()), (0, ("--quiet",))] if 0 in ranks else []
    ways += [(count, ()) for count in ranks if count > 0]
    for count, flags in ways:
        result = train(*arguments, "--out", folder, *flags, ranks=count, env=env, cwd=cwd)
        check_refusal(result, code, pattern)
        same(contents(folder), before, f"what {folder} holds after\n{result}\n")


def contents(folder):
    return sorted(map(str, folder.rglob("*"))) if os.path.isdir(folder) else []


def check_refusal(result, code, pattern):
    same(result.code, code, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    check(re.search(pattern, result.errors[0]), f"no {pattern!r} in the error of\n{result}")
    lines = [line for line in result.complaints if line.strip()]
    same(lines[-1], result.errors[0], f"the last line on stderr of\n{result}\n")
    same(len(lines), 1 + len(result.warnings), f"the number of lines on stderr of\n{result}\n")
    check(result.seconds < SECONDS, f"too slow:\n{result}")


def side_by_side(function, rows):
    """Calls it with the arguments of each row, three at a time: most of their time is waiting."""
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(function, *row) for row in rows]:
            future.result()


def refuse_all(rows, **how):
    """Many rows (code, pattern, arguments...), side by side."""
    side_by_side(
        lambda number, code, pattern, *arguments: refuse(
            code, pattern, *arguments, out=harness.scratch / f"out-{number}", **how),
        [(number, *row) for number, row in enumerate(rows)])


# ---- data ----


def case_missing_data_is_named_with_what_to_install():
    cfg = small_cfg()
    (harness.scratch / "half").mkdir()
    (harness.scratch / "half" / IDX_FILES[0]).write_bytes(
        (harness.scratch / "data" / IDX_FILES[0]).read_bytes())
    refuse_all([
        (66, "/nonexistent: no train-images.*apt-get install dataset-fashion-mnist",
         harness.ROOT / "models/mlp.cfg", "--set", "data.dir=/nonexistent"),
        (66, "half: no train-labels-idx1-ubyte", cfg, "--set",
         f"data.dir={harness.scratch / 'half'}"),
        (78, "data.dir", cfg, "--set", "data.dir="),
    ])


def damaged(name, change, zipped=True):
    """A data set with one file changed."""
    folder = small_data(harness.scratch / name, zipped=zipped)
    file, work = change
    path = folder / (IDX_FILES[file] + (".gz" if zipped else ""))
    path.write_bytes(work(path.read_bytes()))
    return folder


def flip(data, at):
    return data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]


def case_damaged_data_is_named_with_its_file():
    cfg = small_cfg()
    wrong_magic = struct.pack(">I", 0x0D03)
    rows = {
        "torn": (r"train-images-idx3-ubyte\.gz", damaged(
            "torn", (0, lambda data: data[: len(data) // 2]))),
        "altered": (r"train-images-idx3-ubyte\.gz", damaged(
            "altered", (0, lambda data: flip(data, len(data) // 2)))),
        "no gzip": (r"t10k-images-idx3-ubyte\.gz", damaged(
            "no-gzip", (2, lambda data: b"<html>not found</html>"))),
        "empty": (r"train-labels-idx1-ubyte", damaged("empty", (1, lambda data: b""), False)),
        "short": (r"t10k-labels-idx1-ubyte", damaged(
            "short", (3, lambda data: data[:-1]), False)),
        "long": (r"train-images-idx3-ubyte", damaged(
            "long", (0, lambda data: data + b"\0"), False)),
        "magic": (r"train-images-idx3-ubyte", damaged(
            "magic", (0, lambda data: wrong_magic + data[4:]), False)),
        "huge": (r"train-images-idx3-ubyte", damaged(
            "huge", (0, lambda data: data[:4] + b"\xff" * 12 + data[16:]), False)),
        "label": (r"train-labels-idx1-ubyte.*label 10 of row 5", damaged(
            "label", (1, lambda data: data[:13] + b"\x0a" + data[14:]), False)),
        "count": (r"t10k-(images|labels).*200", damaged(
            "count", (3, lambda data: data[:4] + struct.pack(">I", 199) + data[8:-1]), False)),
    }
    refuse_all([(65, pattern, cfg, "--set", f"data.dir={folder}")
                for pattern, folder in rows.values()])


def case_data_that_does_not_fit_the_model_is_refused():
    cfg = small_cfg()
    ten = "model.layers[6].dense.units"
    refuse_all([
        (65, r"images of 8x8x1 do not fit model\.input of 9x9x1", cfg, "--set",
         "model.input=[9, 9, 1]"),
        (65, r"too large for 5 classes", cfg, "--set", f"{ten}=5"),
        (65, r"28x28.*set data\.source to idx", cfg, "--set", "data.source=fashion-mnist"),
    ], ranks=(0,))


def case_the_same_command_works_once_the_data_is_there():
    cfg = small_cfg()
    folder = harness.scratch / "data"
    hidden = folder.rename(harness.scratch / "hidden")
    out = harness.scratch / "out"
    same(train(cfg, "--out", out).code, 66, "the exit code without data")
    check(not out.exists(), "a refused run leaves its folder behind")
    hidden.rename(folder)
    train_well(cfg, "--out", out)


# ---- the configuration ----


def written(text, name):
    path = harness.scratch / name
    path.write_text(text)
    return path


def config(name, *replacements, layers=CONV_LAYERS):
    text = small_cfg(layers).read_text()
    for old, new in replacements:
        check(old in text, f"{old!r} is not in the configuration")
        text = text.replace(old, new)
    return written(text, name)


def case_mistakes_in_the_file_are_named_by_line_and_column():
    dense = "    - dense: {units: 10}\n"
    rows = [
        (r"c0\.cfg:4:13: optimizer: unknown key 'nam' \(did you mean 'name'\?\)",
         config("c0.cfg", ("optimizer: {name:", "optimizer: {nam:"))),
        (r"c1\.cfg:3:26: train: repeated key 'global_batch'",
         config("c1.cfg", ("train: {", "train: {global_batch: 5, "))),
        (r"c2\.cfg:3:\d+: train\.global_batch: .*integer.*'many'",
         config("c2.cfg", ("global_batch: 50", "global_batch: many"))),
        (r"c3\.cfg:3:\d+: train\.global_batch: .*from 1 to 16777216",
         config("c3.cfg", ("global_batch: 50", "global_batch: 0"))),
        (r"c4\.cfg:14:\d+: model\.layers\[6\]\.dense: .*units",
         config("c4.cfg", (dense, "    - dense: {}\n"))),
        (r"c5\.cfg:8:\d+: model\.layers\[0\]\.conv2d: .*'filter'.*did you mean 'filters'",
         config("c5.cfg", ("filters: 8", "filter: 8"))),
        (r"c6\.cfg:8:\d+: .*'conv2'.*did you mean 'conv2d'",
         config("c6.cfg", ("conv2d:", "conv2:"))),
        (r"c7\.cfg:\d+:\d+: model\.layers\[0\]",
         config("c7.cfg", ("kernel: 3, padding: 1", "kernel: 11"))),
        (r"c8\.cfg:11:\d+: .*(flatten|dense)",
         config("c8.cfg", ("    - flatten: {}\n", ""))),
        (r"c9\.cfg:4:\d+: .*anchor|c9\.cfg:4:\d+: .*alias",
         config("c9.cfg", ("lr: 0.1", "lr: &a 0.1"))),
        (r"c10\.cfg:4:\d+: optimizer\.lr: .*nan",
         config("c10.cfg", ("lr: 0.1", "lr: nan"))),
        (r"c11\.cfg:3:\d+: .*epochs.*steps|c11\.cfg:3:\d+: .*steps.*epochs",
         config("c11.cfg", ("train: {", "train: {epochs: 2, "))),
        (r"c12\.cfg:\d+:\d+: ", config("c12.cfg", ("input: [8, 8, 1]", "input: [8, 8, 1"))),
        (r"c13\.cfg:\d+:\d+: .*document", config("c13.cfg", (dense, dense + "---\nname: two\n"))),
        (r"c14\.cfg:1:1: .*model", written("name: nothing\n", "c14.cfg")),
        (r"c15\.cfg:.*(empty|model)", written("", "c15.cfg")),
        (r"c16\.cfg:.*", written("\x00\x01\x02binary", "c16.cfg")),
        (r"c17\.cfg:3:\d+: train\.global_batch: .*",
         config("c17.cfg", ("global_batch: 50", "global_batch: 0x32"))),
        (r"c18\.cfg:4:\d+: .*tag", config("c18.cfg", ("lr: 0.1", "lr: !!str 0.1"))),
        (r"c19\.cfg:3:\d+: train\.(lanes|micro_batch)",
         config("c19.cfg", ("train: {", "train: {micro_batch: -1, "))),
    ]
    refuse_all([(78, pattern, cfg) for pattern, cfg in rows], ranks=(0,))
    refuse(78, rows[0][0], rows[0][1], ranks=(2,))


def case_huge_and_deep_files_are_refused_quickly():
    deep = "model: {input: [8, 8, 1], layers: " + "[" * 50000 + "\n"
    nested = "{residual: {body: [" * 200 + "{relu: {}}" + "]}}" * 200
    repeats = "{repeat: {times: 1000, layers: [" * 4 + "{relu: {}}" + "]}}" * 4
    frame = "model: {{input: [8], layers: [{}, {{dense: {{units: 2}}}}]}}\n"
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n"
        for old, new in zip("abcdefgh", "bcdefghi"))
    rows = [
        (r"deep\.cfg:1:\d+: .*(deep|nest)", written(deep, "deep.cfg")),
        (r"nested\.cfg:1:\d+: .*(deep|nest)", written(frame.format(nested), "nested.cfg")),
        (r"repeats\.cfg:1:\d+: ", written(frame.format(repeats), "repeats.cfg")),
        (r"bomb\.cfg:1:\d+: ", written(bomb, "bomb.cfg")),
        (r"huge\.cfg", written("# " + "x" * 70 + "\n" + "# y\n" * 4000000, "huge.cfg")),
    ]
    refuse_all([(78, pattern, cfg) for pattern, cfg in rows], ranks=(0,))
    same(train(harness.scratch / "none.cfg").code, 66, "the exit code without a configuration")


def case_bad_values_of_set_and_environment_are_configuration():
    cfg = small_cfg()
    rows = [
        (78, r"--set.*train\.global_batsh.*did you mean.*global_batch", "train.global_batsh=5"),
        (78, r"--set.*global_batch.*from 1 to", "train.global_batch=0"),
        (78, r"--set.*KEY=VALUE", "train.global_batch"),
        (78, r"--set.*model\.layers\[9\]", "model.layers[9].dense.units=4"),
        (78, r"--set.*lr", "optimizer.lr=1e999"),
        (78, r"--set.*comm\.strategy.*'rings'.*did you mean 'ring'", "comm.strategy=rings"),
        (78, r"--set.*data\.source.*'fashion-mnits'.*did you mean 'fashion-mnist'",
         "data.source=fashion-mnits"),
        (78, r"--set.*optimizer\.name.*'adam'.*did you mean 'adamw'", "optimizer.name=adam"),
        (78, r"--set.*device\.name.*'cpus'.*did you mean 'cpu'", "device.name=cpus"),
        (78, r"--set.*compressor.*'nnoe'.*did you mean 'none'", "comm.compressor=nnoe"),
        (78, r"--set.*micro_batch", "train.micro_batch=-3"),
    ]
    refuse_all([(code, pattern, cfg, "--set", value) for code, pattern, value in rows],
               ranks=(0,))
    refuse(78, rows[5][1], cfg, "--set", rows[5][2], ranks=(2,))
    refuse(78, r"--device.*'npu'|device\.name.*'npu'", cfg, "--device", "npu", ranks=(0,))
    refuse(78, r"(--seed|train\.seed).*'x1'", cfg, "--seed", "x1", ranks=(0,))
    refuse(78, r"DP_TRAIN_SEED.*'many'", cfg, env={"DP_TRAIN_SEED": "many"})
    refuse(78, r"on_rank_failure: shrink: .*--with-ft ulfm; launch/supervise starts a run again",
           cfg, "--set", "train.on_rank_failure=shrink", ranks=(2,))
    refuse(78, "DP_FAULT: flip: step: expected", cfg, env={"DDP_FAULT": "flip:step=0"})
    for name, values in (("TRAIN_SEED", ("1", "2")), ("FAULT", ("flip", "flip:step=2"))):
        refuse(78, f"DP_{name}: its alias DDP_{name} has another value: unset one", cfg,
               env={f"DP_{name}": values[0], f"DDP_{name}": values[1]})
    mistyped = train_well(cfg, env={"DP_TRAIN_SEEDS": "3"})
    check(re.search("DP_TRAIN_SEEDS is ignored .*DP_TRAIN_SEED", "".join(mistyped.warnings)),
          f"no warning:\n{mistyped}")


def case_a_device_that_is_not_here_says_why():
    listed = train("--list", "devices").out.splitlines()
    if any(line.startswith("cuda ") and "not here" not in line for line in listed):
        return  # it is
    refuse(69, r"device cuda: .*(built without it|driver|GPU)", small_cfg(), "--device", "cuda")
    refuse(69, r"device cuda: ", small_cfg(), "--device", "cuda", "--check", ranks=(0,))


def case_wrong_usage_is_reported_once():
    cfg = small_cfg()
    refuse_all([
        (64, r"unknown flag --step \(did you mean --steps\?\)", cfg, "--step", "3"),
        (64, r"unknown flag -x", cfg, "-x"),
        (64, r"--steps wants a number above 0, not '0'", cfg, "--steps", "0"),
        (64, r"--steps wants a number above 0, not '12q'", cfg, "--steps=12q"),
        (64, r"--threads wants a number above 0, not '0'", cfg, "--threads", "0"),
        (64, r"--threads wants a number above 0, not '3000000000'", cfg, "--threads=3000000000"),
        (64, r"--quiet takes no value", cfg, "--quiet=yes"),
        (64, r"two configurations", cfg, cfg),
        (64, r"--resume there: a path goes after '=': --resume=there", cfg, "--resume", "there"),
        (64, r"--log-level wants error\|warn\|info\|debug, not 'loud'", cfg, "--log-level=loud"),
    ], ranks=(0,))
    refuse(64, r"unknown flag --step ", cfg, "--step", "3", ranks=(2,))
    for arguments, pattern in (
        ((), r"no model\.cfg given"),
        (("--list", "planets"), r"--list wants strategies\|.*'planets'"),
        ((cfg, "--out"), r"--out wants DIR"),
        ((cfg, "--out="), r"--out wants DIR"),
    ):
        check_refusal(train(*arguments), 64, pattern)


# ---- where it writes, and what it starts from ----


def case_an_occupied_or_unwritable_folder_is_refused():
    cfg = small_cfg()
    out = harness.scratch / "out"
    train_well(cfg, "--out", out)
    refuse(64, r"holds a run already: choose another --out", cfg, out=out)
    theirs = harness.scratch / "theirs/checkpoints/step-00000001/thesis.txt"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("thesis")
    refuse(64, r"theirs/checkpoints is there already: choose another --out", cfg,
           out=harness.scratch / "theirs")
    same(theirs.read_text(), "thesis", "what lay there")
    file = written("here\n", "file")
    refuse(74, r"cannot make the folder .*file: Not a directory", cfg, out=file)
    refuse(74, r"cannot make the folder .*Not a directory", cfg, out=file / "below", ranks=(0,))
    refuse(74, r"cannot make the folder /proc/lockstep", cfg, out="/proc/lockstep", ranks=(0, 2))
    for length in (6001, 4095, 4001):  # even where only the names of checkpoints are too long
        refuse(64, r"the path is too long", cfg, out="x/" * (length // 2) + "y", ranks=(0,))
    for ranks in (0, 2):
        check_refusal(train(cfg, "--out", "", ranks=ranks), 64, r"--out wants the path of a folder")
    if os.geteuid() != 0:
        closed = harness.scratch / "closed"
        closed.mkdir(0o555)
        refuse(74, r"closed", cfg, out=closed)


def files_of(folder):
    """Path -> inode, but for the page, which a run that goes on replaces."""
    return {path: path.stat().st_ino for path in folder.rglob("*")
            if not path.name.startswith("report.html")}


def case_a_folder_that_another_run_writes_into_is_refused():
    cfg = small_cfg()
    for flags in ((), ("--resume", "--steps", 3)):
        started, out = harness.begin(cfg, name=f"out-{len(flags)}")
        writer = started.ranks()[0]
        before = files_of(out)
        result = train(cfg, "--out", out, *flags, ranks=2)
        check_refusal(result, 64,
                      rf"{out} is in use by process {writer} on host \S+: choose another --out")
        now = files_of(out)
        same({path: now.get(path) for path in before}, before, "the files of the first run")
        started.signal(signal.SIGKILL, 0)  # whatever ends it, the folder is free
        started.finish()
        train_well(cfg, "--out", out, "--resume", "--set", "train.steps=6", ranks=2)
        check(not (out / ".lockstep.lock").exists(), "the lock is left")


def case_of_two_runs_that_begin_at_once_one_is_refused():
    cfg = small_cfg()
    for number in range(2):
        out = harness.scratch / f"out-{number}"
        both = [harness.Started([cfg, "--out", out, "--steps", 300], ranks=1) for _ in range(2)]
        results = sorted((one.finish() for one in both), key=lambda result: result.code)
        same([result.code for result in results], [0, 64],
             f"the exit codes of\n{results[0]}\n{results[1]}\n")
        check(re.search(r"is in use by |holds a run already", results[1].errors[0]), results[1])
        same([line["step"] for line in harness.metrics(out, "step")], list(range(1, 301)), "steps")


def case_weights_that_cannot_be_taken_over_are_refused():
    cfg = small_cfg()
    out = harness.scratch / "first"
    train_well(cfg, "--out", out)
    good = out / "checkpoints/latest/model.safetensors"
    data = good.read_bytes()
    torn = harness.scratch / "torn.safetensors"
    torn.write_bytes(data[:-5])
    other = harness.scratch / "other.safetensors"
    other.write_bytes(b"\xff" * 64)
    for flag in ("--init", "--baseline", "--plan"):
        refuse(66, f"{flag} /nonexistent: No such file or directory", cfg, flag, "/nonexistent")
    refuse(78, r"first/checkpoints/latest/model\.safetensors.*(4\.weight|6\.weight|shape)", cfg,
           "--set", "model.layers[4].dense.units=12", "--init", good)
    refuse(65, r"torn\.safetensors", cfg, "--init", torn, ranks=(0,))
    refuse(65, r"other\.safetensors", cfg, "--init", other, ranks=(0,))
    refuse(65, r"torn\.safetensors", cfg, "--baseline", torn, ranks=(0,))


def case_what_is_not_there_yet_is_no_flag():
    refuse(64, "unknown flag --onnx", small_cfg(), "--onnx", ranks=(0,))


if __name__ == "__main__":
    harness.main(globals())
