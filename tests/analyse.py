#!/usr/bin/env python3
"""Runs one of the outside tools over all sources: format, tidy or cppcheck.

    tests/analyse.py format
    tests/analyse.py tidy BUILD       BUILD/compile_commands.json says how files are compiled
    tests/analyse.py cppcheck

With DP_TEST_LONG=1 in the environment clang-tidy looks deeper, for five times as long. Exit code
77: the tool is not installed, or is of another version and would find other things.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

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
    commands = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    paths = sorted({command["file"] for command in commands})
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for path, code, said in pool.map(lambda path: tidy_one(tool, build, path), paths):
            if code != 0:
                failed += 1
                print(f"--- {os.path.relpath(path, ROOT)}\n{said}", flush=True)
    print(f"clang-tidy: {len(paths)} files, {failed} with findings")
    return 1 if failed or not paths else 0


def cppcheck_code():
    tool = shutil.which("cppcheck")
    if tool is None:
        print("skipped: cppcheck is not installed")
        return SKIPPED
    command = [
        tool, "--std=c11", "--enable=warning,performance,portability", "--inline-suppr",
        "--error-exitcode=1", "-q", "-I.", "-j2", *(t for t in TOPS if (ROOT / t).is_dir()),
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def main(arguments):
    if arguments == ["format"]:
        return format_code()
    if arguments[:1] == ["tidy"] and len(arguments) == 2:
        return tidy_code(arguments[1])
    if arguments == ["cppcheck"]:
        return cppcheck_code()
    print(__doc__, file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
