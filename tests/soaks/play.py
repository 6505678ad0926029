"""Plays the cases of a soak: starts runs, lets faults happen, judges how they end, goes on, and
compares what is left in the end with a run without faults."""
import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "runs"))

import harness  # noqa: E402
import hosts  # noqa: E402
from draw import MODELS, STEPS  # noqa: E402
from harness import ROOT, Started  # noqa: E402

BATCH = 48
LIMIT_S = 900  # what takes longer hangs: a rank that stops while others save may take 300
MPIRUN = str(ROOT / "launch/mpirun")
CODES = {
    "kill step": {137}, "kill bucket": {137}, "kill write": {137}, "torn write": {137},
    "full disk": {0, 74}, "i/o error": {0, 74}, "no memory": {0, 69, 70},
    "stop": {76}, "stop in a bucket": {76}, "slow": {0}, "slow in a bucket": {0}, "leak": {0},
    # mpirun's own code: the rank has left with 0, and the others were ended; or, where mpirun hears
    # of it later, that of the rank that noticed
    "exit": {1, 70}, "exit in a bucket": {1, 70},
    "flip weight": {70}, "flip optimizer": {70}, "flip message": {70}, "flip gradient": {70},
    "SIGKILL to a rank": {137}, "SIGKILL to mpirun": {137}, "SIGTERM to a rank": {75},
    "SIGTERM to mpirun": {1}, "SIGINT to mpirun": {1}, "SIGUSR1 to mpirun": {75},
    "SIGUSR1 to a rank": {75}, "SIGUSR2 to a rank": {0}, "SIGSTOP, SIGCONT": {0},
    "all suspended": {0}, "link cut": {76}, "link cut for a while": {0}, "link slow": {0},
}
UNWRITTEN = "cannot (write|make)"
DEATH = r"rank {rank}\b.* has died"
# What the line on stderr must say. {rank}: the one that was hit.
LINES = {
    "kill": DEATH, "torn": DEATH, "exit": DEATH, "SIGKILL to a rank": DEATH,
    "stop": r"did not arrive: rank {rank} ", "full disk": UNWRITTEN, "i/o error":
    UNWRITTEN, "no memory": "memory", "link cut": "no sign of life from host",
    "flip weight": "differ", "flip optimizer": "differ", "flip message": "is not what was sent",
    "flip gradient": "a wrong sum of bucket|differ", "SIGUSR1": "SIGUSR1",
    "SIGTERM to a rank": "SIGTERM",
}
# Where the fault may not come to be: the run ends before, or has fewer writes, or messages.
MAY_MISS = ("kill write", "torn write", "full disk", "i/o error", "no memory", "flip message")
OUTAGE_S = 30  # of comm.outage_s, unless it is set
# A request that came too late: while something could be left out still, and when all was done.
LATE_REQUEST = "asked to stop after the last step"
REQUEST = re.compile(r"^(SIGTERM to a rank|SIGUSR1 to (mpirun|a rank))$")
BESIDE = "slow, beside another"
OF_MPI = re.compile(r"\[\S+\]\[\[\d+,\d+\],\d+\]\[\S*/btl_tcp\S*\] ")
AFTER_DEATH = re.compile(r"^(SIGKILL|SIGTERM|SIGINT) to mpirun$")  # nobody may be left to write
ONCE = """\
#!/bin/sh
tries=$(($(cat tries 2>/dev/null || echo 0) + 1))
echo $tries > tries
DP_FAULT=$(sed -n "${tries}p" faults)
export DP_FAULT
exec "$@"
"""


class Wrong(AssertionError):
    """What must not be happened; the text says what."""


@dataclasses.dataclass
class Outcome:
    """Of one fault: `word` is survived, missed, FAILED, or the exit code."""
    kind: str
    word: str


def need(truth, text):
    if not truth:
        raise Wrong(text)


class Soak:
    """What the cases share: a folder, the data, and the runs without faults."""

    def __init__(self, home, build, lose=None, log=print):
        self.home, self.lose, self.log = pathlib.Path(home), lose, log
        harness.scratch, harness.build = self.home, pathlib.Path(build).resolve()
        harness.small_data(self.home / "data")
        harness.endless()  # writes the baseline
        for name, (layers, _) in MODELS.items():
            path = harness.small_cfg(layers, f"{name}.cfg")
            path.write_text(path.read_text().replace("global_batch: 50, steps: 6",
                                                     f"global_batch: {BATCH}, steps: {STEPS}"))
        (self.home / "once").write_text(ONCE)
        (self.home / "once").chmod(0o755)
        self.guard, self.locks, self.expected = threading.Lock(), {}, {}

    def flags(self, setup, wanted=lambda setting: True):
        words = [str(self.home / f"{setup.model}.cfg"), "--baseline",
                 str(self.home / "baseline.json")]
        for setting in (*setup.flags, "comm.plan_cache=false"):
            words += ["--set", setting] if wanted(setting) else []
        return words

    def reference(self, setup):
        """What a run without faults leaves. With lanes one rank makes it, else the same ranks."""
        with self.guard:
            lock = self.locks.setdefault(setup, threading.Lock())
        with lock:
            if setup not in self.expected:
                out = self.home / f"reference-{len(self.expected)}-{id(lock)}"
                if setup.lanes:
                    words = self.flags(setup, lambda text: not text.startswith("comm."))
                    result = Started([*words, "--out", out], 0, cwd=self.home).finish(LIMIT_S)
                else:
                    result = self.start(setup, setup.ranks, out, [], self.home).finish(LIMIT_S)
                need(result.code == 0 and not result.errors, f"without faults:\n{result}")
                self.expected[setup] = what_is_left(out)
                shutil.rmtree(out)
        return self.expected[setup]

    def start(self, setup, ranks, out, flags, cwd, fault="", supervised=False):
        """Starts a run that goes on with what is in `out`, an hour after the one before, as if its
        hosts were others: only then are their leftovers deleted."""
        for path in (out / "checkpoints").glob(".tmp-*"):
            for entry in (path, *path.glob("*")):
                os.utime(entry, (time.time() - 7200, time.time() - 7200), follow_symlinks=False)
        wrapper = []
        if setup.hosts:
            slots = slots_of(ranks, setup)
            wrapper += [ROOT / "launch/netlab", setup.hosts, "--slots", slots, "--"]
        if supervised:
            wrapper += [ROOT / "launch/supervise", "--pause", "0.1", "--", self.home / "once"]
        wrapper += [MPIRUN, "-np", ranks, "-x", "DP_FAULT"]
        return Started([*self.flags(setup), *flags, "--resume", "--out", out], 0,
                       {"DP_FAULT": fault}, cwd, list(map(str, wrapper)))


def what_is_left(out):
    """What must be the same: files, and the steps and losses of metrics.jsonl."""
    latest = out / "checkpoints/latest"
    files = {name: (latest / name).read_bytes()
             for name in ("model.safetensors", "optimizer.safetensors")}
    steps = [(line["step"], line["loss"], line["lr"]) for line in harness.metrics(out, "step")]
    return {**files, "the steps of metrics.jsonl": steps}


def saved_step(out):
    """The step of the newest checkpoint, or 0."""
    found = [int(path.name[5:]) for path in (out / "checkpoints").glob("step-*")
             if (path / "MANIFEST").exists()]
    return max(found, default=0)


# ---- faults ----


def text_of(fault, setup, ranks, begin, end):
    """DP_FAULT for it, with steps after `begin` and up to `end`."""
    rank = int(fault.rank * ranks)
    step = min(begin + 1 + int(fault.at * (end - begin)), end)
    first, second, third, _ = fault.numbers
    where = f"rank={rank},step={step}"
    if fault.kind.endswith("bucket"):
        return f"{fault.kind.split()[0]}:{where},bucket=0" + (
            f",ms={int(50 + 1000 * first)}" if fault.kind.startswith("slow") else "")
    if fault.kind in ("kill step", "stop", "exit"):
        return f"{fault.kind.split()[0]}:{where}"
    if fault.kind == "slow":
        return f"slow:{where},ms={int(50 + 1450 * first)}"
    if fault.kind == "leak":
        return f"leak:rank={rank},mb=1"
    if fault.kind in ("kill write", "torn write", "full disk", "i/o error"):
        name = {"full": "full", "i/o": "eio"}.get(fault.kind.split()[0], fault.kind.split()[0])
        rank = 0 if second < 0.8 else rank
        return f"{name}:rank={rank},write={int((300 if rank == 0 else 6) ** first)}"
    if fault.kind == "no memory":
        return f"nomem:rank={rank},alloc={int(600 ** first)}"
    what = fault.kind.removeprefix("flip ")
    if what in ("weight", "optimizer"):
        tensors = {name: count for name, count in MODELS[setup.model][1].items()
                   if what == "weight" or "running" not in name}
        name = list(tensors)[int(first * len(tensors))]
        where += f",what={what},tensor={name},element={int(second * tensors[name])}"
    elif what == "gradient":
        where += f",what=gradient,bucket=0,element={int(second * 8)}"
    else:
        where += ",what=message"
    # Without lanes sums are compared within roundings, which a low bit of a gradient may be.
    bit = 30 if what == "gradient" and not setup.lanes else int(third * 32)
    return f"flip:{where},bit={bit}"


def flags_for(kind):
    """What has to be on so that the fault is found, and soon."""
    words = {"flip message": ["comm.checksum=true"], "flip gradient": ["train.verify_sums=1"],
             "flip optimizer": ["train.check_every=1"], "link cut": ["comm.outage_s=6"]}
    quick = ["train.hang_timeout_s=5"] if kind.startswith("stop") or kind == "all suspended" else []
    return [word for setting in words.get(kind, []) + quick for word in ("--set", setting)]


def from_outside(kind):
    return kind.startswith(("SIG", "link", "all"))


def has_done(started, out, step):
    """Whether this start has done that step: until rank 0 has said how ranks share, metrics.jsonl
    still has steps of the start before.
    """
    return "\nsharing by " in started.printed() and harness.steps_done(out) >= step


def act(started, fault, setup, ranks, out, step):
    """Does what comes from outside once the step is done; whether it came in time."""
    while not has_done(started, out, step):
        if started.process.poll() is not None:
            return False
        time.sleep(0.005)
    if fault.kind.startswith("link"):
        return change_link(started, fault, setup, ranks)
    time.sleep(0.05 * fault.numbers[0])
    living = hosts.ranks_in(started) if setup.hosts else started.ranks()
    if started.process.poll() is not None or len(living) < ranks:
        return False
    target = living[int(fault.rank * ranks)]
    try:
        if fault.kind in ("SIGSTOP, SIGCONT", "all suspended"):
            chosen = living.values() if fault.kind[0] == "a" else [target]
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in chosen:
                    os.kill(pid, number)
                time.sleep((6 if fault.kind[0] == "a" else 1.5) * fault.numbers[1])
        elif fault.kind.endswith("mpirun"):
            started.signal(getattr(signal, fault.kind.split()[0]))
        else:
            os.kill(target, getattr(signal, fault.kind.split()[0]))
    except ProcessLookupError:
        return False
    return True


def slots_of(ranks, setup):
    """Ranks of a host; the last hosts may have fewer, or none."""
    return -(-ranks // setup.hosts)


def change_link(started, fault, setup, ranks):
    """Of a host with ranks but the first one, where mpirun is: one without would not be missed."""
    others = -(-ranks // slots_of(ranks, setup)) - 1
    host = f"h{2 + int(fault.rank * others)}"
    if fault.kind == "link slow":
        return in_lab(started, f"tc qdisc replace dev {host} root tbf rate "
                      f"{int(1 + 9 * fault.numbers[0])}mbit burst 128kb latency 50ms")
    done = in_lab(started, f"ip link set {host} down")
    started.cut_s = -time.monotonic()
    if done and fault.kind == "link cut for a while":
        time.sleep(0.5 + 3 * fault.numbers[0])
        done = in_lab(started, f"ip link set {host} up")
    started.cut_s += time.monotonic()
    return done


def in_lab(started, command):
    """Runs it where the lab's bridge is; False once the lab has gone. A busy machine may refuse it
    for a moment.
    """
    for _ in range(300):
        if started.process.poll() is not None:
            return False
        with contextlib.suppress(subprocess.CalledProcessError, StopIteration):
            hosts.on_bridge(started, command)
            return True
        time.sleep(0.1)
    raise Wrong(f"the lab does not take {command!r}")


# ---- judging ----


def lines_of(result):
    """What is on stderr but for what is only told at level debug, for the command to go on with,
    which comes after an error, for rank 0's warning about the fault, which may come after another
    rank's error, and for what Open MPI says on a rank that is continued to be ended.
    """
    return [line for line in result.complaints
            if not line.startswith("lockstep: debug:") and "; go on with: " not in line
            and "this run breaks something on purpose" not in line and not OF_MPI.match(line)]


def judge_line(kind, rank, line):
    """Whether the line names what happened, and the rank that it happened to."""
    for begin, pattern in LINES.items():
        if kind.startswith(begin):
            pattern = pattern.format(rank=rank)
            need(re.search(pattern, line), f"{kind}: no {pattern!r} in {line!r}")


def judge(result, kind, rank, happened):
    """The outcome's word; Wrong if it is none that is documented."""
    if LATE_REQUEST in result.err or not happened:
        codes, happened = CODES[kind] | {0}, False
    else:
        codes = CODES[kind]
    need(result.code in codes, f"{kind}: exit code {result.code} is none of {sorted(codes)}")
    if result.code == 0:
        need(not result.errors, f"{kind}: errors, and exit code 0")
        return "missed" if not happened or 0 not in CODES[kind] else "survived"
    if AFTER_DEATH.match(kind):
        need(len(result.errors) <= 1, f"{kind}: more than one error")
        return str(result.code)
    told = result.errors
    if result.code == 75:  # what was asked for is no error
        told = [line for line in lines_of(result) if line.startswith("lockstep: stopped after")]
    need(len(told) == 1, f"{kind}: {len(told)} errors, not 1")
    need(lines_of(result)[-1] == told[0], f"{kind}: the error is not the last line")
    judge_line(kind, rank, told[0])
    return str(result.code)


def reached(fault, text, result):
    """Whether there was such a call or allocation at all."""
    counted = {"kill write": "calls", "torn write": "calls", "full disk": "calls",
               "i/o error": "calls", "no memory": "allocations"}.get(fault.kind)
    if counted is None or result.code != 0:
        return fault.kind not in MAY_MISS
    if counted == "calls" and "rank=0," not in text:  # only rank 0 has many, and says how many
        return False
    number = int(re.search(r"(?:write|alloc)=(\d+)", text)[1])
    found = [int(n) for n in re.findall(rf"(\d+) {counted}", result.err)]
    return bool(found) and max(found) >= number


# ---- checkpoints that lost something: what a soak must find ----


def lose(out, piece):
    """Takes a piece out of the newest checkpoint, which stays whole otherwise."""
    latest = out / "checkpoints/latest"
    if not (latest / "MANIFEST").exists():
        return
    if piece == "optimizer":
        path = latest / "optimizer.safetensors"
        data = path.read_bytes()
        header = 8 + int.from_bytes(data[:8], "little")
        path.write_bytes(data[:header] + bytes(len(data) - header))
    else:
        path = latest / "state.json"
        state = json.loads(path.read_text())
        need(piece in state["kept"], f"a checkpoint keeps no {piece!r}: {list(state['kept'])}")
        state["kept"][piece] = 0 if isinstance(state["kept"][piece], int) else "0x0p+0"
        path.write_text(json.dumps(state, indent=2) + "\n")
    lines = []
    for line in (latest / "MANIFEST").read_text().splitlines():
        name = line.split()[1]
        done = subprocess.run(["xxhsum", "-H2", name], cwd=latest, check=True, capture_output=True,
                              text=True)
        lines.append(f"{done.stdout.split()[0]}  {name}\n")
    (latest / "MANIFEST").write_text("".join(lines))


# ---- cases ----


def play_attempt(soak, case, attempt, number, folder, results):
    """One start, which goes on with what is there, and up to a step of its own."""
    out = folder / "out"
    begin = saved_step(out)
    end = max(STEPS * (number + 1) // len(case.attempts), begin + 1)
    outside = [fault for fault in attempt.faults if from_outside(fault.kind)]
    texts = [text_of(fault, case.setup, attempt.ranks, begin, end) for fault in attempt.faults
             if not from_outside(fault.kind)]
    if outside:  # so that it lasts
        texts.append(f"slow:rank={int(attempt.faults[0].numbers[3] * attempt.ranks)},ms=30")
    flags = ["--steps", str(end)]
    for fault in attempt.faults:
        flags += flags_for(fault.kind)
    if any(fault.kind in MAY_MISS for fault in attempt.faults):
        flags += ["--log-level", "debug"]
    started = soak.start(case.setup, attempt.ranks, out, flags, folder, ";".join(texts))
    acted = True
    try:
        for fault in outside:
            step = min(begin + 1 + int(fault.at * (end - begin)), end)
            acted = act(started, fault, case.setup, attempt.ranks, out, step)
    finally:
        result = started.finish(LIMIT_S)
    if case.setup.hosts and attempt.faults[0].kind == "SIGKILL to mpirun":
        # It is netlab that was killed, which leaves its folder.
        subprocess.run([ROOT / "launch/netlab", "--clean"], check=False, capture_output=True)
    # It may wait for two steps of 30 ms before it asks.
    if outside and REQUEST.match(outside[0].kind) and step >= end - 2:
        acted = acted and not (result.code == 0 and f"finished after {end} step" in result.out)
    results.append(f"DP_FAULT='{';'.join(texts)}' {result}")
    main = attempt.faults[0]
    happened = acted if outside else reached(main, texts[0], result)
    kind = main.kind
    if kind == "link cut for a while" and result.code != 0 and started.cut_s > OUTAGE_S - 5:
        kind, happened = "link cut", True  # the kernel took that long to bring it up again
    word = judge(result, kind, hit(main, attempt.ranks, texts), happened)
    return [Outcome(kind, word)] + [Outcome(BESIDE, word) for _ in attempt.faults[1:]]


def hit(fault, ranks, texts):
    """The rank that the fault happens to."""
    return int(fault.rank * ranks) if from_outside(fault.kind) else int(
        re.search(r"rank=(\d+)", texts[0])[1])


def play_supervised(soak, case, folder, results, outcomes):
    """All starts by launch/supervise; appends to outcomes."""
    out, attempts = folder / "out", case.attempts
    texts, flags, count = [], [], len(attempts)
    for i, attempt in enumerate(attempts):
        begin, end = STEPS * i // count, STEPS * (i + 1) // count
        texts.append(";".join(
            "slow:rank=0,ms=30" if from_outside(fault.kind) else
            text_of(fault, case.setup, attempt.ranks, begin, end) for fault in attempt.faults))
        flags += flags_for(attempt.faults[0].kind)
    (folder / "faults").write_text("\n".join(texts) + "\n")
    started = soak.start(case.setup, case.setup.ranks, out, flags, folder, supervised=True)
    first = attempts[0].faults[0]
    try:
        if from_outside(first.kind):
            act(started, first, case.setup, case.setup.ranks, out, 1 + int(first.at * STEPS * 0.9))
    finally:
        result = started.finish(LIMIT_S)
    results.append(f"faults {texts} {result}")
    codes = [int(code) for code in re.findall(r"^launch/supervise: (?:ended with )?exit code (\d+)",
                                              result.err, re.M)]
    need(result.code == 0 or "nothing was gained" in result.err,
         f"supervised: exit code {result.code}, codes {codes}")
    codes += [0] if result.code == 0 else []
    need(len(result.errors) == sum(code != 0 for code in codes),
         f"supervised: {len(result.errors)} errors, codes {codes}")
    given_up = result.code != 0  # with a code of its own, in place of the last one
    for number, (attempt, code) in enumerate(zip(attempts, codes), 1):
        kind = attempt.faults[0].kind
        need(code in CODES[kind] or (given_up and number == len(codes)),
             f"supervised: {kind} ended with {code}")
        word = "survived" if code == 0 else str(code)
        outcomes += [Outcome(kind, word)] + [Outcome(BESIDE, word) for _ in attempt.faults[1:]]
        if code == 0:
            break


def finish_well(soak, case, folder, results):
    """Without faults it goes on to the end, and leaves what a run leaves that had none."""
    out = folder / "out"
    if soak.lose is not None and out.exists():
        lose(out, soak.lose)
    result = soak.start(case.setup, case.setup.ranks, out, [], folder).finish(LIMIT_S)
    results.append(f"the end: {result}")
    need(result.code == 0 and not result.errors, "it cannot go on")
    for text in results:
        need("is not whole" not in text, "a checkpoint is not whole")
    found = what_is_left(out)
    for name, expected in soak.reference(case.setup).items():
        if found[name] != expected:
            what = ""
            if isinstance(expected, list):
                what = next((f": {a} instead of {b}" for a, b in zip(found[name], expected)
                             if a != b), f": {len(found[name])} instead of {len(expected)}")
            raise Wrong(f"another {name} than without faults{what}")
    left = [path.name for path in out.rglob("*") if ".tmp-" in path.name]
    need(not left, f"it left {left}")


def play(soak, case):
    """Outcomes, and what went wrong (None: nothing)."""
    folder = soak.home / case.name.replace(":", "-")
    folder.mkdir()
    outcomes, results, kinds = [], [], [fault.kind for attempt in case.attempts
                                        for fault in attempt.faults]
    try:
        if case.supervised:
            play_supervised(soak, case, folder, results, outcomes)
        else:
            for number, attempt in enumerate(case.attempts):
                if number and soak.lose is not None and (folder / "out").exists():
                    lose(folder / "out", soak.lose)
                outcomes += play_attempt(soak, case, attempt, number, folder, results)
        finish_well(soak, case, folder, results)
    except AssertionError as error:
        fault = kinds[min(len(outcomes), len(kinds) - 1)]
        if outcomes and len(outcomes) == len(kinds):
            fault = outcomes.pop().kind
        outcomes.append(Outcome(fault, "FAILED"))
        return outcomes, "\n".join([f"{error}", f"{case}", *results])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return outcomes, None

