"""What the benchmarks of final losses share: training in several ways with several seeds, and
whether a way ends where the first one does.

A way is {"name": ..., "settings": [KEY=VALUE ...]}. It passes when each of its figures, the mean
over the seeds, is no worse than the worst that the seeds give in the first way.
"""
import json
import pathlib
import statistics
import tempfile

from sides import ROOT, Failure, describe_machine, git_hash, heading, say, write_results
import sides

FIGURES = {"test_loss": min, "test_accuracy": max}  # and which of two is the better one
COUNTS = ("skipped_steps", "samples_per_second", "wire_bytes_per_step")
TIMEOUT_S = 7200
DIVERGED = 77


def add_arguments(parser, model):
    parser.add_argument("model", nargs="?", type=pathlib.Path, default=ROOT / "models" / model)
    parser.add_argument("--ranks", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--seeds", type=int, default=5, help="default: %(default)s")
    parser.add_argument("--epochs", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="sets")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", metavar="DIR")
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE",
                        help="results; what an earlier call left there is not trained again")


def run(args, way, seed):
    """run.json of one training; None when it diverged."""
    with tempfile.TemporaryDirectory(prefix="seeds-") as folder:
        command = [ROOT / "launch/mpirun", "-np", args.ranks, args.build / "ddp_train", args.model]
        command += ["--seed", seed, "--out", f"{folder}/run", "--quiet"]
        for setting in (f"train.epochs={args.epochs}", "train.eval_every=0",
                        "checkpoint.every_steps=0", *args.sets, *way["settings"]):
            command += ["--set", setting]
        try:
            sides.run(command, timeout=TIMEOUT_S)
        except Failure as failure:
            if failure.code == DIVERGED:
                return None
            raise
        return json.loads(pathlib.Path(folder, "run/run.json").read_text())


def training_of(args):
    return {"model": args.model.stem, "ranks": args.ranks, "epochs": args.epochs, "set": args.sets}


def earlier(args):
    """Way -> seed -> figures, of a file of results of the same training."""
    if args.json is None or not args.json.exists():
        return {}
    content = json.loads(args.json.read_text())
    if any(content.get(key) != value for key, value in training_of(args).items()):
        raise Failure(f"{args.json}: of another training; remove it, or name another file", 64)
    return {row["name"]: row["seeds"] for row in content["rows"]
            if "settings" in row and "seeds" in row}


def figures_of(report):
    if report is None:
        return dict.fromkeys((*FIGURES, *COUNTS))
    return {**{figure: report["final"][figure] for figure in FIGURES},
            **{count: report[count] for count in COUNTS}}


def cell(value):
    return "diverged" if value is None else f"{value:.4f}"


def train_all(args, ways):
    """Rows, one for each way: figures by seed, in turns, so that a slow hour hits all. Each with
    its commit, since an earlier call may have made some."""
    known, commit = earlier(args), git_hash()
    rows = [{**way, "seeds": known.get(way["name"], {})} for way in ways]
    for seed in map(str, range(1, args.seeds + 1)):
        for row in rows:
            if seed in row["seeds"]:
                continue
            report = run(args, row, seed)
            row["seeds"][seed] = found = {**figures_of(report), "git": commit}
            say(f"seed {seed}, {row['name']}: loss {cell(found['test_loss'])}, "
                f"accuracy {cell(found['test_accuracy'])}")
            write(args, rows)
    return rows


def values(row, figure):
    """Of the seeds that did not diverge."""
    return [found[figure] for found in row["seeds"].values() if found[figure] is not None]


def verdict(row, first):
    if row is first:
        return ""
    if any(found["test_loss"] is None for found in row["seeds"].values()):
        return "MISSED: diverged"
    word = "inside"
    for figure, better in FIGURES.items():
        mean = row[f"mean_{figure}"]
        low, high = min(values(first, figure)), max(values(first, figure))
        if better(mean, high if better is min else low) != mean:
            return "MISSED"
        if not low <= mean <= high:
            word = "better"
    return word


def judge(rows):
    """Adds means and verdicts."""
    for row in rows:
        for figure in FIGURES:
            found = values(row, figure)
            row[f"mean_{figure}"] = statistics.mean(found) if found else None
        row["verdict"] = verdict(row, rows[0])


def print_table(rows, title):
    print(f"| {title} | test loss: mean (range) | test accuracy: mean (range) | skipped steps | "
          f"bytes a step | in the range of {rows[0]['name']} |")
    print("|---|---:|---:|---:|---:|---|")
    for row in rows:
        cells = [row["name"]]
        for figure in FIGURES:
            found = values(row, figure)
            cells.append(f"{cell(row[f'mean_{figure}'])} ({min(found):.4f}-{max(found):.4f})"
                         if found else "-")
        cells.append(f"{max(values(row, 'skipped_steps'), default=0)}")
        cells.append(f"{statistics.median(values(row, 'wire_bytes_per_step') or [0]):,.0f}")
        print(f"| {' | '.join([*cells, row['verdict']])} |")


def write(args, rows):
    if args.json is None:
        return
    write_results(args.json, {**heading(args.machine), **training_of(args), "rows": rows})


def main(args, ways, title):
    """Trains, prints and writes; returns the exit code: 1 when a way missed."""
    args.machine = describe_machine()
    rows = train_all(args, ways)
    judge(rows)
    print_table(rows, title)
    write(args, rows)
    return 1 if any(row["verdict"].startswith("MISSED") for row in rows) else 0
