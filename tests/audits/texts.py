"""Hostile text in whatever is read."""
import hashlib
import json
import os
import struct

import harness
import lab
from harness import check, same
from lab import QUICK, attempt, case, cfg, each, finished, judge, says
from streams import EVIL

GROUP = "texts"
TEXTS = {
    "escapes and line breaks": EVIL, "nothing": "", "a blank": " ", "a format": "%s%n%d%99999999s",
    "100 KB": "a" * 100000, "a path": "../../../../etc/passwd", "dots": "..", "a NUL": "a\\0b",
    "right to left": "\u202e\u2066abc", "a number": "99999999999999999999999",
    "minus": "-1", "nan": "nan", "hexadecimal": "0x10", "quotes": "'\"`$(reboot)`\"'",
    "half a letter": "\udcc3", "brackets": "[" * 3000, "pairs": ":,=;" * 30,
}
KEYS = ("name", "data.source", "data.dir", "train.global_batch", "train.epochs", "optimizer.name",
        "optimizer.lr", "optimizer.betas", "comm.strategy", "comm.compressor", "comm.overlap",
        "early_stop.metric", "device.name", "model.input", "model.layers",
        "model.layers[0].conv2d.filters", "data.normalize.mean", "checkpoint.keep")


def no_zero(text):
    return text.replace("\0", "")


def try_as_keys(name):
    text = TEXTS[name]
    codes = []
    for key in KEYS:
        result = attempt(cfg(), "--check", "--set", f"{key}={text}",
                         codes={0, 65, 66, 69, 78})
        codes.append(result.code)
    return f"{codes}"


@case(GROUP, f"--set of {len(KEYS)} keys", "78, one tame line")
def _():
    return each(TEXTS, try_as_keys)


def try_as_flags(name):
    text = TEXTS[name]
    text = text[:30000]
    codes = [attempt(cfg(), *QUICK, *words, codes={0, 64, 65, 66, 69, 74, 78}).code
             for words in ((f"--{text}",), ("--steps", text), ("--max-time", text),
                           ("--list", text), ("--init", text), ("--baseline", text),
                           ("--plan", text), (f"--resume={text}",), ("--set", text),
                           ("--log-level", text), ("--device", text), ("--seed", text),
                           ("--out", text, "--check"))]
    return f"{codes} {says(attempt(text, codes={0, 64, 66, 65, 78}, cwd=harness.scratch))}"


@case(GROUP, "as a flag's value and as the name of a file", "64 to 78, tame")
def _():
    return each(TEXTS, try_as_flags)


def try_in_config(name):
    text = TEXTS[name]
    codes = []
    plain = cfg().read_text()
    for body in (plain + f"{json.dumps(text)}: 1\n", plain + f"{text}: 1\n",
                 plain.replace("small", json.dumps(text), 1),
                 plain.replace("sgd", json.dumps(text)), plain.replace("0.1", text, 1),
                 plain.replace("relu", text, 1), f"# {text}\n" + plain,
                 plain.replace("idx", f"&{text} idx", 1), f"%{text}\n---\n" + plain):
        path = harness.scratch / "a.cfg"
        path.write_bytes(body.encode(errors="surrogateescape"))
        codes.append(attempt(path, "--check", codes={0, 65, 66, 69, 78}).code)
    return f"{codes}"


@case(GROUP, "as a key and as a value in model.cfg", "0 or 78, tame")
def _():
    return each(TEXTS, try_in_config)


def try_as_name(name):
    text = TEXTS[name]
    inside = harness.scratch / "inside"
    inside.mkdir()
    result = attempt(cfg(), *QUICK, "--set", f"name={json.dumps(text)}", cwd=inside,
                     codes={0, 64, 74, 78})
    same([path.name for path in harness.scratch.iterdir() if path.name != "cache"],
         ["inside"], "what lies outside of the folder")
    made = sorted(path.name for path in inside.iterdir())
    check(made in ([], ["runs"]), f"made {made}")
    return says(result)


@case(GROUP, "as the name of a run and of its files", "0 or refused; stays inside")
def _():
    return each(TEXTS, try_as_name)


def try_in_environment(name):
    text = TEXTS[name]
    codes = []
    text = no_zero(text)
    for variable in ("DP_FAULT", "DP_TRAIN_STEPS", "DDP_TRAIN_STEPS", "DP_NAME", "DP_",
                     "DP_COMM_STRATEGY", "DDP_OPTIMIZER_LR", "DP_MODEL_LAYERS"):
        codes.append(attempt(cfg(), "--check", env={variable: text},
                             codes={0, 65, 66, 69, 78}).code)
        codes.append(attempt(cfg(), *QUICK, "--quiet", env={variable: text},
                             cwd=harness.scratch, codes={0, 64, 65, 66, 69, 74, 78}).code)
    return f"{codes}"


@case(GROUP, "in the environment", "0 or 78, tame")
def _():
    return each(TEXTS, try_in_environment)


def try_for_libraries(name):
    text = TEXTS[name]
    text = no_zero(text)
    codes = []
    for number, variable in enumerate((
            "LOCKSTEP_LAUNCHER", "XDG_CACHE_HOME", "HOME", "TZ", "LC_ALL", "GOMP_SPINCOUNT",
            "OMP_WAIT_POLICY", "TMPDIR", "OPENBLAS_NUM_THREADS", "COLUMNS", "TERM")):
        result = attempt(cfg(), *QUICK, "--out", harness.scratch / f"out{number}",
                         env={variable: text}, codes={0}, cwd=harness.scratch)
        codes.append(result.code)
    return f"{codes}"


@case(GROUP, "in the environment of libraries", "0, and trains as ever")
def _():
    return each(TEXTS, try_for_libraries)


RANKS = {"OMPI_COMM_WORLD_RANK": ("1", "-1", "9" * 30, "x"), "PMIX_RANK": ("1", "x"),
         "SLURM_PROCID": ("1", "-5", "x"), "PMI_RANK": ("7",), "OMP_NUM_THREADS": ("0", "-1", "x"),
         "OMPI_COMM_WORLD_SIZE": ("2", "x"), "OMP_STACKSIZE": ("1", "1000G", "x"),
         "MALLOC_PERTURB_": ("165",), "LD_BIND_NOW": ("1",), "OMP_PLACES": ("{99999}", "x"),
         "LOCKSTEP_LAUNCHER": ("vm:/dev/zero", ":", "a:b")}
def try_variable(variable):
    codes = [attempt(cfg(), *QUICK, "--out", harness.scratch / f"out{number}",
                     env={variable: value}, told=False, codes={*lab.DOCUMENTED, 1}).code
             for number, value in enumerate(RANKS[variable])]
    return f"{codes}"


@case(GROUP, f"odd values of {len(RANKS)} variables of launchers", "an end, not 70")
def _():
    return each(RANKS, try_variable)


@case(GROUP, "LOCKSTEP_LAUNCHER leads to somebody's file", "137, the file as it was")
def _():
    host = os.uname().nodename
    started, _ = harness.begin(cfg(), *QUICK, env={
        "LOCKSTEP_LAUNCHER": f"{host}:{lab.home}/canary.txt"})
    started.signal(9, 1)
    result = started.finish(lab.LIMIT_S)
    judge(result, {137})
    return says(result)


# ---- checkpoints that are whole, by their MANIFEST, and hostile all the same ----

def xxh128(paths):
    out = harness.subprocess.run(["xxh128sum", *paths], capture_output=True, text=True, check=True)
    return [line.split()[0] for line in out.stdout.splitlines()]


def sign(folder):
    """Writes the MANIFEST anew, if something here makes such hashes."""
    names = [line.split()[1] for line in (folder / "MANIFEST").read_text().splitlines()]
    try:
        hashes = xxh128([folder / name for name in names])
    except FileNotFoundError as error:
        raise harness.Skipped("no xxh128sum here (Debian's package xxhash)") from error
    lines = [f"{value}  {name}" for value, name in zip(hashes, names)]
    (folder / "MANIFEST").write_text("\n".join(lines) + "\n")


def altered(change):
    """A run that goes on with a checkpoint that `change` was made to."""
    out = finished(harness.scratch / "out")
    folder = out / "checkpoints/step-00000006"
    change(folder)
    sign(folder)
    result = attempt(cfg(), *QUICK, "--out", out, "--resume", "--steps", 9,
                     codes={0, 65, 77, 78})
    return result


VALUES = (EVIL.replace("\udc9b", ""), 10**18, -1, None, [[[]]], "nan", "0x1p+99999", "9" * 400)


def walk(tree, path=()):
    for key, value in tree.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from walk(value, (*path, key))


def changed_state(path, value):
    def change(folder):
        tree = json.loads((folder / "state.json").read_text())
        place = tree
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        (folder / "state.json").write_text(json.dumps(tree))
    return change


PARTS = ("schema", "step", "ranks", "nodes", "strategy", "model", "early_stopped", "run", "kept",
         "optimizer.lr", "train.global_batch", "buckets", "comm.strategy", "training rows",
         "batches_tracked", "applied", "train_loss.sum", "train_loss.steps", "early_stop.waited",
         "spike.count", "chance.rows", "evaluation.accuracy")
def try_part(part):
    tree = json.loads((lab.home / "like/checkpoints/latest/state.json").read_text())
    path = next(path for path in walk(tree) if path[-1] == part)
    codes = []
    for value in VALUES:
        harness.shutil.rmtree(harness.scratch / "out", ignore_errors=True)
        codes.append(altered(changed_state(path, value)).code)
    return f"{sorted(set(codes))}"


for first in range(0, len(PARTS), 4):
    @case(GROUP, f"state.json, {', '.join(PARTS[first:first + 4])} of {len(VALUES)} wrong values",
          "0, 65, 77 or 78, tame")
    def _(parts=PARTS[first:first + 4]):
        return each(parts, try_part)


def tensors(header, body=b""):
    text = header.encode(errors="surrogateescape")
    return struct.pack("<Q", len(text)) + text + body


HEADERS = {
    "an evil name": tensors(json.dumps({EVIL[:-2]: {"dtype": "F32", "shape": [],
                                                    "data_offsets": [0, 4]}}), b"1234"),
    "offsets that overflow": tensors('{"0.weight":{"dtype":"F32","shape":[4294967296,4294967296],'
                                     '"data_offsets":[0,18446744073709551615]}}'),
    "negative offsets": tensors('{"0.weight":{"dtype":"F32","shape":[-1],"data_offsets":[8,4]}}'),
    "a length of 2^63": struct.pack("<Q", 1 << 63) + b"{}",
    "a length of 2^64 - 1": struct.pack("<Q", (1 << 64) - 1) + b"{}",
    "10,000 tensors": tensors(json.dumps({f"{i}.weight": {
        "dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(10000)})),
    "the same name twice": tensors('{"0.bias":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},'
                                   '"0.bias":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}'),
    "deep brackets": tensors('{"a":' * 30000),
    "a shape of 1,000 dimensions": tensors(json.dumps({"0.bias": {
        "dtype": "F32", "shape": [1] * 1000, "data_offsets": [0, 4]}}), b"1234"),
    "half a letter": tensors('{"\udcc3":1}'),
}


def try_header(name):
    path = harness.scratch / "x.safetensors"
    path.write_bytes(HEADERS[name])
    attempt(cfg(), *QUICK, "--init", path, codes={65, 78})
    return altered(lambda folder: (folder / "model.safetensors").write_bytes(HEADERS[name])).code


@case(GROUP, f"{len(HEADERS)} wrong headers of safetensors", "65 or 78, tame")
def _():
    return each(HEADERS, try_header)


MANIFESTS = {
    "another file of ours": "0" * 32 + "  ../../../canary.txt\n",
    "an absolute path": "0" * 32 + "  /etc/passwd\n", "one line too few": None,
    "no hash": "model.safetensors\n", "a long line": "0" * 100000 + "  model.safetensors\n",
    "escapes": "0" * 32 + "  \x1b[2J\r\n", "the same line thrice": "=",
}


def try_manifest(name):
    content = MANIFESTS[name]
    out = finished(harness.scratch / "out")
    path = out / "checkpoints/step-00000006/MANIFEST"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:2]) if content is None else lines[0] * 3
                    if content == "=" else content)
    before = hashlib.sha256(path.read_bytes()).digest()
    result = attempt(cfg(), *QUICK, "--out", out, "--resume", "--steps", 9, codes={65})
    same(hashlib.sha256(path.read_bytes()).digest(), before, "MANIFEST")
    return result.code


@case(GROUP, f"{len(MANIFESTS)} wrong MANIFESTs", "65, tame; nothing is deleted")
def _():
    return each(MANIFESTS, try_manifest)


BASELINES = ('{"schema":"lockstep.run/1"}', '{"schema":"lockstep.run/1","single_rank_samples_per'
             '_second":-1}', '{"schema":"lockstep.run/1","single_rank_samples_per_second":1e999}',
             '{"schema":"lockstep.run/1","single_rank_samples_per_second":"1"}', "[]", "null", "",
             '{"schema":"\\u001b[2J"}', '{"schema":1}', "{" * 5000)
for name, flag in (("--baseline", "--baseline"), ("--plan", "--plan")):
    @case(GROUP, f"{name} of {len(BASELINES)} wrong contents", "65 or 78, tame")
    def _(flag=flag):
        codes = []
        for content in BASELINES:
            path = harness.scratch / "given.json"
            path.write_text("# plan: " + content if flag == "--plan" else content)
            codes.append(attempt(cfg(), *QUICK, flag, path, codes={65, 66, 78}).code)
        return f"{codes}"

HOSTS = ("\x1b[2J", "a b", "..", "-x", "$(reboot)", "h" * 64, "(none)", "", "a/b", "a\nb")


def try_host(host):
    codes = []
    for ranks in (0, 2):
        wrapper = ["unshare", "--uts", "python3", "-c", "import ctypes, os, sys; "
                   "n = os.fsencode(sys.argv[1]); ctypes.CDLL(None).sethostname(n, len(n)); "
                   "os.execvp(sys.argv[2], sys.argv[2:])", host]
        result = attempt(cfg(), *QUICK, "--out", harness.scratch / f"out{ranks}", ranks=ranks,
                         wrapper=wrapper, codes=range(256) if ranks else {0}, told=False)
        codes.append(result.code)
    return f"{codes}"


@case(GROUP, f"{len(HOSTS)} odd names of the host", "0 alone; an end of 2 ranks")
def _():
    return each(HOSTS, try_host)
