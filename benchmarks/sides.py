"""What the benchmarks share: starting programs, also PyTorch's, the machine, tables, results."""
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
VENV = ROOT / "benchmarks" / ".venv"
PEER = ROOT / "benchmarks" / "peers" / "ddp_torch.py"
TIMEOUT_S = 900
LEFT_OUT = 10  # steps that are no part of a rate, on both sides


class Failure(Exception):
    """One line for the user, and the exit code."""

    def __init__(self, text, code=70):
        super().__init__(text)
        self.code = code


def say(text):
    print(text, file=sys.stderr, flush=True)


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no message"


def run(command, env=None, timeout=None):
    """Runs a command; its standard output, or a Failure with its exit code that quotes its last
    line."""
    command, timeout = [str(word) for word in command], timeout or TIMEOUT_S
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=timeout)
    except FileNotFoundError as error:
        raise Failure(f"{command[0]} is missing", 69) from error
    except subprocess.TimeoutExpired as error:
        raise Failure(f"no end after {timeout} s: {' '.join(command)}") from error
    if done.returncode != 0:
        cause = last_line(done.stderr or done.stdout)
        text = f"{' '.join(command)}: exit {done.returncode}: {cause}"
        raise Failure(text, done.returncode if done.returncode > 0 else 70)
    return done.stdout


def run_main(main):
    """Runs a benchmark, whose main() returns its exit code; a Failure is one line."""
    try:
        sys.exit(main())
    except Failure as failure:
        say(f"{pathlib.Path(sys.argv[0]).name}: {failure}")
        sys.exit(failure.code)
    except KeyboardInterrupt:
        sys.exit(130)


def has_torch(python):
    probe = [python, "-c", "import torch, numpy"]
    try:
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def find_python(given):
    """An interpreter with torch: the given one, or that of our virtual environment."""
    if given is not None:
        if not has_torch(given):
            raise Failure(f"{given} cannot import torch and numpy", 69)
        return given
    python = VENV / "bin" / "python"
    if has_torch(python):
        return python
    say(f"installing torch and numpy into {VENV}, once")
    run([sys.executable, "-m", "venv", VENV])
    install = [python, "-m", "pip", "install", "--quiet", "torch", "numpy"]
    try:  # the build without CUDA is a tenth of the size
        run(install + ["--index-url", "https://download.pytorch.org/whl/cpu"])
    except Failure:
        run(install)
    return python


def clean_environment():
    """Ours, without what would change threads or configuration on one side alone."""
    return {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("OMP_", "MKL_", "OPENBLAS_", "DP_", "DDP_"))
    }


def pytorch_words(case, rank, store):
    """The peer's flags for one rank of a case {model, ranks, batch, steps}."""
    words = ["--model", case["model"], "--rank", rank, "--world", case["ranks"], "--store", store]
    words += ["--global-batch", case["batch"], "--steps", case["steps"], "--warm-up", LEFT_OUT]
    return words + ["--started", time.time()]


def run_ranks(commands):
    """Runs the peer's ranks side by side; what each printed last, which is JSON."""
    ranks = []
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        for rank, command in enumerate(commands):
            with open(f"{folder}/rank-{rank}", "w+", encoding="utf-8") as output:
                ranks.append(
                    subprocess.Popen(
                        [str(word) for word in command],
                        env=clean_environment(),
                        stdout=output,
                        stderr=subprocess.STDOUT,
                    )
                )
        wait_for_all(ranks)
        texts = [pathlib.Path(folder, f"rank-{rank}").read_text() for rank in range(len(ranks))]
    for rank, text in zip(ranks, texts):
        if rank.returncode != 0:
            raise Failure(f"PyTorch: exit {rank.returncode}: {last_line(text)}")
    return [json.loads(last_line(text)) for text in texts]


def often(function, *arguments):
    """PyTorch now and then aborts when its process group ends: then again."""
    for attempt in (1, 2, 3):
        try:
            return function(*arguments)
        except Failure as failure:
            if attempt == 3:
                raise
            print(f"  once more, since it failed: {failure}", flush=True)


def wait_for_all(ranks):
    """Waits for processes; when one fails or is late, ends the others too."""
    deadline = time.monotonic() + TIMEOUT_S
    while any(rank.poll() is None for rank in ranks):
        failed = any(rank.returncode not in (None, 0) for rank in ranks)
        if failed or time.monotonic() > deadline:
            for rank in ranks:
                rank.kill()
                rank.wait()
            return
        time.sleep(0.05)


def lockstep_summary(start, train, case, settings=()):
    """One run of ours, begun by the words of `start`: what run.json says. A case may have a
    `config` of its own, a `precision`, and more `words`."""
    with tempfile.TemporaryDirectory(prefix="compare-") as folder:
        return lockstep_run(pathlib.Path(folder, "run"), start, train, case, settings)


def lockstep_run(out, start, train, case, settings=()):
    """The same into the folder `out`, which stays."""
    env = clean_environment()
    env.setdefault("OMPI_ALLOW_RUN_AS_ROOT", "1")
    env.setdefault("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
    env.setdefault("OMPI_MCA_orte_execute_quiet", "1")  # else its banner hides the cause
    command = [*start, train, case.get("config", ROOT / "models" / f"{case['model']}.cfg")]
    command += ["--steps", case["steps"] + LEFT_OUT, "--out", out, "--quiet"]
    command += case.get("words", [])
    for setting in (
        f"train.global_batch={case['batch']}",
        f"train.precision={case.get('precision', 'fp32')}",
        "optimizer.name=sgd",
        "optimizer.lr=0.01",
        "optimizer.momentum=0.9",
        "optimizer.weight_decay=0",
        "optimizer.clip_norm=0",
        "comm.compressor=none",
        *settings,
    ):
        command += ["--set", setting]
    run(command, env)
    return json.loads((out / "run.json").read_text())


def cpu_name(fields):
    """Of /proc/cpuinfo. With family and model: virtual machines call different ones the same."""
    name = fields.get("model name", platform.machine())
    if "cpu family" in fields and "model" in fields:
        name += f" (family {fields['cpu family']}, model {fields['model']})"
    return name


def describe_machine():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in fields.items()}
    flags = set(fields.get("flags", fields.get("Features", "")).split())
    named = ("avx2", "avx512f", "avx512_bf16", "amx_bf16")
    return {
        "cpu": cpu_name(fields),
        "cores": len(os.sched_getaffinity(0)),
        "flags": [flag for flag in named if flag in flags],
        "kernel": platform.release(),
        "load_before": os.getloadavg()[0],
    }


def git_hash():
    if (ROOT / "COMMIT").exists():  # tests/gpu_bundle packs no history
        return (ROOT / "COMMIT").read_text().strip()
    try:
        return run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"]).strip()
    except Failure:
        return None


def heading(machine):
    """With what every document of results begins: which benchmark, when, of what, and where."""
    return {
        "schema": f"lockstep.{pathlib.Path(sys.argv[0]).name}/1",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "git": git_hash(),
        "machine": machine,
    }


def write_results(path, document):
    """With paths from this clone's top: where that lies says nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1).replace(f"{ROOT}/", "") + "\n")


def number(value):
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 20 else f"{value:.2f}"


def print_table(rows):
    print("| model | measure | PyTorch | Lockstep | ratio (range) | target | verdict |")
    print("|---|---|---:|---:|---:|---:|---|")
    for row in rows:
        ratio = ""
        if row.get("ratio") is not None:
            low, high = row["ratio_range"]
            ratio = f"{row['ratio']:.2f}x ({low:.2f}-{high:.2f})"
        cells = (row["model"], row["measure"], number(row["pytorch"]), number(row["lockstep"]))
        print(f"| {' | '.join(cells)} | {ratio} | {row['target_text']} | {row['verdict']} |")
