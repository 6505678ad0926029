"""What a run has measured of its step, from its run.json and metrics.jsonl. Times in ms."""
import dataclasses
import json
import math

from sweep.failure import BAD_DATA, CONFIGURATION, NO_INPUT, Failure
from sweep.folder import read_json

LEAST_STEPS = 20  # of an empirical distribution


@dataclasses.dataclass
class Bucket:
    """before: share of backward that is left when its gradient is ready. deferred: it may be
    shared while the next step computes forward."""
    bytes: int
    before: float
    deferred: bool


@dataclasses.dataclass
class Ledger:
    """A mean steady step of a mean rank, and what is known of the machine.

    late     how much longer than that a rank computes in a step, rising; at least one sample
    summing  of each bucket: from when it is sent until it is summed
    coding   (encoding, decoding) of all buckets; None: not measured apart
    layers   (place, backward) of each layer, in the order of the model
    config   path of the run's resolved configuration
    """
    ranks: int
    node_of: int
    global_batch: int
    strategy: str
    compressor: str
    overlap: bool
    step: float
    begin: float
    forward: float
    backward: float
    optimizer: float
    end: float
    exposed: float
    buckets: list
    late: list
    links: dict
    copy_gbs: float
    single_rate: float
    larger_cost: float
    noise: float
    price: float
    summing: list
    coding: tuple
    layers: list
    config: str

    @property
    def rows(self):
        return self.global_batch / self.ranks

    @property
    def compute(self):
        return self.begin + self.forward + self.backward + self.optimizer + self.end


def number(value):
    return float(value) if isinstance(value, (int, float)) and not isinstance(
        value, bool) and math.isfinite(value) else None


def read(folder):
    """Of the folder of a run; Failure where it says too little."""
    path = folder / "run.json"
    if not path.exists():
        raise Failure(f"--from {folder}: no run.json: it is no run, or goes on", NO_INPUT)
    run = read_json(path)
    if run is None or run.get("schema") != "lockstep.run/1":
        raise Failure(f"{path} is damaged, or of another program", BAD_DATA)
    try:
        return of_run(run, steps_of(folder, run), str(folder / "config.yaml"))
    except (AttributeError, LookupError, TypeError, ValueError, ZeroDivisionError) as error:
        raise Failure(f"{path} has no ledger of steps ({type(error).__name__}: {error}): it needs "
                      "steady steps that share gradients", BAD_DATA) from error


def steps_of(folder, run):
    """Milliseconds of its steady steps, as far as metrics.jsonl has them."""
    steps = []
    try:
        for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if entry.get("type") == "step" and number(entry.get("step_ms")):
                steps.append(entry["step_ms"])
    except (OSError, ValueError):
        return []
    done = run["steps"]
    return sorted(steps[done // 4 if done < 40 else 10:])


def shape_of(steps):
    """Standard deviates: those of the run's own steps, or of a normal distribution."""
    if len(steps) >= LEAST_STEPS:
        mean = sum(steps) / len(steps)
        sd = math.sqrt(sum((s - mean) ** 2 for s in steps) / (len(steps) - 1))
        if sd > 0:
            return [(s - mean) / sd for s in steps]
    # Quantiles of a normal distribution, by bisection of math.erf.
    return [quantile_of_normal((i + 0.5) / 200) for i in range(200)]


def quantile_of_normal(share):
    low, high = -6.0, 6.0
    for _ in range(40):
        middle = (low + high) / 2
        if 0.5 * (1 + math.erf(middle / math.sqrt(2))) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def lateness(ranks, steps):
    """Of all ranks together: what makes each slower than the mean, and its own spread."""
    own = [sum(v for k, v in rank["step_ms"].items() if k not in ("exposed_comm", "checkpoint"))
           for rank in ranks]
    mean, shape = sum(own) / len(own), shape_of(steps)
    late = []
    for value, rank in zip(own, ranks):
        sd = number(rank.get("compute_sd_ms")) or 0.0
        late += [value - mean + sd * deviate for deviate in shape]
    return sorted(late)


def buckets_of(run, backward):
    rows = run.get("buckets") or []
    if not rows and run["world_size"] > 1:
        raise ValueError("no buckets")
    last = max((row["ready_ms"] for row in rows), default=0.0)
    return [Bucket(row["bytes"], min(1.0, (last - row["ready_ms"]) / backward) if backward else 0,
                   bool(row.get("deferred"))) for row in rows]


def coding_of(run):
    rows = [row for row in run.get("buckets") or [] if number(row.get("encode_ms")) is not None]
    found = tuple(sum(number(row.get(key)) or 0.0 for row in rows)
                  for key in ("encode_ms", "decode_ms"))
    return found if sum(found) > 0 else None


def place_of(layer):
    """A layer's name as its place in the order of layers: 9.body.0 is before 10."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in layer.split(".")]


def layers_of(run):
    return sorted((place_of(row["name"]), number(row.get("backward_ms")) or 0.0)
                  for row in run.get("layers") or [] if row["kind"] != "loss")


def planned(ledger, rows):
    """The buckets that ddp_bench --costs has cut: when they are ready follows from the times of
    the layers, since backward computes the last one first."""
    total = sum(ms for _, ms in ledger.layers)
    if total <= 0:
        raise Failure("the run has measured no layers: sizes of buckets cannot be changed",
                      CONFIGURATION)
    found = []
    for row in rows:
        place = place_of(row["tensor"].rpartition(".")[0]) if "tensor" in row else []
        left = sum(ms for layer, ms in ledger.layers if layer < place)
        found.append(Bucket(row["bytes"], left / total, row["deferred"]))
    return found


def links_of(run):
    """Name of a curve -> [(bytes, seconds)], rising."""
    links = {}
    for row in run.get("links") or []:
        links.setdefault(row["name"], []).append((row["bytes"], row["us"] / 1e6))
    return {name: sorted(points) for name, points in links.items()}


def of_run(run, steps, config=""):
    ranks = run["ranks"]
    part = {name: sum(rank["step_ms"][name] for rank in ranks) / len(ranks)
            for name in ranks[0]["step_ms"]}
    hosts = [rank["host"] for rank in ranks]
    stability, limits = run.get("stability") or {}, run.get("limits") or {}
    windows = len(stability.get("samples_per_second") or []) or 1
    if sum(part.values()) <= 0:
        raise ValueError("no steady step")
    return Ledger(
        ranks=run["world_size"], node_of=max(hosts.count(host) for host in hosts),
        global_batch=run["global_batch"], strategy=run["strategy"], compressor=run["compressor"],
        overlap="overlap off" not in (run.get("plan") or ""), step=sum(part.values()),
        begin=part["input"] + part["copy"], forward=part["forward"], backward=part["backward"],
        optimizer=part["optimizer"], end=part["other"], exposed=part["exposed_comm"],
        buckets=buckets_of(run, part["backward"]), late=lateness(ranks, steps),
        links=links_of(run), copy_gbs=number(limits.get("copy_gbs")) or 5.0,
        single_rate=number(run.get("single_rank_samples_per_second")),
        larger_cost=number(limits.get("larger_batch_cost")),
        noise=(number(stability.get("cv")) or 0.0) / math.sqrt(windows),
        price=number((run.get("cost") or {}).get("price_per_hour")),
        summing=[(number(row.get("done_ms")) or 0.0) - (number(row.get("sent_ms")) or 0.0)
                 for row in run.get("buckets") or []],
        coding=coding_of(run), layers=layers_of(run), config=config)
