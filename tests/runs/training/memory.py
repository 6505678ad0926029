"""What a run says where the host has too little memory for it: one line before anything is taken,
not the kernel's kill."""
import contextlib
import os
import pathlib
import re

import harness
from harness import Skipped, check, run_json, same, train, train_well

MIB = 2**20
GROUP = 512 * MIB
SIZE = r"[\d.]+ [MG]iB"
SAYS = re.compile(rf", {SIZE}, {SIZE} available for (\d) ranks?: "
                  rf"(?:[a-z0-9 ]+ {SIZE}(?:, |; ))+(.*): out of memory$")


def config(*units):
    return harness.small_cfg(harness.mlp_layers(*units),
                             data=harness.small_data(harness.scratch / "data", train=64, test=8))


def refused(result, ranks):
    """The advice of the one line."""
    same((result.code, len(result.errors)), (69, 1), f"exit code and lines\n{result}")
    match = SAYS.search(result.errors[0])
    check(match, f"what needs how much\n{result}")
    same(match[1], str(ranks), result)
    return match[2]


def memory_group():
    """Where this process's control group for memory lies, and what its limit is called."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            return pathlib.Path("/sys/fs/cgroup/memory" + path), "memory.limit_in_bytes"
        if not controllers and pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists():
            return pathlib.Path("/sys/fs/cgroup" + path), "memory.max"
    raise Skipped("there is no control group for memory")


@contextlib.contextmanager
def limited(size):
    """This process and what it starts in a control group of their own that has so many bytes."""
    above, name = memory_group()
    group = above / f"lockstep-test-{os.getpid()}"
    try:
        group.mkdir(exist_ok=True)
    except OSError as error:
        raise Skipped(f"no control group can be made: {error}") from error
    try:
        try:
            (group / name).write_text(str(size))
            (group / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            raise Skipped(f"no control group can be limited: {error}") from error
        try:
            yield group
        finally:
            (above / "cgroup.procs").write_text(str(os.getpid()))
    finally:
        with contextlib.suppress(OSError):
            group.rmdir()


def case_a_model_that_no_host_has_memory_for_is_refused_at_once():
    cfg = config(16777216, 16777216)  # arrays of a petabyte
    for ranks in (0, 1, 2):
        out = harness.scratch / f"out-{ranks}"
        result = train(cfg, "--out", out, ranks=ranks)
        check("a rank alone, with one row at a time, would need" in refused(result, max(ranks, 1)),
              result)
        check(not out.exists(), "a refused run leaves a folder")
    result = train_well(cfg, "--check")
    same(result.out.count(" does NOT fit here"), 4, result)


def case_a_data_set_that_no_host_has_memory_for_is_refused_at_once():
    result = train(harness.small_cfg(), "--set", "data.source=synthetic", "--set",
                   "data.samples=2000000000", "--set", "model.input=[1000, 1000, 1]", ranks=2)
    refused(result, 2)
    check(": data need " in result.errors[0], result)


def case_a_control_group_limits_the_ranks_in_it_together():
    cfg = config(700000)  # arrays of 200 MB
    with limited(GROUP) as group:
        result = train(cfg, "--out", harness.scratch / "wide", ranks=2)
        refused(result, 2)
        check(f"control group {group}, 512.0 MiB, " in result.errors[0], result)
        result = train_well(cfg, "--check")
        check(f"control group {group}: 512.0 MB, " in result.out, result)
        same(result.out.count(" does NOT fit here"), 4, result)


def case_a_run_that_fits_its_control_group_is_neither_refused_nor_killed():
    cfg = config(50000)  # arrays of 14 MB
    out = harness.scratch / "out"
    with limited(GROUP):
        result = train_well(cfg, "--steps", "2", "--out", out, ranks=2)
        same(result.warnings, [], result)
    same(run_json(out)["exit"], "finished", result)


def case_page_cache_counts_as_free():
    cfg = config(50000)
    with limited(GROUP):
        file = harness.scratch / "cached"
        with file.open("wb") as written:  # twice the group's memory goes through its cache
            for _ in range(2 * GROUP // MIB):
                written.write(bytes(MIB))
        train_well(cfg, "--steps", "2", "--out", harness.scratch / "out", ranks=2)


def case_too_few_addresses_are_reported_before_a_library_waits_for_them():
    wrapper = ["sh", "-c", 'ulimit -d 100000; exec "$@"', "sh"]
    for program in ("ddp_train", "ddp_bench"):
        harness.program = program
        result = harness.Started(["--version"], wrapper=wrapper).finish()
        same((result.code, len(result.complaints)), (69, 1), f"the end of\n{result}\n")
        check(re.search(r"OpenBLAS wants \d+ MB of addresses .* raise ulimit -v", result.errors[0]),
              f"no cause in\n{result}")
    harness.program = "ddp_train"


def case_too_few_threads_are_reported_in_one_line():
    if os.geteuid() != 0:
        raise Skipped("only root can begin as somebody whose processes are counted anew")
    cfg, codes = harness.small_cfg(), []
    harness.scratch.chmod(0o755)
    for most in range(1, 13):
        out = harness.scratch / f"of-{most}"
        out.mkdir()
        os.chown(out, 65534, 65534)
        wrapper = ["prlimit", f"--nproc={most}", "setpriv", "--reuid=65534", "--regid=65534",
                   "--clear-groups"]
        result = harness.Started([cfg, "--out", out / "out"], wrapper=wrapper,
                                 env={"HOME": str(out), "OMP_NUM_THREADS": "2"}).finish()
        codes.append(result.code)
        same((result.code, len(result.complaints)), (result.code and 69, result.code and 1),
             f"with {most} threads, the end of\n{result}\n")
    check(codes[0] == 69 and codes[-1] == 0, f"exit codes {codes}")


harness.main(globals())
