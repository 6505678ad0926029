"""ddp_tune: a space whose best is known, trials that are pruned and that fail, going on, and what
is refused. With Optuna from PyPI, where it can be installed."""
import json
import re
import signal
import sqlite3

import harness
from harness import Started, check, metrics, run_json, same, train_well

# y = 2x at x = -1 and 1: a step takes what is wrong with the weight times 1 - 2 lr, so that 0.5
# learns it at once, and from 1 on it never does.
LINE = """\
name: line
data: {{source: csv, dir: {dir}, shuffle: false}}
train: {{global_batch: 8, epochs: {epochs}, loss: mse, eval_every: 1}}
optimizer: {{name: sgd, lr: 0.1, momentum: 0}}
checkpoint: {{every_steps: 0}}
report: {{html: false, tensorboard: false}}
model: {{input: [1], layers: [dense: {{units: 1}}]}}
"""


def line(epochs=6):
    folder = harness.scratch / "line"
    folder.mkdir(exist_ok=True)
    for name in ("train.csv", "test.csv"):
        (folder / name).write_text("".join(f"{2 * x},{x}\n" for x in (-1, 1) * 8))
    path = harness.scratch / f"line-{epochs}.cfg"
    path.write_text(LINE.format(dir=folder, epochs=epochs))
    return path


def space(text):
    path = harness.scratch / "space.yaml"
    path.write_text(text)
    return path


def start(*arguments, python=None, env=None):
    harness.program = "ddp_tune"
    try:
        return Started(arguments, env=env, wrapper=[str(python)] if python else ())
    finally:
        harness.program = "ddp_train"


def tune(*arguments, python, code=0):
    result = start(*arguments, python=python).finish()
    same(result.code, code, f"the exit code of\n{result}\n")
    return result


def kept_choices(out):
    """Of a study with one key."""
    with sqlite3.connect(out / "study.db") as study:
        kept = study.execute("select distribution_json from trial_params limit 1").fetchone()[0]
    return json.loads(kept)["attributes"]["choices"]


def states(out):
    """How many trials are in each state."""
    with sqlite3.connect(out / "study.db") as study:
        rows = study.execute("select state, count(*) from trials group by state").fetchall()
    return dict(rows)


def optuna():
    return harness.python_with("optuna", "optuna==5.0.0", often=True)


def case_the_best_of_a_known_space_is_found_and_is_a_model():
    python, out = optuna(), harness.scratch / "out"
    cfg, choices = line(), space("optimizer.lr: {log: [1e-2, 1]}\n")
    flags = (cfg, choices, "--goal", "test_loss", "--trials", 14, "--out", out)
    result = tune(*flags, python=python)
    told = re.search(r"best: test_loss \S+ by optimizer.lr=(\S+) \(trial", result.out)
    check(told and 0.3 < float(told[1]) < 0.7, f"the best rate is 0.5:\n{result}")
    found = harness.scratch / "found"
    train_well(out / "best.yaml", "--out", found)
    loss = run_json(found)["final"]["test_loss"]
    check(loss < 1e-4, f"the best loss is {loss}")
    same(sum(states(out).values()), 14, "trials in the study")
    again = tune(*flags, python=python)  # nothing is left to do
    check("14 are done" in again.out and "[" not in again.out, f"{again}")


def case_a_poor_trial_is_pruned():
    python, out = optuna(), harness.scratch / "out"
    choices = space("optimizer.lr: {choice: [0.4, 0.5, 0.6, 1e-9]}\n")
    result = tune(line(), choices, "--goal", "test_loss", "--trials", 9, "--out", out,
                  python=python)
    shown = [told for told in result.out.splitlines() if ": pruned; " in told]
    check(shown and "by optimizer.lr=0.5 (" in result.out, f"{result}")
    same(states(out).get("PRUNED"), len(shown), "pruned trials")
    same(kept_choices(out), [0.4, 0.5, 0.6, "1e-9"], "choices, numbers as such, in the study")
    for folder in (out / "trials").iterdir():
        check(metrics(folder / "run", "end"), f"{folder} was killed, not asked to end")


def case_a_trial_that_fails_is_marked_and_the_one_beside_it_goes_on():
    python, out = optuna(), harness.scratch / "out"
    choices = space(f"data.dir: {{choice: [{harness.scratch / 'line'}, gone]}}\n")
    result = tune(line(1), choices, "--goal", "test_loss", "--trials", 3, "--parallel", 2,
                  "--out", out, python=python)
    found = states(out)
    same((found.get("FAIL", 0) > 0, found.get("COMPLETE", 0) > 0), (True, True), f"{found}")
    check("FAILED with exit code 66: gone: " in result.out, f"{result}")
    gone = tune(line(1), space("data.dir: {choice: [gone]}\n"), "--goal", "test_loss", "--trials",
                1, "--out", harness.scratch / "failed", python=python, code=66)
    same(len(gone.errors), 1, f"errors of\n{gone}\n")
    lacks = tune(line(1), space("train.loss: {choice: [mse]}\n"), "--trials", 1, "--out",
                 harness.scratch / "lacks", python=python, code=78)
    check("take --goal test_loss" in lacks.out, f"{lacks}")


def case_an_interrupted_study_goes_on():
    python, out = optuna(), harness.scratch / "out"
    cfg, choices = line(), space("optimizer.lr: {log: [1e-3, 0.3]}\n")
    flags = ("--goal", "test_loss", "--trials", 2, "--pruner", "none", "--out", out)
    started = start(cfg, choices, *flags, python=python,
                    env={"DP_FAULT": "slow:rank=0,ms=1000"})
    started.wait_for("a trial", lambda: list(out.glob("trials/0000/run/metrics.jsonl")))
    started.signal(signal.SIGINT)
    result = started.finish()
    same((result.code, len(result.errors)), (75, 1), f"exit code and errors of\n{result}\n")
    other = tune(line(2), choices, *flags, python=python, code=78)
    check("a study with another model" in other.err, f"{other}")
    # Killed, it leaves no trial running, and goes on as well.
    started = start(cfg, choices, *flags, python=python,
                    env={"DP_FAULT": "slow:rank=0,ms=2000"})
    started.wait_for("a trial", lambda: list(out.glob("trials/0001/run/metrics.jsonl")))
    started.signal(signal.SIGKILL)
    started.finish()
    result = tune(cfg, choices, *flags, python=python)
    same(states(out), {"FAIL": 2, "COMPLETE": 2}, "states")
    with sqlite3.connect(out / "study.db") as study:
        values = [row[0] for row in study.execute(
            "select param_value from trial_params order by trial_id")]
    same((len(values), *values[1:3]), (4, values[0], values[0]), "values of a trial done again")
    check(values[3] != values[0], f"the next trial has the first one's values: {values}")


def case_what_cannot_be_tuned_is_one_line():
    python, out = optuna(), harness.scratch / "out"
    cfg = line()
    for code, words, text in (
            (78, "unknown key 'lrr'", "optimizer.lrr: {float: [0, 1]}\n"),
            (78, "lr", "optimizer.lr: {float: [-1, 1]}\n"),
            (78, "expected one of", "optimizer.lr: [0, 1]\n"),
            (78, "begins above 0", "optimizer.lr: {log: [0, 1]}\n"),
            (78, "its lower end comes first", "optimizer.lr: {log: [1, 1e-3]}\n"),
            (78, "not YAML", "optimizer.lr: {log: [0, 1\n"),
            (78, "space.yaml:2: repeated key 'optimizer.lr' (first in line 1)",
             "optimizer.lr: {float: [0, 1]}\noptimizer.lr: {float: [0, 2]}\n"),
            (78, "expected lines", "\n")):
        result = tune(cfg, space(text), "--trials", 1, "--out", out, python=python, code=code)
        same(len(result.errors), 1, f"errors of\n{result}\n")
        check(words in result.err, f"no {words!r} in\n{result}")
    for goal, words in (("test_accuracy", "take --goal test_loss"),
                        ("samples_per_dollar", "report.price_per_hour"),
                        ("time_to_target", "report.target_accuracy")):
        result = tune(cfg, space("optimizer.lr: {float: [0, 1]}\n"), "--goal", goal, "--trials", 1,
                      "--out", out, python=python, code=78)
        check(words in result.err and len(result.errors) == 1, f"{result}")
    for code, flags in ((66, (cfg, "gone.yaml", "--trials", 1)), (64, (cfg, "space.yaml"))):
        same(len(tune(*flags, "--out", out, python=python, code=code).errors), 1, "errors")
    check(not out.exists(), "something was written")


def case_without_optuna_it_says_how_to_get_it():
    path = space("optimizer.lr: {float: [0, 1]}\n")
    (harness.scratch / "optuna.py").write_text("raise ImportError('none here')\n")
    result = start(line(), path, "--trials", 1, "--out", "out",
                   env={"PYTHONPATH": str(harness.scratch)}).finish()
    same((result.code, len(result.errors)), (69, 1), f"exit code and errors of\n{result}\n")
    check("pip install optuna" in result.err, f"{result}")


if __name__ == "__main__":
    harness.main(globals())
