"""Runs with MPICH, whose launcher treats ranks that die, and signals, as Open MPI's does not. More
is run by tests/other_mpis, by hand. Only what includes mpi.h is compiled for it: shrink.py.
"""
import re
import shutil
import signal

import harness
import hosts
from harness import (Skipped, begin, check, run_json, same, small_cfg, steps_done, train_well,
                     weights)
from shrink import run_with, use_program_for

NO_EVALUATION = ("--set", "train.eval_every=0")


def with_mpich():
    """Sets the program, and returns the environment for it."""
    compiler = shutil.which("mpicc.mpich")
    if not compiler or not shutil.which("mpiexec.mpich"):
        raise Skipped("Debian's packages mpich and libmpich-dev are not installed")
    use_program_for(compiler, "with-mpich")
    return {"LOCKSTEP_MPIRUN": "mpiexec.mpich"}


def case_weights_have_the_bits_of_open_mpi():
    # Of two ranks a + b is the sum in any order.
    ways = (("comm.strategy=ring",), ("comm.strategy=mpi", "comm.overlap=on"),
            ("comm.strategy=zero1:over=shm",))
    env, cfg = with_mpich(), small_cfg()
    programs = (("MPICH", "with-mpich/ddp_train", env), ("Open MPI", "ddp_train", {}))
    for number, settings in enumerate(ways):
        made = []
        for library, program, how in programs:
            harness.program = program
            out = harness.scratch / f"{library}-{number}"
            flags = [word for setting in settings for word in ("--set", setting)]
            result = train_well(cfg, *flags, *harness.known_baseline(), *NO_EVALUATION,
                                "--out", out, ranks=2, env=how)
            check(f"; {library} " in result.out, f"not {library}:\n{result}")
            made.append(weights(out))
        check(made[0] == made[1], f"other bits with {settings}")


def case_a_killed_rank_is_named_and_its_code_is_the_jobs():
    env = with_mpich()
    started, out = begin(small_cfg(), *NO_EVALUATION, env=env)
    started.signal(signal.SIGKILL, 1)
    result = started.finish()
    same(result.code, 137, f"the exit code of\n{result}\n")
    check(len(result.errors) == 1 and
          re.search(r"rank 0 \(\S+\): rank 1, of this host, has died", result.errors[0]),
          f"who died is not reported:\n{result}")
    same(run_json(out)["reason"], "rank 1 has died", "the end in run.json")


def case_signals_to_mpirun_stop_and_save():
    env = with_mpich()
    for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        started, out = begin(small_cfg(), *NO_EVALUATION, env=env, name=number.name)
        started.signal(number)
        result = started.finish()
        same(result.code, 75, f"the exit code of\n{result}\n")
        check((out / "checkpoints/latest").is_symlink(), f"nothing was saved:\n{result}")


def case_ranks_of_two_hosts_train_to_the_bits_of_one():
    env, cfg = with_mpich(), small_cfg()
    flags = (cfg, "--set", "comm.strategy=ring", *harness.known_baseline(), *NO_EVALUATION)
    outs = [harness.scratch / name for name in ("two", "one")]
    result = hosts.start(2, 2, *flags, "--out", outs[0], env=env).finish()
    check(result.code == 0 and not result.errors, f"it failed:\n{result}")
    check(" on 2 ranks, 2 nodes, " in result.out and "; MPICH " in result.out,
          f"not on two hosts:\n{result}")
    train_well(*flags, "--out", outs[1], ranks=2, env=env)
    check(weights(outs[0]) == weights(outs[1]), "other bits on two hosts")


def case_a_rank_that_dies_alone_on_its_host_is_named():
    # MPI returns an error to the others before any of them knows why.
    hosts.kill_one(small_cfg(), 2, 1, 0, "ring", harness.scratch / "out", with_mpich())


def case_a_rank_that_is_late_in_leaving_is_waited_for():
    # Half a second in MPI after its last message: it answers the others before it ends itself.
    env = with_mpich()
    harness.program = "with-mpich/mpi_leave"
    result = hosts.start(2, 2, "late", env=env).finish()
    same((result.code, result.err), (0, ""), f"exit code and stderr of\n{result}\n")


def case_ranks_of_two_hosts_do_not_wait_for_each_other_in_mpi_finalize():
    # The last one stops in it, and where ranks share a host all would wait for that one.
    env = with_mpich()
    harness.program = "with-mpich/mpi_leave"
    result = hosts.start(2, 4, "within", env=env).finish()
    same((result.code, result.complaints), (0, []), f"exit code and stderr of\n{result}\n")


def case_a_request_to_end_gives_a_host_that_is_cut_off_no_less_time():
    # The ranks get it, which cannot end their step; with Open MPI mpirun ends them.
    out = harness.scratch / "out"
    started = hosts.start(2, 2, small_cfg(), *harness.endless(), *NO_EVALUATION, "--set",
                          "comm.outage_s=4", "--out", out, env=with_mpich())
    started.wait_for("step 5", lambda: steps_done(out) >= 5)
    hosts.cut(started, "h2")
    started.signal(signal.SIGTERM)
    result = started.finish()
    same((result.code, len(result.errors)), (76, 1), f"exit code and errors of\n{result}\n")
    check(re.search(r"rank 0 \(h1\): no sign of life from host h2 \(rank 1\) for \d+ s",
                    result.errors[0]), f"not reported:\n{result}")


# Those of other files that run with it as they are. Its launcher deals ranks out in turns, so of
# four another one is the first of its host.
ALSO_HERE = (
    hosts.case_a_host_that_is_cut_off_ends_the_job_with_one_line,
    hosts.case_a_strategy_for_one_node_is_refused_with_those_that_can,
    hosts.case_ranks_on_two_hosts_that_disagree_are_reported,
    hosts.case_data_that_all_hosts_lack_or_have_damaged_is_reported_by_rank_0,
)


if __name__ == "__main__":
    harness.main({**globals(), **run_with(with_mpich, ALSO_HERE)})
