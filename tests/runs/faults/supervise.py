"""launch/supervise goes on after failures that can pass, and gives up after others, with the cause.
"""
import os
import pathlib
import signal
import subprocess
import time

import harness
from harness import check, same, small_cfg, train_well, weights

SUPERVISE = harness.ROOT / "launch/supervise"
# Notes its arguments, makes a checkpoint where the plan says so, and ends as planned.
COMMAND = """#!/bin/sh
cd "$(dirname "$0")" && echo "$*" >> calls
set -- $(sed -n "$(wc -l < calls)p" plan)
[ "$2" ] && mkdir -p out/checkpoints/step-0000000$2 && touch out/checkpoints/step-0000000$2/MANIFEST
[ "$1" = slow ] && exec sleep 60
[ "$1" -gt 128 ] && kill -$(($1 - 128)) $$
exit $1
"""
# The first time it fails, and leaves a process behind; the second one must not meet that.
LEAVES = """#!/bin/sh
cd "$(dirname "$0")"
[ -e gone ] && exit 0
[ -e began ] && exit 64
touch began
(sleep 1; touch gone) &
exit 76
"""
# Starts processes on all hosts but h2.
MPIRUN = """#!/bin/sh
case "$*" in *"--host h2 "*) exit 1;; esac
"""


def begin(name, plan, *flags, command=("--out", "out"), env=None):
    """Supervises the command with this plan: a line for each start, exit code and checkpoint."""
    folder = harness.scratch / name
    folder.mkdir()
    (folder / "command").write_text(COMMAND)
    (folder / "command").chmod(0o755)
    (folder / "plan").write_text("\n".join(plan) + "\n")
    return folder, subprocess.Popen(
        [SUPERVISE, "--pause", "0.1", *flags, "--", "./command", *command], cwd=folder,
        stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})})


def supervise(name, plan, *flags, **how):
    """Exit code, the command's calls, what is on stderr."""
    folder, process = begin(name, plan, *flags, **how)
    told = process.communicate(timeout=harness.PATIENCE)[1]
    return process.returncode, (folder / "calls").read_text().splitlines(), told


def case_failures_that_can_pass_are_followed_by_a_restart_with_resume():
    code, calls, told = supervise("passing", ("137 1", "76 2", "74 3", "70 4", "1 5", "0"))
    same((code, calls), (0, ["--out out"] + ["--out out --resume"] * 5), told)
    for text in ("exit code 137 (killed by SIGKILL): restart 1 of 10 in 0.1 s, from the checkpoint "
                 "of step 1", "exit code 76 (hung, or host gone): restart 2 of 10 in 0.2 s"):
        check(text in told, f"{text!r} is not in\n{told}")


def case_failures_that_stay_are_final():
    for exit_code in (64, 65, 66, 69, 75, 77, 78):
        code, calls, told = supervise(f"final-{exit_code}", (f"{exit_code} 1", "0"))
        same((code, len(calls)), (exit_code, 1), told)
        check("this does not pass by itself" in told, told)


def case_it_gives_up_where_nothing_is_gained():
    code, calls, told = supervise("stuck", ("76 3", "137", "0"))
    same((code, len(calls)), (137, 2), told)
    check("nothing was gained since the failure before: both times the newest checkpoint is of "
          "step 3" in told, told)
    code, calls, told = supervise("none", ("76", "76", "0"))
    same((code, len(calls)), (76, 2), told)
    check("there is no checkpoint yet" in told, told)
    code, calls, told = supervise("asked", ("76", "137", "70", "0"), "--restarts", "3")
    same((code, len(calls)), (0, 4), told)


def case_a_script_may_have_the_folder():
    code, calls, told = supervise("script", ("76", "74", "64"), command=("model.cfg",))
    same((code, calls), (64, ["model.cfg"] + ["model.cfg --resume"] * 2), told)
    check("restart 2 of 10 in 0.2 s\n" in told, told)


def case_restarts_are_bounded():
    code, calls, told = supervise("bounded", ("74 1", "74 2", "74 3", "0"), "--restarts", "2")
    same((code, len(calls)), (74, 3), told)
    check("no restart is left" in told, told)
    code, calls, told = supervise("never", ("74 1", "0"), "--restarts=0")
    same((code, len(calls)), (74, 1), told)


def case_what_a_failed_start_has_left_running_is_waited_for():
    command = harness.scratch / "leaves"
    command.write_text(LEAVES)
    command.chmod(0o755)
    result = subprocess.run([SUPERVISE, "--pause", "0.1", "--", command, "--out", "out"],
                            cwd=harness.scratch, capture_output=True, text=True, check=False,
                            timeout=harness.PATIENCE)
    same(result.returncode, 0, result.stderr)


def case_a_signal_ends_both():
    folder, process = begin("signal", ("slow 1", "0"))
    while not (folder / "calls").exists():
        time.sleep(0.01)
    time.sleep(0.2)  # from here on the command sleeps
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=harness.PATIENCE)[1]
    same((process.returncode, len((folder / "calls").read_text().splitlines())), (143, 1), told)
    check("SIGTERM was received" in told, told)


def case_a_run_does_not_outlive_it():
    started, _ = harness.begin(small_cfg(), wrapper=(SUPERVISE, "--"))
    same(len(started.ranks()), 2, "ranks")
    started.signal(signal.SIGKILL)
    result = started.finish()  # fails where processes outlive it
    same((result.code, result.errors), (128 + signal.SIGKILL, []), f"the end of\n{result}\n")


def case_hosts_that_do_not_answer_are_left_out():
    stand_in = harness.scratch / "bin"
    stand_in.mkdir()
    (stand_in / "mpirun").write_text(MPIRUN)
    (stand_in / "mpirun").chmod(0o755)
    hostfile = harness.scratch / "hosts"
    hostfile.write_text("h1 slots=2\nh2 slots=2  # the second one\nh3\n")
    env = {"PATH": f"{stand_in}:{os.environ['PATH']}"}
    for name, words, expected in (
        ("file", ("--hostfile", hostfile, "-np", "5"), " -np 3 --out out --resume"),
        ("list", ("--host", "h1:2,h2:2,h3", "-np", "3"),
         "--host h1:2,h3:1 -np 3 --out out --resume"),
    ):
        code, calls, told = supervise(name, ("76 1", "0"), command=(*words, "--out", "out"),
                                      env=env)
        same((code, len(calls)), (0, 2), told)
        check(calls[1].endswith(expected), f"{calls[1]!r} does not end with {expected!r}")
        check("without h2, which do not answer" in told, told)
        same("on 3 ranks" in told, name == "file", told)


def case_what_cannot_be_supervised_is_refused():
    for words, text in ((("--", "a/ddp_train", "m.cfg"), "the command has no --out"),
                        (("--restart", "3", "--", "true"), "unknown flag '--restart'"),
                        (("--restarts", "x", "--", "true"), "--restarts: expected a number"),
                        (("--restarts", "3"), "no command")):
        result = subprocess.run([SUPERVISE, *words], capture_output=True, text=True, check=False)
        same((result.returncode, len(result.stderr.splitlines())), (64, 1), result.stderr)
        check(text in result.stderr, result.stderr)


def case_a_run_that_is_killed_ends_with_the_bits_of_one_that_is_not():
    flags = ("--steps", "24", "--set", "checkpoint.every_steps=8", "--set", "train.eval_every=0",
             "--set", "train.lanes=2", "--set", "train.epochs=8")
    cfg = small_cfg()
    train_well(cfg, *flags, "--out", harness.scratch / "whole", ranks=2)
    once = harness.scratch / "once"
    once.write_text('#!/bin/sh\n[ -e began ] && unset DP_FAULT\ntouch began\nexec "$@"\n')
    once.chmod(0o755)
    result = subprocess.run(
        [SUPERVISE, "--pause", "0.1", "--", once, harness.ROOT / "launch/mpirun", "-np", "2",
         pathlib.Path(harness.build) / "ddp_train", cfg, *flags, "--out", "out"],
        cwd=harness.scratch, capture_output=True, text=True, check=False,
        timeout=harness.PATIENCE, env={**os.environ, "DP_FAULT": "kill:rank=1,step=13"})
    same(result.returncode, 0, result.stderr)
    check("restart 1 of 10 in 0.1 s, from the checkpoint of step 8" in result.stderr, result.stderr)
    same(weights(harness.scratch / "out"), weights(harness.scratch / "whole"), "weights")


if __name__ == "__main__":
    harness.main(globals())
