"""benchmarks/compare_peers: what it makes of rates, a peer that cannot be had, a loss that does not
fall; and one run of ours, as it measures it. The peers themselves need packages of PyPI."""
import importlib.machinery
import importlib.util
import pathlib
import sys

import harness
from harness import ROOT, check, close, same, small_cfg

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "benchmarks"))
loader = importlib.machinery.SourceFileLoader("peers", str(ROOT / "benchmarks/compare_peers"))
spec = importlib.util.spec_from_loader("peers", loader)
peers = importlib.util.module_from_spec(spec)
loader.exec_module(peers)

CELL = {"model": "lenet", "precision": "fp32", "cores": 2, "batch": 256, "steps": 20,
        "lr": 0.01}


def judged(ours, **others):
    row = peers.judge({**CELL, "rates": {**others, "lockstep": ours}}, {"fp32": 200.0})
    return row["verdict"], row["best"], row["ratio"]


def case_a_cell_is_judged_by_the_fastest_peer():
    same(judged([99, 90, 300], jax=[50, 50, 50], torch=[100, 100, 100])[:2], ("LOST", "torch"),
         "1 % below the best peer")
    same(judged([120], torch=[100])[0], "MISSED", "ahead, but below the target")
    same(judged([125], torch=[100])[0], "met", "the target")
    same(judged([125]), ("no peer", None, None), "nothing to compare with")
    row = peers.judge({**CELL, "rates": {"jax": [100, 200, 300], "lockstep": [400, 200, 300]}},
                      {"fp32": 200.0})
    close(row["ratio"], 1.5, 1e-9, "the ratio of medians")
    same(row["ratio_range"], [1.0, 4.0], "the range over rounds")
    close(row["mfu"], 300 * 72.4e6 / (2 * 200e9), 1e-9, "the share of two cores")


def case_what_cannot_be_had_is_named():
    (harness.scratch / "jax").write_text("no folder")

    class args:
        venvs, peers = harness.scratch, ["jax"]

    found, missing = peers.find_peers(args, {"cpu": "AMD"})
    same((found, list(missing)), ({}, ["jax"]), "a peer whose environment cannot be made")


def case_a_loss_must_fall():
    peers.fell("ours", CELL, 2.3, 2.2)
    try:
        peers.fell("ours", CELL, 2.3, 2.3)
    except peers.Failure as failure:
        check("the loss of lenet in fp32 has not fallen" in str(failure), str(failure))
    else:
        check(False, "a loss that stays was taken")


def case_sides_take_turns():
    class args:
        build, rounds, variants = harness.build, 2, {}

    order = []

    def of_peer(name, _, cell, variant, steps):
        order.append(f"{name}, {variant}" if steps == cell["steps"] else variant)
        return {"version": "1", "samples_per_second": {"slow": 50.4, "fast": 2000}[variant]}

    def of_ours(_, cell):
        order.append("ours")
        return {"samples_per_second": 100 * cell["cores"]}

    before = peers.run_peer, peers.run_ours
    peers.run_peer, peers.run_ours = of_peer, of_ours
    try:
        cell = peers.measure_cell(args, {"jax": {"variants": ("slow", "fast")}}, CELL)
    finally:
        peers.run_peer, peers.run_ours = before
    same(order, ["slow", "fast"] + 2 * ["jax, fast", "ours"], "who ran, after the variants")
    same(cell["rates"], {"jax": [2000, 2000], "lockstep": [200, 200]}, "rates by round")
    peers.print_rows([peers.judge(cell, {"fp32": 200.0})])


def case_our_side_runs():
    train = pathlib.Path(harness.build, harness.program)
    cell = {**CELL, "config": small_cfg(), "cores": 1, "batch": 32, "steps": 20}
    check(peers.run_ours(train, cell)["samples_per_second"] > 0, "a rate")


if __name__ == "__main__":
    harness.main(globals())
