"""Python programs that end while a training is open: one that fails ends all ranks, soon and with
its exit code; one that has only forgotten to close it ends with 0.
"""
import sys

import harness
from harness import check, same
from install import on_ranks

SCRIPT = """
import sys
import lockstep


def train(training, end):
    while training.steps < 1000000:
        training.step()
        if training.steps == 5:
            end(training.rank)


def exit_alone(rank):
    if rank == 1:
        sys.exit(3)


def raise_alone(rank):
    if rank == 1:
        raise KeyError("one rank alone")


def end_all(rank):
    raise StopIteration


how, end = sys.argv[2], globals()[sys.argv[3]]
try:
    if how == "with":
        with lockstep.Training(sys.argv[1]) as training:
            train(training, end)
    else:
        training = lockstep.Training(sys.argv[1])
        train(training, end)
except StopIteration:
    print("went on")
if sys.argv[4:] == ["again"]:
    with lockstep.Training(sys.argv[1]) as again:
        print(again.step().step)
"""


def run(*words, ranks=2):
    if not (harness.build / "liblockstep.so").exists():
        raise harness.Skipped("this build has no liblockstep: DP_LIBRARY=OFF")
    script = harness.scratch / "script.py"
    script.write_text(SCRIPT)
    return on_ranks(ranks, sys.executable, script, harness.small_cfg(), *words,
                    env={"PYTHONPATH": str(harness.build / "python")})


def case_a_program_that_exits_on_one_rank_ends_all_with_its_code_and_one_line():
    for how in ("with", "without"):
        result = run(how, "exit_alone")
        same(result.code, 3, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"the number of errors in\n{result}\n")
        check("rank 1" in result.errors[0] and
              "the program exits with 3 while a training is open" in result.errors[0], f"{result}")


def case_an_exception_on_one_rank_ends_all():
    for how in ("with", "without"):
        result = run(how, "raise_alone")
        same(result.code, 70, f"the exit code of\n{result}\n")
        check("KeyError: 'one rank alone'" in result.err, f"{result}")
        same(result.errors, [], f"errors, as of the watchdog, of\n{result}\n")


def case_a_program_that_forgets_to_close_ends_well():
    for how, ranks, more in (("with", 2, ()), ("without", 2, ()), ("without", 1, ()),
                             ("with", 2, ("again",))):
        result = run(how, "end_all", *more, ranks=ranks)
        same((result.code, result.errors), (0, []), f"exit code and errors of\n{result}\n")
        same(result.out.count("went on"), ranks, f"ranks that went on in\n{result}\n")
    check("1\n" in result.out, f"no second training:\n{result}")


if __name__ == "__main__":
    harness.main(globals())
