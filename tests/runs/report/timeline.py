"""What run.json says of buckets and late ranks, of a slow link, and what efficiency is lost to: of
ranks on one host, and on hosts whose clocks show other times.
"""
import math
import subprocess

import harness
import netlab
from harness import Started, check, close, mlp_layers, run_json, same, small_cfg, train_well

# Without a trial of overlap, after each step of which all ranks meet.
FLAGS = ("--set", "train.steps=40", "--set", "comm.overlap=on")
SLOW = {"DP_FAULT": "slow:rank=1,ms=20"}
AHEAD_S = 5000  # that the clock of the second host is


def check_buckets(summary):
    buckets = summary["buckets"]
    check(len(buckets) >= 2, f"the buckets are {buckets}")
    for bucket in buckets:
        check(0 < bucket["ready_ms"] <= bucket["sent_ms"] <= bucket["done_ms"], f"{bucket}")
        check(bucket["bytes"] > 0 and bucket["gbs"] > 0 and bucket["exposed_ms"] >= 0, f"{bucket}")
        check(bucket["spread_ms"] >= 0 and bucket["first_rank"] in (0, 1), f"{bucket}")
    for before, after in zip(buckets, buckets[1:]):
        check(before["ready_ms"] <= after["ready_ms"], f"{before} is ready after {after}")
    # The step waits for buckets, and at most once more at its end.
    exposed = sum(rank["step_ms"]["exposed_comm"] for rank in summary["ranks"]) / 2
    waited = sum(bucket["exposed_ms"] for bucket in buckets)
    check(0 < waited <= 1.02 * exposed, f"waits of {waited} ms for buckets, {exposed} ms in all")


def check_efficiency(summary):
    factors = summary["efficiency"]
    same(set(factors), {"contention", "input", "exposed_comm", "waiting", "other"}, "the factors")
    close(math.prod(factors.values()), summary["scaling_efficiency"], 1e-6, "their product")
    check(all(0 < factors[name] <= 1 for name in ("input", "exposed_comm", "waiting")),
          f"factors above 1: {factors}")


def case_a_slow_rank_is_the_straggler_whatever_the_others_take_for_it():
    out = harness.scratch / "out"
    train_well(small_cfg(), *FLAGS, "--out", out, ranks=2, env=SLOW)
    summary = run_json(out)
    check_buckets(summary)
    check_efficiency(summary)
    late = summary["stragglers"]
    same([(row["rank"], row["host"]) for row in late],
         [(rank["rank"], rank["host"]) for rank in summary["ranks"]], "the ranks")
    check(late[1]["last_at"] > 0.8 > 0.2 > late[0]["last_at"], f"{late}")
    check(late[1]["late_ms"] > 15 > late[0]["late_ms"], f"{late}")
    same({bucket["last_rank"] for bucket in summary["buckets"]}, {1}, "the last rank")
    factors = summary["efficiency"]
    check(factors["waiting"] < 0.95, f"nothing is lost by waiting: {factors}")


def case_of_one_rank_and_of_ranks_at_their_own_pace_there_is_what_can_be_known():
    out = harness.scratch / "alone"
    train_well(small_cfg(), "--out", out)
    summary = run_json(out)
    same(set(summary["efficiency"].values()), {1.0}, "the factors of one rank")
    same([bucket["last_rank"] for bucket in summary["buckets"]],
         [0] * len(summary["buckets"]), "the last of one rank")
    out = harness.scratch / "async"
    train_well(small_cfg(), "--set", "train.mode=async", "--set", "train.staleness=2", "--set",
               "comm.servers=1", "--out", out,
               ranks=3)
    summary = run_json(out)
    same((summary["buckets"], summary["stragglers"]), ([], []), "buckets of asynchronous training")


def case_hosts_with_other_clocks_are_compared_by_one():
    netlab.need_lab()
    if subprocess.run(["unshare", "--time", "--monotonic", "9", "true"], check=False,
                      capture_output=True).returncode != 0:
        raise harness.Skipped("this system has no clocks for namespaces")
    clock = harness.scratch / "clock"
    clock.write_text('#!/bin/sh\n[ "$(hostname)" = h1 ] && exec "$@"\n'
                     f'exec unshare --time --monotonic {AHEAD_S} "$@"\n')
    clock.chmod(0o755)
    out = harness.scratch / "out"
    script = f'mpirun=$1; shift 3; exec "$mpirun" -np 2 {clock} "$@"'
    result = Started(
        [small_cfg(), *FLAGS, "--out", out], 2, SLOW,
        wrapper=[str(netlab.NETLAB), "2", "--", "sh", "-c", script, "sh"]).finish()
    same(result.code, 0, f"the exit code of\n{result}\n")
    summary = run_json(out)
    same([row["host"] for row in summary["stragglers"]], ["h1", "h2"], "the hosts")
    late = summary["stragglers"]
    check(late[1]["last_at"] > 0.8 and 15 < late[1]["late_ms"] < 1000, f"{late}")
    check(all(bucket["spread_ms"] < 1000 for bucket in summary["buckets"]), f"{summary['buckets']}")


def train_on_links(name, *flags):
    """(run.json, what was printed) of three hosts; their ring waits for its slowest link."""
    netlab.need_lab()
    out = harness.scratch / name
    result = Started(
        [small_cfg(mlp_layers(512)), *FLAGS, "--set", "comm.strategy=ring", "--set",
         "train.global_batch=12", "--out", out], 3,
        wrapper=[str(netlab.NETLAB), "3", *flags, "--"]).finish()
    same(result.code, 0, f"the exit code of\n{result}\n")
    return run_json(out), result


def case_a_link_slower_than_the_others_is_named_with_what_it_costs():
    summary, result = train_on_links("slow", "--host-rate", "h3=100mbit")
    limits = summary["limits"]
    same(limits["slow_link"], "all messages from and to h3", "the slow link")
    close(limits["slow_link_mbs"], 12.5, 0.3, "MB/s of it")
    check(limits["other_links_mbs"] > 2 * limits["slow_link_mbs"], f"the others: {limits}")
    rate, without = summary["samples_per_second"], limits["slow_link_samples_per_second"]
    check(without > 1.5 * rate, f"{rate} samples/s, without that link {without}")
    check("warning: rank 0 (h1): all messages from and to h3: " in result.err and
          "samples/s instead of" in result.err, f"no warning:\n{result}")
    # Other programs on this machine may cost more than the link, and the verdict is right then.
    check("all messages from and to h3" in summary["verdict"] or
          summary["verdict"].startswith("contention: other programs"), f"{summary['verdict']}")


def case_links_that_are_alike_raise_no_alarm():
    summary, result = train_on_links("alike", "--rate", "200mbit")
    same((summary["limits"]["slow_link"], "all messages" in result.err), (None, False),
         f"a slow link in\n{result}\n")


if __name__ == "__main__":
    harness.main(globals())
