"""ddp_sweep: whole sweeps, their folder and their table; with failing and interrupted runs. What it
makes of them without running anything: sweep_figures.py."""
import csv
import fcntl
import json
import os
import pathlib
import signal
import sys

import harness
from harness import ROOT, Started, check, close, metrics, same

TINY = """\
name: tiny
data: {source: synthetic, samples: 256, test_samples: 64}
train: {global_batch: 32, steps: 20}
model:
  input: [8, 8, 1]
  layers:
    - flatten: {}
    - dense: {units: 16}
    - relu: {}
    - dense: {units: 10}
"""


def tiny():
    path = harness.scratch / "tiny.cfg"
    path.write_text(TINY)
    return path


def start(*arguments, env=None, wrapper=()):
    harness.program = "ddp_sweep"
    try:
        return Started(arguments, env=env, wrapper=wrapper)
    finally:
        harness.program = "ddp_train"


def sweep(*arguments, env=None):
    return start(*arguments, env=env).finish()


def sweep_json(out):
    return json.loads((pathlib.Path(out) / "sweep.json").read_text(),
                      parse_constant=lambda text: check(False, f"{text} is no JSON"))


def times(out):
    return {path: path.stat().st_mtime_ns for path in pathlib.Path(out).glob("points/*/run.json")}


# ---- whole sweeps ----


def case_without_slurm_nothing_is_left():
    out, programs = harness.scratch / "out", harness.scratch / "bin"
    programs.mkdir()
    (programs / "python3").symlink_to(sys.executable)
    result = sweep(tiny(), "--ranks", 1, "--out", out, "--slurm", env={"PATH": str(programs)})
    same((result.code, len(result.err.splitlines())), (69, 1), f"code and lines of\n{result}\n")
    check("Slurm is not installed on this machine" in result.err, f"{result}")
    check(not out.exists(), "a folder is left")


def case_a_sweep_shows_what_failed_and_keeps_what_is_finished():
    out = harness.scratch / "out"
    arguments = (tiny(), "--ranks", "1,2", "--strategy", "shm,nccl", "--steps", 20, "--out", out)
    result = sweep(*arguments)
    same(result.code, 0, f"the exit code of\n{result}\n")
    check(max(map(len, result.out.split("\n\n", 1)[1].splitlines())) <= 100, f"wide:\n{result}")
    for text in ("[4/4]", "left", "FAILED with exit code 69", "strategy shm, compressor none",
                 "failed with exit code 69: rank 0"):
        check(text in result.out, f"no {text!r} in\n{result}")
    check(result.err.startswith("lockstep: warning: 2 of 4 runs failed"), f"{result}")
    told = sweep_json(out)
    same((told["schema"], len(told["points"])), ("lockstep.sweep/1", 4), "schema and points")
    check("units: 16" in told["configuration"], "the configuration is not there")
    good = [point for point in told["points"] if point["strategy"] == "shm"]
    for point in good:
        run = harness.run_json(out / point["run"])
        for key in ("samples_per_second", "scaling_efficiency", "global_batch"):
            same(point[key], run[key], key)
        same((point["status"], point["mode"], point["repeat"], point["samples_per_dollar"]),
             ("finished", "strong", 1, None), "a point")
        check(not (out / point["run"] / "checkpoints").exists(), "checkpoints are kept")
    close(good[1]["strong_efficiency"],
          good[1]["samples_per_second"] / 2 / good[0]["samples_per_second"], 1e-9, "efficiency")
    bad = [point for point in told["points"] if point["strategy"] == "nccl"]
    check(all(p["status"] == "failed" and p["exit_code"] == 69 and "cannot run here" in p["error"]
              and p["samples_per_second"] is None for p in bad), f"failed points: {bad}")
    rows = list(csv.DictReader((out / "sweep.csv").open()))
    same([float(row["samples_per_second"] or 0) for row in rows],
         [point["samples_per_second"] or 0 for point in told["points"]], "samples/s in sweep.csv")
    check("rent" not in result.out and "Sweep of" in (out / "sweep.html").read_text(), "no page")
    check(all(curve["projection"] is None for curve in told["summary"]["curves"]), "projected")
    # Again: what is finished stays, what failed is tried; prices change nothing of that.
    before = times(out)
    (out / bad[0]["run"] / "mine").write_text("x")
    (harness.scratch / "prices").write_text("mine: 0.5\n")
    result = sweep(*arguments, "--prices", harness.scratch / "prices", "--machine", "mine",
                   "--project", "2-8", "--node-of", 8)
    check("rent mine" in result.out, f"{result}")
    projections = [curve["projection"] for curve in sweep_json(out)["summary"]["curves"]]
    same([row["ranks"] for row in projections[0]["rows"]], [2, 4, 8], "projected ranks")
    check("has finished" in projections[1]["problem"], f"{projections}")
    check("2 of them are finished already" in result.out and "[3/4]" in result.out, f"{result}")
    same(times(out), before, "finished runs")
    check(not (out / bad[0]["run"] / "mine").exists(), "a failed run is done in its old folder")
    again = sweep_json(out)["points"][0]
    close(again.pop("samples_per_dollar"), again["samples_per_second"] * 7200, 1e-9, "per dollar")
    same(again, {k: v for k, v in told["points"][0].items() if k != "samples_per_dollar"},
         "a finished point")


def case_a_name_that_is_no_text_is_a_name():
    path, out = tiny().rename(os.fsdecode(bytes(harness.scratch) + b"/caf\xe9.cfg")), "out"
    result = sweep(path, "--ranks", 1, "--steps", 2, "--out", harness.scratch / out)
    same((result.code, result.errors), (0, []), "exit code and errors")
    same(len(sweep_json(harness.scratch / out)["points"]), 1, "points")
    check("caf?.cfg" in (harness.scratch / out / "sweep.html").read_text(encoding="utf-8"), "page")


def case_a_full_disk_behind_stdout_is_one_line():
    result = start(tiny(), "--ranks", 1, "--out", harness.scratch / "out", "--dry-run",
                   wrapper=["sh", "-c", 'exec "$@" > /dev/full', "sh"]).finish()
    same((result.code, len(result.errors)), (74, 1), f"exit code and errors of\n{result}\n")
    check("check where stdout goes" in result.errors[0], f"{result}")


def begin(*arguments):
    """A sweep whose first run, of one rank, has done some steps and will do many."""
    first = harness.scratch / "out/points/p1-auto-none-b32-r1"
    (first / "metrics.jsonl").unlink(missing_ok=True)  # of the sweep before
    started = start(*arguments, env={"DP_FAULT": "slow:ms=100"})
    started.wait_for("a step", lambda: (first / "metrics.jsonl").exists()
                     and len(metrics(first, "step")) > 0)
    return started


def case_a_signal_ends_the_run_and_the_sweep_goes_on_afterwards():
    out = harness.scratch / "out"
    arguments = [tiny(), "--ranks", "1,2", "--out", out, "--steps", 400]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        started = begin(*arguments)
        if number == signal.SIGINT:
            other = sweep(*arguments)
            check(other.code == 64 and "another ddp_sweep" in other.err, f"{other}")
            started.signal(number)  # impatient: this one, and the next one
        started.signal(number)
        result = started.finish()
        same(result.code, 75, f"the exit code of\n{result}\n")
        check("the same command goes on with the 2 runs that are left" in result.err, f"{result}")
        check("1 not run yet" in result.out, f"no table in\n{result}")
        same([p["status"] for p in sweep_json(out)["points"]], ["interrupted", "pending"],
             f"points after {number.name}")
    result = sweep(*arguments)
    check(result.code == 0 and "[2/2]" in result.out, f"{result}")
    same([p["status"] for p in sweep_json(out)["points"]], ["finished"] * 2, "points afterwards")


def case_the_run_of_a_killed_sweep_ends_and_is_done_again():
    arguments = [tiny(), "--ranks", 1, "--out", harness.scratch / "out", "--steps", 400]
    started = begin(*arguments)
    started.signal(signal.SIGKILL)
    started.process.wait()
    result = sweep(*arguments)  # at once: the old run may still be saving in its folder
    check(result.code == 0 and "[1/1]" in result.out, f"{result}")
    started.finish()  # nothing of it is left


def case_another_sweep_is_refused_and_nothing_is_lost():
    out, cfg = harness.scratch / "out", tiny()
    result = sweep(cfg, "--ranks", 1, "--steps", 12, "--set", "optimizer.lr=0.1", "--out", out)
    same(result.code, 0, f"the exit code of\n{result}\n")
    before = times(out)
    for words, part in ((("--ranks", "1,2", "--steps", 12), "with ranks [1], not [1, 2]"),
                        (("--ranks", 1, "--steps", 13), "with steps 12, not 13")):
        result = sweep(cfg, *words, "--set", "optimizer.lr=0.1", "--out", out)
        check(result.code == 78 and part in result.err, f"{result}")
    cfg.write_text(TINY.replace("units: 16", "units: 17"))
    same_words = ("--ranks", 1, "--steps", 12, "--set", "optimizer.lr=0.1", "--out", out)
    result = sweep(cfg, *same_words)
    check(result.code == 78 and "another model file" in result.err, f"{result}")
    tiny()
    (out / "sweep.json").write_text("{")
    result = sweep(cfg, *same_words)
    check(result.code == 65 and "is damaged" in result.err, f"{result}")
    (out / "sweep.json").unlink()
    result = sweep(cfg, *same_words)
    check(result.code == 0 and "1 of them are finished" in result.out, f"{result}")
    same(times(out), before, "the finished run")


def case_bad_input_is_one_line_with_its_code():
    cfg, out = tiny(), harness.scratch / "out"
    full, file = harness.scratch / "full", harness.scratch / "file"
    full.mkdir()
    (full / "mine").write_text("x")
    file.write_text("")
    hosts = harness.scratch / "hosts"
    hosts.write_text("# none\n")
    good = (cfg, "--ranks", 1, "--out", out)
    for code, part, words in (
            (64, "which model", ()), (64, "how many ranks", (cfg, "--out", out)),
            (64, "where to", (cfg, "--ranks", 1)), (64, "0 is no number", (cfg, "--ranks", "1,0")),
            (64, "unrecognized", (*good, "--wrong")), (64, "KEY=VALUE", (*good, "--set", "a")),
            (64, "an empty value", (*good, "--ranks", "1,,2")),
            (64, "--out after --", (*good, "--", "--out", "x")),
            (64, "stands alone", (*good, "--prune", full)), (64, "stands alone", ("--yes",)),
            (66, "no such folder", ("--prune", harness.scratch / "none")),
            (64, "belong to --prices", (*good, "--machine", "x")),
            (66, "--prices", (*good, "--prices", harness.scratch / "none")),
            (64, "not allowed with", (*good, "--hostfile", hosts, "--netlab", 2)),
            (78, "unknown key 'learning'", (*good, "--set", "optimizer.learning=1,2")),
            (78, "unknown strategy 'rign'", (*good, "--strategy", "ring,rign")),
            (78, "unknown compressor", (*good, "--compressor", "zip")),
            (66, "none.cfg: No such file", (harness.scratch / "none.cfg", *good[1:])),
            (66, "no host in it", (*good, "--hostfile", hosts)),
            (64, "holds something else", (cfg, "--ranks", 1, "--out", full)),
            (74, "cannot make this folder", (cfg, "--ranks", 1, "--out", file / "x"))):
        result = sweep(*words)
        same((result.code, len(result.err.splitlines())), (code, 1), f"what came of\n{result}\n")
        check(part in result.err, f"no {part!r} in\n{result}")
    check((full / "mine").exists() and [p.name for p in full.iterdir()] == ["mine"], "changed")
    check(not out.exists() or not list(out.glob("points/*")), "a run was begun")
    help_text = sweep("--help").out
    check("--netlab" in help_text and max(map(len, help_text.splitlines())) <= 110, help_text)


def case_a_dry_run_prints_the_plan_and_writes_nothing():
    out = harness.scratch / "out"
    result = sweep(tiny(), "--ranks", "1,2,4", "--mode", "both", "--batch", "16,32", "--repeat", 2,
                   "--set", "optimizer.lr=0.1,0.2", "--steps", 5, "--out", out, "--dry-run")
    check(result.code == 0 and not out.exists(), f"{result}")
    # 3 strong and 3 weak of each batch and rate; alike are 1 rank of each batch, and 2 x 16 = 32.
    check("36 runs" in result.out.splitlines()[0], f"{result}")
    same(len(result.out.splitlines()), 37, "lines")


def case_runs_spread_over_the_hosts_of_a_netlab():
    done = harness.subprocess.run([str(ROOT / "launch/netlab"), "2", "--", "true"], check=False,
                                  capture_output=True, stdin=harness.subprocess.DEVNULL)
    if done.returncode != 0:
        raise harness.Skipped("no right to make network namespaces")
    out = harness.scratch / "out"
    result = sweep(tiny(), "--ranks", 2, "--netlab", "2,500mbit", "--strategy", "ring", "--steps",
                   12, "--out", out)
    same(result.code, 0, f"the exit code of\n{result}\n")
    same(sweep_json(out)["points"][0]["hosts"], ["h1", "h2"], "hosts")
    result = sweep(tiny(), "--ranks", 2, "--netlab", "2,slow", "--steps", 12,
                   "--out", harness.scratch / "other")
    check(result.code == 64 and "--rate slow: not like" in result.err, f"{result}")


def case_an_installed_sweep_finds_its_modules_and_programs():
    prefix, cfg = harness.scratch / "prefix", tiny()
    done = harness.subprocess.run(
        ["cmake", "--install", harness.build, "--prefix", prefix, "--component", "scripts"],
        capture_output=True, text=True, check=False)
    same(done.returncode, 0, f"what came of installing:\n{done.stderr}\n")
    (prefix / "bin/ddp_train").symlink_to(harness.build / "ddp_train")
    built, harness.build = harness.build, prefix / "bin"
    try:
        result = sweep(cfg, "--ranks", 1, "--steps", 12, "--out", harness.scratch / "out")
    finally:
        harness.build = built
    check(result.code == 0 and not result.err, f"{result}")
    check(not list(prefix.rglob("__pycache__")), "something was written beside the modules")


def made_run(folder, size):
    """What ddp_train leaves, with a checkpoint of so many bytes."""
    step = folder / "checkpoints/step-00000020"
    step.mkdir(parents=True)
    (folder / "run.json").write_text('{"schema": "lockstep.run/1"}')
    (folder / "metrics.jsonl").write_text("")
    (folder / "checkpoints/latest").symlink_to(step.name)
    (step / "MANIFEST").write_text("")
    (step / "model.safetensors").write_bytes(b"x" * size)


def case_pruning_deletes_what_a_run_has_made_and_only_when_asked_to():
    top, precious = harness.scratch / "runs", harness.scratch / "precious"
    precious.write_text("x")
    for name, size in (("small", 10), ("deep/large", 3 << 20), ("mixed", 100), ("busy", 10)):
        made_run(top / name, size)
    (top / "mixed/thesis.tex").write_text("x")
    (top / "mixed/checkpoints/step-00000020/notes").write_text("x")
    (top / "mixed/data").symlink_to(harness.scratch)
    (top / "other/checkpoints/step-00000001").mkdir(parents=True)
    (top / "other/checkpoints/step-00000001/model.safetensors").write_text("x")
    made = top / "sweep/points/p1"
    made_run(made, 50)
    (made / "point.json").write_text('{"schema": "lockstep.point/1"}')
    (top / "sweep/sweep.json").write_text('{"schema": "lockstep.sweep/1"}')
    everything = sorted(top.rglob("*"))
    lock = open(top / "busy/.lockstep.lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    result = sweep("--prune", top)
    same([line.split()[-1] for line in result.out.splitlines()[:1]], [str(top / "deep/large")],
         "the largest")
    check(result.code == 0 and "nothing was deleted" in result.out and "busy is in use" in
          result.err and "mixed  (3 other files stay)" in result.out
          and str(top / "other") not in result.out, f"{result}")
    check(set(everything) <= set(top.rglob("*")), "something is gone")
    result = sweep("--prune", top, "--yes")
    check(result.code == 0 and "4 runs and sweeps deleted" in result.out, f"{result}")
    same(sorted(str(path.relative_to(top)) for path in top.rglob("*") if not path.is_dir()
                or path.is_symlink()),
         ["busy/.lockstep.lock", "busy/checkpoints/latest",
          "busy/checkpoints/step-00000020/MANIFEST",
          "busy/checkpoints/step-00000020/model.safetensors", "busy/metrics.jsonl",
          "busy/run.json", "mixed/checkpoints/step-00000020/notes", "mixed/data",
          "mixed/thesis.tex", "other/checkpoints/step-00000001/model.safetensors"], "what stays")
    check(precious.exists() and not (top / "sweep").exists(), "a link was followed")


if __name__ == "__main__":
    harness.main(globals())
