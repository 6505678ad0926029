"""The report of tests/run_gpu: Markdown out of what its stages left. Whatever is not there was "not
yet measured"."""
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
NOT_MEASURED = "not yet measured"
LEAST_OF_BEST = 0.97  # of cuBLASLt's fastest algorithm
LEAST_OF_COPY = 0.85  # of the copy bandwidth
MOST_KERNELS = 40  # rows of a table
LONGEST_NAME = 100
# What that is asked of.
BENT = ("sgd", "adamw", "relu", "gelu", "add", "accumulate", "dropout", "copy", "narrow", "widen",
        "max pool", "average pool")


def query(*fields):
    """What nvidia-smi says about the first GPU, or None."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
            capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.strip().splitlines()
    return lines[0].split(", ") if done.returncode == 0 and lines else None


def machine_name():
    found = query("name")
    return re.sub(r"[^a-z0-9]+", "-", found[0].lower()).strip("-") if found else "none"


def commit():
    """Of the checkout, or as tests/gpu_bundle noted it."""
    if (ROOT / "COMMIT").exists():
        return (ROOT / "COMMIT").read_text().strip()
    try:
        done = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
                              capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return done.stdout.strip() or "unknown"


def processor():
    text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    match = re.search(r"^model name\s*: (.*)$", text, re.M)
    return match[1].strip() if match else platform.machine()


def load(folder, stage):
    path = folder / f"{stage}.json"
    return json.loads(path.read_text()) if path.exists() else None


def table(head, align, rows):
    return ["", f"| {' | '.join(head)} |", f"|{'|'.join(align)}|",
            *(f"| {' | '.join(map(str, row))} |" for row in rows), ""]


def number(value):
    if value is None:
        return NOT_MEASURED
    return f"{value:,.0f}" if value >= 20 else f"{value:.2f}"


def detail(document):
    """What a stage found, in a few words."""
    if document is None:
        return NOT_MEASURED
    if "failure" in document:
        return document["failure"]
    if "tests" in document:
        skipped = [test["name"] for test in document["tests"] if "Skipped" in test["result"]]
        text = f"{len(document['tests']) - len(skipped)} tests"
        return text + (f", skipped: {', '.join(skipped)}" if skipped else "")
    if "shared" in document:
        return f"{len(document['shared'])} trainings, the same bits"
    if document.get("missing"):
        return f"cuDNN compiles no engines: {', '.join(document['missing'])} missing"
    if "kernels" in document:
        return f"{len(document['kernels'])} kernels"
    if "checked" in document:
        return "; ".join(f"{name}: {text}" for name, text in document["checked"].items())
    return ""


def stage_rows(documents):
    for stage, document in documents.items():
        if stage != "report":
            status = document["status"] if document else NOT_MEASURED
            seconds = f"{document['seconds']:.0f}" if document else ""
            yield stage, status, seconds, detail(document).replace("|", "/")


def shared_lines(rows):
    """What ranks as processes made of one training: all are to end with the first row's bits."""
    lines = ["## Ranks that share GPUs: lenet, bf16, four lanes", ""]
    if not rows:
        return [*lines, NOT_MEASURED, ""]
    cells = []
    for row in rows:
        bits = row.get("why") or ("equal" if row["hash"] == rows[0]["hash"] else "DIFFERENT")
        cells.append((row["ranks"], row["strategy"], number(row["samples_per_second"]),
                      bits.replace("|", "/")))
    return lines + table(("ranks", "strategy", "samples/s", "bits of one rank"),
                         ("---:", "---", "---:", "---"), cells)


def compare_lines(compared):
    lines = ["## Training, against PyTorch", ""]
    if not compared:
        return [*lines, NOT_MEASURED, ""]
    peers = [case["pytorch"] for case in compared["cases"] if case["pytorch"]]
    if peers:
        lines += [f"PyTorch {peers[0]['torch']}, cuDNN {peers[0]['cudnn']}, median of five windows "
                  "of one run; Lockstep: median of runs before and after it."]
    head = ("model", "measure", "PyTorch", "Lockstep", "ratio", "target", "verdict")
    rows = [(row["model"], row["measure"], number(row["pytorch"]), number(row["lockstep"]),
             "" if row["ratio"] is None else f"{row['ratio']:.2f}x", row["target_text"],
             row["verdict"]) for row in compared["summary"]]
    lines += table(head, ("---", "---", "---:", "---:", "---:", "---", "---"), rows)
    problems = [f"- {case['model']}: {problem}" for case in compared["cases"]
                for problem in case["problems"]]
    return lines + (["Not measured, and why:", "", *problems, ""] if problems else [])


def judge(value, least):
    return "met" if value >= least else "MISSED"


def dense_lines(operations):
    lines = ["## Dense layers, bf16, 8192 rows: cuBLASLt, as chosen and at best", ""]
    rows = [(line["op"], line["width"], number(line["us"]), number(line["tflops"]),
             number(line["best_tflops"]), f"{line['of_best']:.3f}",
             judge(line["of_best"], LEAST_OF_BEST))
            for line in operations if line["kind"] == "dense"]
    if not rows:
        return [*lines, NOT_MEASURED, ""]
    head = ("product", "width", "us", "TFLOP/s", "best of all proposals, TFLOP/s", "of best",
            f">= {LEAST_OF_BEST}")
    return lines + table(head, ("---", "---:", "---:", "---:", "---:", "---:", "---"), rows)


def pass_lines(operations):
    lines = ["## Passes over memory", ""]
    rows = []
    for line in operations:
        if line["kind"] == "pass":
            asked = line["op"].startswith(BENT)
            rows.append((line["op"], number(line["us"]), number(line["gbps"]),
                         f"{line['of_copy']:.2f}",
                         judge(line["of_copy"], LEAST_OF_COPY) if asked else ""))
    if not rows:
        return [*lines, NOT_MEASURED, ""]
    head = ("operation", "us", "GB/s, read and written", "of the copy's", f">= {LEAST_OF_COPY}")
    return lines + table(head, ("---", "---:", "---:", "---:", "---"), rows)


def libraries(limits):
    """What computed: the device's own words (driver, CUDA, cuBLAS, cuDNN) and NCCL's number."""
    if not limits.get("machine"):
        return NOT_MEASURED
    nccl = limits.get("nccl", 0)
    version = f"{nccl // 10000}.{nccl // 100 % 100}.{nccl % 100}" if nccl else "not here"
    return f"{limits['machine']}; NCCL {version}"


def conv_lines(operations):
    """resnet50's convolutions one by one, each beside the best product of any shape."""
    lines = ["## Convolutions of resnet50, bf16, 256 rows", ""]
    peak = next((line["peak_tflops"] for line in operations if line["kind"] == "limits"), 0.0)
    rows = []
    for line in operations:
        if line["kind"] == "conv":
            side, _, channels = line["in"]
            rows.append((line["op"], f"{side} x {side} x {channels}", line["out"][2],
                         line["kernel"], line["stride"], number(line["us"]), number(line["tflops"]),
                         f"{line['tflops'] / peak:.2f}" if peak else ""))
    if not rows:
        return [*lines, NOT_MEASURED, ""]
    head = ("operation", "input", "channels out", "kernel", "stride", "us", "TFLOP/s",
            "of the best product's")
    return lines + table(head, ("---", "---", *["---:"] * 6), rows)


def transfer_lines(operations):
    lines = ["## Copies between host and GPU", ""]
    rows = [(line["to"], line["memory"], f"{line['bytes'] / 1e6:,.0f}", number(line["gbps"]))
            for line in operations if line["kind"] == "transfer"]
    if not rows:
        return [*lines, NOT_MEASURED, ""]
    return lines + table(("to", "host memory", "MB", "GB/s"), ("---", "---", "---:", "---:"), rows)


def kernel_lines(document):
    """What a step of resnet50 spends the GPU's time on."""
    lines = ["## Kernels of a step of resnet50, bf16, batch 256", ""]
    kernels = (document or {}).get("kernels")
    if not kernels:
        return [*lines, NOT_MEASURED, ""]
    whole = sum(row["ms"] for row in kernels)
    shown = kernels[:MOST_KERNELS]
    rows = [(f"`{short(row['kernel'])}`", f"{row['launches']:.1f}", f"{row['ms']:.3f}",
             f"{row['ms'] / whole:.1%}") for row in shown]
    rest = kernels[MOST_KERNELS:]
    if rest:
        ms = sum(row["ms"] for row in rest)
        rows.append((f"{len(rest)} others", f"{sum(row['launches'] for row in rest):.1f}",
                     f"{ms:.3f}", f"{ms / whole:.1%}"))
    rows.append(("all", f"{sum(row['launches'] for row in kernels):.1f}", f"{whole:.3f}", ""))
    return lines + table(("kernel", "launches", "ms", "share"), ("---", *["---:"] * 3), rows)


def short(kernel):
    """A kernel's name without what would break a table."""
    text = re.sub(r"\s+", " ", kernel.replace("|", "/").replace("`", "'"))
    return text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME - 3] + "..."


def choice_lines(operations):
    """The algorithms that were chosen by measuring, with their times."""
    lines = ["## Algorithms that bench_gpu's shapes were given", ""]
    rows = [(f"`{short(line['what'])}`", number(line["ms"] * 1e3))
            for line in operations if line["kind"] == "choice"]
    if not rows:
        return [*lines, NOT_MEASURED, ""]
    return lines + table(("what", "us"), ("---", "---:"), rows)


def report(folder, name, stages):
    """The whole text."""
    documents = {stage: load(folder, stage) for stage in stages}
    bench = documents.get("bench") or {}
    operations = bench.get("operations") or []
    limits = next((line for line in operations if line["kind"] == "limits"), {})
    gpu = query("name", "driver_version", "memory.total")
    now = datetime.datetime.now(datetime.timezone.utc)
    lines = [
        f"# {name}", "",
        f"- GPU: {', '.join(gpu) if gpu else 'none here'} (name, driver, memory)",
        f"- processor: {processor()}, {len(os.sched_getaffinity(0))} cores; {platform.platform()}",
        f"- Lockstep {commit()}, {now:%Y-%m-%d}; written by `tests/run_gpu`",
        f"- libraries: {libraries(limits)}",
        f"- best matrix product: {number(limits.get('peak_tflops'))} TFLOP/s; copy: "
        f"{number(limits.get('copy_gbps'))} GB/s, read and written",
        "", "## Stages",
        *table(("stage", "status", "s", ""), ("---", "---", "---:", "---"), stage_rows(documents)),
        *shared_lines((documents.get("ranks") or {}).get("shared")),
        *compare_lines(bench.get("compare")),
        *kernel_lines(documents.get("kernels")),
        *conv_lines(operations),
        *dense_lines(operations),
        *pass_lines(operations),
        *transfer_lines(operations),
        *choice_lines(operations),
    ]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"
