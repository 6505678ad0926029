"""What the cases of tests/audit share: the table, attempts that must end in a documented way, and
the canaries, which nothing may touch."""
import contextlib
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "runs"))

import harness  # noqa: E402
from harness import Started, check, same  # noqa: E402
from streams import FORGED, OBEYED  # noqa: E402

LIMIT_S = 60  # what takes longer hangs; it also has to hold on a busy machine
DOCUMENTED = {0, 64, 65, 66, 69, 74, 75, 76, 77, 78}  # 70, a fault of our own, is no answer
MPIRUN = str(harness.ROOT / "launch/mpirun")
STEPS = 1200  # of a run whose lines fill more than a pipe
QUICK = ("--set", "train.eval_every=0", "--set", "comm.plan_cache=false")

cases = []  # (group, name, expected, function)
home = pathlib.Path()  # of this audit: set by prepare()


def case(group, name, expected):
    """Adds a function without arguments, which says what happened, as a row of the table."""
    def add(function):
        cases.append((group, name, expected, function))
        return function
    return add


def prepare(folder):
    """The data, the configuration, and a finished run that cases begin with."""
    global home
    home = harness.scratch = pathlib.Path(folder)
    harness.small_cfg()
    restore_canaries()
    harness.train_well(cfg(), "--out", home / "like", *QUICK)


def cfg():
    return home / "small.cfg"


CANARY = "this is the only copy of somebody's thesis\n"


def restore_canaries():
    shutil.rmtree(home / "canary", ignore_errors=True)
    (home / "canary").mkdir()
    (home / "canary/thesis.txt").write_text(CANARY)
    (home / "canary.txt").write_text(CANARY)


def canaries_live():
    for path in (home / "canary/thesis.txt", home / "canary.txt"):
        same(path.read_text(), CANARY, f"{path}, which is not ours,")


def each(values, function):
    """What came of function(value) for each; all that failed, if any did."""
    told, failed = [], []
    for value in values:
        shutil.rmtree(harness.scratch, ignore_errors=True)
        harness.scratch.mkdir()
        os.chdir(harness.scratch)
        restore_canaries()
        try:
            told.append(f"{value}: {function(value)}")
            canaries_live()
        except AssertionError as error:
            failed.append(f"{value}: {error}")
    check(not failed, "\n".join(failed))
    return "; ".join(told)


def shell(script):
    """Something to start a program with: a line of bash in which "$@" is the program."""
    return ["env", "--default-signal=PIPE", "bash", "-c", script, "bash"]


def python(script):
    """The same in Python: the program is in sys.argv[1:]."""
    run = "\nos.execvp(sys.argv[1], sys.argv[1:])"
    return [sys.executable, "-c", "import fcntl, os, pty, resource, signal, socket, sys\n"
            + script + run]


def each_rank(wrapper, ranks=2):
    """The wrapper around every rank, instead of around mpirun."""
    return [MPIRUN, "-np", str(ranks), *wrapper]


def mounted(options, folder, kind="tmpfs"):
    """With a file system of that kind there, which nobody else sees."""
    wrapper = ["unshare", "-m", "sh", "-c",
               'mount -t "$0" -o "$1" none "$2" && shift 2 && exec "$@"', kind, options,
               str(folder)]
    if subprocess.run([*wrapper, "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        raise harness.Skipped("no right to mount a small file system")
    return wrapper


def tame(result):
    for text in (result.out, result.err):
        found = OBEYED.search(text)
        check(not found, f"{found!r} in\n{result}")
        check(not text.startswith(FORGED) and f"\n{FORGED}" not in text,
              f"a forged line in\n{result}")


def judge(result, codes, told=True):
    """One of these exit codes and, where it is not 0, one line that says why, as the last one."""
    check(result.code in codes, f"exit code {result.code}\n{result}")
    tame(result)
    if told and result.code in DOCUMENTED - {0}:
        lines = [line for line in result.complaints
                 if line.strip() and "; go on with: " not in line]
        why = [line for line in lines if line in result.errors or
               (result.code == 75 and line.startswith("lockstep: stopped after step "))]
        same(len(why), 1, f"the number of lines that say why in\n{result}\n")
        same(lines[-1], why[0], f"the last line of\n{result}\n")


def attempt(*arguments, codes=None, told=True, program="ddp_train", **how):
    """Runs a program to its end, which comes in time and is a documented one."""
    harness.program = program
    try:
        result = Started(arguments, **how).finish(LIMIT_S)
    finally:
        harness.program = "ddp_train"
    judge(result, DOCUMENTED if codes is None else codes, told)
    return result


def says(result):
    """For the table: the exit code, and why."""
    why = result.errors[0] if result.errors else ""
    return f"{result.code} {why.removeprefix('lockstep: error: ')}".strip()


def whole(out):
    """What a run that says it is done has left can be read, and its checkpoint is taken."""
    harness.run_json(out)
    harness.metrics(out)
    result = attempt(cfg(), "--out", out, "--resume", codes={0}, cwd=harness.scratch)
    check("not whole" not in result.err, f"a torn checkpoint:\n{result}")


def same_weights(out):
    """A run of the same steps as the one that all began with has its weights."""
    check(harness.weights(out) == harness.weights(home / "like"), f"other weights in {out}")
    kinds, others = ([line["type"] for line in harness.metrics(run)]
                     for run in (out, home / "like"))
    same(kinds, others, "the lines of metrics.jsonl")


def finished(out):
    """A copy of the finished run."""
    shutil.copytree(home / "like", out, symlinks=True)
    return out


@contextlib.contextmanager
def group_of(controller, limits):
    """This process and what it starts in a control group with these limits."""
    path = next((line.split(":", 2)[2] for line in
                 pathlib.Path("/proc/self/cgroup").read_text().splitlines()
                 if controller in line.split(":")[1].split(",")), None)
    if path is None:
        raise harness.Skipped(f"no control group of its own for {controller}")
    above = pathlib.Path(f"/sys/fs/cgroup/{controller}{path}")
    group = above / f"lockstep-audit-{os.getpid()}"
    try:
        group.mkdir()
        for name, value in limits.items():
            (group / name).write_text(str(value))
    except OSError as error:
        raise harness.Skipped(f"no control group can be made: {error}") from error
    try:
        yield ["bash", "-c", f'echo $$ > {group}/cgroup.procs; exec "$0" "$@"']
    finally:
        group.rmdir()
