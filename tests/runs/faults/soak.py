"""tests/soak by itself: a few of its cases pass, and it finds what it is there to find; and that
tests/audit has all of its files.
"""
import shutil
import subprocess
import sys
import types

import harness
import netlab
from harness import ROOT, Result, check, same

sys.path.insert(0, str(ROOT / "tests/soaks"))

import draw  # noqa: E402
import play  # noqa: E402

SETUP = draw.Setup(
    "conv", ("comm.strategy=direct", "train.lanes=8", "checkpoint.every_steps=4",
             "train.eval_every=0"), "direct", "none", 2, 0, 8, 4)


def played(lose, *kinds):
    """What comes of a case with these faults, one an attempt, each in the middle of what is left.
    """
    attempts = tuple(draw.Attempt(2, (draw.Fault(kind, 0.5, 0.6, (0.5, 0.5, 0.5, 0.5)),))
                     for kind in kinds)
    soak = play.Soak(harness.scratch, harness.build, lose)
    outcomes, why = play.play(soak, draw.Case("1:0", SETUP, False, attempts))
    return [outcome.word for outcome in outcomes], why


def case_a_run_that_is_hit_ends_as_documented_and_goes_on_to_the_same_bits():
    words, why = played(None, "kill step", "slow in a bucket")
    same((words, why), (["137", "survived"], None), "what came of it")


def case_a_piece_of_state_that_is_lost_is_found():
    if shutil.which("xxhsum") is None:
        raise harness.Skipped("Debian's package xxhash is not installed")
    words, why = played("optimizer", "SIGUSR1 to a rank")
    same(words, ["FAILED"], f"with {why}: the outcome")
    check("another model.safetensors than without faults" in why, why)


def case_a_case_on_hosts_can_be_repeated():
    netlab.need_lab()
    command = [str(ROOT / "tests/soak"), str(harness.build), "--only", "1:46"]
    done = subprocess.run(command, capture_output=True, text=True, check=False,
                          env=harness.environment("soak"))
    same(done.returncode, 0, f"{done.stdout}{done.stderr}\nthe exit code")
    check("| SIGUSR1 to mpirun | 1 | 0 | 75: 1 | 0 |" in done.stdout, done.stdout)


def case_a_fault_from_outside_waits_for_the_start_that_it_is_meant_for():
    # That start goes on from step 4; the one before it came to step 11 and left that in its folder.
    out, step = harness.scratch / "out", '{"type":"step","time":1.0,"step":%d,"loss":1.0}\n'
    out.mkdir()

    start = types.SimpleNamespace(text="lockstep: mlp on 2 ranks\n")
    start.printed = lambda: start.text
    (out / "metrics.jsonl").write_text("".join(step % i for i in range(1, 12)))
    same(play.has_done(start, out, 6), False, "step 6 before the start has begun")
    (out / "metrics.jsonl").write_text("".join(step % i for i in range(1, 5)))
    start.text += "sharing by direct: 5 buckets\n"
    same(play.has_done(start, out, 6), False, "step 6 after step 4")
    with open(out / "metrics.jsonl", "a", encoding="ascii") as lines:
        lines.write(step % 5 + step % 6)
    same(play.has_done(start, out, 6), True, "step 6")


def case_the_audit_imports_each_of_its_files():
    done = subprocess.run([ROOT / "tests/audit", harness.build, "--list"], capture_output=True,
                          text=True, check=False)
    same((done.returncode, done.stderr), (0, ""), "exit code and stderr of tests/audit --list")
    groups = {line.split(":")[0] for line in done.stdout.splitlines()}
    files = list((ROOT / "tests/audits").glob("*.py"))
    same(len(groups), len(files) - 1, f"groups {groups}: one of each of {files} but lab.py")


def case_ends_that_are_not_documented_are_found():
    died = "lockstep: error: rank 0 (vm): rank 1, of this host, has died: was it killed?"
    for code, err, text in (
        (137, died, None),
        (0, "", "exit code 0 is none of [137]"),
        (1, died, "exit code 1 is none of [137]"),
        (137, "", "0 errors, not 1"),
        (137, f"{died}\n{died}", "2 errors, not 1"),
        (137, died.replace("rank 1", "rank 2"), "no 'rank 1"),
        (137, f"{died}\na core was dumped", "not the last line"),
    ):
        try:
            play.judge(Result([], code, "", err + "\n", 1), "kill step", 1, True)
            found = None
        except play.Wrong as wrong:
            found = str(wrong)
        check(found is text or text and text in str(found), f"{found!r}, not {text!r}")


if __name__ == "__main__":
    harness.main(globals())
