"""launch/netlab: hosts of namespaces are hosts to mpirun and to a run, their wire carries what it
should, and nothing of them stays behind, however they end.
"""
import contextlib
import functools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import uuid

import harness
from harness import (Result, Started, check, close, mlp_layers, run_json, same, small_cfg,
                     train_well)

NETLAB = harness.ROOT / "launch/netlab"
GOODPUT = harness.ROOT / "benchmarks/goodput"
MBIT = 125000  # bytes a second
RUN = pathlib.Path("/run")
TRIES = 10  # a busy machine fills no wire, so that one good measurement out of so many will do


def call(*words, timeout=60, **how):
    """Runs netlab with these words."""
    begin = time.monotonic()
    command = [str(NETLAB), *map(str, words)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout, check=False, cwd=harness.scratch, **how)
    code = 128 - done.returncode if done.returncode < 0 else done.returncode
    return Result(command, code, done.stdout, done.stderr, time.monotonic() - begin)


PARTS = """\
ip link add dp0 type bridge && ip link add dp1 type veth peer name dp2 &&
tc qdisc add dev dp1 root tbf rate 1mbit burst 64kb latency 50ms && mount -t proc proc /proc &&
mount -t sysfs sysfs /sys"""


@functools.cache
def refusal():
    """Why no lab can be made here; None where it can. A refusal must be true."""
    result = call(2, "--", "true")
    if result.code == 0:
        return None
    same(result.code, 69, f"the exit code of\n{result}\n")
    parts = ["unshare", "--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "sh", "-c", PARTS]
    with contextlib.suppress(FileNotFoundError):
        works = subprocess.run(parts, capture_output=True, check=False).returncode == 0
        check(os.geteuid() != 0 or not works, f"what it is made of works, but not\n{result}")
    return result.err.strip()


def need_lab():
    if refusal() is not None:
        raise harness.Skipped(refusal())


def lab(hosts, *command, flags=(), code=0, **how):
    """Runs a command in a lab; it must end with this code."""
    need_lab()
    result = call(hosts, *flags, "--", *command, **how)
    same(result.code, code, f"the exit code of\n{result}\n")
    return result


def sh(hosts, script, **how):
    return lab(hosts, "sh", "-c", script, **how).out


# ---- what people type ----


def case_a_wrong_call_is_one_line_and_64():
    for words, text in (
        ((), "how many hosts"),
        (("2",), "nothing to run"),
        (("2", "--"), "nothing to run"),
        (("0", "--", "true"), "0 hosts: 1 to 250"),
        (("251", "--", "true"), "251 hosts: 1 to 250"),
        (("two", "--", "true"), "'two'"),
        (("2", "--host-rate", "h2=0mbit", "--", "true"), "--rate 1gbit h2=0mbit"),
        (("2", "--rate", "fast", "--", "true"), "--rate fast"),
        (("2", "--slots", "0", "--", "true"), "--slots 0"),
        (("2", "--cores", "0", "--", "true"), "--cores 0"),
        (("2", "--wide", "--", "true"), "--wide"),
        (("--clean", "2"), "stand alone"),
    ):
        result = call(*words)
        same(result.code, 64, f"the exit code of\n{result}\n")
        same((result.out, result.err.count("\n")), ("", 1), f"what is printed by\n{result}\n")
        check(result.err.startswith("netlab: ") and text in result.err, f"no {text!r}:\n{result}")
    result = call("--help")
    same(result.code, 0, "the exit code of --help")
    for word in ("--host-rate", "--slots", "--cores", "--status", "--clean", "$NETLAB_AGENT"):
        check(word in result.out, f"no {word} in --help")


def case_what_is_missing_is_one_line_and_69():
    if os.geteuid() != 0:
        result = call(2, "--", "true")
        check(result.code == 69 and "only root" in result.err, f"{result}")
        raise harness.Skipped("not root: the other lines cannot be had")
    folder = harness.scratch / "bin"
    folder.mkdir()
    for tool in ("env", "python3", "ip", "nsenter", "taskset", "sh"):
        if shutil.which(tool):
            (folder / tool).symlink_to(os.path.realpath(shutil.which(tool)))
    too_many = len(os.sched_getaffinity(0)) + 1
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    can_see = subprocess.run(["test", "-x", NETLAB], check=False, **nobody).returncode == 0
    for words, how, text in (
        *([((), nobody, "only root")] if can_see else []),  # not in a folder of root's own
        ((), {"env": {"PATH": str(folder)}}, "is missing: apt-get install iproute2"),
        (("--cores", too_many), {}, f"hosts need {2 * too_many} cores"),
    ):
        result = call(2, *words, "--", "true", **how)
        same(result.code, 69, f"the exit code of\n{result}\n")
        same((result.out, result.err.count("\n")), ("", 1), f"what is printed by\n{result}\n")
        check(text in result.err, f"no {text!r}:\n{result}")


def case_the_command_is_run_as_it_is_and_its_exit_code_passes():
    for code, command in (
        (0, ("true",)),
        (7, ("sh", "-c", "exit 7")),
        (127, ("no-such-command",)),
        (137, ("sh", "-c", "kill -9 $$")),
    ):
        lab(2, *command, code=code)
    words = ["a b", "$HOME", "'", "--", "-x", ""]
    same(lab(2, "printf", "[%s]", *words).out, "".join(f"[{word}]" for word in words), "words")
    same(sh(2, "pwd; id -u").split(), [str(harness.scratch), "0"], "folder and user")
    result = subprocess.run([NETLAB, "2", "--", "cat"], input=b"hello", capture_output=True,
                            check=True, timeout=60)
    same(result.stdout, b"hello", "what came through stdin")


# ---- what hosts are ----


def case_hosts_have_names_addresses_and_memory_of_their_own_and_share_files():
    text = sh(3, """
        exec 2>&1
        for host in h1 h2 h3; do
            "$NETLAB_AGENT" $host 'echo $(hostname) $(ip -4 -o address | wc -l)'
        done
        touch here /dev/shm/segment
        "$NETLAB_AGENT" h2 "ls $PWD/here /dev/shm | wc -l; ls /sys/class/net"
        echo $NETLAB_HOSTS
        SECRET=1 "$NETLAB_AGENT" h2 'echo ${SECRET-none} ${OMPI_MCA_btl-none} $HOME; pwd'
        "$NETLAB_AGENT" h2 exit 9 || echo $?
        "$NETLAB_AGENT" h4 true || echo $?
        ip -4 route
        """, env={**os.environ, "HOME": "/"}).splitlines()
    same(text[:3], ["h1 2", "h2 2", "h3 2"], f"names and addresses in {text}")
    # ls: the file, an empty line, "/dev/shm:" without the first host's segment
    same(text[3:6], ["3", "eth0", "lo"], f"what the second host sees, in {text}")
    same(text[6:9], ["h1,h2,h3", "none none /", "/"], f"the environment, in {text}")
    same(text[9:12], ["9", "netlab: no host h4", "255"], f"exit codes, in {text}")
    same([line.split(" dev")[0] for line in text[12:]], ["10.99.0.0/24"], f"routes in {text}")


def case_mpirun_spreads_its_ranks_over_all_hosts():
    show = ("echo $OMPI_COMM_WORLD_RANK $(hostname) $OMPI_COMM_WORLD_LOCAL_SIZE "
            "$OMPI_MCA_btl_tcp_if_include")
    for hosts, flags, ranks, expected in (
        (2, (), 2, ["h1", "h2"]),
        (2, (), 4, ["h1", "h1", "h2", "h2"]),
        (2, ("--slots", 2), 3, ["h1", "h1", "h2"]),
        (3, (), 3, ["h1", "h2", "h3"]),
    ):
        text = lab(hosts, "mpirun", "-np", ranks, "sh", "-c", show, flags=flags).out
        lines = sorted(text.splitlines())
        wanted = [f"{rank} {host} {expected.count(host)} eth0"
                  for rank, host in enumerate(expected)]
        same(lines, wanted, f"ranks of mpirun -np {ranks} on {hosts} hosts")


def case_cores_are_shared_out():
    mine = sorted(os.sched_getaffinity(0))
    show = ("for host in h1 h2; do \"$NETLAB_AGENT\" $host python3 -c "
            "'\"import os; print(*sorted(os.sched_getaffinity(0)))\"'; done")
    each = max(len(mine) // 2, 1)
    turns = [[mine[(i * each + j) % len(mine)] for j in range(each)] for i in range(2)]
    for flags, expected in (
        ((), turns),
        (("--cores", "shared"), [mine, mine]),
        (("--cores", 1), [mine[:1], mine[1:2]]),
    ):
        if "1" in map(str, flags) and len(mine) < 2:
            continue
        text = sh(2, show, flags=flags)
        found = [[int(core) for core in line.split()] for line in text.splitlines()]
        same(found, expected, f"cores with {flags}")


# ---- training over them ----


def train_in_lab(hosts, ranks, *arguments, flags=()):
    need_lab()
    wrapper = [str(NETLAB), str(hosts), *map(str, flags), "--"]
    result = Started(arguments, ranks, wrapper=wrapper).finish()
    check(result.code == 0 and not result.errors, f"it failed:\n{result}")
    return result


def case_a_run_sees_nodes():
    cfg = small_cfg()
    for hosts, ranks in ((2, 2), (2, 4), (3, 3)):
        text = train_in_lab(hosts, ranks, cfg, "--dry-run").out
        check(f" on {ranks} ranks, {hosts} nodes, " in text, f"not {hosts} nodes:\n{text}")
        check(re.search(r"sharing by \S+ \(measured: ", text),
              f"no reason for the strategy:\n{text}")
        found = re.findall(r"rank (\d+): host (\w+)", text)
        each = ranks // hosts
        same(found, [(str(r), f"h{r // each + 1}") for r in range(ranks)], "hosts of ranks")


def case_runs_over_hosts_give_the_result_of_one_node():
    cfg = small_cfg()
    steps = ("--steps", 60, "--set", "comm.strategy=ring", *harness.known_baseline())
    for ranks in (2, 4):
        outs = [harness.scratch / f"{place}-{ranks}" for place in ("node", "lab")]
        train_well(cfg, *steps, "--out", outs[0], ranks=ranks)
        train_in_lab(2, ranks, cfg, *steps, "--out", outs[1])
        node, hosts = (run_json(out) for out in outs)
        same({rank["host"] for rank in hosts["ranks"]}, {"h1", "h2"}, "hosts in run.json")
        same(hosts["wire_bytes_per_step"], node["wire_bytes_per_step"], "wire_bytes_per_step")
        close(hosts["final"]["test_accuracy"], node["final"]["test_accuracy"], 0.01, "accuracy")
        for loss in ("train_loss", "test_loss"):
            close(hosts["final"][loss], node["final"][loss], 1e-3, f"{loss} on {ranks} ranks")


def case_strategies_of_two_levels_sum_over_hosts():
    """Those of tests/mpi/mpi_collectives.c, also on unequal hosts, with ranks in turns and not."""
    need_lab()
    for hosts, ranks, how, texts in (
        (2, 4, "npernode 2", ("hier:outer=direct", "hier:rails=1", "hier:rails=1,outer=mpi")),
        (2, 3, "map-by node", ("hier", "direct")),
        (3, 4, "host h1:2,h2:1,h3:1", ("hier", "direct")),
    ):
        result = lab(hosts, harness.ROOT / "launch/mpirun", "-np", ranks, *f"--{how}".split(),
                     "--bind-to", "none", harness.build / "mpi_collectives", *texts, timeout=120)
        for text in texts:
            check(f"{text}: right on {ranks} ranks" in result.out, f"{text}:\n{result}")


def case_the_bytes_a_run_reports_are_those_on_the_wire():
    """Bytes the interface sent for 30 steps more, against the gradient's: headers, acknowledgements
    of the other direction and the launcher's messages come on top. A run of under 40 steps measures
    the wire's speed with few bytes."""
    need_lab()
    cfg = small_cfg(mlp_layers(2048, 256))
    count = "cat /sys/class/net/eth0/statistics/tx_bytes"
    train = f'{harness.ROOT}/launch/mpirun -np 2 {harness.build}/ddp_train "$@" >log 2>&1'
    sent, wire = [], 0
    for steps in (8, 38):
        out = harness.scratch / f"out-{steps}"
        words = (cfg, "--steps", steps, "--set", "comm.strategy=ring", "--out", out)
        sent.append(int(lab(2, "sh", "-c", f"{train}; {count}", "sh", *words).out))
        wire = run_json(out)["wire_bytes_per_step"]
    gradient = 4 * (64 * 2048 + 2048 + 2048 * 256 + 256 + 256 * 10 + 10)
    check(gradient <= wire <= 1.02 * gradient, f"{wire} bytes a step, for a gradient of {gradient}")
    ratio = (sent[1] - sent[0]) / (30 * wire)
    check(1.0 <= ratio <= 1.15, f"the interface sent {ratio:.3f} times the bytes reported")


# ---- the wire ----


def goodput(result):
    return json.loads(result.out)


def case_the_rate_is_kept():
    for mbit in (50, 200):
        words = (GOODPUT, "--seconds", 0.4, "--windows", 5)
        for left in reversed(range(TRIES)):
            found = goodput(lab(2, *words, flags=("--rate", f"{mbit}mbit")))
            shares = [found[key] / (mbit * MBIT) for key in ("goodput", "to_first", "to_second")]
            check(max(shares) <= 1.0, f"more than {mbit} Mb/s: {found}")
            if min(shares) >= 0.85:
                break
            check(left > 0, f"{mbit} Mb/s are never filled: {found}")
        same((found["hosts"], found["rate"]), (["h1", "h2"], f"{mbit}mbit"), "the lab in the line")


def case_every_interface_is_limited_at_both_ends():
    script = """
        for port in 1 2 3; do
            "$NETLAB_AGENT" h$port tc qdisc show dev eth0
            nsenter --target 1 --net tc qdisc show dev h$port
        done; cat /proc/sys/net/ipv4/tcp_congestion_control"""
    *lines, control = sh(3, script, flags=("--rate", "80mbit")).splitlines()
    check(control in ("cubic", "reno"), f"the machine's own {control}")
    same(len(lines), 6, f"queues in {lines}")
    for line in lines:
        shape = r"qdisc tbf \w+: root .*rate 80Mbit burst 1[23]\d+(b|Kb) lat 50"
        check(re.match(shape, line), line)


def case_a_host_receives_from_all_others_together_at_most_its_rate():
    words = f"{GOODPUT} --seconds 0.4 --windows 5 --hosts"
    text = sh(3, f"{words} h1,h2 & {words} h1,h3; wait", flags=("--rate", "80mbit"))
    found = [json.loads(line) for line in text.splitlines()]
    for key in ("to_first", "to_second"):
        share = sum(one[key] for one in found) / (80 * MBIT)
        check(share <= 1.15, f"{key} is {share:.2f} of 80 Mb/s: {found}")


def case_two_labs_do_not_meet():
    need_lab()
    rates, told = (50, 100), harness.scratch / "told"
    script = (f"until test -e {told}; do sleep 0.05; done; "
              f"exec {GOODPUT} --seconds 0.4 --windows 5")
    both = [subprocess.Popen([NETLAB, "2", "--rate", f"{rate}mbit", "--", "sh", "-c", script],
                             stdout=subprocess.PIPE, text=True) for rate in rates]
    patterns = [rf": running: pid {process.pid}, 2 hosts at {rate}mbit: "
                for rate, process in zip(rates, both)]
    end, status = time.monotonic() + harness.PATIENCE, ""
    while time.monotonic() < end and not all(re.search(p, status) for p in patterns):
        status = call("--status").out
    told.touch()
    texts = [process.communicate(timeout=harness.PATIENCE)[0] for process in both]
    for rate, process, text in zip(rates, both, texts):
        same(process.returncode, 0, "the exit code")
        share = json.loads(text)["goodput"] / (rate * MBIT)
        check(share <= 1.0, f"{share:.2f} of {rate} Mb/s")  # how much, the wire's own test tells
    check(all(re.search(p, status) for p in patterns), f"never both in --status:\n{status}")


def case_a_lab_may_hold_another_one():
    text = sh(2, f"""
        "{NETLAB}" 3 --rate 50mbit -- sh -c 'echo $NETLAB_HOSTS; ip -4 route | wc -l'
        "{NETLAB}" --clean | grep -c "$(dirname $NETLAB_AGENT)" """, code=1)
    same(text.split(), ["h1,h2,h3", "1", "0"], "what the inner lab says, and its own folder")


# ---- nothing stays ----


class Running:
    """A lab whose command runs until it is asked to end: the namespaces and processes it has."""

    SCRIPT = ("trap 'exit 5' TERM INT HUP; setsid sleep 600 & "
              "\"$NETLAB_AGENT\" h2 'setsid sleep 600 & echo up; wait' & "
              "while :; do sleep 0.05; done")

    def __init__(self, script=SCRIPT, launcher=()):
        need_lab()
        self.links, self.mark, self.held = links(), uuid.uuid4().hex, []
        command = [*launcher, NETLAB, "2", "--", "sh", "-c", script]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=harness.environment(self.mark))

    def __enter__(self):
        try:
            self.look_inside()
        except BaseException:
            self.__exit__()
            raise
        return self

    def look_inside(self):
        same(self.process.stdout.readline(), "up\n", "what the command says first")
        self.folder, netlab = next(
            (path, stamp["pid"]) for path, stamp in stamps()
            if stamp["pid"] in (self.process.pid, *children(self.process.pid)))
        init = children(netlab)[0]
        self.pids = {os.readlink(f"/proc/{init}/ns/pid")}
        inside = processes_in("pid", self.pids)
        self.spaces = set(namespaces("net", inside).values())
        # As long as they are open, no other lab's namespaces get the same numbers.
        self.held = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY)
                     for pid in (init, *children(init)) for kind in ("pid", "net")]
        same(len(self.spaces), 3, "network namespaces: the switch's and two hosts'")
        check(len(inside) >= 7, f"only {len(inside)} processes: nothing is watched")

    def __exit__(self, *how):
        harness.end_all(self.mark)
        self.process.communicate()
        for held in self.held:
            os.close(held)

    def check_gone(self, what, folder=False):
        end = time.monotonic() + harness.PATIENCE / 4
        while time.monotonic() < end and (processes_in("pid", self.pids)
                                          or self.folder.exists() != folder):
            time.sleep(0.02)
        same(processes_in("pid", self.pids), [], f"processes left {what}")
        same(processes_in("net", self.spaces), [], f"processes left in the hosts {what}")
        same(links(), self.links, f"interfaces and named namespaces {what}")
        same(self.folder.exists(), folder, f"whether the folder exists {what}")


def links():
    """Interfaces and named network namespaces of this machine, and mounts that hold one."""
    mounts = pathlib.Path("/proc/self/mounts").read_text().splitlines()
    return (sorted(os.listdir("/sys/class/net")), [line for line in mounts if "nsfs" in line])


def stamps():
    for path in RUN.glob("lockstep-netlab-*"):
        with contextlib.suppress(OSError, ValueError):  # of a lab that begins or ends
            yield path, json.loads((path / "stamp").read_text())


def children(pid):
    """Those of a process; none once it has ended."""
    with contextlib.suppress(OSError):
        return [int(word) for word in
                pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def namespaces(kind, pids):
    """Process id -> its namespace of that kind, of those that still live."""
    found = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            found[pid] = os.readlink(f"/proc/{pid}/ns/{kind}")
    return found


def processes_in(kind, spaces):
    everybody = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid, space in namespaces(kind, everybody).items() if space in spaces]


def case_nothing_is_left_when_the_command_ends_or_fails():
    for code in (0, 3):
        told = harness.scratch / f"told-{code}"
        script = Running.SCRIPT.replace("while :;", f"while ! test -e {told};") + f"; exit {code}"
        with Running(script) as running:
            told.touch()
            same(running.process.wait(harness.PATIENCE), code, "the exit code")
            running.check_gone(f"after exit {code}")


def case_a_signal_ends_the_command_and_then_all():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with Running() as running:
            running.process.send_signal(number)
            same(running.process.wait(harness.PATIENCE), 5, f"the exit code after {number.name}")
            running.check_gone(f"after {number.name}")


def case_a_command_that_does_not_listen_is_killed_at_the_second_signal():
    for number in (signal.SIGTERM, signal.SIGINT):
        with Running(Running.SCRIPT.replace("'exit 5'", "'echo heard'")) as running:
            running.process.send_signal(number)
            same(running.process.stdout.readline(), "heard\n",
                 f"what the command makes of {number.name}")
            same(running.process.poll(), None, f"the end after one {number.name}")
            running.process.send_signal(number)
            same(running.process.wait(harness.PATIENCE), 128 + number,
                 f"the exit code after two {number.name}")
            running.check_gone(f"after two {number.name}")


def case_a_killed_netlab_leaves_a_folder_which_clean_removes():
    with Running() as running:
        text = call("--clean").out
        check(f"{running.folder}: running: " in text, f"--clean of a living lab:\n{text}")
        running.process.kill()
        running.process.wait(harness.PATIENCE)
        running.check_gone("after SIGKILL", folder=True)
        check(f"{running.folder}: left behind: " in call("--status").out, "not in --status")
        check(f"{running.folder}: removed: " in call("--clean").out, "not in --clean")
        running.check_gone("after --clean")


def case_a_lab_ends_with_the_shell_that_started_it():
    with Running(launcher=("sh", "-c", '"$@" & wait', "sh")) as running:
        running.process.kill()
        running.process.wait(harness.PATIENCE)
        running.check_gone("after the death of the shell")


if __name__ == "__main__":
    harness.main(globals())
