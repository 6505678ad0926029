"""Systems that lack what one takes for granted."""
import os
import shutil

import harness
import lab
from harness import check
from lab import QUICK, attempt, case, cfg, mounted, python, same_weights, says, shell, whole

GROUP = "surroundings"
SUMS = ("-b", 64, "-e", 65536, "-n", 2, "-w", 0)


def trains(wrapper, codes=frozenset({0}), ranks=0, bits=True, **how):
    out = harness.scratch / "out"
    result = attempt(cfg(), *QUICK, "--out", out, wrapper=wrapper, codes=codes, ranks=ranks,
                     told=ranks == 0, **how)
    if result.code == 0 and not ranks and bits:
        same_weights(out)
    if result.code == 0:
        whole(out)
    return says(result)


WITHOUT = {folder: (folder, "ro") for folder in ("/proc", "/sys", "/dev/shm", "/dev", "/run")}
for name, (folder, options) in WITHOUT.items():
    @case(GROUP, f"train alone without {name}", "0")
    def _(folder=folder, options=options):
        return trains(mounted(options, folder))

    @case(GROUP, f"bench alone without {name}", "0")
    def _(folder=folder, options=options):
        return says(attempt(*SUMS, program="ddp_bench", wrapper=mounted(options, folder),
                            codes={0, 69}))

    @case(GROUP, f"2 ranks without {name}", "0, or an end of both")
    def _(folder=folder, options=options):
        return trains(mounted(options, folder), codes=range(256), ranks=2)

NAMED = {
    "argv[0] empty": shell('exec -a "" "$@"'),
    "argv[0] a flag": shell('exec -a --help "$@"'),
    "argv[0] of escapes": shell("exec -a $'\\e[2J\\n' \"$@\""),
    "argv[0] of 100 KB": shell('exec -a "$(head -c 100000 /dev/zero | tr \\\\0 a)" "$@"'),
    "no argv[0]": python("import ctypes\nclass N: pass\n"
                         "libc = ctypes.CDLL(None)\n"
                         "a = (ctypes.c_char_p * len(sys.argv))(b'', *map(os.fsencode, "
                         "sys.argv[2:]), None)\nlibc.execv(os.fsencode(sys.argv[1]), a)"),
    "started by the dynamic loader": ["/lib64/ld-linux-x86-64.so.2"],
    "an empty environment": ["env", "-i"],
    "GOMP_SPINCOUNT empty": ["env", "GOMP_SPINCOUNT="],
    "umask 777": shell('umask 777; exec "$@"'),
    "umask 0": shell('umask 0; exec "$@"'),
    "nice 19": ["nice", "-n", "19"],
    "SCHED_IDLE": ["chrt", "-i", "0"],
    "one core": ["taskset", "-c", "0"],
    "no network": ["unshare", "-n"],
    "a pid namespace of its own, /proc of another": ["unshare", "-pf"],
    "a session of its own": ["setsid", "-w"],
    "PATH empty": ["/usr/bin/env", "PATH="],
    "100 KB in a variable": shell('export X=$(head -c 100000 /dev/zero | tr \\\\0 a); exec "$@"'),
    "HOME and XDG_CACHE_HOME unset": ["env", "-u", "HOME", "-u", "XDG_CACHE_HOME"],
    "no_new_privs": ["setpriv", "--no-new-privs"],
    "address randomisation off": ["setarch", "-R"],
}
for name, wrapper in NAMED.items():
    @case(GROUP, f"train alone, {name}", "0, files as ever")
    def _(wrapper=wrapper):
        if shutil.which(wrapper[0]) is None:
            raise harness.Skipped(f"no {wrapper[0]} here")
        return trains(wrapper, {0, 74} if "umask 777" in " ".join(wrapper) else {0},
                      bits="taskset" not in wrapper)  # they depend on the number of threads

for name in ("one core", "no network", "a session of its own", "umask 0",
             "HOME and XDG_CACHE_HOME unset", "SCHED_IDLE"):
    @case(GROUP, f"2 ranks, {name}", "0, or an end of both")
    def _(name=name):
        return trains(NAMED[name], codes={0} if name != "no network" else range(256), ranks=2)


@case(GROUP, "each of 2 ranks is started by the dynamic loader", "0")
def _():
    return trains(lab.each_rank(["/lib64/ld-linux-x86-64.so.2"]), bits=False)


@case(GROUP, "the program in a folder of odd names, by a link, and deleted as it starts", "0")
def _():
    folder = harness.scratch / "a b\n$(x) (deleted)"
    folder.mkdir()
    shutil.copy(harness.build / "ddp_train", folder / "ddp_train")
    os.symlink(folder / "ddp_train", harness.scratch / "link")
    for path in (folder / "ddp_train", harness.scratch / "link"):
        shutil.rmtree(harness.scratch / "out", ignore_errors=True)
        trains(shell(f"shift; exec '{path}' \"$@\""))
    shutil.rmtree(harness.scratch / "out")
    # The shell has it open as the kernel starts it, and its name is gone.
    script = f"shift; exec 9<'{folder}/ddp_train'; rm '{folder}/ddp_train'; exec /proc/self/fd/9"
    return trains(shell(script + ' "$@"'))


@case(GROUP, "2 ranks, little more than mpirun in PATH", "0")
def _():
    folder = harness.scratch / "bin"
    folder.mkdir()
    for name in ("mpirun", "orted", "sh", "readlink", "dirname", "env", "false"):
        os.symlink(shutil.which(name), folder / name)
    return trains(["env", f"PATH={folder}", "OMPI_MCA_plm_rsh_agent=false"], ranks=2)


@case(GROUP, "2 ranks, one of them of another program", "an end of both, no wait")
def _():
    out = harness.scratch / "out"
    result = attempt(cfg(), *QUICK, "--out", out, ":", "-np", 1, "sleep", 1, ranks=1,
                     codes=range(256), told=False)
    check(result.seconds < lab.LIMIT_S, "it waited")
    return says(result)


@case(GROUP, "2 ranks, train and bench in one job", "an end of both, one line")
def _():
    return says(attempt(cfg(), *QUICK, "--out", harness.scratch / "out", ":", "-np", 1,
                        harness.build / "ddp_bench", *SUMS, ranks=1,
                        codes={64, 69, 70, 78}, told=False))
