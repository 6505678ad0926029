"""Whole runs that choose algorithms of a GPU by measuring: once, alike on all ranks, and for later
runs. The algorithms are those of tests/cuda_on_host, of which some give other bits, and which take
as long as DP_HOST_FASTEST says.
"""
import json
import re

import harness
from gpus import flags, gpus, train_with_one_that_differs
from harness import check, same, small_cfg, train_well, weights

STEPS = ("--steps", 6)


def cached():
    return harness.scratch / "cache/lockstep/choices.json"


def measured(result):
    """How many algorithms were measured and known; None: none was chosen."""
    found = re.search(r"^algorithms of products and convolutions: (\d+) measured now, (\d+) known",
                      result.out, re.M)
    return found and tuple(map(int, found.groups()))


def one(name, *more, ranks=2, fastest="first"):
    """A run into a folder of that name; what it printed, and its bits."""
    out = harness.scratch / name
    result = train_well(small_cfg(), *flags("ipc", *STEPS, *more), "--out", out, ranks=ranks,
                        env=gpus(1, DP_HOST_FASTEST=fastest))
    return result, weights(out)


def change(old, new):
    """Replaces the values of choices in the cache."""
    text = cached().read_text()
    check(old in text, f"{old} is not in {text}")
    cached().write_text(text.replace(old, new))


def case_a_second_run_measures_nothing_and_has_the_same_bits():
    plain, plain_bits = one("plain", "--set", "device.tune=off")
    same(measured(plain), None, "measured without it")
    check(not cached().exists(), "it was kept")
    first, bits = one("first", fastest="second")
    count, known = measured(first)
    check(count > 5 and known == 0, first)
    check(bits != plain_bits, "the algorithm that is fastest gives the bits of the first proposal")
    kept = cached().read_text()
    same(kept.count('"ms":'), count, "times that are kept")
    for other in "config.yaml", "checkpoints/latest/state.json":
        check('"ms"' not in (harness.scratch / "first" / other).read_text(), f"times in {other}")
    second, again = one("second", fastest="first")
    same((measured(second), again == bits), ((0, count), True), "what is known, and the bits")
    same(cached().read_text(), kept, "the cache")
    alone, _ = one("alone", ranks=0)
    check(measured(alone)[0] > 0, f"other shapes are measured:\n{alone}")
    more = json.loads(cached().read_text())["machines"]
    for machine, choices in json.loads(kept)["machines"].items():
        same({key: more[machine][key] for key in choices}, choices, "what was kept before")


def case_without_a_place_to_keep_them_the_first_proposals_are_taken():
    _, plain = one("plain", "--set", "device.tune=off")
    result, bits = one("off", "--set", "comm.plan_cache=off", fastest="second")
    same((measured(result), bits == plain), (None, True), f"without a cache:\n{result}\n")
    result, bits = one("on", "--set", "comm.plan_cache=off", "--set", "device.tune=on",
                       fastest="second")
    check(measured(result)[0] > 5 and bits != plain, result)
    check(not cached().exists(), "it was kept")
    (harness.scratch / "cache").write_text("no folder")
    result, bits = one("broken", fastest="second")
    same(result.warnings + result.errors, [], f"complaints of\n{result}\n")
    check(measured(result)[0] > 5 and bits != plain, result)


def case_ranks_that_measure_differently_compute_alike():
    bits = {}
    for fastest in "first", "second":
        bits[fastest] = one(fastest, "--set", "comm.plan_cache=off", "--set", "device.tune=on",
                            fastest=fastest)[1]
    check(bits["first"] != bits["second"], "both algorithms give the same bits")
    for rank, expected in ((0, "second"), (1, "first")):
        out = harness.scratch / f"rank-{rank}"
        cfg, env = small_cfg(), gpus(1)
        result = train_with_one_that_differs(rank, {"DP_HOST_FASTEST": "second"}, cfg,
                                             *flags("ipc"), *STEPS, "--out", out, ranks=2, env=env)
        same(result.code, 0, f"exit code of\n{result}\n")
        same(weights(out) == bits[expected], True, f"bits where rank {rank} differs")
        cached().unlink()


def case_what_is_damaged_is_reported_and_replaced():
    _, bits = one("first", fastest="second")
    kept = json.loads(cached().read_text())
    text = cached().read_text()
    for number, damage in enumerate((text[:60], "", '{"schema": "lockstep.choices/1"}',
                                     text.replace('":"', '":["', 1).replace('","', '"],"', 1))):
        cached().write_text(damage)
        result, again = one(f"damaged-{number}", fastest="second")
        same(len(result.warnings), 1, f"warnings of\n{result}\n")
        check("choices.json" in result.warnings[0], result)
        check(measured(result)[0] > 0 and again == bits, result)
        same(json.loads(cached().read_text()), kept, "the cache")


def case_choices_of_another_machine_or_build_do_not_count():
    one("first", fastest="second")
    change("the host 0.0", "another 9.0")
    result, _ = one("machine", fastest="second")
    check(measured(result)[0] > 5 and not result.warnings, result)
    same([name.split(",")[0] for name in json.loads(cached().read_text())["machines"]],
         ["another 9.0", "the host 0.0"], "machines in the cache")
    change('"build":"', '"build":"9')
    result, _ = one("build", fastest="second")
    check(measured(result)[0] > 5 and not result.warnings, result)
    same([name.split(",")[0] for name in json.loads(cached().read_text())["machines"]],
         ["the host 0.0"], "machines in the cache")


def case_a_choice_that_does_not_run_is_measured_anew():
    first, bits = one("first", fastest="second")
    kept = cached().read_text()
    product = "0200000000000000"
    for number, planted in enumerate(("0400000000000000", "0900000000000000", "nonsense")):
        change(product, planted)
        result, again = one(f"product-{number}", "--log-level", "debug", fastest="second")
        check(0 < measured(result)[0] < sum(measured(first)) and again == bits, result)
        check("what was chosen before does not run here" in result.err, result)
        same(cached().read_text(), kept, "the cache")
    engine = re.search(r'"convolution [^"]*":{"how":"([^"]+)"', kept)[1]
    for number, planted in enumerate(("0 0 0 99 7", f"{engine}1", "0 0")):
        change(f'"{engine}"', f'"{planted}"')
        result, again = one(f"engine-{number}", fastest="second")
        check(0 < measured(result)[0] < sum(measured(first)) and again == bits, result)
        same(cached().read_text(), kept, "the cache")


def case_a_run_that_goes_on_keeps_its_choices():
    for tune, fastest in (("auto", "second"), ("off", "first")):
        whole, torn = f"whole-{tune}", f"torn-{tune}"
        more = ("--set", f"device.tune={tune}")
        _, bits = one(whole, *more, fastest=fastest)
        _, part = one(torn, "--steps", 3, *more, fastest=fastest)
        if cached().exists():
            cached().unlink()
        other = "first" if fastest == "second" else "second"
        result, again = one(torn, "--resume", fastest=other)
        check(again == bits, f"other bits:\n{result}")
        state = [(harness.scratch / name / "checkpoints/latest/state.json").read_bytes()
                 for name in (whole, torn)]
        check(state[0] == state[1], "the end of the run that went on is another one")
        same(measured(result) and measured(result)[0], 0 if tune == "auto" else None, "measured")
        check("bits will differ" not in result.out, result)
    result, _ = one("whole-off", "--steps", 8, "--resume", "--set", "device.tune=on")
    check("device.tune false -> true" in result.out, result)


def case_a_plan_pins_its_choices():
    _, bits = one("first", fastest="second")
    plan = harness.scratch / "first/config.yaml"
    cached().unlink()
    result, again = one("again", "--plan", plan)
    same((measured(result)[0], again == bits), (0, True), "measured, and the bits")
    _, plain = one("plain", "--set", "device.tune=off")
    result, again = one("pinned", "--plan", harness.scratch / "plain/config.yaml",
                        fastest="second")
    same((measured(result), again == plain), (None, True), "with the plan of a run without")
    text = plan.read_text()
    plan.write_text(text.replace('# choices: {"', '# choices: {'))
    result = harness.train(small_cfg(), *flags("ipc"), "--plan", plan, ranks=2, env=gpus(1))
    same((result.code, len(result.errors)), (65, 1), f"exit code and errors of\n{result}\n")


def case_lanes_take_measured_algorithms_on_request():
    lanes = ("--set", "train.lanes=4")
    result, plain = one("auto", *lanes, fastest="second")
    same((measured(result), cached().exists()), (None, False), f"of lanes\n{result}\n")
    bits = []
    for ranks, fastest in ((2, "second"), (4, "first"), (0, "first")):
        result, found = one(f"on-{ranks}", *lanes, "--set", "device.tune=on", ranks=ranks,
                            fastest=fastest)
        bits.append(found)
    same(measured(result)[0], 0, f"what one rank measures, for lanes of the same rows\n{result}\n")
    check(bits[0] == bits[1] == bits[2] != plain, "bits of lanes on 2, 4 and 1 ranks")


if __name__ == "__main__":
    harness.main(globals())
