"""Runs over several hosts that cannot go on: one line reports the cause, and all ranks end. The
hosts are those of launch/netlab.
"""
import contextlib
import os
import pathlib
import re
import signal
import subprocess
import time

import harness
import netlab
from broken import has_mpich, soon_over
from harness import (IDX_FILES, Started, check, endless, mlp_layers, same, small_cfg, small_data,
                     steps_done)


WAITING = re.compile(r"rank 0 \(h1\): no sign of life from host h2 \(rank 1\) for \d+ s: waiting "
                     "up to 30 s")
BACK = re.compile(r"rank 0 \(h1\): host h2 \(rank 1\) responds again after \d+ s")


def start(hosts, ranks, *arguments, before=":", rate="1gbit", env=None):
    """A run on hosts of a lab, once the shell command `before` has come to pass on the first one.
    """
    netlab.need_lab()
    script = f'{before} && exec "$@"'
    return Started(arguments, ranks, env,
                   wrapper=[str(netlab.NETLAB), str(hosts), "--rate", rate, "--", "sh", "-c",
                            script, "sh"])


def name_of(pid):
    return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()


def parent_of(pid):
    stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def ranks_in(started):
    """Rank -> process id, on all hosts of the lab that a command runs in."""
    todo, spaces = [started.process.pid], set()
    while todo:
        pid = todo.pop()
        todo += netlab.children(pid)
        spaces |= set(netlab.namespaces("pid", [pid]).values())
    spaces.discard(os.readlink("/proc/self/ns/pid"))
    found, name = {}, pathlib.Path(harness.program).name
    for pid in sorted(netlab.processes_in("pid", spaces)):  # a guard of a rank comes before it
        with contextlib.suppress(OSError):
            words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            if name_of(pid) == name:
                found |= {int(word.split(b"=")[1]): pid for word in words
                          if word.startswith((b"OMPI_COMM_WORLD_RANK=", b"PMI_RANK="))}
    return found


def host_of(pid):
    return subprocess.run(["nsenter", "--target", str(pid), "--uts", "hostname"], check=True,
                          capture_output=True, text=True).stdout.strip()


def catches(pid, number):
    """Whether the process has a handler for that signal."""
    mask = re.search(r"^SigCgt:\s*(\w+)", pathlib.Path(f"/proc/{pid}/status").read_text(), re.M)
    return int(mask.group(1), 16) >> (number - 1) & 1 == 1


def has_thread(pid, name):
    """Whether the process has a thread of that name."""
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):
            if task.read_text().strip() == name:
                return True
    return False


def kill_one(cfg, hosts, victim, teller, strategy, out, env=None):
    """Kills that rank, one of a host each; returns the seconds until mpirun has ended. With `ring`
    nobody waits for it just then.
    """
    alone = strategy == "ring"
    flags = endless()[:-2] if alone else endless()  # without its --baseline one is measured
    started = start(hosts, hosts, cfg, *flags, "--set", "train.eval_every=0", "--set",
                    f"comm.strategy={strategy}", "--out", out, env=env)
    started.wait_for("rank 0 that computes alone" if alone else "step 5", lambda: (
        "measuring one rank alone" in started.printed() if alone else steps_done(out) >= 5))
    pids = ranks_in(started)
    same(sorted(pids), list(range(hosts)), "the ranks that run")
    for pid in pids.values():
        check(catches(pid, signal.SIGPIPE), "writing to a dead rank ends a rank before it has told")
    killed = time.monotonic()
    os.kill(pids[victim], signal.SIGKILL)
    result = started.finish()
    same(result.code, 137, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    check(re.search(rf"rank {teller} \(h{teller + 1}\): rank {victim} \(h{victim + 1}\) has died",
                    result.errors[-1]),
          f"who died is not reported:\n{result}")
    for line in (line for line in result.complaints if "; go on with: " in line):
        check(f"rank {victim} (h{victim + 1}) has died; go on with: " in line,
              f"the command does not say after what:\n{result}")
    return started.begin + result.seconds - killed


def case_a_rank_that_dies_alone_on_its_host_is_named_and_ends_the_job_within_five_seconds():
    cfg = small_cfg()
    for hosts, victim, teller, strategy in ((2, 1, 0, "ring"), (2, 0, 1, "mpi"),
                                            (3, 1, 2, "zero1:over=direct")):
        outs = iter(harness.scratch / f"out-{hosts}-{victim}-{i}" for i in range(9))
        soon_over(lambda: kill_one(cfg, hosts, victim, teller, strategy, next(outs)))


def case_a_rank_that_dies_while_strategies_are_measured_is_named():
    cfg = small_cfg(mlp_layers(1024, 1024))
    started = start(2, 2, cfg, *endless(), "--set", "comm.strategy=auto", "--set",
                    "comm.plan_cache=false", "--out", harness.scratch / "out")
    started.wait_for("two failure detectors", lambda: [
        has_thread(pid, "dp-detector") for pid in ranks_in(started).values()] == [True, True])
    time.sleep(0.2)
    check("sharing by" not in started.printed(), f"all was measured:\n{started.printed()}")
    os.kill(ranks_in(started)[0], signal.SIGKILL)
    result = started.finish()
    same(result.code, 137, f"the exit code of\n{result}\n")
    same(len(result.errors), 1, f"the number of errors in\n{result}\n")
    check("rank 1 (h2): rank 0 (h1) has died" in result.errors[0], f"not reported:\n{result}")


def case_a_death_that_mpirun_is_slow_to_notice_has_its_exit_code():
    # Rank 2 sees the death, and tells the other host, for which it would be a hang.
    started = start(2, 4, small_cfg(), *endless(), "--set", "comm.strategy=direct", "--set",
                    "train.hang_timeout_s=3", "--out", harness.scratch / "out")
    started.wait_for("step 5", lambda: steps_done(harness.scratch / "out") >= 5)
    victim = ranks_in(started)[3]
    daemon = victim  # what has started it, or its guard
    while name_of(daemon) == name_of(victim):
        daemon = parent_of(daemon)
    os.kill(daemon, signal.SIGSTOP)
    os.kill(victim, signal.SIGKILL)
    time.sleep(6)  # longer than a rank waits where its launcher may be one that ends nobody
    os.kill(daemon, signal.SIGCONT)
    result = started.finish()
    same((result.code, len(result.errors)), (137, 1), f"exit code and errors of\n{result}\n")


def case_a_job_that_is_asked_to_end_has_no_dead():
    # mpirun ends the ranks of other hosts two seconds after its own, which are inside of a step.
    cfg = small_cfg(mlp_layers(4096, 4096))
    slow = (cfg, *endless(), "--set", "train.global_batch=600", "--set", "train.eval_every=0",
            "--set", "comm.strategy=ring")
    sizes = ("-b", "64M", "-e", "64M", "-n", "1000000", "--strategies", "ring")
    for program, words, number in (("ddp_train", slow, signal.SIGTERM),
                                   ("ddp_bench", sizes, signal.SIGINT)):
        harness.program = program
        started = start(2, 2, *words)
        started.wait_for("two ranks", lambda: len(ranks_in(started)) == 2)
        time.sleep(4.0)
        started.signal(number)
        result = started.finish()
        harness.program = "ddp_train"
        same("has died" in result.err, False, f"that somebody died is reported:\n{result}\n")


def on_bridge(started, command):
    """Runs a command where the lab's bridge is, which joins the hosts."""
    netlab_pid = started.process.pid
    init = next(pid for pid in netlab.children(netlab_pid))
    subprocess.run(["nsenter", "--target", str(init), "--net", *command.split()], check=True)


def cut(started, host):
    on_bridge(started, f"ip link set {host} down")


def case_an_outage_of_some_seconds_changes_no_bit():
    flags = (small_cfg(), *endless(), "--set", "train.eval_every=0", "--set", "comm.strategy=ring")
    outs = [harness.scratch / name for name in ("cut", "whole")]
    started = start(2, 2, *flags, "--out", outs[0])
    started.wait_for("step 5", lambda: steps_done(outs[0]) >= 5)
    cut(started, "h2")
    began = time.monotonic()
    started.wait_for("a warning", lambda: WAITING.search(started.complained()))
    time.sleep(max(6 - (time.monotonic() - began), 0))  # the outage itself
    on_bridge(started, "ip link set h2 up")
    started.wait_for("its end", lambda: BACK.search(started.complained()))
    done = steps_done(outs[0])
    started.wait_for("more steps", lambda: steps_done(outs[0]) > done)
    started.signal(signal.SIGUSR1)
    result = started.finish()
    same(result.code, 75, f"the exit code of\n{result}\n")
    same(result.errors, [], f"errors of\n{result}\n")
    steps = harness.run_json(outs[0])["steps"]
    whole = start(2, 2, *flags, "--steps", steps, "--out", outs[1]).finish()
    same(whole.code, 0, f"the exit code of\n{whole}\n")
    check(harness.weights(outs[1]) == harness.weights(outs[0]), "an outage changed the weights")


def case_a_host_that_is_cut_off_ends_the_job_with_one_line():
    # On three hosts the one that tells is not mpirun's own.
    for hosts, ranks, host, teller, strategy in (
            (2, 2, "h2", "0 (h1)", "ring"), (2, 4, "h2", "0 (h1)", "mpi"),
            (3, 3, "h2", "2 (h3)", "ring")):
        out = harness.scratch / f"out-{hosts}-{ranks}"
        started = start(hosts, ranks, small_cfg(), *endless(), "--set", "train.eval_every=0",
                        "--set", f"comm.strategy={strategy}", "--set", "comm.outage_s=3",
                        "--out", out)
        started.wait_for("step 5", lambda: steps_done(out) >= 5)
        watched = min(rank for rank, pid in ranks_in(started).items() if host_of(pid) == host)
        cut(started, host)
        result = started.finish()
        same(result.code, 76, f"the exit code of\n{result}\n")
        lines = [line for line in result.complaints if "; go on with: " not in line]
        same(len(lines), 1, f"the number of lines on stderr in\n{result}\n")
        check(re.search(rf"rank {re.escape(teller)}: no sign of life from host {host} "
                        rf"\(rank {watched}\) for \d+ s: is its network cut", result.errors[0]),
              f"not reported:\n{result}")


def case_a_job_that_is_asked_to_end_ends_though_a_host_is_cut_off():
    if has_mpich():
        raise harness.Skipped("MPICH's ranks get the request themselves: runs_mpich tests that")
    out = harness.scratch / "out"
    started = start(2, 2, small_cfg(), *endless(), "--out", out)
    started.wait_for("step 5", lambda: steps_done(out) >= 5)
    cut(started, "h2")
    started.signal(signal.SIGTERM)
    same(started.finish().code, 1, "the exit code")


def case_a_strategy_for_one_node_is_refused_with_those_that_can():
    cfg = small_cfg()
    for strategy, names, others in (
        ("shm", "comm.strategy shm", "hier, ring, .*, mpi, none: "),
        ("zero1:over=shm", "comm.strategy shm", "hier, ring, .*, mpi, none: "),
        ("hier:outer=shm", "comm.strategy hier: outer=shm", "ring, .*, mpi: "),
        ("hier:inner=direct,outer=shm,rails=1", "comm.strategy hier: outer=shm", "ring, .*, mpi: "),
    ):
        out = harness.scratch / "out"
        result = start(2, 2, cfg, "--set", f"comm.strategy={strategy}", "--out", out).finish()
        same(result.code, 69, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"the number of errors in\n{result}\n")
        check(re.search(rf"{names} cannot run here: the ranks do not live on one node; "
                        f"these can: {others}", result.errors[0]), f"{result}")
        same(result.err.strip(), result.errors[0], "all of stderr")
        check(not out.exists(), "a refused run left a folder")


def case_ranks_on_two_hosts_that_disagree_are_reported():
    # One command for both: Open MPI 5 places those of each command from the first host on.
    program, script = harness.program, harness.scratch / "script"
    for first, second, text in (
        ("comm.strategy=ring", "comm.strategy=direct", "--set 'comm.strategy=direct'"),
        ("train.precision=fp32", "train.precision=bf16", "--set 'train.precision=bf16'"),
    ):
        out = harness.scratch / "out"
        script.write_text(f"""#!/bin/sh
test "${{OMPI_COMM_WORLD_RANK-$PMI_RANK}}" = 0 && mine={first} || mine={second}
exec {harness.build / program} "$@" --set "$mine"
""")
        script.chmod(0o755)
        harness.program = script
        result = start(2, 2, small_cfg(), "--out", out).finish()
        harness.program = program
        same(result.code, 70, f"the exit code of\n{result}\n")
        same(len(result.errors), 1, f"the number of errors in\n{result}\n")
        check(re.search(rf"rank 1 \(h2\) has {text}, rank 0 \(h1\) has '{first}'",
                        result.errors[0]), f"{result}")
        check(not out.exists(), "a refused run left a folder")


def on_hosts(hosts, command):
    """A shell command that runs `command` on these hosts."""
    return " && ".join(f'"$NETLAB_AGENT" {host} "{command}"' for host in hosts)


def refuse(*attempts):
    """Runs on small data must end with a code and one line. Of each: code, pattern of the line,
    hosts, ranks, and what spoils the data before. They take their time to end, so all run at once.
    """
    cfg, out = small_cfg(), harness.scratch / "out"
    runs = [start(hosts, ranks, cfg, "--steps", 2, "--out", f"{out}-{i}", before=before)
            for i, (_, _, hosts, ranks, before) in enumerate(attempts)]
    results = [run.finish() for run in runs]
    for result, (code, pattern, *_) in zip(results, attempts):
        same(result.code, code, f"the exit code of\n{result}\n")
        same(len(result.complaints), 1, f"the number of lines on stderr in\n{result}\n")
        check(re.search(pattern, result.err), f"no {pattern!r} in\n{result}")
    same(list(harness.scratch.glob("out-*")), [], "folders that refused runs left")


def spoil(folder, name, change):
    """Other small data, of which one file is what change() makes of its bytes."""
    path = small_data(harness.scratch / folder) / name
    path.write_bytes(change(path.read_bytes()))
    return path.parent


def with_bit(place):
    """What flips the last bit of the byte at this place."""
    def flip(data):
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1:]
    return flip


def case_data_that_some_hosts_lack_or_have_damaged_is_reported_by_the_first_of_their_ranks():
    data = harness.scratch / "data"
    hide, missing = f"mount -t tmpfs none {data}", r"rank 1 \(h2\): .*/data: no train-images"
    second = "1" if has_mpich() else "2"  # the first rank of h2 of six: MPICH deals them in turns
    short = spoil("short", IDX_FILES[0], lambda images: images[:-100])
    wrong = spoil("wrong", IDX_FILES[1], lambda labels: labels[:-1] + b"\x63")
    refuse((66, missing, 2, 2, on_hosts(["h2"], hide)),
           (66, missing.replace("1", second), 3, 6, on_hosts(["h2", "h3"], hide)),
           (65, r"rank 1 \(h2\): .*/data/train-images", 2, 2,
            on_hosts(["h2"], f"mount --bind {short} {data}")),
           (65, r"rank 1 \(h2\): .*/data/.*label 99 of row 599", 3, 3,
            on_hosts(["h2", "h3"], f"mount --bind {wrong} {data}")))


def case_data_that_all_hosts_lack_or_have_damaged_is_reported_by_rank_0():
    data = harness.scratch / "data"
    wrong = spoil("wrong", IDX_FILES[1], lambda labels: labels[:-1] + b"\x63")
    refuse((66, r"rank 0 \(h1\): .*/data: no train-images", 2, 2,
            on_hosts(["h1", "h2"], f"mount -t tmpfs none {data}")),
           (65, r"rank 0 \(h1\): .*/data/.*label 99 of row 599", 2, 4,
            on_hosts(["h1", "h2"], f"mount --bind {wrong} {data}")))


def differing(folder, text):
    """A run whose third host has the data of `folder`, for refuse()."""
    return (70, rf"rank 2 \(h3\) has {text}; give all hosts the same data set", 3, 3,
            on_hosts(["h3"], f"mount --bind {folder} {harness.scratch / 'data'}"))


def case_data_sets_that_differ_between_hosts_are_reported():
    fewer = small_data(harness.scratch / "fewer", train=500)
    more = small_data(harness.scratch / "more", test=201)
    last = 16 + 600 * 64 - 1
    refuse(differing(fewer, r"training rows '500', rank 0 \(h1\) has '600'"),
           differing(more, r"test rows '201', rank 0 \(h1\) has '200'"))
    refuse(*(differing(spoil(name.replace(" ", "-"), IDX_FILES[file], with_bit(place)),
                       rf"another {name} than rank 0 \(h1\)")
             for name, file, place in (("list of training labels", 1, 8 + 599),
                                       ("set of training images", 0, last),
                                       ("list of test labels", 3, 8),
                                       ("set of test images", 2, 16))))


if __name__ == "__main__":
    harness.main(globals())
