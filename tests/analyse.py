#!/usr/bin/env python3
"""Runs one of the outside tools over all sources: format, tidy or cppcheck.

    tests/analyse.py format
    tests/analyse.py tidy BUILD       BUILD/compile_commands.json says how files are compiled
    tests/analyse.py cppcheck
    tests/analyse.py --self           checks what this script itself decides

With DP_TEST_LONG=1 in the environment clang-tidy looks deeper, for five times as long. Exit code
77: the tool is not installed, or is of another version and would find other things.

Where there is ccache, its folder also keeps which files were clean to clang-tidy and to cppcheck:
while nothing that a finding could depend on has changed, they are not looked at again.
"""
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOPS = ("base", "kernels", "collectives", "models", "runtime", "launch", "tests", "benchmarks")
CLANG_VERSION = "14"
SKIPPED = 77
# How many states of a function the analyzer looks at before it goes on to the next one. A tenth of
# its default is a twelfth of its time, and leaves out some 2 of 1,200 blocks of the sources on
# which it works longest (its checker debug.Stats tells): the rest is other ways to the same blocks.
STATES = 225000 if os.environ.get("DP_TEST_LONG") else 20000


def sources(*suffixes):
    return sorted(p for top in TOPS for p in (ROOT / top).rglob("*") if p.suffix in suffixes)


def clang_tool(name):
    """The tool in our version, or None after saying why not."""
    found = None
    for candidate in (f"{name}-{CLANG_VERSION}", name):
        path = shutil.which(candidate)
        if path:
            shown = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
            found = re.search(r"version (\d+)", shown.stdout)
            if found and found.group(1) == CLANG_VERSION:
                return path
    reason = f"is version {found.group(1)}, not {CLANG_VERSION}" if found else "is not installed"
    print(f"skipped: {name} {reason}")
    return None


def format_code():
    tool = clang_tool("clang-format")
    if tool is None:
        return SKIPPED
    files = [str(path) for path in sources(".c", ".h", ".cu", ".cuh", ".cpp")]
    return subprocess.run([tool, "--dry-run", "-Werror", *files], cwd=ROOT, check=False).returncode


# ---- what is known to be clean ----

KEPT_DAYS = 30  # without being asked for


def known_folder(name):
    """A folder in that of ccache, or None where there is no ccache."""
    tool = shutil.which("ccache")
    shown = tool and subprocess.run([tool, "--get-config", "cache_dir"], capture_output=True,
                                    text=True, check=False).stdout.strip()
    if not shown:
        return None
    folder = pathlib.Path(shown) / "lockstep-analyses" / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            if path.is_file() and time.time() - path.stat().st_mtime > KEPT_DAYS * 86400:
                path.unlink(missing_ok=True)
    except OSError:
        return None
    return folder


def dependencies(build):
    """Source -> every file that was read to compile it, system headers too, as Ninja knows it."""
    tool = shutil.which("ninja")
    shown = tool and subprocess.run([tool, "-C", build, "-t", "deps"], capture_output=True,
                                    text=True, check=False).stdout
    found = {}
    for block in (shown or "").split("\n\n"):
        head, *rest = block.strip().splitlines() or [""]
        if head.endswith("(VALID)") and rest:
            paths = [os.path.normpath(os.path.join(build, line.strip())) for line in rest]
            found.setdefault(paths[0], set()).update(paths)
    return found


@functools.lru_cache(maxsize=None)
def content_hash(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def key_of(files, words, root):
    """A hash of the words, and of the names and contents of the files; the same in every clone."""
    parts = [str(word).replace(str(root), "<root>") for word in words]
    parts += [f"{path.replace(str(root), '<root>')} {content_hash(path)}" for path in sorted(files)]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def tidy_keys(tool, build, commands):
    """Source -> a hash of all that clang-tidy's findings depend on. Without those that were not
    compiled by Ninja."""
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    common = [version.stdout, (ROOT / ".clang-tidy").read_text(), content_hash(__file__), STATES]
    keys = {}
    for path, files in dependencies(build).items():
        own = sorted(command["command"] for command in commands if command["file"] == path)
        if own:
            keys[path] = key_of(files, [*common, *own], ROOT)
    return keys


def own_headers(path, root=ROOT):
    """A source and all of ours that it includes, as cppcheck finds them: it reads no others."""
    found, todo = set(), [pathlib.Path(path)]
    while todo:
        file = todo.pop()
        if str(file) in found or not file.is_file():
            continue
        found.add(str(file))
        for name in re.findall(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]',
                               file.read_text(errors="replace"), re.M):
            todo += [root / name, file.parent / name]
    return found


def check_self():
    """What must change a key does, and another clone does not."""
    def key(name, header="int x;", command="cc -c a.c"):
        with tempfile.TemporaryDirectory() as top:
            root = pathlib.Path(top) / name
            root.mkdir()
            (root / "a.c").write_text('#include "a.h"\n')
            (root / "a.h").write_text(header)
            return key_of(own_headers(f"{root}/a.c", root), [f"{command} -I{root}", "14"], root)

    wrong = [key("one") != key("another"), key("one") == key("one", header="int y;"),
             key("one") == key("one", command="cc -DA -c a.c")]
    print(f"{sum(wrong)} of {len(wrong)} things are wrong")
    return 1 if any(wrong) else 0


# ---- the tools ----


def tidy_one(tool, build, path):
    # Without optimisation, which turns functions of the C library into macros.
    done = subprocess.run(
        [tool, "--quiet", "-p", build, "--extra-arg=-O0",
         *(f"--extra-arg={word}" for word in ("-Xclang", "-analyzer-config", "-Xclang",
                                              f"max-nodes={STATES}")), path],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )
    return path, done.returncode, done.stdout


def has_omp_header(build):
    """Whether clang has an omp.h (Debian: libomp-14-dev); it cannot read gcc's."""
    tool = clang_tool("clang")
    probe = [tool or "false", "-fsyntax-only", "-x", "c", "-include", "omp.h", os.devnull]
    if subprocess.run(probe, cwd=build, capture_output=True, check=False).returncode == 0:
        return True
    print("skipped: clang has no omp.h (libomp-14-dev)")
    return False


def tidy_code(build):
    tool = clang_tool("clang-tidy")
    if tool is None or not has_omp_header(build):
        return SKIPPED
    build = os.path.realpath(build)
    commands = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    paths = sorted({command["file"] for command in commands})
    known = known_folder("tidy")
    keys = tidy_keys(tool, build, commands) if known else {}
    todo = [path for path in paths if path not in keys or not (known / keys[path]).exists()]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for path, code, said in pool.map(lambda path: tidy_one(tool, build, path), todo):
            if code != 0:
                failed += 1
                print(f"--- {os.path.relpath(path, ROOT)}\n{said}", flush=True)
            elif path in keys:
                (known / keys[path]).touch()
    for path in set(paths) - set(todo):
        (known / keys[path]).touch()  # for KEPT_DAYS more
    print(f"clang-tidy: {len(paths)} files, {len(paths) - len(todo)} of them as they were when "
          f"they were clean, {failed} with findings")
    return 1 if failed or not paths else 0


def cppcheck_code():
    tool = shutil.which("cppcheck")
    if tool is None:
        print("skipped: cppcheck is not installed")
        return SKIPPED
    command = [tool, "--std=c11", "--enable=warning,performance,portability", "--inline-suppr",
               "--error-exitcode=1", "-q", "-I.", "-j2"]
    version = subprocess.run([tool, "--version"], capture_output=True, text=True, check=False)
    words = [version.stdout, content_hash(__file__), *command[1:]]
    known = known_folder("cppcheck")
    files = [os.path.relpath(path, ROOT) for path in sources(".c", ".cpp")]
    keys = {file: key_of(own_headers(ROOT / file), [file, *words], ROOT) for file in files}
    todo = [file for file in files if not known or not (known / keys[file]).exists()]
    code = subprocess.run([*command, *todo], cwd=ROOT, check=False).returncode if todo else 0
    for file in files if known and code == 0 else ():
        (known / keys[file]).touch()
    print(f"cppcheck: {len(files)} files, {len(files) - len(todo)} of them as they were when they "
          f"were clean")
    return code


def main(arguments):
    if arguments == ["format"]:
        return format_code()
    if arguments[:1] == ["tidy"] and len(arguments) == 2:
        return tidy_code(arguments[1])
    if arguments == ["cppcheck"]:
        return cppcheck_code()
    if arguments == ["--self"]:
        return check_self()
    print(__doc__, file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
