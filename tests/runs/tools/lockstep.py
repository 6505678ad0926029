"""A program with a training, a source of data and a layer of its own, over runtime/lockstep.h:
alone and on real ranks.
"""
import os
import subprocess
import sys

import harness
from harness import check, same, safetensors, train, train_well

harness.program = "mpi_lockstep"


def state(out, step):
    """All that a checkpoint holds but times: names to arrays, of weights and optimizer."""
    folder = harness.scratch / out / f"checkpoints/step-{step:08}"
    return {name: safetensors(folder / f"{name}.safetensors") for name in ("model", "optimizer")}


def case_what_is_interrupted_and_goes_on_has_the_same_bits():
    for ranks in (0, 2):
        whole, parts = f"whole-{ranks}", f"parts-{ranks}"
        line = train_well(whole, 12, ranks=ranks).out
        check(line.startswith(f"{max(ranks, 1)} ranks, step 12: loss 0x"), line)
        train_well(parts, 5, ranks=ranks)
        same(train_well(parts, 12, ranks=ranks).out, line, f"the end on {ranks} ranks")
        check(state(whole, 12) == state(parts, 12), f"other bits on {ranks} ranks")
        check(state(parts, 5) != state(parts, 12), "nothing was trained")
        same(len((harness.scratch / parts / "metrics.jsonl").read_text().splitlines()),
             1 + 12 + 2 + 3, "start, steps, evaluations, and each time that it was gone on with")


def case_with_lanes_one_process_and_two_ranks_have_the_same_bits():
    train_well("one", 12, "train.lanes=2")
    train_well("two", 12, "train.lanes=2", ranks=2)
    check(state("one", 12) == state("two", 12), "other bits on two ranks")
    train_well("both", 5, "train.lanes=2", ranks=2)
    train_well("both", 12, "train.lanes=2")
    check(state("one", 12) == state("both", 12), "other bits from two ranks to one")


def case_python_names_the_line_that_is_damaged():
    folder, path = harness.scratch / "torn", harness.ROOT / "launch/python"
    folder.mkdir()
    ask = "import lockstep, sys; print(len(lockstep.read_run(sys.argv[1]).lines))"
    for text, code, told in ((b'{"type":"step"}\n{"ty', 0, "1\n"),
                             (b'{"type":"step"}\n\xff{\n', 1, "metrics.jsonl:2: is damaged: ")):
        (folder / "metrics.jsonl").write_bytes(text)
        done = subprocess.run([sys.executable, "-c", ask, folder], capture_output=True, text=True,
                              env=dict(os.environ, PYTHONPATH=str(path)), check=False)
        same(done.returncode, code, f"the exit code of\n{done.stderr}\n")
        check(told in (done.stderr if code else done.stdout), f"no {told!r} in {done}")


def case_a_mistake_is_one_line_on_any_number_of_ranks():
    for setting, code, words in (
        ("train.bacth=4", 78, "unknown key 'bacth'"),
        ("data.source=stripe", 78, "(did you mean 'stripes'?)"),
        ("model.layers[0].gain.initial=1000", 78, "from -100 to 100"),
        ("model.layers[5].dense.units=3", 65, "stripes: 16 pixels in 4 classes do not fit"),
        ("model.input=[8, 8, 1]", 65, "do not fit a model of 64 and 4"),
    ):
        for ranks in (0, 2):
            result = train("out", 6, setting, ranks=ranks)
            same(result.code, code, f"the exit code of {setting}")
            check(len(result.complaints) == 1 and words in result.errors[0], str(result))
            check(not (harness.scratch / "out").exists(), "a refused training leaves a folder")


def case_what_fails_on_one_rank_alone_ends_all():
    for fault, code, words in (("open", 65, "stripes cannot be opened"),
                               ("forward", 69, "gain cannot go on")):
        result = train("out", 12, f"fault={fault}", ranks=2)
        same(result.code, code, f"the exit code of {fault}")
        check(len(result.errors) == 1 and words in result.errors[0], str(result))


if __name__ == "__main__":
    harness.main(globals())
