"""What a good run leaves behind: config.yaml, metrics.jsonl, run.json and a checkpoint that others
can read, with numbers that agree with each other.
"""
import math
import shutil
import subprocess

import harness
from harness import (check, close, metrics, run_json, safetensors, same, small_cfg, train_well,
                     weights)

PARTS = ("input", "copy", "forward", "backward", "exposed_comm", "optimizer", "checkpoint", "other")


def positive(value):
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0


def reported():
    """The keys that the program says run.json has: of the run, and of the objects of each table."""
    keys = {line.split()[0] for line in train_well("--list", "report").out.splitlines()}
    keys -= {key.rpartition(".")[0] for key in keys}  # objects
    tables = {}
    for key in keys:
        table, _, column = key.rpartition("[].")
        tables.setdefault(table, set()).add(column)
    return tables.pop(""), tables


def keys_of(value, before=""):
    """The keys of an object, with those of the objects in it: "final", "final.test_loss"."""
    for key, inner in value.items():
        if isinstance(inner, dict):
            yield from keys_of(inner, f"{before}{key}.")
        else:
            yield before + key


def check_rank(rank, number, summary):
    same(rank["rank"], number, "the rank")
    check(rank["host"] and rank["cpus"] and rank["threads"] >= 1, f"rank {number} has no place")
    same(set(rank["step_ms"]), set(PARTS), "the parts of a step")
    check(all(value >= 0 for value in rank["step_ms"].values()), f"below 0: {rank['step_ms']}")
    check(rank["hidden_comm_ms"] >= 0 and rank["peak_rss_bytes"] > 1 << 20, f"odd: {rank}")
    # All ranks go through the same steps, and each one's own parts fill them.
    step_ms = sum(rank["step_ms"].values())
    rows = summary["global_batch"] / summary["world_size"]
    close(rank["samples_per_second"], 1e3 * rows / step_ms, 0.1, "the rate by step_ms")
    close(rank["scaling_efficiency"],
          rank["samples_per_second"] / summary["single_rank_samples_per_second"], 0.01,
          "the scaling of a rank")
    check(positive(rank["compute_efficiency"]), f"compute_efficiency of {rank}")


def check_summary(summary, ranks, steps):
    for key, expected in {
        "schema": "lockstep.run/1", "name": "small", "exit": "finished", "world_size": ranks,
        "device": "cpu", "precision": "fp32", "compressor": "none", "global_batch": 50,
        "steps": steps, "skipped_steps": 0, "restored": 0,
    }.items():
        same(summary[key], expected, key)
    close(summary["epochs"], steps / 12, 1e-6, "epochs")
    check(summary["verdict"], "no verdict")
    check(positive(summary["samples_per_second"]), "no rate")
    close(summary["scaling_efficiency"],
          summary["samples_per_second"] / (ranks * summary["single_rank_samples_per_second"]),
          1e-3, "scaling_efficiency")
    final = dict(summary["final"])
    same(final.pop("test_mean_absolute_error"), None, "the error of a loss that has answers")
    same(set(final), {"train_loss", "test_loss", "test_accuracy", "test_top5_accuracy"}, "final")
    check(all(positive(value) for value in final.values()), f"{final}")
    same(len(summary["ranks"]), ranks, "the number of ranks")
    for number, rank in enumerate(summary["ranks"]):
        check_rank(rank, number, summary)
    # Samples of the steady steps over their time, on rank 0, whose clock counts.
    step_ms = sum(summary["ranks"][0]["step_ms"].values())
    close(summary["samples_per_second"], 1e3 * 50 / step_ms, 0.01, "samples_per_second by step_ms")


def check_metrics(out, steps, lr):
    lines = metrics(out)
    same(lines[0]["type"], "start", "the first line")
    same(lines[-1]["type"], "end", "the last line")
    same([o["step"] for o in metrics(out, "step")], list(range(1, steps + 1)), "the steps")
    for o in metrics(out, "step"):
        close(o["lr"], lr, 1e-6, "lr")
        check(positive(o["loss"]) and positive(o["samples_per_second"]), f"{o}")
    summary, end, evaluation = run_json(out), lines[-1], metrics(out, "eval")[-1]
    same(evaluation["step"], steps, "the step of the last evaluation")
    for key in ("test_loss", "test_accuracy", "test_top5_accuracy", "train_loss"):
        close(end[key], summary["final"][key], 1e-6, key)
        close(evaluation[key], summary["final"][key], 1e-6, key)
    check(all(a["time"] <= b["time"] for a, b in zip(lines, lines[1:])), "time runs backwards")


def case_every_file_of_a_run_agrees_with_the_others():
    cfg = small_cfg()
    for ranks in (0, 2, 3):
        out = harness.scratch / f"out-{ranks}"
        train_well(cfg, "--steps", 18, "--out", out, ranks=ranks)
        summary = run_json(out)
        check_summary(summary, max(ranks, 1), 18)
        check_metrics(out, 18, 0.1)
        if ranks > 1:
            same(summary["baseline"]["source"], "measured", "source of the baseline")
            check(positive(summary["baseline"]["before"]) and positive(summary["baseline"]["after"])
                  and positive(summary["baseline"]["spread"]), f"{summary['baseline']}")
            check(positive(summary["wire_bytes_per_step"]), "nothing was sent")
        else:
            same(summary["baseline"]["before"], None, "the baseline of one rank")
            same(summary["scaling_efficiency"], 1.0, "the efficiency of one rank")
        same(summary["samples_per_dollar"], None, "samples_per_dollar without a price")


def case_run_json_has_the_keys_that_are_declared():
    out = harness.scratch / "out"
    train_well(small_cfg(), "--steps", 6, "--out", out, ranks=2)
    summary = run_json(out)
    of_run, tables = reported()
    check({"ranks", "buckets"} <= set(tables), f"the tables are {set(tables)}")
    for table, columns in tables.items():
        for item in summary.pop(table):
            same(set(keys_of(item)), columns, f"keys of {table}")
    same(set(keys_of(summary)), of_run, "keys of run.json")
    flat = {key.rpartition(".")[2] for key in of_run}
    check(set(metrics(out, "end")[0]) - {"type", "time"} <= flat, "other names in metrics.jsonl")


def case_a_price_gives_samples_per_dollar():
    cfg = small_cfg()
    for price_per, units in (("node", 1), ("rank", 2)):
        out = harness.scratch / price_per
        train_well(cfg, "--set", "report.price_per_hour=3.06", "--set",
                   f"report.price_per={price_per}", "--out", out, ranks=2)
        summary = run_json(out)
        close(summary["samples_per_dollar"],
              summary["samples_per_second"] * 3600 / (3.06 * units), 1e-3, "samples_per_dollar")


def case_config_yaml_is_a_model_cfg_that_gives_the_same_weights():
    cfg = small_cfg()
    first, second = harness.scratch / "first", harness.scratch / "second"
    train_well(cfg, "--set", "optimizer.lr=0.03", "--seed", 5, "--out", first, ranks=2)
    again = harness.scratch / "again.cfg"
    shutil.copy(first / "config.yaml", again)
    train_well(again, "--out", second, ranks=2)
    check(weights(first) == weights(second), "other weights")
    same((second / "config.yaml").read_text(), (first / "config.yaml").read_text(), "config.yaml")
    printed = train_well(again, "--print-config").out
    check((first / "config.yaml").read_text().startswith(printed), "--print-config differs")
    same(run_json(first)["configuration"], printed, "the configuration in run.json")


LAYERS = """\
    - conv2d: {filters: 4, kernel: 3, padding: 1, bias: false}
    - batchnorm: {}
    - relu: {}
    - repeat:
        times: 2
        layers:
          - residual:
              body:
                - conv2d: {filters: 4, kernel: 3, padding: 1, bias: false}
                - batchnorm: {}
              shortcut: []
          - gelu: {}
    - residual:
        body: [conv2d: {filters: 6, kernel: 3, stride: 2, padding: 1}]
        shortcut: [conv2d: {filters: 6, kernel: 1, stride: 2}]
    - flatten: {}
    - dropout: {rate: 0.1}
    - dense: {units: 10}
"""


def batchnorm(name, channels):
    names = {f"{name}.{part}": ("F32", [channels])
             for part in ("weight", "bias", "running_mean", "running_var")}
    return {**names, f"{name}.num_batches_tracked": ("I64", [])}


def case_the_model_file_has_the_names_and_shapes_of_pytorch():
    out = harness.scratch / "out"
    train_well(small_cfg(LAYERS), "--out", out, ranks=2)
    expected = {
        "0.weight": ("F32", [4, 1, 3, 3]), **batchnorm("1", 4),
        "3.body.0.weight": ("F32", [4, 4, 3, 3]), **batchnorm("3.body.1", 4),
        "5.body.0.weight": ("F32", [4, 4, 3, 3]), **batchnorm("5.body.1", 4),
        "7.body.0.weight": ("F32", [6, 4, 3, 3]), "7.body.0.bias": ("F32", [6]),
        "7.shortcut.0.weight": ("F32", [6, 4, 1, 1]), "7.shortcut.0.bias": ("F32", [6]),
        "10.weight": ("F32", [10, 96]), "10.bias": ("F32", [10]),
    }
    found = safetensors(out / "checkpoints/latest/model.safetensors")
    same({name: entry[:2] for name, entry in found.items()}, expected, "the tensors")
    for name, (kind, shape, data) in found.items():
        same(len(data), (4 if kind == "F32" else 8) * math.prod(shape), f"the size of {name}")
    same(int.from_bytes(found["1.num_batches_tracked"][2], "little"), 6, "batches tracked")


def case_the_checkpoint_is_whole_and_old_ones_go():
    out = harness.scratch / "out"
    train_well(small_cfg(), "--steps", 11, "--set", "checkpoint.every_steps=2", "--set",
               "checkpoint.keep=2", "--out", out, ranks=2)
    folder = out / "checkpoints"
    same(sorted(path.name for path in folder.iterdir()),
         ["latest", "step-00000010", "step-00000011"], "the checkpoints")
    same((folder / "latest").readlink().name, "step-00000011", "latest")
    names = {path.name for path in (folder / "latest").iterdir()}
    same(names, {"model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST"}, "files")


def case_the_hashes_of_a_checkpoint_are_those_of_xxhsum():
    if shutil.which("xxhsum") is None:
        raise harness.Skipped("Debian's package xxhash is not installed")
    out = harness.scratch / "out"
    train_well(small_cfg(), "--out", out)
    folder = out / "checkpoints/latest"
    names = sorted(path.name for path in folder.iterdir() if path.name != "MANIFEST")
    found = subprocess.run(["xxhsum", "-H2", *names], cwd=folder, capture_output=True, text=True,
                           check=True).stdout
    told = (folder / "MANIFEST").read_text()
    same(sorted(told.splitlines()), sorted(found.splitlines()), "the lines of MANIFEST")


def case_a_baseline_may_come_from_a_file():
    cfg = small_cfg()
    alone, out = harness.scratch / "alone", harness.scratch / "out"
    train_well(cfg, "--steps", 20, "--out", alone)
    result = train_well(cfg, "--baseline", alone / "run.json", "--out", out, ranks=2)
    summary = run_json(out)
    same(summary["single_rank_samples_per_second"],
         run_json(alone)["single_rank_samples_per_second"], "the rate of one rank")
    same(summary["baseline"]["source"], str(alone / "run.json"), "source of the baseline")
    same(summary["baseline"]["before"], None, "what was measured before")
    check(str(alone / "run.json") in result.out, f"the table hides its source:\n{result.out}")
    check("measuring" not in result.out, f"measured nevertheless:\n{result.out}")


def case_init_goes_on_from_weights_alone():
    cfg = small_cfg()
    first, second, third = (harness.scratch / name for name in ("first", "second", "third"))
    train_well(cfg, "--set", "optimizer.momentum=0", "--steps", 8, "--out", first)
    train_well(cfg, "--set", "optimizer.momentum=0", "--steps", 1, "--set", "optimizer.lr=0",
               "--init", first / "checkpoints/latest/model.safetensors", "--out", second, ranks=2)
    check(weights(first) == weights(second), "a step of lr 0 changed the weights of --init")
    train_well(cfg, "--steps", 1, "--set", "optimizer.lr=0", "--out", third)
    check(weights(first) != weights(third), "--init changes nothing")


if __name__ == "__main__":
    harness.main(globals())
