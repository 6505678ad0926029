"""Other things where a file is to be read."""
import os
import random
import shutil

import harness
import lab
from harness import IDX_FILES
from lab import QUICK, attempt, case, cfg, each, finished, says
from outputs import plant

GROUP = "inputs"


def put(path, kind):
    if path.is_symlink() or path.is_file():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
    if kind in ("/dev/zero", "/dev/null", "/dev/tty", "/proc/self/mem", "/dev/full",
                "/dev/urandom"):
        path.symlink_to(kind)
    elif kind == "noise":
        path.write_bytes(random.randbytes(1 << 16))
    elif kind == "noise in text":
        path.write_text("".join(chr(random.randrange(1, 0x250)) for _ in range(1 << 14)))
    elif kind == "brackets":
        path.write_text("[" * (1 << 18))
    elif kind == "braces":
        path.write_text('{"a":' * (1 << 18))
    elif kind == "half a gigabyte of nothing":
        path.touch()
        os.truncate(path, 1 << 29)
    else:
        plant(path, kind)


KINDS = ("empty file", "file", "folder", "pipe", "socket", "device", "link to nothing",
         "link to itself", "/dev/zero", "/dev/null", "/dev/urandom", "/dev/tty", "/proc/self/mem",
         "noise", "noise in text", "brackets", "braces", "half a gigabyte of nothing")


def own_data():
    folder = harness.small_data(harness.scratch / "data")
    return ("--set", f"data.dir={folder}"), folder


def try_config(kind):
    path = harness.scratch / "a.cfg"
    put(path, kind)
    return attempt(path, *QUICK, codes={65, 66, 78})


def try_flag(flag, codes):
    def go(kind):
        path = harness.scratch / "given"
        put(path, kind)
        return attempt(cfg(), *QUICK, flag, path, codes=codes)
    return go


def try_data(which):
    def go(kind):
        flags, folder = own_data()
        put(folder / IDX_FILES[which], kind)
        return attempt(cfg(), *QUICK, *flags, codes={65, 66, 78})
    return go


def try_zipped(kind):
    folder = harness.small_data(harness.scratch / "data", zipped=True)
    put(folder / f"{IDX_FILES[0]}.gz", kind)
    return attempt(cfg(), *QUICK, "--set", f"data.dir={folder}", codes={65, 66})


def try_resumed(name):
    def go(kind):
        out = finished(harness.scratch / "out")
        put(out / "checkpoints/step-00000006" / name, kind)
        attempt(cfg(), *QUICK, "--out", harness.scratch / "other",
                f"--resume={out}/checkpoints/step-00000006", codes={65, 66, 78})
        return attempt(cfg(), *QUICK, "--out", out, "--resume", "--steps", 9, codes={65})
    return go


def try_cache(kind):
    """What is kept from other runs is not believed."""
    cache = harness.scratch / "cache/lockstep"
    flags = ("--set", "train.steps=3", "--set", "train.eval_every=0")
    attempt(cfg(), *flags, "--set", "comm.plan_cache=true", "--set", "comm.strategy=auto",
            codes={0}, ranks=2)
    files = list(cache.iterdir()) if cache.exists() else []
    cache.mkdir(parents=True, exist_ok=True)
    for path in files or [cache / "plans"]:
        put(path, kind)
    return attempt(cfg(), *flags, "--set", "comm.plan_cache=true", ranks=2, codes={0})


INPUTS = {
    "model.cfg": ("65, 66 or 78", try_config),
    "--init": ("65, 66 or 78", try_flag("--init", {65, 66, 78})),
    "--baseline": ("65 or 66", try_flag("--baseline", {65, 66, 78})),
    "--plan": ("65 or 66", try_flag("--plan", {65, 66, 78})),
    "images": ("65 or 66", try_data(0)),
    "labels of the test": ("65 or 66", try_data(3)),
    "gzipped images": ("65 or 66", try_zipped),
    "model.safetensors": ("65 or 66", try_resumed("model.safetensors")),
    "optimizer.safetensors": ("65 or 66", try_resumed("optimizer.safetensors")),
    "state.json": ("65 or 66", try_resumed("state.json")),
    "MANIFEST": ("65 or 66", try_resumed("MANIFEST")),
}
for name, (expected, function) in INPUTS.items():
    @case(GROUP, f"{name}: each of {len(KINDS)} other kinds", f"{expected}, one line")
    def _(function=function):
        return each(KINDS, lambda kind: function(kind).code)


@case(GROUP, "the user's cache: other kinds, 2 ranks", "0")
def _():
    return each(("empty file", "folder", "pipe", "link to itself", "/dev/zero", "noise",
                 "brackets"), lambda kind: try_cache(kind).code)


def try_data_of_two(kind):
    flags, folder = own_data()
    put(folder / IDX_FILES[0], kind)
    return attempt(cfg(), *QUICK, *flags, ranks=2, codes={65, 66, 78}).code


@case(GROUP, "images: other kinds, 2 ranks", "65 or 66")
def _():
    return each(("pipe", "folder", "link to itself", "/dev/zero", "noise"), try_data_of_two)


@case(GROUP, "model.cfg that is cut while it is read, 40 times", "documented")
def _():
    text, path = cfg().read_bytes(), harness.scratch / "a.cfg"
    found = set()
    for end in random.sample(range(len(text)), 40):
        path.write_bytes(text[:end])
        found.add(attempt(path, "--check").code)
    return f"{sorted(found)}"


@case(GROUP, "each byte class of every file of a checkpoint altered, 40 times", "65")
def _():
    out = finished(harness.scratch / "out")
    for _ in range(40):
        path = random.choice(sorted((out / "checkpoints/step-00000006").iterdir()))
        text = path.read_bytes()
        place = random.randrange(len(text))
        path.write_bytes(text[:place] + bytes([text[place] ^ (1 << random.randrange(8))])
                         + text[place + 1:])
        result = attempt(cfg(), *QUICK, "--out", out, "--resume", "--steps", 9, codes={65, 78})
        path.write_bytes(text)
    return says(result)


@case(GROUP, "metrics.jsonl of noise, of one endless line, without an end", "0, goes on")
def _():
    out = finished(harness.scratch / "out")
    for number, text in enumerate((random.randbytes(1 << 16), b"x" * (1 << 22), b"\0" * 4096,
                                   b'{"type":"step","step":99999999999999999999,\n' * 9,
                                   b'{"type":"step","step":-5' * 9 + b"\n", b"\n" * 9, b"")):
        (out / "metrics.jsonl").write_bytes(text)
        result = attempt(cfg(), *QUICK, "--out", out, "--resume", "--steps", 7 + number,
                         codes={0})
        lab.check(b'"step":%d' % (7 + number) in (out / "metrics.jsonl").read_bytes(), "lost")
    return says(result)
