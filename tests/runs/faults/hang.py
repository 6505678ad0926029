"""Ranks that make no progress: the job ends by itself, names who did not arrive, and leaves a
run.json; a job that was suspended as a whole goes on.
"""
import os
import re
import signal
import subprocess
import time

import harness
import hosts
import netlab
from harness import (begin, check, mlp_layers, run_json, same, small_cfg, steps_done, train,
                     train_well)

QUICK = ("--set", "train.hang_timeout_s=2", "--set", "train.eval_every=0")


def hang(fault, culprit, row, env=None):
    """A run with this fault: `row` is the table's row of the rank that is named, and what follows.
    """
    out = harness.scratch / fault.replace(":", "-")
    result = train(small_cfg(), *harness.endless(), *QUICK, "--out", out, ranks=2,
                   env={"DP_FAULT": fault, "TMPDIR": str(harness.scratch), **(env or {})})
    same(result.code, 76, f"the exit code of\n{result}\n")
    for what in (r"warning: rank \d \(\S+\): no progress for \d+\.\d s: did not arrive: "
                 rf"rank {culprit} \(\S+\): ", r"\nrank host +step bucket phase +since_s ", row,
                 rf"error: rank \d \(\S+\): no progress for \d+\.\d s: did not arrive: "
                 rf"rank {culprit} \(\S+\): .*; the job ends"):
        check(re.search(what, result.err), f"no {what!r} in\n{result}")
    check(f"did not arrive: rank {1 - culprit}" not in result.err, f"both are named:\n{result}")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    summary = run_json(out)
    same(summary["exit"], "hung", f"exit in run.json of\n{result}\n")
    check(summary["reason"].startswith(f"did not arrive: rank {culprit} "), summary["reason"])
    same([rank["rank"] for rank in summary["ranks"]], [0, 1], "ranks in run.json")
    page = (out / "report.html").read_text()
    check("<strong>hung</strong>" in page and "http-equiv=\"refresh\"" not in page, "report.html")
    return summary


def case_a_stopped_rank_ends_the_job_and_is_named():
    for rank in (0, 1):
        fault = f"stop:rank={rank},bucket=0,step=7"
        summary = hang(fault, rank, rf"\n +{rank} \S+ +7 +- step +\d+\.\d  stopped by a signal")
        same(summary["steps"], 6, "steps in run.json")
        if rank != 0:  # rank 0 lives, so no line waits for another one
            same(steps_done(harness.scratch / fault.replace(":", "-")), 6, "steps in metrics.jsonl")


def case_a_rank_that_sleeps_in_a_step_is_named():
    hang("slow:rank=1,step=5,bucket=0,ms=60000", 1,
         r"\n +1 \S+ +5 +- step +\d+\.\d  sleeping.*\n"
         r" +ddp_train: .*nanosleep \(.*\) < dp_fault_sleep < .* < dp_trainer_step < .* < main\n"
         r"(.*\n)* +dp-engine: .*< engine_main\n")


def case_a_rank_that_computes_for_ever_is_named():
    hang("spin:rank=1,step=5,bucket=0", 1,
         r"\n +1 \S+ +5 +- step +\d+\.\d  computing.*\n +ddp_train: .*dp_fault_hang_apply < ")


def case_a_rank_that_is_locked_in_a_library_is_named():
    hang("lock:rank=0,step=5,bucket=0", 0,
         r"\n +0 \S+ +5 +- step +\d+\.\d  (waits for a lock|sleeping).*\n"
         r" +ddp_train: .*pthread_mutex_lock \(libc.*\) < ")


def case_a_rank_that_swaps_is_named():
    kind = subprocess.run(["stat", "-f", "-c", "%T", harness.scratch], check=True,
                          capture_output=True, text=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        raise harness.Skipped("nothing is read from a disk: TMPDIR is in memory")
    hang("swap:rank=1,step=5,bucket=0", 1, r"\n +1 \S+ +5 +- step +\d+\.\d  swapping")


def case_a_rank_that_stops_between_steps_is_named():
    hang("stop:rank=1,step=4", 1, r"\n +1 \S+ +4 +- other +\d+\.\d  stopped by a signal")


def case_a_rank_that_stops_in_the_start_or_at_the_end_is_named_alone():
    # Ranks wait for each other there in no span of its own. Rank 0 stops before it changes a file:
    # the first one; in the middle; and later, where the run ends.
    told = train_well(small_cfg(), *QUICK, "--steps", 2, *harness.known_baseline(), "--out",
                      harness.scratch / "whole", ranks=3,
                      env={"DP_FAULT": "stop:rank=0,write=1000000"})
    calls = int(re.search(r"stop has not happened: (\d+) calls changed files", told.err).group(1))
    for write in (1, calls // 2, calls * 3 // 4):  # some calls are made by time
        result = train(small_cfg(), *QUICK, "--steps", 2, *harness.known_baseline(), "--set",
                       "train.unseen_timeout_s=4", "--out", harness.scratch / f"write-{write}",
                       ranks=3, env={"DP_FAULT": f"stop:rank=0,write={write}"})
        same((result.code, len(result.errors)), (76, 1), f"exit code and errors of\n{result}\n")
        check(re.search(r"did not arrive: rank 0 \(\S+\): stopped by a signal, phase \w+; the job",
                        result.errors[0]), f"rank 0 alone is not named:\n{result}")
        check(result.complaints[-1] == result.errors[0], f"it is not the last line:\n{result}")


def case_ranks_that_do_not_meet_end_the_job_and_who_is_missing_is_named():
    # Rank 1 stops before it is the program; the others wait for it in MPI_Init.
    stops = 'test "$OMPI_COMM_WORLD_RANK" = 1 && kill -STOP $$; exec "$0" "$@"'
    result = harness.Started([small_cfg(), "--steps", 2], wrapper=[
        str(harness.ROOT / "launch/mpirun"), "-np", "3", "sh", "-c", stops], env={
            "DP_TRAIN_UNSEEN_TIMEOUT_S": "4"}).finish()
    same((result.code, len(result.complaints)), (76, 2), f"exit code and lines of\n{result}\n")
    missing = (r"did not arrive: rank 1 \(\S+\): stopped by a signal, process \d+ \(sh\); "
               "the job ends")
    for line, what in zip(result.complaints, (
            rf"lockstep: warning: ranks have not met for 2 s: {missing} after 4 s",
            rf"lockstep: error: ranks have not met for \d+ s: {missing}, start it again")):
        check(re.fullmatch(what, line), f"no {what!r} in\n{result}")


def case_a_host_that_does_not_come_ends_the_job():
    netlab.need_lab()
    sleeps = 'test "$OMPI_COMM_WORLD_RANK" = 1 && exec sleep 1000; exec "$0" "$@"'
    result = harness.Started([small_cfg(), "--steps", 2], wrapper=[
        str(netlab.NETLAB), "2", "--", str(harness.ROOT / "launch/mpirun"), "-np", "2", "sh", "-c",
        sleeps], env={"DP_TRAIN_UNSEEN_TIMEOUT_S": "4"}).finish()
    same((result.code, len(result.errors)), (76, 1), f"exit code and errors of\n{result}\n")
    check("all ranks of host h1 have come, but not those of other hosts: do these hosts answer"
          in result.errors[0], f"{result}")


def begin_on_hosts(fault, ranks, *flags):
    """A run on two hosts with this fault."""
    out = harness.scratch / fault.replace(":", "-")
    env = {"DP_FAULT": fault, "OMPI_MCA_mca_base_env_list": "DP_FAULT"}
    return hosts.start(2, ranks, small_cfg(), *harness.endless(), *QUICK, *flags, "--out", out,
                       env=env)


def hung_once(started):
    """What that run printed: one table and one error."""
    result = started.finish()
    same(result.code, 76, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    same(result.err.count("rank host "), 1, f"the number of tables in\n{result}\n")
    return result


def case_a_rank_that_hangs_on_another_host_is_in_the_one_table():
    result = hung_once(begin_on_hosts("slow:rank=3,step=5,bucket=0,ms=60000", 4))
    check(re.search(r"\nrank host .*\n +0 h1 (.*\n)+ +1 h1 (.*\n)+ +2 h2 (.*\n)+ +3 h2 .*sleeping.*"
                    r"\n +ddp_train: .*nanosleep.* < dp_fault_sleep < ", result.err), f"{result}")
    check(re.search(r"error: rank 0 \(h1\): no progress for .* s: did not arrive: rank 3 \(h2\): "
                    "sleeping", result.errors[0]), f"{result}")
    same(run_json(harness.scratch / "slow-rank=3,step=5,bucket=0,ms=60000")["reason"][:33],
         "did not arrive: rank 3 (h2): slee", "the reason in run.json")


def case_the_first_rank_of_a_host_that_stops_is_in_the_one_table():
    result = hung_once(begin_on_hosts("stop:rank=2,step=5,bucket=0", 4))
    check(re.search(r"\nrank host .*\n +0 h1 (.*\n)+ +1 h1 (.*\n)+ +2 h2 .*  stopped by a signal.*"
                    r"\n(.*\n)* +3 h2 .*  waits for other ranks", result.err), f"{result}")
    check(re.search(r"error: rank 0 \(h1\): no progress for .* s: did not arrive: rank 2 \(h2\): "
                    "stopped by a signal", result.errors[0]), f"{result}")


def case_a_rank_that_stops_where_ranks_are_measured_has_no_more_time_on_several_hosts():
    # Without a baseline rank 0 measures alone at about step 20, for which hosts wait five minutes.
    out = harness.scratch / "measured"
    env = {"DP_FAULT": "stop:rank=1,step=20", "OMPI_MCA_mca_base_env_list": "DP_FAULT"}
    result = hung_once(hosts.start(2, 4, small_cfg(), *harness.endless()[:-2], *QUICK, "--out", out,
                                   env=env))
    check("measuring one rank alone" in result.out, f"it is not measured:\n{result}")
    check(re.search("did not arrive: rank 1 \\(h1\\): stopped by a signal", result.errors[0]),
          f"{result}")


def measured_until(rank, part, *flags, baseline=True):
    """A run whose rank stops in the middle of what ranks measure together, alone on its host, and
    with the limit that no timeout makes shorter."""
    out = harness.scratch / f"measured-{rank}-{part}-{len(flags)}"
    fault = f"stop:rank={rank},beat={part}"
    env = {"DP_FAULT": fault, "OMPI_MCA_mca_base_env_list": "DP_FAULT"}
    endless = harness.endless() if baseline else harness.endless()[:-2]
    return hosts.start(2, 2, small_cfg(mlp_layers(256, 256)), *endless, *QUICK, *flags, "--set",
                       "comm.plan_cache=false", "--out", out, env=env)


def case_a_rank_alone_on_its_host_that_stops_while_ranks_are_measured_is_named_soon():
    # Outside of what is announced hosts wait for each other for five minutes.
    ring = ("--set", "comm.strategy=ring")
    runs = [(0, "dp_strategy_autotune_run", measured_until(0, 10)),
            (1, "dp_strategy_autotune_run", measured_until(1, 10)),
            (1, "dp_limits_measure", measured_until(1, 100, *ring)),
            (0, "dp_baseline_measure", measured_until(0, 1, *ring, baseline=False)),  # sets it up
            (1, "dp_baseline_measure", measured_until(1, 2, *ring, baseline=False))]
    for rank, where, started in runs:
        result = hung_once(started)
        check(re.search(rf"\n +{rank} h{rank + 1} +- +- +- +-  does not answer\n", result.err) and
              re.search(rf"\n +ddp_train: .* < {where}.* < main\n", result.err), f"{result}")
        check(re.search(rf"rank {1 - rank} \(h{2 - rank}\): no progress for [12]\d\.\d s: did not "
                        rf"arrive: rank {rank} \(h{rank + 1}\): does not answer",
                        result.errors[0]), f"{result}")


def case_a_host_that_does_not_answer_is_named():
    # Rank 1 stops between two steps, where rank 0 waits for it outside of a step.
    runs = [begin_on_hosts("stop:rank=0,step=5,bucket=0", 2),
            begin_on_hosts("stop:rank=1,step=8", 2, "--set", "checkpoint.every_steps=8")]
    for rank, result in enumerate(map(hung_once, runs)):
        check(re.search(rf"\n +{rank} h{rank + 1} +- +- +- +-  does not answer\n", result.err),
              f"{result}")
        check(re.search(rf"rank {1 - rank} \(h{2 - rank}\): no progress for .* s: did not arrive: "
                        rf"rank {rank} \(h{rank + 1}\): does not answer", result.errors[0]),
              f"{result}")


UNSEEN_S = 8


def start_slowly(name):
    """A run on two hosts, of which the second takes far longer than UNSEEN_S to make its data."""
    env = {"DP_FAULT": "slow:rank=1,beat=1,ms=30", "OMPI_MCA_mca_base_env_list": "DP_FAULT"}
    return hosts.start(2, 2, small_cfg(), *QUICK, "--steps", 2, "--set",
                       f"train.unseen_timeout_s={UNSEEN_S}", "--set", "data.source=synthetic",
                       "--set", "data.samples=600", "--set", "data.test_samples=200", "--out",
                       harness.scratch / name, env=env)


def case_a_host_that_waits_while_another_one_starts_hears_that_it_makes_progress():
    whole, stopped = start_slowly("whole"), start_slowly("stopped")
    stopped.wait_for("more than the limit", lambda: (
        time.monotonic() - stopped.begin > 2 * UNSEEN_S and stopped.process.poll() is None))
    began = time.monotonic()
    os.kill(hosts.ranks_in(stopped)[1], signal.SIGSTOP)
    result = hung_once(stopped)
    check(time.monotonic() - began > UNSEEN_S, f"it did not count from the last news:\n{result}")
    check("rank 1 (h2): does not answer" in result.errors[0], f"{result}")
    result = whole.finish()
    same((result.code, result.errors), (0, []), f"exit code and errors of\n{result}\n")
    check(result.seconds > 3 * UNSEEN_S and "no progress" not in result.err, f"{result}")


def case_a_rank_that_leaves_early_is_named():
    result = train(small_cfg(), *harness.endless(), *QUICK, "--out", harness.scratch / "out",
                   ranks=2, env={"DP_FAULT": "exit:rank=1,step=5"})
    check(result.code not in (0, None), f"it ended well:\n{result}")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    check("rank 1, of this host, has died" in result.errors[0], f"{result}")


def case_a_job_that_was_suspended_goes_on():
    started, out = begin(small_cfg(), *QUICK)
    pids = started.ranks().values()
    for number, seconds in ((signal.SIGSTOP, 4), (signal.SIGCONT, 0)):
        for rank in sorted(started.ranks()):
            started.signal(number, rank)
        time.sleep(seconds)
    done = steps_done(out)
    started.wait_for("a later step", lambda: steps_done(out) > done + 5)
    check(list(started.ranks().values()) == list(pids), "other processes")
    started.signal(signal.SIGTERM)
    result = started.finish()
    # A busy machine may take a second for a step, of which a warning tells; but not of a stop.
    check("stopped by a signal" not in result.err, f"it counted as a hang:\n{result}")


if __name__ == "__main__":
    harness.main(globals())
