"""Little of everything that a system can run out of."""
import os
import shutil

import harness
import lab
from harness import check
from lab import (MPIRUN, QUICK, attempt, case, cfg, each, each_rank, group_of, mounted, shell,
                 whole, says)

GROUP = "limits"
SUMS = ("-b", 64, "-e", 65536, "-n", 2, "-w", 0)
TOLD = {0, 66, 69, 74}  # 66: a file that cannot be opened
DEAD = {134, 137, 139, 127, 126}  # before main: by the kernel, by the loader, by the shell


def trains(wrapper, codes=frozenset(TOLD), told=True, ranks=0, out=None, flags=()):
    out = out or harness.scratch / "out"
    result = attempt(cfg(), *QUICK, "--set", "checkpoint.every_steps=2", *flags, "--out", out,
                     wrapper=wrapper, codes=codes, told=told, ranks=ranks)
    if result.code == 0:
        whole(out)
    elif out.is_dir() and (out / "config.yaml").exists():
        attempt(cfg(), *QUICK, "--out", out, "--resume", codes={0, 74})
    return result.code


def limited(letter, value, which="all"):
    guard = {"all": "true", "second": '[ "$OMPI_COMM_WORLD_RANK" = 1 ]',
             "first": '[ "$OMPI_COMM_WORLD_RANK" = 0 ]'}[which]
    return shell(f'if {guard}; then ulimit -{letter} {value} || exit 69; fi; exec "$@"')


ALONE = {
    "f": (1, 2, 8, 16, 64, 512),
    "n": (3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32),
    "v": (60000, 120000, 200000, 300000, 400000, 600000, 900000),
    "s": (64, 128, 256, 1024, "unlimited"),
    "d": (1000, 10000, 30000, 60000, 120000),
    "l": (0,), "c": ("unlimited",), "i": (0,), "m": (1000,), "e": (0,),
}
for letter, values in ALONE.items():
    @case(GROUP, f"train alone, ulimit -{letter} of {', '.join(map(str, values))}",
          "0, or one line; the loader's where there is too little for it")
    def _(letter=letter, values=values):
        early = letter in "nvsd"
        return each(values, lambda value: trains(
            limited(letter, value), TOLD | (DEAD if early else set()), told=not early))

for letter, values in {"f": (0, 8), "n": (6, 16, 20, 24, 32), "s": (128, 1024),
                       "v": (200000, 400000, 800000)}.items():
    for which in ("all", "second"):
        @case(GROUP, f"2 ranks, ulimit -{letter} of {', '.join(map(str, values))}, {which}",
              "an end of both")
        def _(letter=letter, values=values, which=which):
            return each(values, lambda value: trains(
                each_rank(limited(letter, value, which)), range(256), told=False))

for letter, values in {"f": (1, 8), "n": (4, 8, 16), "v": (120000, 300000), "s": (128,)}.items():
    @case(GROUP, f"bench alone, ulimit -{letter} of {', '.join(map(str, values))}",
          "0, or one line")
    def _(letter=letter, values=values):
        return each(values, lambda value: attempt(
            *SUMS, program="ddp_bench", wrapper=limited(letter, value), codes=TOLD | DEAD,
            told=False).code)


@case(GROUP, "train alone, ulimit -t 1", "the signal, and it goes on")
def _():
    out = harness.scratch / "out"
    flags = ("--set", "train.steps=1000000", "--set", "checkpoint.every_steps=100")
    attempt(cfg(), *QUICK, *flags, "--out", out, wrapper=shell('ulimit -t 1; exec "$@"'),
            codes={152, 137})
    step = harness.steps_done(out)
    return says(attempt(cfg(), *QUICK, *flags, "--out", out, "--resume", "--steps", step + 5,
                        codes={0}))


def as_nobody(limit):
    """A user without rights of which root's limit of processes does not count."""
    if os.geteuid() != 0:
        raise harness.Skipped("not root")
    out = harness.scratch / "theirs"
    out.mkdir()
    shutil.chown(out, 65534, 65534)
    harness.scratch.chmod(0o755)
    return ["prlimit", *limit, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
            "env", f"HOME={out}", f"XDG_CACHE_HOME={out}", f"TMPDIR={out}"], out


def try_as_nobody(ranks, codes):
    def go(most):
        wrapper, out = as_nobody([f"--nproc={most}:{most}"])
        if ranks:
            wrapper = [*wrapper, MPIRUN, "-np", str(ranks)]
        return trains(wrapper, codes, out=out / "out", told=False)  # root goes on with it
    return go


@case(GROUP, "train alone, ulimit -u of 1 to 12 as nobody", "0, or 69 with one line")
def _():
    return each((1, 2, 3, 4, 5, 6, 8, 12), try_as_nobody(0, {0, 69}))


@case(GROUP, "2 ranks, ulimit -u of 4 to 20 as nobody", "an end of both")
def _():
    return each((4, 8, 12, 16, 20), try_as_nobody(2, range(256)))


@case(GROUP, "--out that nobody may write into", "74")
def _():
    wrapper, out = as_nobody([])
    (out / "out").mkdir(0o755)
    return trains(wrapper, {74}, out=out / "out")


@case(GROUP, "a configuration and data that nobody may read", "66")
def _():
    wrapper, out = as_nobody([])
    shutil.copy(cfg(), out / "a.cfg")
    (out / "a.cfg").chmod(0)
    result = attempt(out / "a.cfg", wrapper=wrapper, codes={66})
    harness.small_data(out / "data")
    (out / "data").chmod(0)
    attempt(cfg(), "--set", f"data.dir={out}/data", wrapper=wrapper, codes={65, 66},
            cwd=out)
    return says(result)


@case(GROUP, "a run of root's that nobody goes on with", "74, nothing changed")
def _():
    wrapper, out = as_nobody([])
    lab.finished(out / "out")
    before = sorted((path, path.lstat().st_mtime_ns) for path in (out / "out").rglob("*"))
    result = attempt(cfg(), *QUICK, "--out", out / "out", "--resume", "--steps", 9,
                     wrapper=wrapper, codes={74})
    after = sorted((path, path.lstat().st_mtime_ns) for path in (out / "out").rglob("*"))
    harness.same(after, before, "the folder")
    return says(result)


def try_small(ranks):
    def go(options):
        out = harness.scratch / "small"
        out.mkdir()
        return attempt(cfg(), *QUICK, "--set", "checkpoint.every_steps=2", "--out", out / "out",
                       wrapper=mounted(options, out), codes={0, 74}, ranks=ranks).code
    return go


@case(GROUP, "--out on file systems of 4 to 128 KB and of 1 to 12 inodes", "0, or 74")
def _():
    return each([f"size={size}k" for size in (4, 16, 32, 48, 64, 128)]
                + [f"nr_inodes={count}" for count in (1, 2, 3, 4, 5, 6, 8, 10, 12)], try_small(0))


@case(GROUP, "2 ranks, --out on small file systems", "0, or 74 with one line")
def _():
    return each(("size=16k", "nr_inodes=5", "nr_inodes=8"), try_small(2))


SHARED = ("size=4k", "size=64k", "size=5m", "nr_inodes=1", "nr_inodes=2", "nr_inodes=3", "ro",
          "mode=000,size=1m")


@case(GROUP, "2 ranks, /dev/shm that is small, without inodes, read-only", "0, or one line")
def _():
    return each(SHARED, lambda options: trains(mounted(options, "/dev/shm"), TOLD, ranks=2,
                                               told=False))


@case(GROUP, "bench on 2 ranks, /dev/shm that is small, without inodes, read-only", "0")
def _():
    return each(SHARED, lambda options: attempt(
        *SUMS, program="ddp_bench", wrapper=mounted(options, "/dev/shm"), ranks=2, codes=TOLD,
        told=False).code)


for name in ("read-only", "full", "missing"):
    @case(GROUP, f"2 ranks, a session folder of Open MPI's that is {name}", "an end, no wait")
    def _(name=name):
        folder = harness.scratch / "session"
        if name != "missing":
            folder.mkdir()
        wrapper = [] if name == "missing" else mounted(
            "ro" if name == "read-only" else "size=4k,nr_inodes=4", folder)
        return trains(["env", f"TMPDIR={folder}", *wrapper], range(256), ranks=2, told=False)

def try_group(ranks):
    def go(megabytes):
        codes = TOLD | ({137, 1, 134, 135, 139} if megabytes < 96 else set())
        with group_of("memory", {"memory.limit_in_bytes": megabytes << 20}) as wrapper:
            return trains(wrapper, codes, ranks=ranks, told=False)
    return go


def try_processes(ranks, codes):
    def go(most):
        with group_of("pids", {"pids.max": most}) as wrapper:
            return trains(wrapper, codes, ranks=ranks, told=not ranks and most > 2)
    return go


for count in (0, 2):
    @case(GROUP, f"{count or 1} rank(s), a control group of 12 to 160 MB of memory",
          "0, or 69 with one line; killed below 96")
    def _(count=count):
        return each((12, 24, 48, 64, 96, 160), try_group(count))


@case(GROUP, "train alone, a control group of 1 to 8 processes", "0, or 69 with one line")
def _():
    return each((1, 2, 3, 4, 5, 6, 8), try_processes(0, {0, 69}))


@case(GROUP, "2 ranks, a control group of 4 to 24 processes", "an end of both")
def _():
    return each((4, 8, 12, 16, 20, 24), try_processes(2, range(256)))


for fault in ("train.global_batch=16777216", "model.layers[4].dense.units=16777216",
              "model.layers[0].conv2d.filters=65536", "data.source=synthetic",
              "checkpoint.keep=1000000", "train.lanes=1024", "comm.bucket_mb=0.004"):
    @case(GROUP, f"train alone, {fault}", "0, or one line before anything is taken")
    def _(fault=fault):
        extra = ("--set", "data.samples=2147483647") if "synthetic" in fault else ()
        result = attempt(cfg(), *QUICK, "--set", fault, *extra, "--steps", 2, "--out",
                         harness.scratch / "out", codes={0, 69, 78}, told=True,
                         wrapper=shell('ulimit -v 40000000; exec "$@"'))
        check(result.code == 0 or not (harness.scratch / "out/run.json").exists(), "it ran")
        return says(result)
