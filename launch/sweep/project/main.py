"""ddp_sweep --project: from the ranks that are asked for to a table, or JSON."""
import dataclasses
import json
import math
import textwrap

from sweep.failure import CONFIGURATION, Failure, say
from sweep.project import ledger as ledgers
from sweep.project import links, replay
from sweep.project.places import ranks_of

MODEL_ERROR = 0.1  # of sums: see docs/projection.md
ROWS = (("ranks", 5), ("step", 8), ("from", 8), ("to", 8), ("eff.", 7), ("samples/s", 11))
COLUMNS = 80


def scale_of(ledger, rows):
    """Of forward and backward, for so many rows a rank. The run has measured what four times the
    rows take; of less it is a line."""
    times = rows / ledger.rows
    if ledger.larger_cost is None:
        return times
    slope = min(1.0, max(0.0, (ledger.larger_cost - 1) / 3))
    return 1 - slope + slope * times


def coded(buckets):
    """Bytes of each that a compressor encodes; the tail, which is the last, is sent as it is."""
    return [bucket.bytes for bucket in buckets[:-1]] + [0]


def work_of(told):
    """ranks -> how often a rank encodes, and decodes, all of a bucket, where there is a model."""
    return {row["ranks"]: (row["encodes"], row["decodes"]) for row in told["rows"]
            if "encodes" in row}


class Projection:
    def __init__(self, args, tools, ledger):
        self.args, self.tools, self.ledger = args, tools, ledger
        self.node_of = args.node_of or ledger.node_of
        self.ranks = ranks_of(args.project)
        self.notes, self.told = [], None
        if not ledger.buckets:
            raise Failure("the run shared no gradients: it has no buckets", CONFIGURATION)
        self.compressed = ledger.compressor != "none"
        if self.compressed and ledger.strategy.startswith("zero1"):
            raise Failure(f"the run had compressor {ledger.compressor} with zero1: its sums have "
                          "no prediction; take a run with another comm.strategy", CONFIGURATION)
        self.factor, self.code, self.table, self.work = 1.0, 0.0, {}, {}

    def local(self, ranks):
        return min(ranks, self.node_of)

    def place(self, ranks):
        return self.place_of(self.told, ranks > self.node_of, self.args.crowd)

    def prepare(self):
        """Costs of all sums, and how far those of the run itself were right."""
        ledger, asked = self.ledger, self.args.link
        self.calibrate()
        groups = [(ranks, self.local(ranks)) for ranks in self.ranks if ranks > 1]
        curves, flags, self.notes = links.curves_of(
            ledger, asked, any(ranks > self.node_of for ranks in self.ranks),
            any(local > 1 for _, local in groups))
        curves = links.crowded(curves, self.args.crowd)
        self.table, self.told = links.sums(self.tools.bench, curves, flags, groups,
                                           self.sums_asked(self.args.settings),
                                           self.args.strategy, self.args.burst)
        if self.args.settings:
            self.ledger = dataclasses.replace(
                ledger, buckets=ledgers.planned(ledger, self.told["buckets"]))
        self.work |= work_of(self.told)
        if self.code > 0 and ledger.coding is None:
            self.notes.append("the run has not measured encoding and decoding apart: coding is "
                              "taken to last as long on any number of ranks")
        if ledger.ranks == 1:
            self.notes.append("the run had one rank: how ranks differ, and what sums cost beside "
                              "computing, is not measured")

    def sums_asked(self, settings):
        """What costs are asked for: of the run's buckets, or of those with other settings."""
        buckets = self.ledger.buckets
        if not self.compressed and not settings:
            return {"bytes": [bucket.bytes for bucket in buckets]}
        return {"model": self.ledger.config, "deferred": any(b.deferred for b in buckets),
                "set": [f"{key}={values[0]}" for key, values in settings]}

    def calibrate(self):
        """How far the costs of the run's own sums were right, and what its compressor takes."""
        ledger = self.ledger
        own = (ledger.ranks, ledger.node_of)
        measured = ("wire" if own[0] > own[1] else "node") in ledger.links and ledger.ranks > 1
        sums = None
        if measured:
            curves, flags, _ = links.curves_of(ledger, None, own[0] > own[1], own[1] > 1)
            table, told = links.sums(self.tools.bench, curves, flags, [own], self.sums_asked(()),
                                     [ledger.strategy], self.args.burst)
            self.compare_plan(told)
            self.work = work_of(told)
            sums = next(iter(table.get(own[0], {}).values()), None)
        if sums is None or None in sums:
            if self.compressed:
                raise Failure(f"what compressor {ledger.compressor} takes is not known: that needs "
                              "a run on two ranks or more, of 40 steps or more, whose strategy has "
                              "a prediction", CONFIGURATION)
            return
        place = self.place_of(told, own[0] > own[1], 1)
        if self.compressed:
            self.code = replay.calibrate_codes(ledger, sums, coded(ledger.buckets), place)
        if self.code == 0.0:
            self.factor = replay.calibrate(ledger, sums, place)

    def place_of(self, told, over_wire, crowd):
        """told: what links.sums has told, for the wire's rate."""
        return replay.Place(1e-6 * told["beta_ns"] * self.args.burst if over_wire else 0.0, crowd)

    def compare_plan(self, told):
        """Of a compressor costs are those of the buckets that this build makes."""
        sizes = [row["bytes"] for row in told.get("buckets", ())]
        if self.compressed and sizes != [bucket.bytes for bucket in self.ledger.buckets]:
            raise Failure(f"{self.ledger.config} does not give the buckets of run.json: the run is "
                          "of another version", CONFIGURATION)

    def factor_at(self, ranks):
        """That of the run holds where sums go over the same links as in the run."""
        over_wire = ranks > self.node_of
        if self.args.link is not None and over_wire:
            return 1.0
        return self.factor if over_wire == (self.ledger.ranks > self.ledger.node_of) else 1.0

    def code_at(self, ranks):
        """ms for a byte that a compressor takes there."""
        return self.code * (replay.growth_of_codes(self.ledger.coding,
                                                   self.work[self.ledger.ranks], self.work[ranks])
                            if self.code > 0 else 1.0)

    def best(self, ranks, scale):
        """(strategy, ms of each bucket's sum) of the one whose step is shortest."""
        found = None
        for name, messages in self.table.get(ranks, {}).items():
            if None in messages or name.startswith("hier") and self.local(ranks) in (1, ranks):
                continue  # hier is then the strategy of its only level
            sums = replay.with_codes([s.scaled(self.factor_at(ranks)) for s in messages],
                                     self.code_at(ranks), coded(self.ledger.buckets))
            step = replay.mean(replay.simulate(self.ledger, sums, scale, replay.Never, 8,
                                               self.place(ranks)))
            key = (step, sum(s.total for s in sums))
            if found is None or key < found[0]:
                found = (key, name, sums)
        if found is None:
            raise Failure(f"no strategy has a prediction for {ranks} ranks, {self.local(ranks)} a "
                          "host", CONFIGURATION)
        return found[1:]

    def alone(self, scale):
        """ms of a step of one rank; scale: of its forward and backward, for other rows."""
        ledger = self.ledger
        fixed = ledger.begin + ledger.end + ledger.optimizer
        base = 1e3 * ledger.rows / ledger.single_rate if ledger.single_rate else ledger.compute
        return max(base - fixed, 0.0) * scale + min(fixed, base)

    def rows(self):
        """Of all numbers of ranks that are asked for."""
        self.prepare()
        return [self.row(ranks) for ranks in self.ranks]

    def row(self, ranks):
        ledger, strong = self.ledger, self.args.mode == "strong"
        rows = ledger.global_batch / ranks if strong else ledger.rows
        scale = scale_of(ledger, rows) if strong else 1.0
        batch = ledger.global_batch if strong else ledger.rows * ranks
        alone = self.alone(scale_of(ledger, ledger.global_batch) if strong else 1.0)
        if ranks == 1:
            step, low, high, name = alone, alone, alone, "none"
        else:
            name, sums = self.best(ranks, scale)
            step, low, high = self.steps(ranks, scale, sums)
        noise = 2 * ledger.noise
        rate = batch / step * 1e3
        efficiency = alone / (ranks * step) if strong else alone / step
        found = {"ranks": ranks, "step_ms": step, "low_ms": low * (1 - min(noise, 0.9)),
                 "high_ms": high * (1 + noise), "efficiency": efficiency,
                 "samples_per_second": rate, "strategy": name}
        if ledger.price is not None:
            hosts = math.ceil(ranks / self.node_of) / math.ceil(ledger.ranks / ledger.node_of)
            found["samples_per_dollar"] = rate * 3600 / (ledger.price * hosts)
        return found

    def steps(self, ranks, scale, sums):
        """(mean, low, high): with the sums as predicted, and as wrong as they may be."""
        factor = self.factor_at(ranks)
        wrong = 1 + MODEL_ERROR + 0.5 * abs(math.log(factor))
        return tuple(replay.mean(replay.simulate(
            self.ledger, [s.scaled(times) for s in sums], scale,
            replay.Slowest(self.ledger.late, ranks), place=self.place(ranks)))
            for times in (1.0, 1 / wrong, wrong))


def tell(text):
    for line in textwrap.wrap(text, COLUMNS, subsequent_indent="  "):
        say(line)


def show(projection, rows):
    ledger, args = projection.ledger, projection.args
    dollars = rows and "samples_per_dollar" in rows[0]
    tell(f"{args.mode} scaling of {args.source}: {ledger.rows:g} rows a rank, "
         f"{projection.node_of} rank{'s' if projection.node_of > 1 else ''} a host; ms")
    if "wire" in ledger.links or args.link:
        told = projection.told
        tell(f"network: alpha {told['alpha_us']:.1f} us, beta {told['beta_ns']:.3f} ns/B; "
             f"adding: gamma {told['gamma_ns']:.3f} ns/B")
    heads = [*ROWS, ("samples/$", 9)] if dollars else ROWS
    say(" ".join(name.rjust(width) for name, width in heads) + " strategy")
    for row in rows:
        cells = [str(row["ranks"]), *(f"{row[k]:.4g}" for k in ("step_ms", "low_ms", "high_ms")),
                 f"{100 * row['efficiency']:.1f} %", f"{row['samples_per_second']:,.0f}"]
        if dollars:
            cells.append(f"{row['samples_per_dollar']:.3g}")
        text = " ".join(cell.rjust(width) for cell, (_, width) in zip(cells, heads))
        say(f"{text} {row['strategy']}"[:COLUMNS])
    for note in projection.notes:
        tell(f"note: {note}")


def project(args, tools):
    """The exit code."""
    projection = Projection(args, tools, ledgers.read(args.source))
    rows = projection.rows()
    if args.json:
        say(json.dumps(rows, indent=1))
    else:
        show(projection, rows)
    return 0
