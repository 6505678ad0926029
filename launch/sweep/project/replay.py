"""The steps of a run, event by event: each rank computes, its buckets become ready, one lane of
communication sums them in order, updates wait for sums. A step's bucket starts when the slowest
rank has it, so the slowest rank of each step is drawn, and the others need not be. Ranks that take
turns on a core wait for each other at every sum, so each of them takes as long as all together.

Sources: Zhang et al., "Poseidon", USENIX ATC 2017, section 3 (buckets wait for backward and the
wire); Dean and Barroso, "The tail at scale", CACM 56 (2013) (the slowest of many); Pickands,
"Statistical inference using extreme order statistics", Annals of Statistics 3 (1975) (beyond the
slowest that was seen, an exponential tail).
"""
import dataclasses
import math
import random

WARM, STEPS, SEED = 4, 200, 1
LEAST_CODE, MOST_CODE = 1e-9, 1e-4  # ms/byte: 1 TB/s, 10 MB/s
TAIL = 0.1  # share of the samples whose mean excess is the tail's
PAUSES = 2  # of the wire in a compressed sum: before the swap, and before the gathering


@dataclasses.dataclass
class Sum:
    """Milliseconds of a bucket's sum: the wire at its rate, what coding takes, and the rest:
    latencies, adding. They come one after the other."""
    wire: float
    code: float = 0.0
    rest: float = 0.0

    @property
    def total(self):
        return self.wire + self.code + self.rest

    def scaled(self, times):
        return Sum(self.wire * times, self.code * times, self.rest * times)


@dataclasses.dataclass
class Place:
    """Where it runs. burst: milliseconds at the wire's rate that it lets pass at once, after a
    pause that long (a token bucket). crowd: ranks in place of each that a core had in the run."""
    burst: float = 0.0
    crowd: int = 1


class Lane:
    """Sums, one after the other. The wire saves what it may send at once while it is idle: before
    a sum and in its pauses."""

    def __init__(self, place):
        self.place, self.free, self.saved = place, 0.0, place.burst

    def add(self, ready, task):
        """When it is done."""
        burst, start, code = self.place.burst, max(self.free, ready), task.code * self.place.crowd
        saved = min(burst, self.saved + start - self.free)
        saved += task.rest + min(code, PAUSES * burst) if burst > 0 else 0.0
        spent = min(task.wire, saved)
        self.saved = min(burst, saved - spent)
        self.free = start + task.wire - spent + code + task.rest
        return self.free


class Slowest:
    """Draws how much later than a mean rank the slowest of `ranks` is."""

    def __init__(self, late, ranks, seed=SEED):
        self.late, self.ranks, self.random = late, ranks, random.Random(seed)
        first = int((1 - TAIL) * (len(late) - 1))
        excess = [value - late[first] for value in late[first:]]
        self.tail = sum(excess) / len(excess)

    def quantile(self, left):
        """Of one rank; left: the share of draws above it."""
        count = len(self.late)
        if left * count < 1 and count > 1:
            return self.late[-1] + self.tail * -math.log(left * count)
        return self.late[min(count - 1, int((1 - left) * count))]

    def draw(self):
        # 1 - u^(1/ranks), without loss of digits for many ranks.
        u = self.random.random() or 0.5
        return self.quantile(-math.expm1(math.log(u) / self.ranks))


class Never:
    """All ranks are alike."""

    @staticmethod
    def draw():
        return 0.0


def wait_order(buckets):
    """Deferred buckets as forward needs them: the first layers' are ready last in backward."""
    return sorted((b for b, bucket in enumerate(buckets) if bucket.deferred),
                  key=lambda b: buckets[b].before)


def simulate(ledger, sums, scale, slowest, steps=STEPS, place=Place()):
    """Milliseconds of each step after the first few.

    sums     Sum of each bucket
    scale    of forward and backward: for another number of rows
    """
    buckets, overlap = ledger.buckets, ledger.overlap
    total = sum(bucket.bytes for bucket in buckets) or 1
    deferred = wait_order(buckets)
    forward, backward = ledger.forward * scale, ledger.backward * scale
    compute = ledger.begin + forward + backward + ledger.optimizer + ledger.end
    now, lane = 0.0, Lane(place)
    done, ends = dict.fromkeys(deferred, 0.0), [0.0]
    for _ in range(WARM + steps):
        slow = max(0.3, 1 + slowest.draw() / compute) if compute > 0 else 1.0
        slow += place.crowd - 1
        update = ledger.optimizer * slow / total
        now += ledger.begin * slow
        before = 0.0
        for b in deferred:  # forward, which waits for deferred sums
            now += slow * forward * (buckets[b].before - before)
            before = buckets[b].before
            if len(ends) > 1:
                if not overlap:
                    done[b] = lane.add(now, sums[b])
                now = max(now, done[b])
            now += update * buckets[b].bytes
        now += slow * forward * (1 - before)
        end = now + slow * backward
        own = [b for b, bucket in enumerate(buckets) if not bucket.deferred]
        if overlap:
            done |= {b: lane.add(end - slow * backward * buckets[b].before, sums[b]) for b in own}
        now = end
        for b in own:
            # Without overlap whoever waits for a sum makes it, after the update before.
            now = max(now, done[b]) if overlap else lane.add(now, sums[b])
            now += update * buckets[b].bytes
        if overlap:
            for b in deferred:
                done[b] = lane.add(end, sums[b])
        now += ledger.end * slow
        ends.append(now)
    return [b - a for a, b in zip(ends[WARM:], ends[WARM + 1:])]


def mean(values):
    return sum(values) / len(values)


def matters(ledger):
    """Whether sums are seen in the length of a step."""
    return ledger.exposed >= 0.03 * ledger.step


def fitted(ledger, low, high, sums_of, place):
    """The value between, both above 0, with whose sums the replay of the run takes as long as the
    run took; the nearer end where there is none."""
    for _ in range(24):
        middle = math.sqrt(low * high)
        step = mean(simulate(ledger, sums_of(middle), 1.0, Slowest(ledger.late, ledger.ranks), 60,
                             place))
        low, high = (middle, high) if step < ledger.step else (low, middle)
    return math.sqrt(low * high)


def calibrate(ledger, sums, place=Place()):
    """The factor on all sums, from 1/3 to 3; 1 where sums hardly matter."""
    if not matters(ledger) or not any(s.total for s in sums):
        return 1.0
    return fitted(ledger, 1 / 3, 3.0, lambda factor: [s.scaled(factor) for s in sums], place)


def growth_of_codes(coding, own, asked):
    """By how much coding takes longer with other ranks. coding: what encoding and decoding take in
    the run; own, asked: how often (a rank encodes, decodes) a bucket there, and as asked."""
    if coding is None:
        return 1.0
    return sum(ms * times / before for ms, before, times in zip(coding, own, asked)) / sum(coding)


def with_codes(sums, code, coded):
    """code: ms for a byte of those that are coded."""
    return [dataclasses.replace(s, code=code * size) for s, size in zip(sums, coded)]


def calibrate_codes(ledger, messages, coded, place=Place()):
    """ms for a byte that a compressor takes besides its messages; at most, where sums hardly
    matter: what waiting for other ranks takes is then in it. coded: bytes of each bucket, 0 where
    it is not compressed."""
    if not matters(ledger):
        return max(0.0, sum(ledger.summing) - sum(s.total for s in messages)) / max(1, sum(coded))
    found = fitted(ledger, LEAST_CODE, MOST_CODE,
                   lambda code: with_codes(messages, code, coded), place)
    return found if found > 2 * LEAST_CODE else 0.0
