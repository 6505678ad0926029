"""Figures: of a run, of the repeats of a point, and of a curve.

A curve is what a sweep measures with everything alike but the number of ranks. On one of strong
scaling the global batch is alike, on one of weak scaling the rows of a rank.
"""
import json
import statistics

# The share of an added rank's ideal gain that it must bring for scaling to count as worth it.
KNEE = 0.5
OWN_TIME = ("input", "copy", "forward", "backward", "optimizer")  # of a rank, whoever else computes
FACTORS = ("contention", "input", "exposed_comm", "waiting", "other")


def number(value):
    """It, where it is a number, else None."""
    good = isinstance(value, (int, float)) and not isinstance(value, bool)
    return value if good and value == value and abs(value) != float("inf") else None


def dig(value, *keys):
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def read_run(folder):
    """run.json, or None."""
    try:
        value = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def spread(ranks):
    """(slowest - fastest) / mean of the time in which ranks do not wait for each other."""
    own = [sum(number(dig(rank, "step_ms", part)) or 0.0 for part in OWN_TIME) for rank in ranks]
    mean = statistics.fmean(own) if own else 0.0
    return (max(own) - min(own)) / mean if mean > 0.0 else None


def exposed_share(ranks):
    """The share of a step in which ranks wait for gradients, and do nothing else."""
    steps = [dig(rank, "step_ms") or {} for rank in ranks]
    whole = sum(number(part) or 0.0 for step in steps for part in step.values())
    exposed = sum(number(step.get("exposed_comm")) or 0.0 for step in steps)
    return exposed / whole if whole > 0.0 else None


def mean_step(ranks):
    """The parts of a step in ms, mean over ranks."""
    steps = [step for step in (dig(rank, "step_ms") for rank in ranks) if step]
    return {key: statistics.fmean(number(step.get(key)) or 0.0 for step in steps)
            for key in (steps[0] if steps else ())}


def figures(run):
    """What a sweep takes from run.json."""
    ranks = [rank for rank in run.get("ranks") or [] if isinstance(rank, dict)]
    keys = ("samples_per_second", "single_rank_samples_per_second", "scaling_efficiency",
            "samples_per_dollar", "wire_bytes_per_step", "time_to_first_step_s")
    found = {key: number(run.get(key)) for key in keys}
    rates = [rate for rate in (number(rank.get("samples_per_second")) for rank in ranks) if rate]
    found.update({
        "used_strategy": run.get("strategy"), "world_size": number(run.get("world_size")),
        "steps": number(run.get("steps")), "exit": run.get("exit"),
        "exposed_share": exposed_share(ranks), "rank_spread": spread(ranks),
        "rank_samples_per_second": [min(rates), max(rates)] if rates else None,
        "threads": max((rank.get("threads") or 1 for rank in ranks), default=None),
        "hosts": sorted({str(rank.get("host")) for rank in ranks}),
        "price_per_hour": number(dig(run, "cost", "price_per_hour")),
        "test_accuracy": number(dig(run, "final", "test_accuracy")),
        "seconds_to_target": number(dig(run, "cost", "seconds_to_target")),
        "bound": dig(run, "verdict_detail", "bound"), "verdict": run.get("verdict"),
        "factors": {name: number(dig(run, "efficiency", name)) for name in FACTORS},
        "step_ms": mean_step(ranks),
        "queued": median(number(dig(rank, "utilisation", "queued")) for rank in ranks),
    })
    return found


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


# ---- repeats ----

MEDIANS = ("samples_per_second", "scaling_efficiency", "exposed_share", "rank_spread",
           "samples_per_dollar", "wire_bytes_per_step", "test_accuracy", "seconds_to_target")


def merge(points):
    """The repeats of one place on a curve as one: medians, and how far rates are apart."""
    done = [p for p in points if p["status"] == "finished"]
    first = (done or points)[0]
    rates = [p["samples_per_second"] for p in done if p["samples_per_second"] is not None]
    failed = [p for p in points if p["status"] == "failed"]
    merged = {key: first[key] for key in ("ranks", "mode", "strategy", "compressor", "batch",
                                          "global_batch", "set")}
    merged.update({key: median(p.get(key) for p in done) for key in MEDIANS})
    merged.update({
        "runs": len(points), "finished": len(done), "failed": len(failed),
        "lowest": min(rates, default=None), "highest": max(rates, default=None),
        "noise": (max(rates) - min(rates)) / median(rates) if len(rates) > 1 else None,
        "error": failed[0]["error"] if failed else None,
        "exit_code": failed[0]["exit_code"] if failed else None,
        "used_strategy": first.get("used_strategy"), "bound": first.get("bound"),
        "threads": first.get("threads"), "hosts": first.get("hosts") or [],
        "price_per_hour": first.get("price_per_hour"),
        "factors": {name: median(dig(p, "factors", name) for p in done) for name in FACTORS},
        "step_ms": {key: median(dig(p, "step_ms", key) for p in done)
                    for key in first.get("step_ms") or ()},
        "queued": median(p.get("queued") for p in done),
    })
    return merged


# ---- curves ----


def same_curve(point):
    return (point["mode"], point["strategy"], point["compressor"], point["batch"],
            json.dumps(point["set"]))


def relate(curve):
    """Adds to each place what it is beside that of one rank: speed-up, efficiency, and what a
    sample costs; null where one rank was not measured. And the gain of the ranks added since the
    place before, as a share of what is ideal."""
    rates = {place["ranks"]: place["samples_per_second"] for place in curve}
    one, before = rates.get(1), None
    for place in curve:
        rate, ranks = place["samples_per_second"], place["ranks"]
        known = one is not None and rate is not None
        place["speedup"] = rate / one if known else None
        place["efficiency"] = rate / (ranks * one) if known else None
        place["cost_factor"] = ranks * one / rate if known and rate > 0.0 else None
        place["gain"] = None
        if rate is not None:
            if before is not None:
                ideal = (ranks - before[0]) * before[1] / before[0]
                place["gain"] = (rate - before[1]) / ideal if ideal > 0.0 else None
            before = (ranks, rate)
    return curve


def knee_of(curve):
    """The last number of ranks up to which each step of the curve brought at least KNEE of the
    ideal gain; `reached`: the next step did not. None: nothing to say."""
    places = [place for place in curve if place["samples_per_second"] is not None]
    if len(places) < 2:
        return None
    for before, place in zip(places, places[1:]):
        if place["gain"] is not None and place["gain"] < KNEE:
            return {"ranks": before["ranks"], "reached": True, "next": place["ranks"],
                    "gain": place["gain"]}
    return {"ranks": places[-1]["ranks"], "reached": False, "next": None,
            "gain": places[-1]["gain"]}


def curves_of(points):
    """[{mode, strategy, ..., places, knee}] of sweep.json's points."""
    grouped = {}
    for point in points:
        grouped.setdefault(same_curve(point), {}).setdefault(point["ranks"], []).append(point)
    found = []
    for places in grouped.values():
        curve = relate([merge(places[ranks]) for ranks in sorted(places)])
        found.append({key: curve[0][key] for key in ("mode", "strategy", "compressor", "batch",
                                                     "set")}
                     | {"places": curve, "knee": knee_of(curve)})
    return found


def add_strong_efficiency(points, curves):
    """strong_efficiency of each point: its own rate / (ranks x the median rate of one rank at the
    same global batch)."""
    one = {(c["strategy"], c["compressor"], c["batch"], json.dumps(c["set"])):
           c["places"][0]["samples_per_second"] for c in curves if c["places"][0]["ranks"] == 1}
    for point in points:
        base = one.get((point["strategy"], point["compressor"], point["global_batch"],
                        json.dumps(point["set"])))
        rate = point["samples_per_second"]
        point["strong_efficiency"] = (rate / (point["ranks"] * base)
                                      if base and rate is not None else None)
