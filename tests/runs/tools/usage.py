"""Command lines that are wrong, on all ranks or on one: one line says what, however late the rank
that says it comes, and the job ends with its code. And the environment that launch/env.sh sets,
and what starting costs.
"""
import os
import pathlib
import re
import subprocess
import sys

import harness
from harness import Started, check, same, small_cfg

PROGRAMS = ("ddp_train", "ddp_bench")
# Rank 0 begins 2 s late, on a host with thousands of ranks; the other one then says how often it
# slept.
CROWDED = """
import os, resource, subprocess, sys, time
late = os.environ["OMPI_COMM_WORLD_RANK"] == "0"
time.sleep(2 if late else 0)
code = subprocess.call(sys.argv[1:], env=os.environ | {"OMPI_COMM_WORLD_LOCAL_SIZE": "4000"})
if not late:
    print("slept", resource.getrusage(resource.RUSAGE_CHILDREN).ru_nvcsw, "times", flush=True)
sys.exit(code)
"""
LATE_RANK_0 = [str(harness.ROOT / "launch/mpirun"), "-np", "2", "sh", "-c",
               'test "$OMPI_COMM_WORLD_RANK" != 0 || sleep 3; exec "$@"', "sh"]


def told_once(result, text):
    same(result.code, 64, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"lines that say why\n{result}\n")
    check(text in result.errors[0], f"no {text!r} in\n{result}")
    same(result.err.strip(), result.errors[0], "all of stderr")


def case_a_mistake_is_reported_however_late_rank_0_is():
    for program in PROGRAMS:
        harness.program = program
        told_once(Started(["--bogus"], wrapper=LATE_RANK_0).finish(), "--bogus")


def case_a_mistake_of_one_rank_alone_is_reported_by_that_one():
    for program in PROGRAMS:
        harness.program = program
        good = [small_cfg(), "--steps", 2] if program == "ddp_train" else ["-b", 64, "-e", 64]
        for first, second in ((good, ["--bogus"]), (["--bogus"], good)):
            both = [*first, ":", "-np", 1, harness.build / program, *second]
            result = Started(both, 1).finish()
            told_once(result, "--bogus")
            same("rank 1" in result.errors[0], second == ["--bogus"], f"who tells\n{result}\n")
        check(not (harness.scratch / "runs").exists(), "a refused run left a folder")


def case_ranks_that_are_to_do_different_things_leave_together():
    cfg = small_cfg()
    train, bench = harness.build / "ddp_train", harness.build / "ddp_bench"
    harness.program = "ddp_train"
    for first, second, has, rank_0_has in (
        ([cfg], [train, cfg, "--check"], "ddp_train --check", "ddp_train"),
        ([cfg, "--check"], [train, cfg], "ddp_train", "ddp_train --check"),
        (["--help"], [train, "--list", "devices"], "--list", "--help"),
        ([cfg, "--print-config"], [train, "--version"], "ddp_train --version", "ddp_train"),
        ([cfg], [bench, "-b", 64, "-e", 64], "ddp_bench", "ddp_train"),
        ([cfg], [bench, "--list"], "ddp_bench --list", "ddp_train"),
    ):
        result = Started([*first, ":", "-np", 1, *second], 1).finish()
        same(result.code, 70, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"lines that say why\n{result}\n")
        check(re.search(rf"rank 1 \(\S+\) has to do '{has}', rank 0 \(\S+\) has '{rank_0_has}'",
                        result.errors[0]), f"{result}")
        same((result.out, result.err.strip()), ("", result.errors[0]), f"all of\n{result}\n")
    check(not (harness.scratch / "runs").exists(), "a refused run left a folder")


def case_what_takes_no_ranks_is_answered_once_by_many():
    for program, *flags in (("ddp_train", small_cfg(), "--check"), ("ddp_train", "--help"),
                            ("ddp_train", "--list", "faults"), ("ddp_bench", "--list")):
        harness.program = program
        alone, both = (harness.train_well(*flags, ranks=ranks) for ranks in (0, 2))
        # What a host has left, other programs change meanwhile.
        both, alone = (re.sub(r"[\d.]+ MB available", "", run.out) for run in (both, alone))
        same(both, alone, f"what {flags} says on 2 ranks")
    harness.program = "ddp_train"
    told_once(Started(["--list", "bogus"], 2).finish(), "--list wants")


def case_each_program_explains_itself_to_both_flags():
    for path in sorted(harness.build.glob("ddp_*")):
        if not path.is_file() or not os.access(path, os.X_OK):
            continue
        said = [subprocess.run([path, flag], check=True, capture_output=True, text=True).stdout
                for flag in ("--help", "-h")]
        check(said[0].startswith("usage: ") and said[0] == said[1], f"{path.name}: {said}")


def case_every_layer_of_a_configuration_is_listed():
    listed = harness.train_well("--list", "layers", ranks=0).out
    for name in ("dense", "residual", "repeat"):
        check(re.search(rf"^{name} ", listed, re.MULTILINE), f"{name} is not in\n{listed}")


def case_scripts_set_what_programs_set_for_themselves():
    name = "collectives/core/mpi/start_mpi.c"
    text = (harness.ROOT / name).read_text()
    text = re.sub(r"#if .*?#endif", "", text, flags=re.DOTALL)  # scripts do not know which MPI
    wanted = dict(re.findall(r'\{"(OMPI_MCA_\w+)", "([\w^]+)"\}', text))
    check(len(wanted) > 3, f"settings of {name}: {wanted}")
    script = f". {harness.ROOT}/launch/env.sh && env"
    for own in ({}, {name: "7" for name in wanted}):
        out = subprocess.run(["sh", "-c", script], env={"PATH": os.environ["PATH"], **own},
                             check=True, capture_output=True, text=True).stdout
        found = dict(line.split("=", 1) for line in out.splitlines() if "=" in line)
        for name, value in wanted.items():
            same(found.get(name), own.get(name, value), name)


def case_threads_can_be_made_fewer_but_not_more_than_cores():
    harness.program = "ddp_train"
    for flags, asked, told in (((), "1", None), ((), "1,2", None),
                               ((), "99999", "OMP_NUM_THREADS=99999"),
                               (("--threads", "1"), "99999", None),
                               (("--threads", "99999"), "1", "--threads 99999")):
        result = Started([small_cfg(), "--dry-run", *flags],
                         env={"OMP_NUM_THREADS": asked}).finish()
        same((result.code, len(result.complaints)), (0, 1 if told else 0),
             f"code and lines of\n{result}\n")
        check(told or "1 thread a rank" in result.out, f"{result}")
        check(not told or f"warning: {told}: a rank has" in result.err, f"{result}")


def cpus_of(text):
    """The numbers in "0-3,8"."""
    ends = [part.split("-") for part in text.split(",")]
    return [cpu for part in ends for cpu in range(int(part[0]), int(part[-1]) + 1)]


def case_ranks_of_launch_mpirun_divide_the_cores_of_their_host():
    harness.program = "ddp_train"
    own = sorted(os.sched_getaffinity(0))
    topology = pathlib.Path("/sys/devices/system/cpu")
    cores = {(topology / f"cpu{cpu}/topology/thread_siblings_list").read_text() for cpu in own}
    if len(cores) < 2:
        raise harness.Skipped("one core cannot be divided")
    for flags, ranks, env in (((), 1, {}), ((), 2, {}), (("--bind-to", "core"), 1, {}),
                              ((), 1, {"OMP_PROC_BIND": "true"}),
                              ((), 2, {"OMP_PLACES": "cores", "OMP_PROC_BIND": "spread"})):
        launch = [str(harness.ROOT / "launch/mpirun"), *flags, "-np", str(ranks)]
        result = Started([small_cfg(), "--dry-run"], wrapper=launch, env=env).finish()
        same(result.code, 0, f"the exit code of\n{result}\n")
        found = re.findall(r"rank \d+: host \S+, cpus (\S+),", result.out)
        has = sorted(cpu for cpus in found for cpu in cpus_of(cpus))
        check((has == own) != bool(flags), f"{flags}, {env}: {ranks} ranks have {found} of {own}")


def case_of_many_ranks_those_that_wait_for_others_to_start_sleep():
    """Open MPI looks for the others some 6,000 times a second."""
    launch = [str(harness.ROOT / "launch/mpirun"), "-np", "2", sys.executable, "-c", CROWDED]
    result = Started([small_cfg(), "--dry-run"], wrapper=launch).finish()
    same(result.code, 0, f"the exit code of\n{result}\n")
    slept = int(re.search(r"slept (\d+) times", result.out)[1])
    check(slept < 3000, f"a rank slept {slept} times in 2 s")


def opened_by_rank_0(ranks):
    """How many files, without /proc, which what watches a run reads now and then; and how many of
    them are the memory that Open MPI shares with one rank."""
    log = harness.scratch / f"opened.{ranks}"
    # Open MPI reads more of the machine where it does not bind ranks to cores: here it never does.
    launch = [str(harness.ROOT / "launch/mpirun"), "--bind-to", "none", "-np", str(ranks), "sh",
              "-c", 'test "$OMPI_COMM_WORLD_RANK" != 0 || '
              f'exec strace -f -qq -e trace=openat -o {log} "$@"; exec "$@"', "sh"]
    result = Started([small_cfg(), "--steps", 1, "--out", harness.scratch / f"of{ranks}"],
                     wrapper=launch).finish()
    same(result.code, 0, f"the exit code of\n{result}\n")
    paths = [path for path in re.findall(r'openat\([^"]*"([^"]*)"', log.read_text())
             if not path.startswith("/proc/")]
    return len(paths), sum("segment" in path for path in paths)


def case_the_files_that_a_rank_opens_grow_by_one_a_rank():
    harness.program = "ddp_train"
    try:
        subprocess.run(["strace", "-o", "/dev/null", "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as why:
        raise harness.Skipped("strace is missing, or may not trace here") from why
    (few, few_segments), (many, many_segments) = opened_by_rank_0(2), opened_by_rank_0(8)
    check(few > 100, f"files of a rank of 2: {few}")
    check(many_segments - few_segments <= 6, f"segments: {few_segments}, {many_segments}")
    check(many - many_segments <= few - few_segments + 4, f"files: {few}, {many}")


def case_a_rank_loads_what_mpi_is_made_of_but_once():
    """Loading all of it again takes a quarter of a second, of which 35 ms are computing."""
    log = harness.scratch / "loaded"
    harness.train_well(small_cfg(), "--dry-run", ranks=2,
                       env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": log, "OMPI_MCA_pml": None,
                            "OMPI_MCA_osc_sm_backing_directory": None})
    loads = [max(map(text.count, set(re.findall(r"calling init: .*", text))), default=0)
             for text in (path.read_text() for path in harness.scratch.glob("loaded.*"))
             if "initialize program: " + str(harness.build) in text]
    if not any(loads):
        raise harness.Skipped("this loader does not say what it loads")
    same(len(loads), 2, "ranks that said what they load")
    check(max(loads) == 1, f"how often a rank of each loads one library: {loads}")
    check(not any("/libcurl.so" in path.read_text() for path in harness.scratch.glob("loaded.*")),
          "libcurl is loaded by a run that reads from no server")


def case_more_ranks_than_cores_of_one_host_leave_out_tcp():
    """It would take each of them time for each other one."""
    cores = os.cpu_count()
    if cores > 7:
        raise harness.Skipped("there are too many cores")
    for ranks, loaded in ((cores, True), (cores + 1, False)):
        log = harness.scratch / f"of {ranks}"
        harness.train_well(small_cfg(), "--dry-run", ranks=ranks,
                           env={"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": log})
        texts = [path.read_text() for path in harness.scratch.glob(f"of {ranks}.*")]
        of_ranks = [text for text in texts
                    if f"initialize program: {harness.build}" in text and "mca_btl_" in text]
        same(len(of_ranks), ranks, "ranks that said what they load")
        same({"mca_btl_tcp.so" in text for text in of_ranks}, {loaded},
             f"whether one of {ranks} ranks loads TCP")


if __name__ == "__main__":
    harness.main(globals())
