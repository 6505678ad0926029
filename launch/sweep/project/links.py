"""Links: what the run has measured, what --link says, and what sums cost over them. The formulas
are those of collectives/strategies, which ddp_bench --costs evaluates."""
import dataclasses
import json
import re
import subprocess

from sweep.failure import INTERNAL, NOT_AVAILABLE, USAGE, Failure
from sweep.project.replay import Sum

UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "tbit": 1e12}
TIMES = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3}
# Bytes of a packet of Ethernet, and those of a message in it: less 14, 20 (IP) and 32 (TCP).
PACKET, PAYLOAD = 1514, 1448
BYTES = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}  # as tc has them
BURST = re.compile(r"(\d+(?:\.\d+)?)(b|kb|mb|gb)")
LINK = re.compile(r"(\d+(?:\.\d+)?)(kbit|mbit|gbit|tbit)(?:,(\d+(?:\.\d+)?)(ns|us|ms))?")
SIZES = tuple(64 * 4 ** i for i in range(11))  # of a curve that is a line
LEAST_ARRAY = 1 << 16  # bytes; shorter ones, in a cache, do not tell of long ones
COSTS_S = 60


@dataclasses.dataclass
class Link:
    """bytes/s of packets each way of a node, and seconds of a message; None: the run's."""
    rate: float
    latency: float = None


def link(text):
    """--link 100gbit,5us"""
    found = LINK.fullmatch(text.strip().lower())
    if found is None or float(found[1]) <= 0:
        raise Failure(f"--link {text}: expected a rate and a latency, as 100gbit,5us or 25gbit",
                      USAGE)
    latency = float(found[3]) * TIMES[found[4]] if found[3] else None
    return Link(float(found[1]) * UNITS[found[2]] / 8, latency)


def burst(text):
    """--burst 128kb"""
    found = BURST.fullmatch(text.strip().lower())
    if found is None:
        raise Failure(f"--burst {text}: expected bytes, as 128kb", USAGE)
    return float(found[1]) * BYTES[found[2]]


def line(alpha, beta):
    return [(size, alpha + beta * size) for size in SIZES]


def alpha_of(points):
    """Seconds of a short message: the least, since a disturbed one takes longer."""
    return min(seconds for _, seconds in points)


def curves_of(ledger, asked, several_nodes, several_local):
    """(name -> points, notes for the user). Where the run has not measured what is needed, memory
    stands for it; there is nothing that could stand for a network."""
    curves, notes = dict(ledger.links), []
    flags = curves.pop("flags", [(0, 1e-6)])[0][1]
    move = 2 / (ledger.copy_gbs * 1e9)  # seconds a byte: read once, written once
    for name, share in (("copy", 1.0), ("sum", 1.5)):
        if name not in curves or curves[name][-1][0] < LEAST_ARRAY:
            curves[name] = line(0.0, share * move)
    if several_local and "node" not in curves:
        notes.append("the run has not measured messages on a host (one rank a host, or fewer than "
                     "40 steps): they are taken as two copies in memory")
        curves["node"], curves["peer"] = line(1e-6, 2 * move), line(0.0, 1.5 * move)
        curves["whole"] = curves["node"]
    if asked is not None:
        latency = asked.latency
        if latency is None:
            if "wire" not in curves:
                raise Failure("--link wants a latency, too, as 100gbit,5us: the run has measured "
                              "no network", USAGE)
            latency = alpha_of(curves["wire"])
        curves["wire"] = line(latency, PACKET / PAYLOAD / asked.rate)
    elif several_nodes and "wire" not in curves:
        raise Failure("the run has measured no network (one host, or fewer than 40 steps): give "
                      "--link RATE,LATENCY, as 100gbit,5us, or --node-of N with all ranks on one "
                      "host", USAGE)
    return curves, flags, notes


def crowded(curves, crowd):
    """Of cores that so many ranks share: what these compute."""
    return {name: [(size, seconds * (crowd if name in ("sum", "copy", "peer") else 1))
                   for size, seconds in points] for name, points in curves.items()}


def sums(bench, curves, flags, groups, asked, strategies, burst_bytes):
    """ranks -> strategy -> [Sum, None where there is no prediction]; and the answer whole. What the
    wire takes is only told apart where that matters, with a burst."""
    table, told = costs(bench, curves, flags, groups, asked, strategies)
    apart = burst_bytes > 0 and "wire" in curves
    rest = {} if not apart else costs(
        bench, {**curves, "wire": line(alpha_of(curves["wire"]), 0.0)}, flags, groups, asked,
        strategies)[0]
    for ranks, row in table.items():
        for name, seconds in row.items():
            others = rest[ranks][name] if apart else [0.0] * len(seconds)
            row[name] = [None if s is None else
                         Sum(wire=1e3 * max(s - r, 0.0), rest=1e3 * min(s, r))
                         for s, r in zip(seconds, others)]
    return table, told


def costs(bench, curves, flags, groups, sums, strategies=None):
    """ranks -> strategy -> [seconds of each sum]; and the answer whole. sums: `bytes`, or `model`
    with what belongs to it (launch/bench/costs.h)."""
    asked = {"curves": {name: {"bytes": [b for b, _ in points], "seconds": [s for _, s in points]}
                        for name, points in curves.items()},
             "flags_s": flags, **sums,
             "groups": [{"ranks": ranks, "node_of": local} for ranks, local in groups]}
    if strategies is not None:
        asked["strategies"] = strategies
    try:
        done = subprocess.run([bench, "--costs", "-"], input=json.dumps(asked), text=True,
                              capture_output=True, errors="replace", timeout=COSTS_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"{bench} does not run: {error}", NOT_AVAILABLE) from error
    if done.returncode != 0:
        lines = [text for text in done.stderr.splitlines() if text.strip()]
        raise Failure((lines or [f"{bench} --costs failed"])[-1].removeprefix("lockstep: error: "),
                      done.returncode if done.returncode > 0 else INTERNAL)
    told = json.loads(done.stdout)
    table = {}
    for row in told["rows"]:
        table.setdefault(row["ranks"], {})[row["strategy"]] = row["seconds"]
    return table, told
