#!/usr/bin/env python3
"""Draws docs/results.svg from benchmarks/results: samples/s as multiples of PyTorch's, and writes
the tables of the strongest peers after their marks, which name a file, in README.md and
docs/benchmarks.md.

The drawing has no background, and its colours can be read on white and on black.
"""
import json
import pathlib
import re
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks/results"
PICTURE = ROOT / "docs/results.svg"

TEXT, OURS, THEIRS = "#7a828e", "#2f81c7", "#c2711d"
WIDTH, LEFT, ROW = 760, 210, 24
UNIT = 80  # columns of the drawing for the rate of PyTorch

# A file, its title, and its bars: the label, the model, and how the measure begins.
GROUPS = (
    ("compare_pytorch.json", "2 ranks on one node, float32, against DDP (gloo)",
     (("mlp", "mlp", "samples/s, 2 ranks"), ("lenet", "lenet", "samples/s, 2 ranks"),
      ("resnet20", "resnet20", "samples/s, 2 ranks"))),
    ("compare_network.json", "2 hosts over 1 Gb/s, mlp, against DDP (gloo)",
     (("float32", "mlp", "samples/s, float32"),
      ("fp16; DDP's fp16 hook", "mlp", "samples/s, comm.compressor=fp16"),
      ("powersgd:rank=16; fp16 hook", "mlp", "samples/s, comm.compressor=powersgd"))),
)


def bars(name, wanted):
    """(label, ratio, range, PyTorch's rate, ours) of each bar."""
    summary = json.loads((RESULTS / name).read_text())["summary"]
    for label, model, measure in wanted:
        row = next(row for row in summary
                   if row["model"] == model and row["measure"].startswith(measure))
        yield label, row["ratio"], row["ratio_range"], row["pytorch"], row["lockstep"]


def text(x, y, content, **attributes):
    words = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
    return f'<text x="{x:g}" y="{y:g}"{words}>{escape(content)}</text>'


def line(x1, y1, x2, y2, colour, width):
    return (f'<line x1="{x1:.1f}" y1="{y1:g}" x2="{x2:.1f}" y2="{y2:g}" stroke="{colour}" '
            f'stroke-width="{width:g}"/>')


def group(title, rows, y):
    """The drawing of one group, from y down."""
    top = y + 8
    yield text(0, y, title, font_weight="bold")
    for label, ratio, (low, high), theirs, ours in rows:
        y += ROW
        yield text(LEFT - 8, y, label, text_anchor="end")
        yield (f'<rect x="{LEFT}" y="{y - 12}" width="{ratio * UNIT:.1f}" height="15" rx="2" '
               f'fill="{OURS}"/>')
        yield line(LEFT + low * UNIT, y - 4.5, LEFT + high * UNIT, y - 4.5, TEXT, 2)
        yield text(LEFT + max(ratio, high) * UNIT + 8, y,
                   f"{ratio:.2f}x ({ours:,.0f} : {theirs:,.0f})")
    yield line(LEFT + UNIT, top, LEFT + UNIT, y + 8, THEIRS, 2)


def picture():
    body, y = [], 20
    for name, title, wanted in GROUPS:
        body += group(title, list(bars(name, wanted)), y)
        y += ROW * (len(wanted) + 1) + 16
    bottom = y - 22
    body.append(text(LEFT + UNIT, bottom + 16, "PyTorch DDP = 1", text_anchor="middle",
                     style=f"fill: {THEIRS}"))
    body.append(text(0, bottom + 40, "Samples/s as multiples of DDP's, and both rates. "
                                     "Medians over rounds in turns; thin lines: range."))
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + 48}" '
            f'width="{WIDTH}" font-family="sans-serif" font-size="13" fill="{TEXT}">')
    return "\n".join([head, *body, "</svg>"]) + "\n"


PEERS = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch", "torch-tuned": "PyTorch"}
CORES = {1: "1 core", 2: "2 cores"}


MODELS = ("mlp", "lenet", "resnet20", "resnet50")


def rate(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def peer_cells(name):
    cells = json.loads((RESULTS / name).read_text())["cells"]
    return sorted(cells, key=lambda cell: (cell["precision"] != "fp32", -cell["cores"],
                                           MODELS.index(cell["model"])))


def short(cell):
    rates, best = cell["medians"], cell["best"]
    return (f'**{cell["ratio"]:.2f}** = {rate(rates["lockstep"])} : {rate(rates[best])} '
            f'{PEERS[best]} (target {cell["target"]}: {cell["verdict"]})')


def short_peers(name):
    """A row a precision and number of cores, a column a model: our ratio to the best peer."""
    cells = peer_cells(name)
    models = [model for model in MODELS if any(cell["model"] == model for cell in cells)]
    yield "| | " + " | ".join(models) + " |"
    yield "|---|" + "---:|" * len(models)
    for kind in dict.fromkeys((cell["precision"], cell["cores"]) for cell in cells):
        row = {cell["model"]: cell for cell in cells if (cell["precision"], cell["cores"]) == kind}
        words = [short(row[model]) if model in row else "" for model in models]
        yield f"| {kind[0]}, {CORES[kind[1]]} | " + " | ".join(words) + " |"


def long_peers(name):
    yield ("| precision | cores | model | best peer, samples/s | ours | ratio (range) "
           "| MFU of both | target | verdict |")
    yield "|---|---:|---|---:|---:|---:|---:|---:|---|"
    for c in peer_cells(name):
        low, high = c["ratio_range"]
        yield (f'| {c["precision"]} | {c["cores"]} | {c["model"]} '
               f'| {PEERS[c["best"]]} {rate(c["medians"][c["best"]])} '
               f'| {rate(c["medians"]["lockstep"])} | {c["ratio"]:.2f} ({low:.2f}-{high:.2f}) '
               f'| {c["peer_mfu"]:.0%}, {c["mfu"]:.0%} | {c["target"]} | {c["verdict"]} |')


TABLES = {ROOT / "README.md": short_peers, ROOT / "docs/benchmarks.md": long_peers}


def with_table(path):
    """The page with its tables of peers made anew."""
    def renewed(match):
        return match[1] + "\n".join(TABLES[path](match[2])) + "\n\n"

    page, count = re.subn(r"(<!-- peers ([\w.]+): [^\n]*-->\n\n).*?\n\n", renewed,
                          path.read_text(), flags=re.S)
    if count == 0:
        raise SystemExit(f"{path.name}: no place for a table of peers")
    return page


if __name__ == "__main__":
    PICTURE.write_text(picture())
    for name in TABLES:
        name.write_text(with_table(name))
