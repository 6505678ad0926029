"""ddp_report --mlflow: real MLflow reads the runs that it has added to a store."""
import json
import subprocess

import harness
from harness import check, close, metrics, python_with, run_json, same, small_cfg, train_well

READ = """
import json, sys
from mlflow import MlflowClient
client = MlflowClient(tracking_uri="file://" + sys.argv[1])
told = []
for experiment in client.search_experiments():
    for run in client.search_runs([experiment.experiment_id]):
        history = {key: [(m.step, m.value, m.timestamp) for m in
                         client.get_metric_history(run.info.run_id, key)]
                   for key in run.data.metrics}
        told.append({"experiment": experiment.name, "status": run.info.status,
                     "name": run.info.run_name, "params": run.data.params, "history": history,
                     "tags": run.data.tags, "begin": run.info.start_time,
                     "end": run.info.end_time,
                     "artifacts": [a.path for a in client.list_artifacts(run.info.run_id)]})
print(json.dumps(told))
"""


def report(*arguments):
    harness.program = "ddp_report"
    try:
        return harness.Started(arguments).finish()
    finally:
        harness.program = "ddp_train"


def read_store(python, store):
    done = subprocess.run([python, "-W", "ignore", "-c", READ, store], capture_output=True,
                          text=True, check=False, timeout=harness.PATIENCE,
                          env=harness.environment("", {"MLFLOW_ALLOW_FILE_STORE": "true",
                                                       "MLFLOW_DISABLE_TELEMETRY": "true"}))
    check(done.returncode == 0, f"MLflow does not read it:\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def case_mlflow_reads_what_was_added():
    python = python_with("mlflow", "mlflow-skinny==3.17.2")
    store, out = harness.scratch / "mlruns", harness.scratch / "it's a: run"
    train_well(small_cfg(), "--set", "train.steps=24", "--out", out, ranks=2)
    for _ in range(2):  # the second time replaces the first
        result = report(out, "--mlflow", store.name, "--no-page")
        check(result.code == 0 and not result.err, f"{result}")
    where = next(store.glob("*/meta.yaml")).read_text()
    check(f"artifact_location: 'file://{store}/" in where, f"{where}")
    told = read_store(python, store)
    same(len(told), 1, f"runs in {told}")
    run, summary, steps = told[0], run_json(out), metrics(out, "step")
    same((run["experiment"], run["status"], run["name"]), ("small", "FINISHED", "it's a: run"),
         "the run")
    loss = run["history"]["loss"]
    same([step for step, _, _ in loss], [step["step"] for step in steps], "steps")
    for (_, value, at), step in zip(loss, steps):
        close(value, step["loss"], 1e-8, "a loss")
        check(abs(at - 1000 * step["time"]) <= 1, f"{at} is not the time of {step}")
    same(run["history"]["test_accuracy"][-1][0], 24, "step of the last evaluation")
    for key, value in (("run.scaling_efficiency", summary["scaling_efficiency"]),
                       ("run.memory.peak", summary["memory"]["peak"]),
                       ("run.final.test_accuracy", summary["final"]["test_accuracy"])):
        close(run["history"][key][0][1], value, 1e-6, key)
    same((run["params"]["train.steps"], run["params"]["model.layers.0.conv2d.filters"]),
         ("24", "8"), "parameters")
    same(run["tags"]["mlflow.note.content"], summary["verdict"], "the note")
    check("run.json" in run["artifacts"] and run["begin"] < run["end"], f"{run}")


def damaged_lines(out):
    """Lines whose times, steps and values no run writes, after those of the run."""
    with open(out / "metrics.jsonl", "a") as lines:
        for time, step, value in ((None, 7, 1), (1e300, 8, 1), (1.5, 1e300, 1), (None, None, 1),
                                  (1.5, 9, None), (-1e300, 10, 1e300)):
            lines.write(json.dumps({"type": "step", "time": time, "step": step, "loss": value,
                                    "lr": value}) + "\n")
        lines.write('{"type":"step","time":1e999,"step":1e999,"loss":1e999}\n')


def case_hostile_texts_and_damaged_lines_hide_no_run():
    python = python_with("mlflow", "mlflow-skinny==3.17.2")
    out = harness.scratch / "it's \udcff a\n- \"run\": <b>\\ \U0001f600"
    name = "quote ' \" \\ <b> {} # \U0001f600"
    train_well(small_cfg(), "--set", "name=" + json.dumps(name, ensure_ascii=False), "--out",
               out)
    damaged_lines(out)
    with open(out / "config.yaml", "ab") as config:
        config.write("\n..a: 1\n...: 2\n\u00e9: 3\na/../b: 4\nbytes: \udcff \x1b[31m\r\n"
                     .encode(errors="surrogateescape") + b"x" * 300 + b": 5\n")
    same(report(out, "--mlflow", "mlruns", "--no-page").code, 0, "the exit code")
    (out / "run.json").unlink()  # as while it goes on
    same(report(out, "--mlflow", "mlruns", "--no-page").code, 0, "the exit code")
    told = read_store(python, harness.scratch / "mlruns")
    same(len(told), 1, f"runs in {told}")
    run = told[0]
    same((run["experiment"], run["name"], run["tags"]["mlflow.runName"]),
         (name, *2 * (r"it's \xff a\n- " + '"run": <b>\\ \U0001f600',)), "names")
    same((run["params"]["__a"], run["params"]["bytes"]), ("1", r"\xff \x1b[31m\r"), "parameters")
    same([step for step, _, _ in run["history"]["lr"]], [*range(1, 9), 10], "steps with a number")
    check(not any(key.startswith("run.") for key in run["history"]), f"old figures in {run}")


def case_a_killed_run_is_told_so_and_a_store_that_cannot_be_written():
    started, out = harness.begin(small_cfg(), ranks=0)
    started.signal(9)
    started.finish()
    store = harness.scratch / "mlruns"
    same(report(out, "--mlflow", store, "--no-page").code, 0, "the exit code")
    meta = next(store.glob("*/*/meta.yaml")).read_text()
    check("\nstatus: 5\n" in meta and "\nend_time: 1" in meta, meta)
    # A damaged configuration has keys that no file can have.
    (out / "config.yaml").write_text('name: x\n"": 1\n"..": 2\n')
    same(report(out, "--mlflow", store, "--no-page").code, 0, "the exit code")
    result = report(out, "--mlflow", out / "metrics.jsonl", "--no-page")
    same((result.code, len(result.err.splitlines())), (74, 1), f"what came of {result}")
    same(report(out, "--mlflow").code, 64, "without a folder")


harness.main(globals())
