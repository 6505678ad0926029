"""What a program makes of the streams and files that its caller gives it: closed ones, full ones,
pipes where files are wanted, and texts that a terminal would obey.
"""
import contextlib
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import uuid

import harness
from harness import IDX_FILES, Started, check, same, small_cfg, small_data, train, train_well
from own_pictures import many, model
from refusals import refuse_all

MPIRUN = [str(harness.ROOT / "launch/mpirun"), "-np", "2"]


# ---- closed and full streams ----


def case_closed_streams_end_up_in_no_file():
    cfg = small_cfg()
    closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh"]
    for ranks, wrapper in ((0, closed), (2, [*MPIRUN, *closed])):
        like, out = (harness.scratch / f"{name}-{ranks}" for name in ("like", "out"))
        train_well(cfg, "--out", like, ranks=ranks)
        result = Started([cfg, "--out", out], wrapper=wrapper).finish()
        same((result.code, result.out, result.err), (0, "", ""), f"the end of\n{result}\n")
        same(harness.weights(out), harness.weights(like), f"the weights in {out}")
        kinds, others = ([line["type"] for line in harness.metrics(run)] for run in (out, like))
        same(kinds, others, f"the lines of metrics.jsonl in {out}")
        same(harness.run_json(out)["exit"], "finished", "how it ended")
        same((out / "config.yaml").read_text(), (like / "config.yaml").read_text(), "config.yaml")


def case_what_ranks_print_is_no_signal_where_mpiruns_streams_are_closed():
    cfg = small_cfg()
    for number, closed in enumerate(("<&-", ">&-", "<&- >&-", "<&- >&- 2>&-")):
        out = harness.scratch / f"out-{number}"
        wrapper = ["sh", "-c", f'exec "$@" {closed}', "sh", *MPIRUN]
        result = Started([cfg, "--out", out, "--steps", 300], wrapper=wrapper).finish()
        same((result.code, result.complaints), (0, []), f"with {closed}:\n{result}\n")
        same(harness.run_json(out)["exit"], "finished", f"how it ended with {closed}")


# ---- a terminal ----


def shown(command, env):
    """What a command that must succeed shows on a terminal."""
    mark, (user, terminal) = uuid.uuid4().hex, pty.openpty()
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal,
                          env=harness.environment(mark, env), cwd=harness.scratch) as process:
        os.close(terminal)
        text = b""
        with contextlib.suppress(OSError):  # at the end of a terminal
            while data := os.read(user, 4096):
                text += data
    os.close(user)
    same(process.returncode, 0, f"the end of {command}:\n{text}\n")
    return text.decode()


def case_a_warning_takes_the_place_of_the_bar():
    folder, paths = many("warned", 1080)
    paths[730].write_bytes(b"no picture")  # which rank 0 reads
    words = [str(harness.build / "ddp_train"), model(folder), *harness.known_baseline()]
    for text in ("train.global_batch=120", "train.epochs=1", "data.shuffle=false",
                 "data.cache=none", "data.on_bad_sample=skip"):
        words += ["--set", text]
    for launcher in ([], MPIRUN):
        text = shown([*launcher, *words, "--out", harness.scratch / f"out-{len(launcher)}"],
                     {"DP_FAULT": "slow:ms=110"})
        before, after = re.split(rf"lockstep: warning: (?:rank 0 \(.+?\): )?{paths[730]}.*", text)
        check("/9 loss" in before.rsplit("\n", 1)[-1], f"no bar before:\n{text!r}")
        check(before.endswith("\r\033[K"), f"the warning is glued:\n{text!r}")
        check("/9 loss" in after, f"no bar after:\n{text!r}")


def case_an_answer_that_cannot_be_written_is_an_error():
    cfg = small_cfg()
    full = ["sh", "-c", 'exec "$@" >/dev/full', "sh"]
    sums = ["-b", 64, "-e", 256, "-n", 1]
    for program, *flags in (
        ("ddp_train", "--help"), ("ddp_train", "--version"), ("ddp_train", "--list", "layers"),
        ("ddp_train", cfg, "--check"), ("ddp_train", cfg, "--print-config"),
        ("ddp_train", cfg, "--dry-run"), ("ddp_train", cfg, "--data-only"),
        ("ddp_bench", "--help"), ("ddp_bench", "--version"), ("ddp_bench", "--list"),
        ("ddp_bench", *sums), ("ddp_bench", *sums, "--format", "csv"),
        ("ddp_bench", *sums, "--format", "json"),
    ):
        harness.program = program
        result = Started(flags, wrapper=full).finish()
        same(result.code, 74, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"lines that say why\n{result}\n")
        check("cannot write" in result.errors[0], f"no cause in\n{result}")
    harness.program = "ddp_train"
    result = Started([cfg, "--out", harness.scratch / "out"], wrapper=full).finish()
    same((result.code, len(result.warnings)), (0, 1), f"a run that has its files\n{result}\n")
    check("not all of the output" in result.warnings[0], f"another warning in\n{result}")
    same(harness.run_json(harness.scratch / "out")["exit"], "finished", "how it ended")


# ---- pipes where files are wanted ----


def case_a_pipe_in_place_of_a_file_is_refused_at_once():
    cfg = small_cfg()
    pipe = harness.scratch / "pipe"
    os.mkfifo(pipe)
    data = small_data(harness.scratch / "piped")
    (data / IDX_FILES[0]).unlink()
    os.mkfifo(data / IDX_FILES[0])
    train_well(cfg, "--out", harness.scratch / "like")
    torn = harness.scratch / "step-00000006"
    shutil.copytree(harness.scratch / "like/checkpoints/step-00000006", torn)
    (torn / "model.safetensors").unlink()
    os.mkfifo(torn / "model.safetensors")
    refuse_all([
        (65, "pipe: a pipe, but a regular file", cfg, "--init", pipe),
        (65, "pipe: a pipe, but a regular file", cfg, "--baseline", pipe),
        (65, "pipe: a pipe, but a regular file", cfg, "--plan", pipe),
        (65, "step-00000006", cfg, f"--resume={torn}"),
        (65, f"{IDX_FILES[0]}: a pipe, but", cfg, "--set", f"data.dir={data}"),
        (65, "null: a device, but a regular file", cfg, "--init", "/dev/null"),
        (66, "pipe: no process writes to this pipe", pipe),
    ])


def answer(out):
    """What --check says of a model: not the file's name, nor what the host has left just now."""
    return [line for line in out.splitlines()[1:] if "MB available" not in line]


def case_a_configuration_comes_through_a_pipe():
    cfg = small_cfg()
    expected = answer(train_well(cfg, "--check").out)
    script = 'exec "$0" <(cat "$1") --check'
    found = subprocess.run(["bash", "-c", script, harness.build / "ddp_train", cfg], check=False,
                           capture_output=True, text=True, timeout=harness.PATIENCE)
    same((found.returncode, answer(found.stdout)), (0, expected), f"{found}")
    with open(cfg, "rb") as content:
        found = subprocess.run([harness.build / "ddp_train", "/dev/stdin", "--check"], check=False,
                               stdin=content, capture_output=True, text=True,
                               timeout=harness.PATIENCE)
    same((found.returncode, answer(found.stdout)), (0, expected), f"{found}")


def case_a_silent_writer_is_named():
    pipe = harness.scratch / "pipe"
    os.mkfifo(pipe)
    started = Started([pipe, "--check"])
    with open(pipe, "w", encoding="utf-8") as writer:  # which waits until it is read
        started.wait_for("a warning",
                         lambda: "waiting for data from its writer" in started.complained())
        writer.write(small_cfg().read_text())
    result = started.finish()
    same((result.code, len(result.warnings)), (0, 1), f"the end of\n{result}\n")


# ---- texts that a terminal would obey ----

# None of these may come out; a byte that is no UTF-8 reads as U+FFFD here.
OBEYED = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f"
                    "\ufffd]")
FORGED = "lockstep: error: all is well"
EVIL = f"\x1b[2K\r\n{FORGED}\n\x9b31m\udc9b\u202e"


def check_tame(result, code):
    same(result.code, code, f"the exit code of\n{result}\n")
    for text in (result.out, result.err):
        found = OBEYED.search(text)
        check(not found, f"{found!r} in\n{result}")
        check(not re.search(f"^{FORGED}", text, re.M), f"a forged line in\n{result}")


def refuse_tamely(code, *arguments, env=None, ranks=0):
    result = train(*arguments, "--out", harness.scratch / "out", env=env, ranks=ranks)
    check_tame(result, code)
    same((len(result.errors), len(result.complaints)), (1, 1 + len(result.warnings)),
         f"the lines of\n{result}\n")


def case_names_and_texts_from_outside_forge_no_line():
    cfg = small_cfg()
    evil_file = json.dumps({EVIL[:-2]: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}})
    weights = harness.scratch / "weights"
    weights.write_bytes(struct.pack("<Q", len(evil_file)) + evil_file.encode())
    keys = harness.scratch / "keys.cfg"
    keys.write_text(cfg.read_text() + json.dumps(EVIL[:-2]) + ": 1\n")
    report = harness.scratch / "report.json"
    report.write_text(json.dumps({"schema": EVIL[:-2]}))
    refuse_tamely(64, f"--{EVIL}")
    refuse_tamely(64, cfg, "--max-time", EVIL)
    refuse_tamely(66, harness.scratch / EVIL)
    refuse_tamely(66, harness.scratch / EVIL, ranks=2)
    refuse_tamely(66, cfg, "--init", EVIL)
    refuse_tamely(66, cfg, f"--resume={EVIL}")
    refuse_tamely(78, cfg, "--set", f"{EVIL}=1")
    refuse_tamely(78, cfg, env={"DP_FAULT": EVIL})
    refuse_tamely(78, cfg, env={"DP_TRAIN_STEPS": EVIL})
    refuse_tamely(78, cfg, "--init", weights)
    refuse_tamely(78, keys)
    check_tame(train(cfg, "--baseline", report, "--out", harness.scratch / "out"), 65)


def case_a_good_run_of_odd_names_forges_no_line():
    cfg = small_cfg(name="od\x1b[2K\r\nd\udc9b\u202e.cfg")
    train_well(cfg, "--steps", 2, "--out", harness.scratch / "like")
    baseline = harness.scratch / EVIL
    shutil.copy(harness.scratch / "like/run.json", baseline)
    name = ("--set", 'name="a\\u202eb"')
    for ranks in (0, 2):
        out = harness.scratch / f"{EVIL}{ranks}"
        env = {"DP_TRAIN_STEP\x1b": "1"}
        result = train(cfg, *name, "--baseline", baseline, "--out", out, ranks=ranks, env=env)
        check_tame(result, 0)
        same(harness.run_json(out)["name"], "a\u202eb", "the name")
        check(r"a\u202eb: finished" in result.out, f"the name is not shown in\n{result}")
    check_tame(train(cfg, *name, "--check"), 0)
    printed = train(cfg, *name, "--print-config")
    check_tame(printed, 0)
    again = harness.scratch / "again.cfg"
    again.write_text(printed.out)
    same(train_well(again, "--print-config").out, printed.out, "the configuration, read back")
    train_well(again, "--out", harness.scratch / "back")
    same(harness.run_json(harness.scratch / "back")["name"], "a\u202eb", "the name, read back")


if __name__ == "__main__":
    harness.main(globals())
