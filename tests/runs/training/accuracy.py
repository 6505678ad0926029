"""The shipped models learn Fashion-MNIST."""
import os

import harness
from harness import check, known_baseline, metrics, run_json, same, train_well


def case_lenet_as_shipped_reaches_90_percent_on_two_ranks():
    if not os.environ.get("DP_TEST_LONG"):
        raise harness.Skipped("two minutes of two cores: tests/run --long")
    harness.fashion()
    out = harness.scratch / "out"
    result = train_well(harness.ROOT / "models/lenet.cfg", "--out", out, ranks=2, timeout=900)
    summary = run_json(out)
    same(summary["steps"], 705, "the steps")
    same([o["step"] for o in metrics(out, "eval")], [235, 470, 705], "the evaluations")
    check(summary["final"]["test_accuracy"] >= 0.90, f"not accurate enough:\n{result}")
    check(summary["final"]["train_loss"] < 0.4, f"a high loss:\n{result}")


def case_lenet_learns_within_half_an_epoch():
    harness.fashion()
    out = harness.scratch / "out"
    train_well(harness.ROOT / "models/lenet.cfg", "--steps", 118, "--out", out,
               *known_baseline(), ranks=2, timeout=300)
    accuracy = run_json(out)["final"]["test_accuracy"]
    check(accuracy >= 0.82, f"accuracy {accuracy}")


def case_mlp_as_shipped_learns_within_an_epoch():
    harness.fashion()
    out = harness.scratch / "out"
    train_well(harness.ROOT / "models/mlp.cfg", "--steps", 235, "--out", out,
               *known_baseline(), ranks=2, timeout=300)
    accuracy = run_json(out)["final"]["test_accuracy"]
    check(accuracy >= 0.80, f"accuracy {accuracy}")


if __name__ == "__main__":
    harness.main(globals())
