"""Jobs of a real Slurm, of one node, which this test starts and stops: the scripts of launch/slurm,
and ddp_sweep --slurm. Skipped where Debian's slurm-wlm and munge are missing, or without root.
"""
import contextlib
import ctypes
import json
import os
import pathlib
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import harness
from harness import ROOT, check, metrics, run_json, same, steps_done

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel", "scontrol")
PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
CONF = """\
ClusterName=lockstep
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
KillWait=5
MailProg=/bin/true
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=YES
"""
TINY = """\
name: tiny
data: {source: synthetic, samples: 256, test_samples: 64}
train: {global_batch: 32, steps: 20}
model:
  input: [8, 8, 1]
  layers:
    - flatten: {}
    - dense: {units: 10}
"""


def die_with_us():
    """In a child: it is killed when this test is."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Cluster:
    """Slurm's daemons, in a folder of their own."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-slurm-"))
        self.daemons, self.why_not = [], None
        sbin = os.pathsep.join([os.environ["PATH"], "/usr/sbin"])
        self.find = {name: shutil.which(name, path=sbin) for name in PROGRAMS}
        self.conf = self.folder / "slurm.conf"

    def start(self):
        missing = [name for name, path in self.find.items() if path is None]
        if missing:
            raise harness.Skipped(f"{missing[0]} is not installed: slurm-wlm, munge")
        if os.geteuid() != 0:
            raise harness.Skipped("only root can start Slurm's daemons")
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o400)
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
            for one in sockets:
                one.bind(("127.0.0.1", 0))
            ports = [one.getsockname()[1] for one in sockets]
        self.conf.write_text(CONF.format(host=os.uname().nodename.partition(".")[0], ports=ports,
                                         folder=self.folder))
        self.daemon("munged", "--foreground", "--force", "--num-threads=2",
                    *(f"--{name}={self.folder}/munge.{end}" for name, end in
                      (("key-file", "key"), ("socket", "sock"), ("pid-file", "pid"),
                       ("log-file", "log"), ("seed-file", "seed"))))
        self.wait("munge's socket", (self.folder / "munge.sock").exists)
        self.daemon("slurmctld", "-D", "-c", "-f", self.conf)
        self.daemon("slurmd", "-D", "-f", self.conf)
        self.wait("a node that is idle", lambda: "State=IDLE" in self.call(
            "scontrol", "show", "node").stdout)
        listed = self.call("srun", "--mpi=list")
        if "pmix" not in listed.stdout + listed.stderr:
            raise harness.Skipped("this Slurm has no PMIx, by which Open MPI's ranks start")

    def daemon(self, name, *words):
        with open(self.folder / f"{name}.out", "wb") as out:
            self.daemons.append(subprocess.Popen(
                [self.find[name], *map(str, words)], stdin=subprocess.DEVNULL, stdout=out,
                stderr=out, env=dict(os.environ, SLURM_CONF=str(self.conf)),
                preexec_fn=die_with_us))

    def wait(self, what, truth):
        """What does not come counts as: there is no Slurm here."""
        end = time.monotonic() + 30
        while not truth():
            if time.monotonic() > end or any(d.poll() is not None for d in self.daemons):
                text = "".join(path.read_text(errors="replace")[-300:]
                               for path in self.folder.glob("*.out"))
                raise harness.Skipped(f"Slurm does not start here: no {what}: {text.strip()!r}")
            time.sleep(0.05)

    def call(self, *words, **env):
        """One of Slurm's programs, to its end."""
        mark = harness.environment("slurm", {"SLURM_CONF": str(self.conf), **env})
        return subprocess.run([self.find.get(words[0], words[0]), *map(str, words[1:])],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, env=mark,
                              cwd=self.folder, timeout=harness.PATIENCE, check=False)

    def stop(self):
        if self.daemons:
            self.call("scancel", "--user=root")
            end = time.monotonic() + 20
            while self.call("squeue", "-h").stdout.strip() and time.monotonic() < end:
                time.sleep(0.1)
        for daemon in reversed(self.daemons):
            daemon.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(10)
            daemon.kill()
            daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


cluster = None


def slurm():
    """The cluster, started for the first case that wants it; all are skipped if it does not."""
    global cluster
    if cluster is None:
        cluster = Cluster()
        try:
            cluster.start()
        except harness.Skipped as why:
            cluster.why_not = str(why)
    if cluster.why_not is not None:
        raise harness.Skipped(cluster.why_not)
    return cluster


def tiny():
    path = harness.scratch / "tiny.cfg"
    path.write_text(TINY)
    return path


def submit(script, *words, flags=()):
    """The number of a job of a script of launch/slurm."""
    done = slurm().call("sbatch", "--parsable", f"--output={harness.scratch}/job.out",
                        *flags, ROOT / "launch/slurm" / script, *words, LOCKSTEP=str(harness.build))
    same(done.returncode, 0, f"what came of sbatch:\n{done.stderr}\n")
    return done.stdout.strip()


def until(what, truth):
    end = time.monotonic() + harness.PATIENCE
    while not truth():
        out = harness.scratch / "job.out"
        check(time.monotonic() < end, f"{what} did not come:\n"
              f"{out.read_text() if out.exists() else ''}\n{slurm().call('squeue').stdout}")
        time.sleep(0.1)


def state(job):
    return slurm().call("squeue", "-h", "-o", "%T", "-j", job).stdout.strip()


def sweep(*words, env=None):
    return slurm().call(str(harness.build / "ddp_sweep"), *words, **(env or {}))


def statuses(out):
    told = json.loads((out / "sweep.json").read_text())
    return [(p["ranks"], p["strategy"], p["status"], p["exit_code"]) for p in told["points"]]


def case_ranks_find_each_other_by_srun_without_mpirun():
    for script, flags in (("one_node.sbatch", ("--ntasks=2",)),
                          ("many_nodes.sbatch", ("--nodes=1", "--ntasks-per-node=2"))):
        out = harness.scratch / script
        job = submit(script, tiny(), "--out", out, flags=flags)
        until("the job's end", lambda job=job: state(job) == "")
        text = (harness.scratch / "job.out").read_text()
        check((out / "run.json").exists(), f"{script} left no run:\n{text}")
        same((run_json(out)["world_size"], run_json(out)["exit"]), (2, "finished"), "the run")


def case_a_job_that_is_stopped_goes_on_where_it_was():
    out = harness.scratch / "out"
    job = submit("preemptible.sbatch", tiny(), "--out", out, "--steps", 60,
                 flags=("--export=ALL,DP_FAULT=slow:ms=20",))
    until("step 5", lambda: steps_done(out) >= 5)
    slurm().call("scancel", "--signal=USR1", job)
    until("the job's end", lambda: state(job) != "RUNNING")
    check(steps_done(out) < 60, "it was not stopped")
    until("the job's end", lambda: state(job) == "")
    run = run_json(out)
    same((run["exit"], run["steps"]), ("finished", 60), "the run")
    check(5 <= run["resumed_from"] < 60, f"it did not go on from where it was: {run}")
    same([step["step"] for step in metrics(out, "step")], list(range(1, 61)), "steps")


def case_a_sweep_is_submitted_and_collected():
    out = harness.scratch / "out"
    words = (tiny(), "--ranks", "1,2", "--strategy", "shm,nccl", "--steps", 12, "--out", out,
             "--slurm", "--sbatch", "--oversubscribe")
    result = sweep(*words, "--no-wait")
    check(result.returncode == 0 and "submitted job" in result.stdout, f"{result}")
    jobs = json.loads((out / "slurm/jobs.json").read_text())["jobs"]
    same((len(jobs), len({job.partition("_")[0] for job in jobs.values()})), (4, 2), "jobs")
    until("the end of all jobs", lambda: not slurm().call("squeue", "-h").stdout.strip())
    result = sweep(*words, "--collect")
    check(result.returncode == 0 and "[4/4]" in result.stdout, f"{result}")
    same(statuses(out), [(1, "shm", "finished", 0), (2, "shm", "finished", 0),
                         (1, "nccl", "failed", 69), (2, "nccl", "failed", 69)], "points")
    # The same command submits what has failed once more, and waits for it.
    shutil.rmtree(out / "points/p1-shm-none-b32-r1")
    result = sweep(*words)
    check(result.returncode == 0 and "2 runs of 1 rank" in result.stdout
          and "1 run of 2 ranks" in result.stdout, f"{result}")
    same([status for *_, status, _ in statuses(out)], ["finished"] * 2 + ["failed"] * 2, "points")


def case_a_cancelled_job_is_a_failed_run():
    out = harness.scratch / "out"
    words = (tiny(), "--ranks", 1, "--steps", harness.ENDLESS // 10, "--out", out, "--slurm")
    sweep(*words, "--no-wait")
    job, = json.loads((out / "slurm/jobs.json").read_text())["jobs"].values()
    until("step 1", lambda: steps_done(out / "points/p1-auto-none-b32-r1") > 0)
    result = sweep(*words, "--collect")
    check("not run yet" in result.stdout, f"{result}")
    slurm().call("scancel", job)
    until("its end", lambda: state(job) == "")
    result = sweep(*words, "--collect")
    check("its job has ended without a result" in result.stdout, f"{result}")


def tune(*words):
    """ddp_tune --slurm, with the values that its seed draws first: shm and nccl, which is not
    here. All trials at once, or Optuna would wait for what came of them."""
    python = harness.python_with("optuna", "optuna==5.0.0", often=True)
    space = harness.scratch / "space.yaml"
    space.write_text("comm.strategy: {choice: [shm, nccl]}\n")
    return slurm().call(str(python), str(harness.build / "ddp_tune"), tiny(), space, "--slurm",
                        "--ranks", 2, "--set", "train.steps=12", "--sbatch", "--oversubscribe",
                        *words)


def case_trials_of_tuning_are_jobs_and_failed_ones_are_marked_failed():
    out = harness.scratch / "out"
    result = tune("--trials", 3, "--parallel", 3, "--out", out)
    check(result.returncode == 0 and "[3/3]" in result.stdout, f"{result}")
    check("FAILED with exit code 69" in result.stdout and "nccl" in result.stdout, f"{result}")
    check("strategy: shm" in (out / "best.yaml").read_text(), f"{result}")
    runs = [run_json(path) for path in sorted(out.glob("trials/*/run"))
            if (path / "run.json").exists()]
    check(runs and {run["world_size"] for run in runs} == {2}, f"{runs}")
    # The same command, with more trials, goes on.
    result = tune("--trials", 4, "--out", out)
    check(result.returncode == 0 and "3 are done" in result.stdout
          and "[4/4]" in result.stdout, f"{result}")


def case_jobs_that_a_killed_tuning_left_are_cancelled_by_the_next_start():
    out = harness.scratch / "out"
    python = harness.python_with("optuna", "optuna==5.0.0", often=True)
    space = harness.scratch / "space.yaml"
    space.write_text("optimizer.lr: {choice: [0.1]}\n")
    words = [str(python), str(harness.build / "ddp_tune"), tiny(), space, "--slurm", "--trials",
             "1", "--out", out, "--set", f"train.steps={harness.ENDLESS // 10}"]
    mark = harness.environment("slurm", {"SLURM_CONF": str(slurm().conf)})
    with subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, env=mark) as started:
        until("step 1", lambda: steps_done(out / "trials/0000/run") > 0)
        started.kill()
    queued = slurm().call("squeue", "-h", "-o", "%F").stdout.split()
    same(len(queued), 1, "jobs of the killed start")
    with subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                          env=mark) as started:
        until("the end of the first job", lambda: state(queued[0]) in ("", "COMPLETING"))
        until("the second job", lambda: slurm().call("squeue", "-h", "-o", "%F").stdout.split()
              not in ([], queued))
        started.send_signal(signal.SIGTERM)  # which ends its own job, too
        same(started.wait(harness.PATIENCE), 75, "the exit code")
    until("the end of all jobs", lambda: not slurm().call("squeue", "-h").stdout.strip())


def case_without_slurm_or_with_a_wrong_flag_a_sweep_says_so():
    out = harness.scratch / "out"
    result = sweep(tiny(), "--ranks", 1, "--out", out, "--slurm", "--sbatch", "--partition=none")
    check(result.returncode == 69 and "Invalid partition" in result.stderr, f"{result}")
    result = sweep(tiny(), "--ranks", 1, "--out", out, "--slurm",
                   env={"PATH": os.path.dirname(sys.executable) + ":/nowhere",
                        "SLURM_CONF": "/nowhere"})
    check(result.returncode == 69 and len(result.stderr.splitlines()) == 1, f"{result}")


if __name__ == "__main__":
    try:
        harness.main(globals())
    finally:
        if cluster is not None:
            cluster.stop()
