"""--trace: a Chrome trace of some steps of all ranks, whose times are those of run.json; the real
Perfetto UI opens it, and its query engine finds the same.
"""
import json
import re
import signal
import subprocess

import harness
import netlab
import perfetto
from harness import Started, check, close, run_json, same, small_cfg, train, train_well

LANES = ["compute", "communication", "input", "checkpoint"]
# Steps 11 to 40 are the steady ones of 40. Without a trial of overlap, after which ranks meet.
STEADY = ("--set", "train.steps=40", "--set", "comm.overlap=on", "--set", "train.eval_every=0")
EXPOSED = """
select pid, sum(slice.dur) / 1e6 from slice join thread_track on track_id = thread_track.id
join thread using (utid) join process using (upid)
where slice.name = 'wait' and exists (select 1 from ancestor_slice(slice.id) where name = 'step')
group by pid order by pid"""
FLOWS = """
select source.name, target.name, count(*) from flow join slice source on slice_out = source.id
join slice target on slice_in = target.id group by 1, 2"""
THREADS = """
select distinct pid, thread.name from slice join thread_track on track_id = thread_track.id
join thread using (utid) join process using (upid)"""


class Trace:
    """What a file has, by kind of event."""

    def __init__(self, path):
        whole = json.loads(path.read_text())
        self.about, self.events = whole["otherData"], whole["traceEvents"]
        self.lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in self.events
                      if e["name"] == "thread_name"}

    def spans(self, name=None, pid=None):
        return [e for e in self.events if e["ph"] == "X" and name in (None, e["name"])
                and pid in (None, e["pid"])]

    def lane(self, event):
        return self.lanes[event["pid"], event["tid"]]


def inside(inner, outer):
    return (outer["ts"] - 1e-6 <= inner["ts"] and
            inner["ts"] + inner.get("dur", 0) <= outer["ts"] + outer["dur"] + 2e-3)


def check_nesting(trace):
    for lane in trace.lanes:
        open_spans = []
        for span in sorted((e for e in trace.spans() if (e["pid"], e["tid"]) == lane),
                           key=lambda e: (e["ts"], -e["dur"])):
            while open_spans and open_spans[-1]["ts"] + open_spans[-1]["dur"] <= span["ts"] + 1e-3:
                open_spans.pop()
            check(not open_spans or inside(span, open_spans[-1]),
                  f"{span} crosses the end of {open_spans[-1:]}")
            open_spans.append(span)


def check_flows(trace, ranks, steps, buckets):
    """From where a bucket was ready, in compute, to its job, of every step and bucket and rank."""
    begins, ends = ({e["id"]: e for e in trace.events if e["ph"] == ph} for ph in "sf")
    same(set(begins), set(ends), "the arrows")
    for pid in range(ranks):
        for b in range(buckets):
            jobs = trace.spans(f"bucket {b}", pid)
            same(len(jobs), steps, f"jobs of bucket {b} of rank {pid}")
            for job in jobs:
                end = next(e for e in ends.values() if e["pid"] == pid and e["ts"] == job["ts"])
                begin = begins[end["id"]]
                same((trace.lane(begin), trace.lane(job)), ("compute", "communication"), "lanes")
                check(begin["pid"] == pid and begin["ts"] <= end["ts"], f"{begin}, {end}")
                check(any(inside(begin, span) for span in trace.spans("step", pid)), f"{begin}")


def exposed_ms(trace, pid):
    """The waits of its steps."""
    steps = trace.spans("step", pid)
    return sum(span["dur"] for span in trace.spans("wait", pid)
               if any(inside(span, step) for step in steps)) / 1e3


def check_trace(trace, summary, first, last):
    ranks, steps = summary["world_size"], last - first + 1
    same(trace.about, {"name": "small", "lockstep": summary["version"],
                       "steps": f"{first}-{last}"}, "what it is about")
    check(min(e["ts"] for e in trace.events if "ts" in e) >= 0, "times before 0")
    for pid in range(ranks):
        same([trace.lanes[pid, tid] for _, tid in sorted(lane for lane in trace.lanes
                                                         if lane[0] == pid)][:4], LANES, "lanes")
        same([e["args"]["step"] for e in trace.spans("step", pid)], list(range(first, last + 1)),
             f"steps of rank {pid}")
        for name in ("bytes sent", "samples/s"):
            counts = [e for e in trace.events if e["ph"] == "C" and e["pid"] == pid and
                      e["name"] == name]
            same(len(counts), steps, name)
            check(all(e["args"]["value"] > 0 for e in counts), f"{counts}")
        check({"input", "copy", "forward", "backward", "wait", "optimizer"} <=
              {e["name"] for e in trace.spans(pid=pid)}, "phases are missing")
        check(any(trace.lane(e) == "input" for e in trace.spans("load", pid)), "no input")
    check_nesting(trace)
    check_flows(trace, ranks, steps, len(summary["buckets"]))


def case_perfetto_finds_the_exposed_communication_that_run_json_has():
    out = harness.scratch / "out"
    train_well(small_cfg(), *STEADY, "--out", out, "--trace", ":steps=11-40", ranks=2)
    summary, trace = run_json(out), Trace(out / "trace.json")
    check_trace(trace, summary, 11, 40)
    ledger = [rank["step_ms"]["exposed_comm"] * 30 for rank in summary["ranks"]]
    for pid in (0, 1):
        close(exposed_ms(trace, pid), ledger[pid], 0.02, f"exposed time of rank {pid}")
    with perfetto.opened(out / "trace.json") as (query, page):
        found = query(EXPOSED)
        same([row[0] for row in found], [0, 1], "ranks")
        for pid in (0, 1):
            close(found[pid][1], ledger[pid], 0.02, f"exposed time of rank {pid}, by Perfetto")
        flows = {(row[0] == "step" or row[0] == "backward", row[1]): row[2]
                 for row in query(FLOWS)}
        for bucket in range(len(summary["buckets"])):
            same(flows[True, f"bucket {bucket}"], 60, f"arrows to bucket {bucket}")
        threads = {tuple(row) for row in query(THREADS)}
        for lane in ("compute", "communication", "input"):
            check({(0, lane), (1, lane)} <= threads, f"no lane {lane}: {threads}")
        same(query("select name, value from stats where severity = 'error' and value > 0"), [],
             "errors of the import")
        page.value("waitForPerfettoIdle().then(() => true)")
        shown = page.value("document.body.textContent")
        check("rank 0 (" in shown and "rank 1 (" in shown, "the UI shows no ranks")
        check("went wrong" not in shown, f"the UI complains:\n{shown[-500:]}")


def case_steps_that_are_not_named_are_ten_typical_ones():
    out, file = harness.scratch / "out", harness.scratch / "some.json"
    result = train_well(small_cfg(), "--steps", 34, "--set", "train.steps=50", "--set",
                        "checkpoint.every_steps=24", "--out", out, "--trace", file, ranks=2)
    check(f"trace: {file}" in result.out, f"the file is not named:\n{result}")
    trace = Trace(file)
    check_trace(trace, run_json(out), 21, 30)
    check(trace.spans("checkpoint", 1), "no checkpoint")
    check(not (out / "trace.json").exists(), "another file")
    # Alone, of a short run, which goes on: all that is left.
    train_well(small_cfg(), "--steps", 38, "--resume", "--set", "train.steps=50", "--out", out,
               "--trace", file)
    same([e["args"]["step"] for e in Trace(file).spans("step")], [35, 36, 37, 38], "steps")


def case_a_run_that_ends_before_the_last_step_leaves_those_that_it_did():
    out = harness.scratch / "out"
    train_well(small_cfg(), "--set", "train.steps=12", "--out", out, "--trace", ":steps=5-400",
               ranks=2)
    same([e["args"]["step"] for e in Trace(out / "trace.json").spans("step", 1)],
         list(range(5, 13)), "steps")
    stopped, cfg = harness.scratch / "stopped", small_cfg()
    started = Started([cfg, *harness.endless(), "--out", stopped, "--trace", ":steps=5-90000000"],
                      2)
    started.wait_for("step 9", lambda: harness.steps_done(stopped) >= 9)
    started.signal(signal.SIGUSR1)
    result = started.finish()
    same(result.code, 75, f"the exit code of\n{result}\n")
    trace = Trace(stopped / "trace.json")
    check(trace.spans("step", 0)[0]["args"]["step"] == 5, "the first step")
    check(len(trace.spans("step", 0)) >= 4, "some of its steps are missing")


def case_a_run_that_goes_on_after_the_steps_of_its_trace_keeps_the_trace():
    out = harness.scratch / "out"
    flags = ("--set", "train.steps=12", "--out", out, "--trace", ":steps=2-4", "--resume")
    train_well(small_cfg(), *flags, "--steps", 5, ranks=2)
    before = (out / "trace.json").read_text()
    result = train_well(small_cfg(), *flags, ranks=2)  # the same command, as a queue gives it
    same(re.findall(r"warning: .*(--trace: .*)", result.err),
         ["--trace: nothing is traced: the first 5 steps are done"], f"warnings of\n{result}\n")
    same((run_json(out)["steps"], (out / "trace.json").read_text()), (12, before), "what is left")
    (out / "run.json").unlink()  # as when it was killed at its end
    same(train(small_cfg(), *flags, ranks=2).code, 0, "the exit code")


def case_wrong_arguments_and_files_have_their_codes():
    cfg, there = small_cfg(), harness.scratch / "there.json"
    there.write_text("old")
    for text in (f"{there}:steps=5", ":steps=5-4", ":steps=0-4", ":steps=a-b", ":steps=1-2x",
                 ":steps=", f"{there}:steps=7-9"):
        result = train(cfg, "--out", harness.scratch / "out", "--trace", text)
        same((result.code, len(result.err.splitlines())), (64, 1), f"what came of\n{result}\n")
        check("--trace" in result.err, f"{result}")
    for path in (harness.scratch, harness.scratch / "none/trace.json"):
        result = train(cfg, "--out", harness.scratch / "out", "--trace", path, ranks=2)
        same((result.code, len(result.errors)), (74, 1), f"what came of\n{result}\n")
    result = train(cfg, "--set", "train.mode=async", "--set", "train.staleness=2", "--set",
                   "comm.servers=1", "--out", harness.scratch / "out", "--trace", there, ranks=3)
    same((result.code, len(result.errors)), (64, 1), f"what came of\n{result}\n")
    same(there.read_text(), "old", "a file that nothing was written to")
    check(not (harness.scratch / "out/run.json").exists(), "a refused run has begun")


def case_a_trace_that_cannot_be_written_ends_no_training():
    out = harness.scratch / "out"
    result = train(small_cfg(), "--set", "train.steps=12", "--set", "report.html=false", "--set",
                   "report.tensorboard=false", "--out", out, "--trace", "/dev/full:steps=3-6")
    same((result.code, len(result.errors)), (74, 1), f"what came of\n{result}\n")
    check("/dev/full" in result.err, f"{result}")
    same((run_json(out)["exit"], run_json(out)["steps"]), ("finished", 12), "the run")


def case_hosts_with_other_clocks_have_one_in_the_trace():
    netlab.need_lab()
    if subprocess.run(["unshare", "--time", "--monotonic", "9", "true"], check=False,
                      capture_output=True).returncode != 0:
        raise harness.Skipped("this system has no clocks for namespaces")
    clock, out = harness.scratch / "clock", harness.scratch / "out"
    clock.write_text('#!/bin/sh\n[ "$(hostname)" = h1 ] && exec "$@"\n'
                     'exec unshare --time --monotonic 5000 "$@"\n')
    clock.chmod(0o755)
    script = f'mpirun=$1; shift 3; exec "$mpirun" -np 2 {clock} "$@"'
    result = Started([small_cfg(), "--set", "train.steps=12", "--set", "comm.strategy=ring",
                      "--out", out, "--trace", ":steps=4-9"], 2,
                     wrapper=[str(netlab.NETLAB), "2", "--", "sh", "-c", script, "sh"]).finish()
    same(result.code, 0, f"the exit code of\n{result}\n")
    trace = Trace(out / "trace.json")
    check_trace(trace, run_json(out), 4, 9)
    # No rank has a sum before both have their gradient: messages take time, and only forward.
    # Clocks are compared to half of a round trip (test_clock), a millisecond on a busy machine.
    error_us = 1000
    for bucket in range(len(run_json(out)["buckets"])):
        for mine, theirs in zip(*(trace.spans(f"bucket {bucket}", pid) for pid in (0, 1))):
            check(mine["ts"] + mine["dur"] > theirs["ts"] - error_us and
                  theirs["ts"] + theirs["dur"] > mine["ts"] - error_us,
                  f"{mine} and {theirs} do not meet")


if __name__ == "__main__":
    harness.main(globals())
