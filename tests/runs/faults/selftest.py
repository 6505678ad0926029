"""ddp_train --selftest: alone and on ranks, what it prints, leaves and returns; a planted fault
makes the line about it fail. Wrong layers and strategies: tests/unit/runtime/run/test_selftest.c.
"""
import re

import harness
from harness import check, same, small_cfg, train

LINE = re.compile(r"(ok|FAIL) [\w.:]+: .+")


def selftest(*flags, ranks=0, env=None):
    temporary = harness.scratch / "tmp"
    temporary.mkdir(exist_ok=True)
    result = train(small_cfg(), "--selftest", *flags, ranks=ranks,
                   env={"TMPDIR": str(temporary), "OMP_NUM_THREADS": "1", **(env or {})})
    left = [path.name for path in temporary.iterdir() if "selftest" in path.name]
    same(left, [], "what is left")
    check(not (harness.scratch / "runs").exists(), "a folder of a run was made")
    return result


def check_lines(result, *names):
    lines = result.out.splitlines()
    for line in lines:
        check(LINE.fullmatch(line), f"{line!r} in\n{result}")
    for name in names:
        check(any(line.startswith(f"{name}: ") for line in lines), f"no '{name}' in\n{result}")
    return [line for line in lines if line.startswith("FAIL")]


def case_a_right_model_is_ok_and_leaves_nothing():
    result = selftest()
    same(result.code, 0, f"the exit code of\n{result}\n")
    same(check_lines(result, "ok data", "ok resume", "ok gradient.0.weight", "ok cpu.gradients",
                     "ok ranks", "ok strategy.ring", "ok compressor.topk"), [], "failures")
    check("killed after step 3" in result.out, f"nothing was killed in\n{result}")
    same(result.complaints, [], "complaints")


def case_ranks_of_a_job_test_themselves():
    result = selftest("--set", "train.lanes=4", "--set", "train.eval_rank=true", ranks=2)
    same(result.code, 0, f"the exit code of\n{result}\n")
    same(check_lines(result, "ok resume", "ok lanes", "ok strategy.mpi", "ok compressor.onebit"),
         [], "failures")
    check("on 1 and 2 ranks" in result.out, f"ranks were not compared in\n{result}")


def case_a_flipped_bit_of_one_rank_is_found():
    fault = "flip:step=1,rank=1,tensor=0.weight,element=7,bit=22"
    result = selftest("--set", "train.check_every=1", "--set", "comm.strategy=ring",
                      env={"DP_FAULT": fault})
    same(result.code, 70, f"the exit code of\n{result}\n")
    failures = check_lines(result)
    same(len(failures), 1, f"failures in\n{result}\n")
    check(failures[0].startswith("FAIL ranks: ") and "0.weight" in failures[0],
          f"another failure in\n{result}")
    same(len(result.errors), 1, f"errors in\n{result}\n")
    check("1 of" in result.errors[0] and "checks failed" in result.errors[0], result.errors[0])


if __name__ == "__main__":
    harness.main(globals())
