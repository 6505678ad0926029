"""What a run says of the resources it used: memory by purpose and what leaks, utilisation, cost,
and how steady its rate was.
"""
import re

import harness
from harness import check, close, run_json, same, small_cfg, train_well

PURPOSES = ("weights", "gradients", "optimizer", "activations", "communication", "input",
            "library", "other")


def case_memory_and_utilisation_are_known():
    out = harness.scratch / "out"
    result = train_well(small_cfg(), "--set", "train.steps=60", "--out", out, ranks=2)
    same(result.complaints, [], "stderr of a good run")
    told = run_json(out)
    memory, ranks = told["memory"], told["ranks"]
    largest = max(ranks, key=lambda rank: rank["peak_rss_bytes"])
    same({key: memory[key] for key in PURPOSES},
         {key: largest["memory"][key] for key in PURPOSES}, "memory of the largest rank")
    same((memory["peak"], memory["growing"]), (largest["peak_rss_bytes"], None), "its peak")
    check(1 <= memory["peak_step"] <= 60 and memory["predicted"] > 0, f"{memory}")
    # The weights are one copy, where ranks of a node share them.
    check(sum(rank["memory"]["weights"] for rank in ranks) >= 4 * 2410, f"{ranks}")
    check(not any(0 < rank["memory"]["weights"] < 4 * 2410 for rank in ranks), f"{ranks}")
    check(memory["unexplained"] < 0.1 * memory["peak"], f"what is unexplained: {memory}")
    check("memory of a rank: at most" in result.out and "nothing explains" not in result.out,
          result.out)
    for rank in ranks:
        use = rank["utilisation"]
        kinds = sum(use[kind] for kind in ("compute", "communication", "input", "writer", "other"))
        check(0 < use["cpu"] <= 2 and kinds > 0, f"{use}")
        check(use["queued"] >= 0 and use["waits"] >= 0 and use["minor_faults"] >= 0, f"{use}")
        same(rank["copied"]["input"], 25 * (64 + 4), "bytes of a batch of 25 rows")
        check(rank["copied"]["sent"] > 0, f"{rank}")
        same((rank["copied"]["to_device"], rank["copied"]["from_device"]), (None, None), "to a GPU")
    # The one snapshot holds what the checkpoint does, once for all ranks: its 6 tensors, and their
    # momentum, each up to the next multiple of 64 elements.
    parts = [file.read_bytes() for file in (out / "checkpoints/latest").glob("*.safetensors")]
    held = sum(len(part) - 8 - int.from_bytes(part[:8], "little") for part in parts)
    taken = sum(rank["copied"]["snapshot"] for rank in ranks) * 60
    check(held - 2 * 60 < taken < held + 2 * 6 * 64 * 4, f"{taken} bytes of snapshots, of {held}")
    close(told["utilisation"]["cpu"], sum(r["utilisation"]["cpu"] for r in ranks) / 2, 1e-6, "cpu")
    same(told["utilisation"]["gpu"], None, "utilisation of no GPU")


def case_a_leak_is_named_by_its_purpose():
    out = harness.scratch / "out"
    result = train_well(small_cfg(), "--set", "train.steps=60", "--out", out, ranks=2,
                        env={"DP_FAULT": "leak:rank=1"})
    grows = [line for line in result.warnings if "memory grows" in line]
    check(len(grows) == 1 and "rank 1" in grows[0] and "activations by" in grows[0],
          f"no word of it, or too many:\n{result}")
    told = run_json(out)
    same((told["memory"]["growing"], told["ranks"][0]["memory"]["growing"]), ("activations", ""),
         "what grows")
    same(told["ranks"][1]["memory"]["grown_per_step"], 1 << 20, "by how much")
    check(re.search(r"it grows:\s+activations", result.out), result.out)


def case_a_budget_warns():
    result = train_well(small_cfg(), "--set", "report.memory_budget_mb=1", "--out",
                        harness.scratch / "out")
    check(len(result.warnings) == 1 and "report.memory_budget_mb=1 allows" in result.warnings[0],
          f"{result}")


def case_cost_and_time_until_the_target():
    out = harness.scratch / "out"
    flags = ("--set", "train.steps=48", "--set", "train.eval_every=1", "--set",
             "report.price_per_hour=3.6", "--set", "report.price_per=rank")
    train_well(small_cfg(), *flags, "--set", "report.target_accuracy=0.5", "--out", out, ranks=2)
    told = run_json(out)
    cost = told["cost"]
    same(cost["price_per_hour"], 7.2, "the price of two ranks")
    close(cost["dollars"], 7.2 / 3600 * told["seconds"], 1e-6, "dollars")
    close(cost["samples_per_dollar"], told["samples_per_second"] * 3600 / 7.2, 1e-6, "for a dollar")
    check(0 < cost["seconds_to_target"] < told["seconds"], f"{cost}")
    close(cost["dollars_to_target"], 7.2 / 3600 * cost["seconds_to_target"], 1e-6, "to the target")
    # A target that is not reached, and no price at all.
    train_well(small_cfg(), "--set", "report.target_accuracy=1", "--set", "optimizer.lr=0.0001",
               "--out", harness.scratch / "none")
    same(set(run_json(harness.scratch / "none")["cost"].values()), {None}, "cost without a price")


def case_no_shipped_model_has_a_price():
    for path in (*harness.ROOT.glob("models/*.cfg"), *harness.ROOT.glob("benchmarks/*.cfg")):
        check("price_per_hour" not in path.read_text(), f"{path} has an invented price")


def case_a_price_is_above_nothing():
    for price in ("0", "-1", "nan"):
        result = harness.train(small_cfg(), "--set", f"report.price_per_hour={price}")
        same(result.code, 78, f"the exit code of\n{result}")
        check(re.search(r"report.price_per_hour: expected a number from 1e-06 to", result.err),
              f"a price of {price}:\n{result}")


def case_the_rate_is_shown_in_windows():
    out = harness.scratch / "out"
    train_well(small_cfg(), "--set", "train.steps=40", "--set", "train.eval_every=0",
               "--out", out,
               env={"DP_FAULT": "slow:ms=20"})
    told = run_json(out)["stability"]
    check(len(told["samples_per_second"]) >= 4 and told["window_s"] >= 0.1, f"{told}")
    # 50 rows in 20 ms and what the step takes; the sleep after the step that measuring follows is
    # in no window.
    most = 2500 + 50 / 0.1
    check(all(0 < rate <= most for rate in told["samples_per_second"]), f"{told}")
    check(told["cv"] >= 0 and -1 < told["drift"], f"{told}")
    check(re.search(r'"window_s": 0\.\d', (out / "run.json").read_text()), "run.json")


harness.main(globals())
