"""A copy of the sources with a build of its own, in which one file at a time is another. Commands
are those of ninja, without ninja: what it would find out each time anew is known here.

What mutants do cannot be known, so their programs run in namespaces of their own, where they see
only processes that they started, and can write only to this copy (and to a /tmp of their own, where
the copy is not in /tmp).
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ROOMS = ("collectives", "runtime/trainer", "runtime/checkpoint", "runtime/data", "kernels/cpu")
# Of GPUs: what they do is tested in another build (tests/sanitize cuda-host).
ELSEWHERE = re.compile(r"collectives/gpu/|strategies/strategy_(nccl|ipc|staged)|exchange/staging")
RUNS = ("lanes", "restart")  # of short_runs.py
MPI = {"mpi_collectives_3": (3, "mpi_collectives"), "mpi_trainer_2": (2, "mpi_trainer")}
PLAIN = ("-O1", "-DNDEBUG", "-w")
# More memory or larger files are a mutant's own.
LIMITS = "ulimit -c 0 -f 2000000; "
SANDBOX = """\
mount --bind "$0" "$0" && mount -o remount,bind,ro / && mount -t tmpfs tmpfs /dev/shm &&
case $0 in /tmp/*) ;; *) mount -t tmpfs tmpfs /tmp ;; esac && shift && exec "$@\""""


class Unusable(Exception):
    """No mutants can be tried here; the text says why."""


def run(words, cwd, **how):
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True,
                          check=False, **how)


def well(words, cwd, **how):
    done = run(words, cwd, **how)
    if done.returncode != 0:
        raise Unusable(f"{shlex.join(map(str, words))}: {(done.stdout + done.stderr)[-800:]}")
    return done


class Tree:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.source, self.build = self.folder / "source", self.folder / "build"
        self.commands, self.links, self.archives = {}, {}, {}

    def copy(self):
        """The files that git knows, as they are now."""
        names = well(["git", "ls-files", "-z"], ROOT).stdout.split("\0")
        for name in filter(None, names):
            if (ROOT / name).exists():
                target = self.source / name
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.exists() or target.read_bytes() != (ROOT / name).read_bytes():
                    shutil.copy2(ROOT / name, target, follow_symlinks=False)

    def make(self, flags):
        """Configures and builds what the tests need; `flags` are the compiler's."""
        cache = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []
        mold = ["-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=mold"] if shutil.which("mold") else []
        env = {**os.environ, "CCACHE_BASEDIR": str(self.folder), "CCACHE_NOHASHDIR": "1"}
        well(["cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=",
              f"-DCMAKE_C_FLAGS={flags}", "-DDP_TESTS=ON", *cache, *mold], self.folder, env=env)
        programs = {name for test in self.tests() for name in self.programs_of(test)}
        well(["ninja", "-C", self.build, *sorted(programs)], self.folder, env=env)

    def learn(self):
        """How objects, archives and programs are made."""
        for entry in json.loads((self.build / "compile_commands.json").read_text()):
            path = os.path.relpath(entry["file"], self.source)
            words = shlex.split(entry["command"])
            words = words[1:] if words[0].endswith("ccache") else words
            self.commands.setdefault(path, (words, words[words.index("-o") + 1]))
        for archive in self.build.glob("*.a"):
            self.archives[archive.name] = self.last_command(archive.name)

    def last_command(self, target):
        return well(["ninja", "-t", "commands", target], self.build).stdout.splitlines()[-1]

    def link(self, program):
        if program not in self.links:
            self.links[program] = self.last_command(program)
        well(["sh", "-c", self.links[program]], self.build)

    def compile(self, path):
        """Compiles a file into its object, without counting lines, which it takes no time for, and
        optimized, so that what has no effect is the same code. Returns the compiler's words, None
        where it succeeds, and the code.
        """
        words, output = self.commands[path]
        words = [word for word in words if word != "--coverage" and "-fprofile" not in word]
        at = words.index("-o")
        done = run([*words[:at], *PLAIN, *words[at:]], self.build)
        return (None if done.returncode == 0 else done.stderr), (self.build / output).read_bytes()

    def archive(self, path):
        """Makes the archive anew that the object of a file is in."""
        name = re.search(r"CMakeFiles/(dp_\w+)\.dir/", self.commands[path][1])[1]
        well(["sh", "-c", self.archives[f"lib{name}.a"]], self.build)

    def start(self, test, limit_s):
        """Runs a test in its namespaces: (exit code, None where it took too long; output)."""
        scratch = self.folder / "tmp"
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir()
        words = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork",
                 "--kill-child", "--mount-proc", "sh", "-c", LIMITS + SANDBOX, self.folder, "-",
                 *self.words_of(test)]
        env = {**os.environ, "TMPDIR": str(scratch), "OMPI_MCA_pml": "ob1", "OMP_NUM_THREADS": "2",
               "XDG_CACHE_HOME": str(scratch / "cache"), "HOME": str(scratch)}
        try:
            done = run(words, self.build, env=env, timeout=limit_s, stdin=subprocess.DEVNULL)
            return done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            return None, ""

    def words_of(self, test):
        if test in RUNS:
            return [sys.executable, "-B", self.source / "tests/mutation/short_runs.py", self.build,
                    test, self.folder / "expected"]
        if test in MPI:
            ranks, program = MPI[test]
            return [self.source / "launch/mpirun", "-np", ranks, self.build / program]
        return [self.build / test]

    def programs_of(self, test):
        return ["ddp_train"] if test in RUNS else [MPI[test][1]] if test in MPI else [test]

    def tests(self):
        """The names of all tests: of units, on ranks of MPI, and short runs."""
        listed = json.loads(well(["ctest", "--show-only=json-v1"], self.build).stdout)["tests"]
        units = sorted(test["name"] for test in listed if test["name"].startswith("test_")
                       and any("unit" in p["value"] for p in test["properties"]
                               if p["name"] == "LABELS"))
        return [*units, *MPI, *RUNS]


def covered_by(tree, test, limit_s):
    """Path -> lines that the test executes, of the rooms; None where it does not pass."""
    data = tree.folder / "tmp/coverage"
    os.environ["GCOV_PREFIX"] = str(data)
    code, _ = tree.start(test, limit_s)
    del os.environ["GCOV_PREFIX"]
    if code != 0:
        return None
    found = {}
    inside = data / str(tree.build).lstrip("/")
    files = [path for path in inside.rglob("*.gcda") if path.relative_to(inside).parts[2] in
             ("collectives", "runtime", "kernels")]
    for path in files:  # gcov looks for them side by side
        notes = path.with_suffix(".gcno")
        notes.symlink_to(tree.build / notes.relative_to(inside))
    for begin in range(0, len(files), 50):
        text = run(["gcov", "--json-format", "--stdout", *files[begin:begin + 50]], inside).stdout
        for line in text.splitlines():
            for file in json.loads(line)["files"]:
                path = os.path.relpath(os.path.join(tree.build, file["file"]), tree.source)
                if path.startswith(ROOMS):
                    hit = {one["line_number"] for one in file["lines"] if one["count"] > 0}
                    found.setdefault(path, set()).update(hit)
    return found
