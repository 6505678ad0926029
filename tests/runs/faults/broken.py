"""Runs that go wrong on the way: a rank is killed, the disk fills up, the loss is no number, more
ranks than cores. Nothing hangs, nothing stays behind, and the cause is reported.
"""
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import harness
from harness import (Started, begin, check, little_memory, metrics, mlp_layers, run_json, same,
                     small_cfg, train, train_well, weights)

NO_EVALUATION = ("--set", "train.eval_every=0")
SOON = 5  # seconds within which a job ends that has lost a rank


class Lateness(threading.Thread):
    """Adds up by how many seconds this process came late whenever it wanted to run: what a busy
    machine takes from any process, and an idle one does not.
    """

    def __init__(self):
        super().__init__(daemon=True)
        self.seconds, self.ending = 0.0, False
        self.start()

    def run(self):
        while not self.ending:
            begin = time.monotonic()
            time.sleep(0.01)
            self.seconds += max(time.monotonic() - begin - 0.011, 0)

    def end(self):
        self.ending = True
        self.join()
        return self.seconds


def soon_over(kill):
    """kill() kills a rank, and returns how long the job went on. One kill out of three will do, and
    what a busy machine takes does not count.
    """
    taken = []
    while not taken or taken[-1] >= SOON and len(taken) < 3:
        late = Lateness()
        seconds = kill()
        taken.append(seconds - late.end())
    check(taken[-1] < SOON, f"with a dead rank the job went on for {taken} seconds")


def has_mpich():
    """Whether the program is built with MPICH, whose mpirun passes SIGTERM and SIGINT on and waits
    for the ranks, and which keeps its segments in /dev/shm."""
    cache = (harness.build / "CMakeCache.txt").read_text()
    return re.search("^MPI_C_HEADER_DIR:.*mpich", cache, re.M) is not None


def without_mpich():
    if has_mpich():
        raise harness.Skipped("MPICH has all its segments in /dev/shm, and needs room for them")


def shared_memory():
    """Where Open MPI and we keep segments: a folder of this run alone."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-test-", dir="/dev/shm"))
    env = {f"OMPI_MCA_{name}_backing_directory": str(folder)
           for name in ("btl_vader", "osc_sm", "osc_rdma")}
    return folder, env


def kill_one(cfg, strategy, victim, name):
    """Kills that rank of two; returns the seconds until mpirun has ended."""
    folder, env = shared_memory()
    started, out = begin(cfg, *NO_EVALUATION, "--set", f"comm.strategy={strategy}", env=env,
                         name=name)
    segments = any(folder.iterdir())
    killed = time.monotonic()
    started.signal(signal.SIGKILL, victim)
    result = started.finish()
    left = [path.name for path in folder.iterdir()]
    shutil.rmtree(folder)
    check(segments or has_mpich(), f"no segments were in {folder}: nothing was watched")
    same(result.code, 137, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    check(re.search(rf"rank {1 - victim} \(\S+\): rank {victim}, of this host, has died",
                    result.errors[0]),  # mpirun may warn after it
          f"who died is not reported:\n{result}")
    same(left, [], f"left in shared memory by {strategy}, rank {victim} killed")
    check(metrics(out, "step"), "metrics.jsonl cannot be read")
    return started.begin + result.seconds - killed


def case_a_killed_rank_ends_the_job_within_five_seconds():
    cfg = small_cfg()
    for strategy in ("shm", "zero1:over=shm", "ring", "direct", "mpi:nonblocking=1", "mpi"):
        for victim in (0, 1):
            names = iter(f"{strategy}-{victim}-{i}" for i in range(9))
            soon_over(lambda: kill_one(cfg, strategy, victim, next(names)))


def case_a_rank_that_dies_while_the_other_computes_is_named():
    # A step takes longer than mpirun's two seconds, and nobody waits for the dead rank meanwhile.
    conv = "    - conv2d: {filters: 384, kernel: 3, padding: 1}\n    - relu: {}\n"
    cfg = small_cfg(4 * conv + "    - flatten: {}\n    - dense: {units: 10}\n")
    started, _ = begin(cfg, *NO_EVALUATION, "--set", "train.global_batch=600", steps=1)
    started.signal(signal.SIGKILL, 1)
    result = started.finish()
    same(result.code, 137, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    check(re.search(r"rank 0 \(\S+\): rank 1, of this host, has died", result.errors[0]),
          f"who died is not reported:\n{result}")


def killed_with_a_last_word(cfg, name):
    """The command that the last line names after rank 1 was killed, and the folder; None: mpirun
    was quicker than the ranks, as it may be on a busy machine."""
    started, out = begin(cfg, *NO_EVALUATION, "--set", "checkpoint.every_steps=5", steps=12,
                         name=name)
    started.signal(signal.SIGKILL, 1)
    result = started.finish()
    same(result.code, 137, f"the exit code of\n{result}\n")
    last = [line for line in result.err.splitlines() if line.startswith("lockstep: ")][-1]
    told = re.fullmatch(r"lockstep: rank 0 \(\S+\): rank 1 has died; go on with: (.+)", last)
    return (told[1], out) if told is not None and (out / "run.json").exists() else None


def case_a_killed_rank_leaves_run_json_and_the_command_that_goes_on():
    cfg = small_cfg()
    left = next(filter(None, (killed_with_a_last_word(cfg, f"out 'n{i}") for i in range(3))), None)
    check(left is not None, "no run.json and no command were left")
    command, out = left
    summary = harness.run_json(out)
    same((summary["exit"], summary["reason"]), ("error", "rank 1 has died"), "the end in run.json")
    done = harness.steps_done(out)
    again = subprocess.run(["sh", "-c", f"{command} --steps {done + 3}"], capture_output=True,
                           text=True, cwd=harness.scratch, env=harness.environment("again"),
                           timeout=harness.PATIENCE, check=False)
    same(again.returncode, 0, f"the exit code of {command}:\n{again.stdout}{again.stderr}\n")
    check("going on from" in again.stdout, f"it began anew:\n{again.stdout}")
    same(harness.run_json(out)["steps"], done + 3, "the steps after it")


def case_a_killed_rank_is_named_while_mpirun_stands_still():
    # So nobody asks how the dead rank ended, and its process stays in the table. mpirun does not
    # pass on either what ranks write: they write to a file.
    told = harness.scratch / "stderr"
    out = harness.scratch / "out"
    ranks = [harness.ROOT / "launch/mpirun", "-np", "2", "sh", "-c",
             f'exec "$0" "$@" 2>> {told}']
    started = Started([small_cfg(), *harness.endless(), *NO_EVALUATION, "--out", out],
                      wrapper=list(map(str, ranks)))
    started.wait_for("step 5", lambda: harness.steps_done(out) >= 5)
    started.signal(signal.SIGSTOP)
    try:
        started.signal(signal.SIGKILL, 1)
        started.wait_for("who has died", lambda: re.search(
            r"rank 0 \(\S+\): rank 1, of this host, has died", told.read_text()))
    finally:
        started.signal(signal.SIGCONT)
    result = started.finish()
    same(result.code, 137, f"the exit code of\n{result}\n")


def case_signals_to_mpirun_end_everything():
    cfg = small_cfg()
    for number in (signal.SIGTERM, signal.SIGINT):
        started, _ = begin(cfg, *NO_EVALUATION, name=number.name)
        started.signal(number)
        result = started.finish()
        same(result.code, 75 if has_mpich() else 1, f"the exit code of\n{result}\n")


def case_ranks_save_where_mpirun_gives_them_time():
    # It waits twice that long, whatever the ranks do.
    started, out = begin(small_cfg(), *NO_EVALUATION,
                         env={"OMPI_MCA_odls_base_sigkill_timeout": "4"})
    started.signal(signal.SIGTERM)
    result = started.finish()
    same(result.code, 75 if has_mpich() else 1, f"the exit code of\n{result}\n")
    summary = run_json(out)
    same(summary["exit"], "stopped", f"exit of\n{result}\n")
    same((out / "checkpoints/latest").readlink().name, f"step-{summary['steps']:08}",
         "the last checkpoint")


def limit_files(started, ranks, size):
    """As on a full disk: no file of rank 0 may grow beyond that."""
    pid = started.ranks()[0] if ranks else started.process.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, size))


def case_a_disk_too_full_for_metrics_stops_a_run_that_is_saved():
    cfg = small_cfg()
    for ranks in (0, 2):
        started, out = begin(cfg, *NO_EVALUATION, ranks=ranks, name=f"{ranks}/out")
        limit_files(started, ranks, (out / "metrics.jsonl").stat().st_size + 20000)
        result = started.finish()
        same(result.code, 74, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"the number of errors in\n{result}\n")
        same(result.complaints[-1], result.errors[0], f"the last line of\n{result}\n")
        end = re.search(r"stopped after step (\d+): metrics\.jsonl cannot be written on rank 0 "
                        r"\(\S+\); saved in \S+/step-(\d+); go on with --resume", result.errors[0])
        check(end, f"no end:\n{result}")
        same(len(result.warnings), 1, f"the number of warnings in\n{result}\n")
        check(re.search(r"out/metrics.jsonl: File too large; make room there",
                        result.warnings[0]), f"no cause:\n{result}")
        step = int(end[1])
        same(int(end[2]), step, "the step that is saved")
        report = run_json(out)
        same((report["exit"], report["steps"]), ("stopped", step), "exit and steps in run.json")
        check((out / f"checkpoints/step-{step:08}/MANIFEST").exists(), "no checkpoint")
        train_well(cfg, "--out", out, "--resume", "--steps", step + 2, ranks=ranks)
        same([line["step"] for line in metrics(out, "step")][-2:], [step + 1, step + 2], "steps")


def case_a_full_disk_is_reported_and_ends_all_ranks():
    cfg = small_cfg()
    for ranks in (0, 2):
        started, _ = begin(cfg, *NO_EVALUATION, ranks=ranks, name=f"{ranks}/out")
        limit_files(started, ranks, 1000)
        result = started.finish()
        same(result.code, 74, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"the number of errors in\n{result}\n")
        check(re.search(r"out/checkpoints/\S+: File too large; make room there", result.errors[0]),
              f"no cause:\n{result}")
        same(result.complaints[-1], result.errors[0], f"the last line of\n{result}\n")
        same(len(result.warnings), 1, f"the number of warnings in\n{result}\n")


def case_a_disk_too_full_for_checkpoints_ends_the_run_at_its_end():
    # Weights of 2 MB, and less room than that: metrics.jsonl fills it in some 10,000 slow steps.
    cfg = small_cfg()
    flags = (*NO_EVALUATION, "--set", "model.layers[4].dense.units=4096", "--set",
             "checkpoint.every_steps=20")
    for ranks in (0, 2):
        started, out = begin(cfg, *flags, ranks=ranks, name=f"{ranks}/out")
        limit_files(started, ranks, 2000000)
        told = r"warning: .*there is no checkpoint of step (\d+); training goes on"
        started.wait_for("two warnings", lambda: len(re.findall(told, started.complained())) >= 2)
        started.signal(signal.SIGUSR1, 0 if ranks else None)
        result = started.finish()
        same(result.code, 74, f"the exit code of\n{result}\n")
        steps = [int(step) for step in re.findall(told, result.err)]
        same(steps, list(range(steps[0], steps[-1] + 1, 20)), "the checkpoints that are missing")
        same(len(result.errors), 1, f"the number of errors in\n{result}\n")
        check(re.search(r"out/checkpoints.*File too large; make room there", result.errors[0]),
              f"no cause:\n{result}")
        same(result.err.splitlines()[-1], result.errors[0], "the last line on stderr")


def case_on_a_disk_that_fills_up_the_error_is_the_last_line():
    # The thread that writes checkpoints fails at about the same time.
    cfg = small_cfg()
    wrapper, _ = little_memory(64)
    for ranks in (0, 2):
        out = harness.scratch / "tiny/out"
        arguments = [cfg, *harness.endless(), *NO_EVALUATION, "--set", "checkpoint.every_steps=8",
                     "--out", out]
        result = Started(arguments, ranks, wrapper=wrapper).finish()
        same(result.code, 74, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"the number of errors in\n{result}\n")
        same(result.err.splitlines()[-1], result.errors[0], f"the last line of\n{result}\n")
        check(re.search(r"cannot write \S+/out/checkpoints/\S+: No space left on device; make room "
                        "there, or choose another folder", result.errors[0]), f"{result}")
        told = [line for line in result.warnings if "out/metrics.jsonl: No space left" in line]
        same(len(told), 1, f"the number of warnings about metrics.jsonl in\n{result}\n")
        after = result.warnings[result.warnings.index(told[0]) + 1 :]
        check(len(after) <= 3, f"it went on without room for anything:\n{result}")


LINEAR = """\
    - flatten: {}
    - dense: {units: 16}
    - dense: {units: 10}
"""


def case_a_loss_that_is_no_number_is_divergence():
    cfg = small_cfg(LINEAR)
    for ranks in (0, 2):
        for flags in ((), ("--quiet",)):
            out = harness.scratch / f"out-{ranks}-{len(flags)}"
            result = train(cfg, "--set", "optimizer.lr=1e4", "--steps", 400, "--out", out, *flags,
                           ranks=ranks)
            same(result.code, 77, f"the exit code of\n{result}\n")
            same(len(result.errors), 1, f"the number of errors in\n{result}\n")
            check(re.search(r"step \d+: the loss is not a number; try a lower optimizer\.lr",
                            result.errors[0]), f"{result}")
            same(result.err.splitlines()[-1], result.errors[0], "the last line on stderr")
            summary = run_json(out)
            same(summary["exit"], "diverged", "exit")
            same(summary["final"]["train_loss"], None, "the last loss")
            same(metrics(out, "end")[0]["exit"], "diverged", "exit in metrics.jsonl")
            check(not (out / "checkpoints/latest").exists(), "saved weights that are no numbers")
            check(not flags or result.out == "", f"--quiet is not:\n{result}")


def case_more_ranks_than_cores_is_one_warning():
    cfg = small_cfg()
    cores = harness.cores()
    ranks = cores + 2
    if ranks > 10:
        raise harness.Skipped(f"{ranks} ranks are too many for a test")
    result = train_well(cfg, "--out", harness.scratch / "out", ranks=ranks)
    same((len(result.crowded), result.warnings), (1, []), f"warnings in\n{result}\n")
    check(re.search(rf"{ranks} ranks share {cores} core", result.crowded[0]), f"{result}")


def case_without_room_for_shared_memory_ranks_send_messages():
    cfg = small_cfg()
    wrapper, env = little_memory(16)
    for strategy, code in (("auto", 0), ("mpi", 0), ("shm", 69)):
        out = harness.scratch / strategy
        arguments = [cfg, "--set", f"comm.strategy={strategy}", "--out", out]
        result = Started(arguments, 2, env, wrapper=wrapper).finish()
        same(result.code, code, f"the exit code of\n{result}\n")
        same(len(result.warnings), 1, f"warnings in\n{result}\n")
        check("no room for shared memory" in result.warnings[0], f"{result}")
        if code == 0:
            taken = run_json(out)["strategy"]
            if strategy == "auto":
                check(f"sharing by {taken} (measured: {taken} " in result.out, f"{result}")
            else:
                same(taken, strategy, "strategy")
        else:
            same(len(result.errors), 1, f"the number of errors in\n{result}\n")
            check("shm cannot run here" in result.errors[0], f"{result}")
            check(re.search(r"these can: ring, .*mpi", result.errors[0]), f"{result}")


def case_an_empty_setting_of_a_folder_does_not_hang():
    env = {f"OMPI_MCA_{name}_backing_directory": "" for name in ("osc_sm", "btl_vader")}
    out = harness.scratch / "out"
    result = Started([small_cfg(), "--out", out], 2, env).finish()
    same((result.code, result.complaints), (0, []), f"exit code and complaints of\n{result}\n")
    same(run_json(out)["strategy"], "zero1:over=shm", "strategy")
    without_mpich()  # which has no such file
    (harness.scratch / ".openmpi").mkdir()
    (harness.scratch / ".openmpi/mca-params.conf").write_text("osc_sm_backing_directory =\n")
    env = {"HOME": str(harness.scratch), "OMPI_MCA_osc_sm_backing_directory": None}
    result = Started([small_cfg(), "--out", harness.scratch / "file"], 2, env).finish()
    same((result.code, len(result.warnings)), (0, 1), f"exit code and warnings of\n{result}\n")
    check(" KB a rank in osc_sm_backing_directory (" in result.warnings[0], f"{result}")


def case_where_no_shared_memory_can_be_made_ranks_send_messages():
    without_mpich()
    # Each on its own made a rank return from MPI, and the other wait for it for ever. Gradients of
    # two ranks take 11 MB; MPI's own segments, and each file of a checkpoint, less than 8.
    cfg = small_cfg()
    missing = str(harness.scratch / "missing")
    full, tiny = little_memory(16)
    folder = tiny["OMPI_MCA_osc_sm_backing_directory"]
    (harness.scratch / ".openmpi").mkdir()  # the user's own settings, which the environment beats
    (harness.scratch / ".openmpi/mca-params.conf").write_text(
        f"osc_sm_backing_directory = {missing}\n")
    home = {"HOME": str(harness.scratch), "OMPI_MCA_osc_sm_backing_directory": None}
    mount = ["unshare", "-m", "sh", "-c", f'mount -t tmpfs -o "$0" tmpfs {folder} && exec "$@"']
    ways = (
        ("missing", [], home, missing),
        ("read-only", [*mount, "ro"], tiny, folder),
        ("no inodes", [*mount, "nr_inodes=1"], tiny, folder),
        ("full", full, tiny, folder),
        ("ulimit -f", ["bash", "-c", 'ulimit -f 8000; exec "$0" "$@"'], {}, "/dev/shm"),
    )
    for name, wrapper, env, place in ways:
        out = harness.scratch / f"out {name}"
        arguments = [cfg, "--set", "model.layers[4].dense.units=10000", "--out", out]
        result = Started(arguments, 2, env, wrapper=wrapper).finish()
        same(result.code, 0, f"with {name}, the exit code of\n{result}\n")
        same(len(result.warnings), 1, f"with {name}, warnings in\n{result}\n")
        told = re.search(rf"no room for shared memory of (\d+) KB a rank in {place} ",
                         result.warnings[0])
        check(told, f"with {name}: {result}")
        # The limit is one of each file: there is room for what is small.
        check(name != "ulimit -f" or int(told[1]) > 1000, f"with {name}: {result}")
        check(run_json(out)["strategy"] not in ("shm", "zero1:over=shm"), f"with {name}: {result}")


def case_a_small_dev_shm_ends_no_rank():
    without_mpich()
    # MPI's segments and ours take room as they are written to; without any, SIGBUS ended a rank.
    little_memory(16)  # skipped where nothing may be mounted
    program = harness.program
    for megabytes in (5, 9):
        wrapper = ["unshare", "-m", "sh", "-c",
                   f'mount -t tmpfs -o size={megabytes}m tmpfs /dev/shm && exec "$0" "$@"']
        harness.program = program.replace("ddp_train", "ddp_bench")
        result = Started(["-b", "64K", "-e", "1M", "-n", "5"], 2, {}, wrapper=wrapper).finish()
        harness.program = program
        same(result.code, 0, f"with {megabytes} MB, the exit code of\n{result}\n")


def case_with_room_for_gradients_alone_weights_are_the_same():
    without_mpich()
    cfg = small_cfg(mlp_layers(4096))
    arguments = [cfg, *NO_EVALUATION, "--steps", 5, "--set", "comm.strategy=zero1:over=shm"]
    train_well(*arguments, "--out", harness.scratch / "out", ranks=2)
    right = weights(harness.scratch / "out")
    for times, warned in ((2.5, 1), (5, 0)):
        out = harness.scratch / f"out-{times}"
        wrapper, env = little_memory(round(times * len(right) / 1024) + 300)
        result = Started([*arguments, "--out", out], 2, env, wrapper=wrapper).finish()
        same(result.code, 0, f"the exit code of\n{result}\n")
        same(len(result.warnings), warned, f"warnings in\n{result}\n")
        check(weights(out) == right, f"other weights with {times} times their size to share")


def case_ranks_that_disagree_are_reported_before_they_train():
    cfg, other = small_cfg(), harness.scratch / "other.cfg"
    shutil.copy(cfg, other)
    cases = (
        ((cfg, "--set", "comm.strategy=ring"), (cfg, "--set", "comm.strategy=direct"),
         "--set 'comm.strategy=direct'", "'comm.strategy=ring'"),
        ((cfg,), (other,), f"model.cfg '{other}'", f"'{cfg}'"),
        ((cfg, "--steps", "5"), (cfg, "--steps", "6"), "--steps '6'", "'5'"),
        ((cfg,), (cfg, "--cached-input"), "flags '--cached-input'", "''"),
        ((cfg, "--init", "a.safetensors"), (cfg,), "--init ''", "'a.safetensors'"),
        ((cfg,), (cfg, "--init", "a.safetensors"), "--init 'a.safetensors'", "''"),
        ((cfg,), (cfg, "--plan", "a.yaml"), "--plan 'a.yaml'", "''"),
        ((cfg, "--plan", "a.yaml"), (cfg,), "--plan ''", "'a.yaml'"),
    )
    lived = []
    for first, second, has, rank_0_has in cases:
        out = harness.scratch / "out"
        both = (*first, "--out", out, ":", "-np", 1, harness.build / harness.program, *second,
                "--out", out)
        started = Started([*both], 1)
        seen = []
        while started.process.poll() is None:
            seen += [time.monotonic()] if started.ranks() else []
            time.sleep(0.01)
        lived += [seen[-1] - seen[0]] if seen else []
        result = started.finish()
        same(result.code, 70, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"the number of errors in\n{result}\n")
        check(re.search(rf"rank 1 \(\S+\) has {re.escape(has)}, rank 0 \(\S+\) has "
                        rf"{re.escape(rank_0_has)}", result.errors[0]), f"{result}")
        same(result.err.splitlines()[-1], result.errors[0], "the last line on stderr")
        check(not out.exists(), "a refused run left a folder")
    # mpirun takes a second or two more; a busy machine may, too, but not each time.
    check(min(lived, default=1) < 1, f"ranks that disagree lived for {lived} seconds")


def case_quiet_runs_print_nothing():
    cfg = small_cfg()
    for ranks in (0, 2):
        result = train_well(cfg, "--quiet", "--out", harness.scratch / f"out-{ranks}", ranks=ranks)
        same((result.out, result.complaints), ("", []), f"what --quiet prints on {ranks} ranks")


if __name__ == "__main__":
    harness.main(globals())
