"""train.loss: numbers and classes as labels, and the metric of each loss in all files of a run."""
import array
import json
import random

import harness
from harness import check, close, metrics, run_json, same, train, train_well, weights
from own_data import npy

MODEL = """\
data: {{source: {source}, dir: "{dir}"}}
train: {{global_batch: 16, epochs: 6, seed: 4, lanes: 4, loss: {loss}}}
optimizer: {{name: adamw, lr: 0.02}}
model:
  input: [3]
  layers:
    - dense: {{units: 12}}
    - relu: {{}}
    - dense: {{units: {units}}}
"""


def points(count, seed):
    chance = random.Random(seed)
    return [[chance.uniform(-1, 1) for _ in range(3)] for _ in range(count)]


def table(name, label):
    """A folder of csv files; label(x) is the numbers at the beginning of a line."""
    folder = harness.scratch / name
    folder.mkdir(exist_ok=True)
    for subset, count in (("train", 128), ("test", 30)):
        lines = [",".join(map(repr, [*label(x), *x])) for x in points(count, subset)]
        (folder / f"{subset}.csv").write_text("\n".join(lines) + "\n")
    return folder


def model(folder, loss, units, source="csv"):
    path = harness.scratch / f"{folder.name}-{loss}-{units}.cfg"
    path.write_text(MODEL.format(source=source, dir=folder, loss=loss, units=units))
    return path


def alike(cfg, ranks=(1, 2, 4)):
    """Trains on so many ranks to the same weights and figures; returns the folder of a run."""
    found = []
    for count in ranks:
        out = harness.scratch / f"{cfg.stem}-{count}"
        train_well(cfg, "--out", out, ranks=count)
        found.append((weights(out), run_json(out)["final"]))
    for count, others in zip(ranks, found):
        same(others, found[0], f"weights and figures of {count} ranks")
    return out


def refused(cfg, code, *words, ranks=(0, 2)):
    for count in ranks:
        result = train(cfg, "--out", harness.scratch / "none", ranks=count)
        same((result.code, len(result.errors)), (code, 1), f"exit code and errors of\n{result}\n")
        for word in words:
            check(word in result.errors[0], f"'{word}' is not in\n{result}")


def report_of(out):
    harness.program = "ddp_report"
    try:
        return harness.Started([out]).finish().out
    finally:
        harness.program = "ddp_train"


def case_squares_of_several_numbers_train_alike_on_any_number_of_ranks():
    folder = table("plane", lambda x: (2 * x[0] - x[1], 0.5 * x[2]))
    out = alike(model(folder, "mse", 2))
    final = run_json(out)["final"]
    same((final["test_accuracy"], final["test_top5_accuracy"]), (None, None), "answers")
    check(0 < final["test_mean_absolute_error"] < 0.4, f"{final}")
    check(0 < final["test_loss"] < 0.25, f"{final}")
    evaluations = metrics(out, "eval")
    for key in ("test_loss", "test_mean_absolute_error"):
        close(evaluations[-1][key], final[key], 1e-6, key)
        close(metrics(out)[-1][key], final[key], 1e-6, key)
        check(evaluations[-1][key] < evaluations[0][key], f"{key} does not fall: {evaluations}")
    same(evaluations[-1]["test_accuracy"], None, "the accuracy")
    text = report_of(out)
    check(f"mean absolute error {final['test_mean_absolute_error']:.4f}" in text, text)
    page = (out / "report.html").read_text()
    check("Test mean absolute error" in page and "Test accuracy" not in page, "report.html")


def case_shares_of_several_outputs_train_alike_on_any_number_of_ranks():
    folder = harness.scratch / "shares"
    folder.mkdir()
    for subset, count in (("train", 128), ("test", 30)):
        rows = points(count, subset)
        shares = [[float(x[0] > 0), float(x[1] > x[2]), 0.5 + 0.5 * x[2]] for x in rows]
        for name, data in (("images", rows), ("labels", shares)):
            numbers = array.array("f", [number for row in data for number in row])
            npy(folder / f"{subset}_{name}.npy", "<f4", f"({count}, 3)", numbers.tobytes())
    final = run_json(alike(model(folder, "binary_cross_entropy", 3, "npy")))["final"]
    check(final["test_accuracy"] > 0.8 and final["test_mean_absolute_error"] is None, f"{final}")
    refused(model(folder, "binary_cross_entropy", 2, "npy"), 65,
            "train_labels.npy: has 3 numbers a row, the model has 2 outputs: give its last dense "
            "layer units: 3")
    refused(model(folder, "softmax_cross_entropy", 3, "npy"), 65, "a label is one", ranks=(0,))


def case_one_output_tells_two_classes_apart():
    folder = table("sides", lambda x: [int(x[0] > x[1])])
    final = run_json(alike(model(folder, "binary_cross_entropy", 1), (1, 2)))["final"]
    check(final["test_accuracy"] > 0.9, f"{final}")
    refused(model(folder, "softmax_cross_entropy", 1), 78, "model.layers[2].dense",
            "set train.loss to binary_cross_entropy or mse")
    with (folder / "train.csv").open("a") as file:
        file.write("2,0,0,0\n")
    refused(model(folder, "binary_cross_entropy", 1), 65, "train.csv: line 129:",
            "is 2: train.loss binary_cross_entropy needs 0 to 1")


def case_classes_train_with_every_loss():
    folder = table("thirds", lambda x: [int(x[0] > 0) + int(x[0] > 0.4)])
    for loss in ("softmax_cross_entropy", "binary_cross_entropy", "mse"):
        final = run_json(alike(model(folder, loss, 3), (1, 2)))["final"]
        check(loss == "mse" or final["test_accuracy"] > 0.8, f"{loss}: {final}")
        check(loss != "mse" or final["test_mean_absolute_error"] < 0.4, f"{loss}: {final}")
    (folder / "train.csv").write_text("1,2,3,4,5,6,7\n")
    refused(model(folder, "mse", 3), 65,
            "for 3 inputs and 3 outputs of the model write 6, or 4 with a class as the label")


def case_labels_are_smoothed_in_training_alone():
    cfg = model(table("smooth", lambda x: [int(x[0] > 0) + int(x[0] > 0.4)]),
                "softmax_cross_entropy", 3)
    found = []
    for smoothing in ("0", "0.3"):
        out = harness.scratch / f"by-{smoothing}"
        train_well(cfg, "--steps", "1", "--set", "optimizer.lr=0", "--set",
                   f"train.label_smoothing={smoothing}", "--out", out)
        found.append(run_json(out)["final"])
    same(found[0]["test_loss"], found[1]["test_loss"], "test losses of the same weights")
    check(found[0]["train_loss"] != found[1]["train_loss"], f"labels are not smoothed: {found}")


def case_training_ends_where_the_error_does_not_fall():
    cfg = model(table("flat", lambda x: [x[0]]), "mse", 1)
    stop = ["--set", "early_stop.patience=2", "--set", "optimizer.lr=0"]
    out = harness.scratch / "stopped"
    metric = ["--set", "early_stop.metric=test_mean_absolute_error"]
    train_well(cfg, *stop, *metric, "--out", out, ranks=2)
    summary = run_json(out)
    same(summary["exit"], "early_stopped", "how it ends")
    check("2 evaluations without a better test_mean_absolute_error than 0." in summary["reason"],
          summary["reason"])
    for more in ([], ["--set", "early_stop.metric=test_mean_absolute_error", "--set",
                      "train.loss=binary_cross_entropy"]):
        result = train(cfg, *stop, *more)
        same((result.code, len(result.errors)), (78, 1), f"exit code and errors of\n{result}\n")
        check("early_stop.metric" in result.errors[0], f"{result}")


def case_a_resumed_run_says_that_the_loss_is_another():
    cfg = model(table("resumed", lambda x: [int(x[0] > 0)]), "mse", 1)
    out = harness.scratch / "resumed-out"
    train_well(cfg, "--out", out, "--steps", 3)
    state = json.loads((out / "checkpoints/latest/state.json").read_text())
    check("mse" in json.dumps(state), f"state.json does not name the loss: {state}")
    text = train_well(cfg, "--out", out, "--steps", 5, "--resume", "--set",
                      "train.loss=binary_cross_entropy").out
    check("train.loss mse -> binary_cross_entropy" in text, text)


if __name__ == "__main__":
    harness.main(globals())
