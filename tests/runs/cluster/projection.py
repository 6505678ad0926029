"""ddp_sweep --project: costs by ddp_bench against closed forms, the replay against steps computed
by hand, and what it says of runs that tell too little."""
import json
import math
import sys

import harness
from harness import ROOT, Started, check, close, run_json, same, small_cfg, train_well

sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "launch"))
from sweep.project import ledger as ledgers
from sweep.project import links, main, replay
from sweep.project.replay import Place, Sum

ALPHA, BETA, GAMMA = 50e-6, 8e-9, 0.5e-9
MB = 1 << 20


def bench(asked, code=0):
    path = harness.scratch / "asked.json"
    path.write_text(asked if isinstance(asked, str) else json.dumps(asked))
    harness.program = "ddp_bench"
    try:
        result = Started(["--costs", path]).finish()
    finally:
        harness.program = "ddp_train"
    same(result.code, code, f"the exit code of\n{result}\n")
    return json.loads(result.out) if code == 0 else result.err


def line(alpha, beta):
    points = links.line(alpha, beta)
    return {"bytes": [b for b, _ in points], "seconds": [s for _, s in points]}


def project(*words, code=0):
    harness.program = "ddp_sweep"
    try:
        result = Started(["--project", *words]).finish()
    finally:
        harness.program = "ddp_train"
    same(result.code, code, f"the exit code of\n{result}\n")
    return result


def made_run(folder="run", **more):
    """A run.json of two ranks on two hosts, which compute 40 ms and share 8 MB."""
    run = {"schema": "lockstep.run/1", "world_size": 2, "global_batch": 64, "strategy": "ring",
           "compressor": "none", "plan": "3 buckets, overlap on", "steps": 50,
           "single_rank_samples_per_second": 800.0,
           "limits": {"copy_gbs": 20.0, "larger_batch_cost": None},
           "stability": {"cv": 0.0, "samples_per_second": [1.0]}, "cost": {"price_per_hour": 2.0},
           "ranks": [{"host": f"h{i}", "compute_sd_ms": 1.0, "step_ms": {
               "input": 0.0, "copy": 0.0, "forward": 12.0, "backward": 24.0, "exposed_comm": 60.0,
               "optimizer": 4.0, "checkpoint": 0.0, "other": 0.0}} for i in range(2)],
           "buckets": [{"bytes": 4 * MB, "ready_ms": 24.0, "deferred": 0},
                       {"bytes": 4 * MB, "ready_ms": 36.0, "deferred": 0},
                       {"bytes": 256, "ready_ms": 36.0, "deferred": 0}],
           "links": [{"name": "wire", "bytes": b, "us": 1e6 * (ALPHA + BETA * b)}
                     for b in links.SIZES]}
    place = harness.scratch / folder
    place.mkdir(exist_ok=True)
    (place / "run.json").write_text(json.dumps({**run, **more}))
    return place


def case_costs_are_those_of_the_formulas_for_any_group():
    size = 4 * MB
    told = bench({"curves": {"wire": line(ALPHA, BETA), "sum": line(0, GAMMA)}, "bytes": [size],
                  "groups": [{"ranks": 4, "node_of": 1}, {"ranks": 4096, "node_of": 1}],
                  "strategies": ["ring", "doubling", "rhd"]})
    close(told["alpha_us"], 1e6 * ALPHA, 1e-6, "alpha")
    close(told["beta_ns"], 1e9 * BETA, 1e-6, "beta")
    found = {(row["ranks"], row["strategy"]): row["seconds"][0] for row in told["rows"]}
    for p in (4, 4096):
        part, lg = (p - 1) / p * size, math.log2(p)
        close(found[p, "ring"], 2 * (p - 1) * ALPHA + part * (2 * BETA + GAMMA), 1e-6, "ring")
        close(found[p, "rhd"], 2 * lg * ALPHA + part * (2 * BETA + GAMMA), 1e-6, "rhd")
        close(found[p, "doubling"], lg * (ALPHA + size * (BETA + GAMMA)), 1e-6, "doubling")


def case_without_names_costs_are_those_of_what_auto_would_compare():
    told = bench({"curves": {"wire": line(ALPHA, BETA)}, "bytes": [1024],
                  "groups": [{"ranks": 8, "node_of": 4}, {"ranks": 4, "node_of": 4}]})
    names = {(row["ranks"], row["strategy"]) for row in told["rows"]}
    check({(8, "hier:rails=1"), (8, "direct"), (4, "shm"), (4, "ring")} <= names, f"{names}")
    check((8, "shm") not in names and (8, "mpi") not in names, f"{names}")
    for asked, part, code in (("{", "line 1", 65), ({"curves": {"wire": {"bytes": [2, 1],
                              "seconds": [1, 1]}}}, "rising", 65),
                              ({"groups": [{"ranks": 0}]}, "from 1 to", 65),
                              ({"strategies": ["ringg"]}, "ringg", 78)):
        check(part in bench(asked, code), f"{asked} is not refused for {part}")


def ledger(**more):
    return ledgers.of_run(run_json(made_run(**more)), [])


def messages(*wire):
    return [Sum(ms) for ms in wire]


def replayed(told, sums, place=Place()):
    return replay.mean(replay.simulate(told, sums, 1.0, replay.Never, 10, place))


def case_the_replay_takes_as_long_as_by_hand():
    told = ledger()
    # One step: forward and backward end at 36, its first bucket is ready at 24.
    for sums, overlap, step in (
            ([0, 0, 0], True, 40),            # compute alone
            ([6, 6, 0], True, 44),            # the second is sent from 36 to 42, updated until 44
            ([20, 10, 1], True, 56),          # 24 + 20 + 10, then half of the updates
            ([6, 6, 0], False, 52)):          # after backward: a sum, its update, the next ones
        told.overlap = overlap
        close(replayed(told, messages(*sums)), step, 1e-3,
              f"a step with sums of {sums}, overlap {overlap}")
    # Twice the rows: 24 + 48 ms, and updates as before.
    told.overlap = True
    close(replay.mean(replay.simulate(told, messages(0, 0, 0), 2.0, replay.Never, 10)), 76, 1e-3,
          "scaled")


def case_a_wire_lets_its_burst_pass_at_once_after_a_pause():
    told, place = ledger(), Place(burst=4.0)
    for sums, step in (
            (messages(6, 6, 0), 40),              # from 24 to 26, and from 36 to 38: 4 ms are saved
            (messages(24, 6, 0), 52),             # 24 to 44, and to 50: only before the first
            ([Sum(6, code=10), Sum(6, code=10), Sum(0)], 48),   # hidden by the code: 36 to 46
            ([Sum(20, code=10), Sum(0), Sum(0)], 46),  # 24 to 42: 4 before, 4 in each of two pauses
            ([Sum(20, rest=10), Sum(0), Sum(0)], 44)):  # 24 to 40: 10 between many short messages
        close(replayed(told, sums, place), step, 1e-3, f"{sums}")
    close(replayed(told, messages(60, 60, 0), place), 142, 1e-3, "a wire that is busy all the time")


def case_ranks_that_take_turns_on_a_core_compute_longer():
    told, place = ledger(), Place(crowd=2)
    # Backward ends at 72, its first bucket is ready at 48; each update takes 4 ms.
    close(replayed(told, messages(0, 0, 0), place), 80, 1e-3, "compute alone")
    close(replayed(told, messages(6, 6, 0), place), 82, 1e-3, "messages take as long as before")
    close(replayed(told, [Sum(6, code=5), Sum(6, code=5), Sum(0)], place), 92, 1e-3, "codes twice")
    curves = links.crowded({"wire": [(1, 2.0)], "sum": [(1, 2.0)]}, 2)
    same(curves, {"wire": [(1, 2.0)], "sum": [(1, 4.0)]}, "adding takes twice as long")


def case_a_deferred_bucket_is_shared_while_forward_computes():
    told = ledger(buckets=[{"bytes": 4 * MB, "ready_ms": 24.0, "deferred": 0},
                           {"bytes": 4 * MB, "ready_ms": 24.0, "deferred": 1},
                           {"bytes": 256, "ready_ms": 36.0, "deferred": 0}])
    # It is sent from 36 on; forward needs it at half of its 12 ms, in the next step.
    close(replayed(told, messages(6, 4, 0)), 40, 1e-3, "where the wire has time")
    # Forward waits for it, and the wire then waits for the other half of forward, for half of
    # backward, and for the update between: 101 + 6 + 12 + 2.
    close(replayed(told, messages(60, 40, 1)), 121, 1e-3, "where it has none")


def case_more_ranks_have_a_slower_slowest_one():
    late = ledgers.lateness([{"step_ms": {"forward": 10.0}, "compute_sd_ms": 2.0}], [])
    means = []
    for ranks in (1, 2, 4, 64, 4096):
        slowest = replay.Slowest(late, ranks)
        means.append(replay.mean([slowest.draw() for _ in range(4000)]))
    # Of 2 and 4 normal deviates the greatest is 0.564 and 1.029 on average (Tippett 1925).
    close(1 + means[0], 1, 0.1, "of one")
    close(means[1], 2 * 0.564, 0.1, "of two")
    close(means[2], 2 * 1.029, 0.1, "of four")
    check(means == sorted(means) and 5 < means[-1] < 12, f"{means}")


def case_a_planted_factor_of_the_sums_is_found():
    told, sums = ledger(), messages(20.0, 20.0, 1.0)
    told.step = replay.mean(replay.simulate(told, [s.scaled(1.7) for s in sums], 1.0,
                                            replay.Slowest(told.late, 2), 60))
    close(replay.calibrate(told, sums), 1.7, 1e-3, "the factor")
    told.exposed = 0.0
    same(replay.calibrate(told, sums), 1.0, "where sums hardly matter")


def case_what_planted_codes_take_is_found():
    told, sums, coded = ledger(), messages(10.0, 10.0, 1.0), [4 * MB, 4 * MB, 0]
    for place in (Place(), Place(burst=3.0)):
        told.step = replay.mean(replay.simulate(told, replay.with_codes(sums, 2e-6, coded), 1.0,
                                                replay.Slowest(told.late, 2), 60, place))
        close(replay.calibrate_codes(told, sums, coded, place), 2e-6, 1e-3, f"ms a byte, {place}")
    told.step = 30.0
    same(replay.calibrate_codes(told, sums, coded), 0.0, "where messages alone take longer")
    told.exposed, told.summing = 0.0, [15.0, 15.0, 1.0]
    close(replay.calibrate_codes(told, sums, coded), 10 / (8 * MB), 1e-9, "hidden ones")


def case_codes_grow_with_what_ranks_decode():
    """Of what the run encodes and decodes: once a rank, or once for each contribution."""
    path, work = harness.scratch / "w.cfg", {}
    path.write_text(MODEL)
    for name in ("topk", "onebit", "fp16", "powersgd", "randomk"):
        told = bench({"curves": {"wire": line(ALPHA, BETA)}, "strategies": ["ring"],
                      "groups": [{"ranks": ranks, "node_of": 1} for ranks in (2, 4, 64)],
                      "model": str(path), "set": [f"comm.compressor={name}"]})
        work[name] = main.work_of(told)
    same(work["topk"], {2: (1, 2), 4: (1, 4), 64: (1, 64)}, "pairs of all, to all")
    for name in ("onebit", "fp16"):  # all of its own and a part of the sum; a part of all, the sum
        same(work[name], {2: (1.5, 2), 4: (1.25, 2), 64: (1 + 1 / 64, 2)}, name)
    for name in ("powersgd", "randomk"):  # the strategy adds
        same(work[name], {2: (1, 1), 4: (1, 1), 64: (1, 1)}, name)
    close(replay.growth_of_codes((9.0, 1.0), (1, 2), (1, 64)), 4.1, 1e-9, "9 + 1 64 / 2, of 10")
    close(replay.growth_of_codes((6.0, 4.0), (1.5, 2), (1.25, 2)), 0.9, 1e-9, "5 + 4, of 10")
    same(replay.growth_of_codes(None, (1, 2), (1, 64)), 1.0, "where they are not told apart")


LAYERS = [{"name": name, "kind": kind, "backward_ms": ms} for name, kind, ms in (
    ("1", "dense", 4.0), ("3", "dense", 6.0), ("10", "dense", 2.0), ("loss", "loss", 0.5))]
MODEL = """\
model:
  input: [8, 8, 16]
  layers: [flatten: {}, dense: {units: 1024}, relu: {}, dense: {units: 1024}, relu: {},
           dense: {units: 10}]
"""


def case_a_model_is_cut_into_buckets_of_other_sizes():
    path = harness.scratch / "m.cfg"
    path.write_text(MODEL)
    asked = {"curves": {"wire": line(ALPHA, BETA)}, "groups": [{"ranks": 2, "node_of": 1}],
             "strategies": ["ring"], "model": str(path), "deferred": False}
    whole = bench({**asked, "set": ["comm.first_bucket_mb=25"]})
    small = bench({**asked, "set": ["comm.bucket_mb=1", "comm.first_bucket_mb=0.25"]})
    parted = bench({**asked, "deferred": True})
    coded = bench({**asked, "set": ["comm.compressor=fp16"]})
    for told in (whole, small, parted, coded):
        same((sum(row["bytes"] for row in told["buckets"]), "tensor" in told["buckets"][-1]),
             (sum(row["bytes"] for row in whole["buckets"]), False), "all bytes and the tail")
        same(len(told["rows"][0]["seconds"]), len(told["buckets"]), "a sum for each bucket")
    same([row.get("tensor") for row in whole["buckets"]], ["1.weight", None], "one bucket")
    names = [row.get("tensor") for row in small["buckets"]]
    same((names[0], names[-2]), ("3.bias", "1.weight"), "the first and the last of many")
    same([row["tensor"] for row in parted["buckets"] if row["deferred"]], ["3.weight"], "deferred")
    check(sum(coded["rows"][0]["seconds"]) < 0.6 * sum(parted["rows"][0]["seconds"]), f"{coded}")
    check("unknown" in bench({**asked, "set": ["comm.nonsense=1"]}, 78), "a key that is none")
    # Backward begins with layer 10: what it still has to do when each layer is ready.
    told = ledger(layers=LAYERS)
    found = ledgers.planned(told, [{"bytes": 1, "tensor": f"{name}.weight", "deferred": False}
                                   for name in ("10", "3", "1", "2")] +
                            [{"bytes": 256, "deferred": False}])
    same([round(12 * bucket.before, 9) for bucket in found], [10.0, 4.0, 0.0, 4.0, 0.0], "left")


def case_pairs_of_many_ranks_take_long_to_decode():
    folder = made_run("pairs")
    (folder / "config.yaml").write_text(MODEL + "comm: {compressor: topk}\n")
    plan = bench({"model": str(folder / "config.yaml"), "groups": []})["buckets"]
    buckets = [{"bytes": row["bytes"], "ready_ms": 36.0, "deferred": 0, "encode_ms": ms,
                "decode_ms": ms} for row, ms in zip(plan, (10.0,) * (len(plan) - 1) + (None,))]
    apart, together = [], []
    for found, part in ((apart, {}), (together, {"encode_ms": None, "decode_ms": None})):
        made_run("pairs", compressor="topk", buckets=[{**row, **part} for row in buckets])
        words = ("2,64", "--from", folder, "--strategy", "ring")
        found += [row["step_ms"] for row in json.loads(project(*words, "--json").out)]
        told = " ".join(project(*words).out.split())
        same("not measured encoding and decoding apart" in told, found is together, told)
    close(apart[0], together[0], 1e-9, "on as many ranks as the run had")
    # Of about 60 ms a half is encoding, and the other half grows from 2 to 64.
    check(500 < apart[1] - together[1] < 1000, f"{apart} {together}")


def case_a_run_is_projected_to_4096_ranks():
    rows = json.loads(project("2-4096", "--from", made_run(), "--json").out)
    same([row["ranks"] for row in rows], [2 ** k for k in range(1, 13)], "ranks")
    same(sorted(rows[0]), sorted(["ranks", "step_ms", "low_ms", "high_ms", "efficiency",
                                  "samples_per_second", "strategy", "samples_per_dollar"]), "keys")
    check(all(row["low_ms"] <= row["step_ms"] <= row["high_ms"] for row in rows), f"{rows}")
    check(all(a["step_ms"] < b["step_ms"] for a, b in zip(rows, rows[1:])), f"{rows}")
    # What is not asked for by name is at least as good as what is.
    ring = json.loads(project("2-4096", "--from", made_run(), "--strategy", "ring", "--json").out)
    check(all(a["step_ms"] <= b["step_ms"] * 1.001 for a, b in zip(rows, ring)), f"{rows}{ring}")
    close(rows[3]["efficiency"], 40.0 / rows[3]["step_ms"], 1e-6, "efficiency")
    close(rows[3]["samples_per_second"], 16 * 32e3 / rows[3]["step_ms"], 1e-6, "samples/s")
    # A link that is ten times as slow, strong scaling, eight ranks behind each link.
    slow = json.loads(project("16", "--from", made_run(), "--link", "100mbit", "--json").out)
    check(slow[0]["step_ms"] > 5 * rows[3]["step_ms"], f"{slow} {rows[3]}")
    # Bursts, cores that are shared, and what packets of Ethernet carry.
    link = ("16", "--from", made_run(), "--json", "--link", "1gbit,50us")
    plain, burst, crowd = (json.loads(project(*link, *words).out)[0]["step_ms"]
                           for words in ((), ("--burst", "1mb"), ("--crowd", 3)))
    # 1 MB, and what the wire saves while others add and messages begin.
    whole = 1e3 * MB / 125e6 * 1514 / 1448
    check(whole <= plain - burst < whole + 4, f"{plain} - {burst}")
    check(plain + 40 < crowd < plain + 80, f"{crowd} {plain}")
    (_, least), *_, (size, most) = links.curves_of(ledger(), links.link("10mbit,5us"), True,
                                                   False)[0]["wire"]
    close((most - least) / (size - 64), 1514 / 1448 / 1.25e6, 1e-9, "seconds a byte of a message")
    strong = json.loads(project("1,16", "--from", made_run(), "--mode", "strong", "--json").out)
    close(strong[0]["step_ms"], 76.0, 1e-6, "of one rank with all rows")
    text = project("2-64", "--from", made_run(), "--node-of", 8)
    check(max(map(len, text.out.splitlines())) <= 80 and "samples/$" in text.out
          and "taken as two copies" in text.out, f"{text}")


def case_what_tells_too_little_is_refused_with_what_is_missing():
    one = made_run("one", world_size=1, links=[],
                   ranks=run_json(made_run())["ranks"][:1])
    result = project("2-8", "--from", one, code=64)
    check("measured no network" in result.err and "--link" in result.err, f"{result}")
    result = project("2-8", "--from", one, "--link", "100gbit,5us")
    check("the run had one rank" in result.out, f"{result}")
    short = made_run("short", steps=20, links=[],
                     ranks=[{**rank, "host": "h0"} for rank in run_json(made_run())["ranks"]])
    result = project("2-8", "--from", short, "--link", "100gbit,5us", "--node-of", 2)
    check("(one rank a host, or fewer\n  than 40 steps)" in result.out, f"{result}")
    for words, part, code in (
            (("2-8", "--from", one, "--link", "100gbit"), "wants a latency", 64),
            (("2-8", "--from", one, "--link", "fast"), "expected a rate and a latency", 64),
            (("2-8", "--from", one, "--burst", "much"), "expected bytes, as 128kb", 64),
            (("8-2", "--from", one), "8 is above 2", 64),
            (("2-9999", "--from", one), "up to 4096", 64),
            (("x", "--from", one), "expected numbers of ranks", 64),
            (("2-8",), "--from RUN", 64),
            (("2-8", "--from", harness.scratch / "nowhere"), "no run.json", 66),
            (("2-8", "--from", made_run("bare", ranks=[])), "no ledger of steps", 65),
            (("2-8", "--from", made_run("none", buckets=[])), "no ledger of steps", 65),
            (("2-8", "--from", made_run("fp16", compressor="fp16")), "config.yaml", 66),
            (("2-8", "--from", made_run("z", compressor="fp16", strategy="zero1:over=ring")),
             "with zero1", 78),
            (("2-8", "--from", made_run("l", compressor="fp16", links=[]), "--link", "1gbit,5us"),
             "what compressor fp16 takes is not known", 78),
            (("2-8", "--from", made_run(), "--set", "comm.overlap=on"), "one value of", 64),
            (("2-8", "--from", made_run(), "--set", "comm.bucket_mb=1,2"), "one value of", 64),
            (("2-8", "--from", made_run(), "--out", "x"), "--project goes with", 64),
            (("2-8", "--from", made_run(), "--strategy", "ringg"), "ringg", 78)):
        result = project(*words, code=code)
        check(part in result.err and len(result.err.splitlines()) == 1, f"no {part!r} in\n{result}")


def case_a_real_run_has_measured_what_a_projection_needs():
    out = harness.scratch / "out"
    train_well(small_cfg(), "--steps", 40, "--out", out, ranks=2)
    names = {link["name"] for link in run_json(out)["links"]}
    check({"node", "add", "whole", "sum", "copy"} <= names, f"{names}")
    row, = json.loads(project("2", "--from", out, "--json").out)
    check(row["step_ms"] > 0 and row["strategy"], f"{row}")
    row, = json.loads(project("2", "--from", out, "--json", "--set", "comm.bucket_mb=0.1").out)
    check(row["step_ms"] > 0, f"{row}")
    out = harness.scratch / "coded"
    train_well(small_cfg(), "--steps", 40, "--out", out, "--set", "comm.strategy=ring", "--set",
               "comm.compressor=powersgd", ranks=2)
    near, far = (json.loads(project("8", "--from", out, "--json", "--strategy", "ring", "--link",
                                    link, "--node-of", 2).out)[0]["step_ms"]
                 for link in ("100gbit,5us", "10mbit,500us"))
    check(0 < near < far, f"{near} {far}")
    told = ledgers.read(out)
    check(0 < sum(told.coding) < sum(told.summing), f"{told.coding} {told.summing}")
    same(ledgers.read(harness.scratch / "out").coding, None, "without a compressor")


if __name__ == "__main__":
    harness.main(globals())
