"""A copy of the sources with a build of its own, in which one file at a time is another. It is the
build of tests/run, whose objects a compiler cache has. Commands are those of ninja, without ninja:
what it would find out each time anew is known here. A mutant's object goes in front of the
archives, whose own is then left out.

What mutants do cannot be known, so their programs run in namespaces of their own, where they see
only processes that they started, and can write only to the folder of a worker, and to a /tmp of
their own.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROOMS = ("collectives", "runtime/trainer", "runtime/checkpoint", "runtime/data", "kernels/cpu")
# Of GPUs: what they do is tested in another build (tests/sanitize cuda-host).
ELSEWHERE = re.compile(r"collectives/gpu/|strategies/strategy_(nccl|ipc|staged)|exchange/staging")
RUNS = ("lanes", "restart")  # of short_runs.py
MPI = {"mpi_collectives_3": (3, "mpi_collectives"), "mpi_trainer_2": (2, "mpi_trainer"),
       "mpi_shrink": (4, "mpi_shrink")}
PLAIN = ("-O1", "-w")
# More processor time or larger files are a mutant's own. A test is not process 1 of its namespace,
# which has no parent, and which fewer signals end.
LIMITS = "ulimit -c 0; ulimit -f 2000000; ulimit -t {}; "
SETTINGS = {"OMPI_MCA_pml": "ob1", "OMP_NUM_THREADS": "2"}
SANDBOX = """\
mount --bind "$0" "$0" && mount -o remount,bind,ro / && mount -t tmpfs tmpfs /dev/shm &&
mount -t tmpfs tmpfs /tmp && shift && "$@"
exit $?"""


def in_rooms(path):
    return path.startswith(ROOMS) and path.endswith(".c") and not ELSEWHERE.search(path)


class Unusable(Exception):
    """No mutants can be tried here; the text says why."""


def run(words, cwd, **how):
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True,
                          errors="replace", check=False, **how)


def well(words, cwd, **how):
    done = run(words, cwd, **how)
    if done.returncode != 0:
        raise Unusable(f"{shlex.join(map(str, words))}: {(done.stdout + done.stderr)[-800:]}")
    return done


class Tree:
    """The sources and their build."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.source, self.build = self.folder / "source", self.folder / "source/build"
        self.commands, self.links = {}, {}

    def copy(self):
        """The files that git knows, as they are now."""
        names = well(["git", "ls-files", "-z"], ROOT).stdout.split("\0")
        for name in filter(None, names):
            if (ROOT / name).exists():
                target = self.source / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
                    shutil.copy2(ROOT / name, target, follow_symlinks=False)

    def make(self):
        """Configures and builds what the tests need, as tests/run does."""
        cache = [f"-DCMAKE_{language}_COMPILER_LAUNCHER=ccache" for language in ("C", "CXX")]
        mold = ["-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=mold"] if shutil.which("mold") else []
        env = {**os.environ, "CCACHE_BASEDIR": str(self.source), "CCACHE_NOHASHDIR": "1"}
        well(["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja",
              "-DCMAKE_BUILD_TYPE=Release", "-DDP_TESTS=ON", "-DDP_SANITIZE=", "-DDP_WERROR=ON",
              *(cache if shutil.which("ccache") else []), *mold], self.folder, env=env)
        programs = {name for test in self.tests() for name in self.programs_of(test)}
        well(["ninja", "-C", self.build, *sorted(programs)], self.folder, env=env)
        for entry in json.loads((self.build / "compile_commands.json").read_text()):
            path = os.path.relpath(entry["file"], self.source)
            words = shlex.split(entry["command"])
            words = words[1:] if words[0].endswith("ccache") else words
            self.commands.setdefault(path, words)

    def link_words(self, program):
        """The command that links a program."""
        if program not in self.links:
            text = well(["ninja", "-t", "commands", program], self.build).stdout.splitlines()[-1]
            self.links[program] = shlex.split(text.split("&&")[1])
        return list(self.links[program])

    @staticmethod
    def programs_of(test):
        return ["ddp_train"] if test in RUNS else [MPI[test][1]] if test in MPI else [test]

    def words_of(self, test, programs, expected):
        """The command of a test, with programs in that folder."""
        if test in RUNS:
            return [sys.executable, "-B", self.source / "tests/mutation/short_runs.py", programs,
                    test, expected]
        if test in MPI:
            ranks, program = MPI[test]
            return [self.source / "launch/mpirun", "-np", ranks, programs / program]
        return [programs / test]

    def tests(self):
        """The names of all tests: of units, on ranks of MPI, and short runs."""
        listed = json.loads(well(["ctest", "--show-only=json-v1"], self.build).stdout)["tests"]
        units = sorted(test["name"] for test in listed if test["name"].startswith("test_")
                       and any("unit" in p["value"] for p in test["properties"]
                               if p["name"] == "LABELS"))
        return [*units, *MPI, *RUNS]


class Bench:
    """The folder of a worker: a mutant's source and object, programs with it, and a TMPDIR."""

    def __init__(self, tree, folder):
        self.tree, self.folder, self.plain = tree, pathlib.Path(folder), {}
        self.programs, self.object = self.folder / "bin", self.folder / "mutant.o"
        self.programs.mkdir(parents=True, exist_ok=True)

    def compile(self, path, text):
        """Compiles a text in place of a file, optimized, so that what has no effect is the same
        code. Returns the compiler's words, None where it succeeds, and the code.
        """
        source = self.folder / "mutant" / path
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        words = [source if word == str(self.tree.source / path) else word
                 for word in self.tree.commands[path]]
        at = words.index("-o")
        same_names = f"-ffile-prefix-map={self.folder}/mutant={self.tree.source}"
        done = run([*words[:at], *PLAIN, same_names, "-o", self.object, *words[at + 2:]],
                   self.tree.build)
        failed = done.returncode != 0
        return (done.stderr if failed else None), (None if failed else self.object.read_bytes())

    def code_of(self, path):
        """What the compiler makes of the file as it is."""
        if path not in self.plain:
            words, self.plain[path] = self.compile(path, (self.tree.source / path).read_text())
            if words is not None:
                raise Unusable(f"{path}: {words[-800:]}")
        return self.plain[path]

    def link(self, program):
        words = self.tree.link_words(program)
        at = words.index("-o")
        words[at + 1] = self.programs / program
        well([*words[:at], self.object, *words[at:]], self.tree.build)

    def start(self, test, limit_s, cpu_s, programs=None):
        """Runs a test in its namespaces, by default one that was linked here: the exit code, None
        where it took too long."""
        scratch = self.folder / "tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        words = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork",
                 "--kill-child", "--mount-proc", "sh", "-c", LIMITS.format(cpu_s) + SANDBOX,
                 self.folder, "-", *self.tree.words_of(test, programs or self.programs,
                                                       self.folder / "expected")]
        env = {**os.environ, **SETTINGS, "TMPDIR": str(scratch),
               "XDG_CACHE_HOME": str(scratch / "cache"), "HOME": str(scratch)}
        try:
            return run(words, self.tree.build, env=env, timeout=limit_s,
                       stdin=subprocess.DEVNULL).returncode
        except subprocess.TimeoutExpired:
            return None
