"""Configuring a build: what is missing is one line that can be pasted into a shell, and a library
that lies in a folder of its own is found by all that include it.
"""
import json
import os
import re
import shlex
import subprocess

import harness
from harness import Result, check, same

EXTERNAL = re.compile(r"^\s*dp_find\((\w+) (\S+) ", re.M)  # name and header


def configure(*flags):
    command = ["cmake", "-S", harness.ROOT, "-B", harness.scratch / "build", *flags]
    done = subprocess.run(list(map(str, command)), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=harness.PATIENCE, check=False)
    return Result(command, done.returncode, done.stdout, done.stderr, 0)


def case_what_is_missing_is_one_line_of_packages():
    nothing = harness.scratch / "nothing"
    result = configure("-DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON",
                       "-DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON", f"-DCMAKE_FIND_ROOT_PATH={nothing}",
                       "-DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY")
    check(result.code != 0, f"nothing is missing:\n{result}")
    told = re.search(r"missing: (.*?) - on Debian or Ubuntu: apt-get install (.*?)\n\n",
                     re.sub(r"\n +", " ", result.err) + "\n\n", re.S)
    check(told, f"no such line:\n{result}")
    same(told[1].split(), told[2].split(), "what is to be installed")
    check({"libopenmpi-dev", "libyaml-dev"} <= set(told[2].split()), f"{result}")
    for package in told[2].split():
        check(re.fullmatch(r"[a-z0-9][a-z0-9.+-]+", package), f"no package: {package}\n{result}")


def case_a_library_in_a_folder_of_its_own_is_found_by_all_that_include_it():
    externals = dict(EXTERNAL.findall((harness.ROOT / "CMakeLists.txt").read_text()))
    folders = {header: harness.scratch / name for name, header in externals.items()}
    for folder in folders.values():
        folder.mkdir()
    result = configure(*(f"-DDP_{name}_INCLUDE={folders[header]}"
                         for name, header in externals.items()))
    same(result.code, 0, f"the exit code of\n{result}\n")
    commands = json.loads((harness.scratch / "build/compile_commands.json").read_text())
    seen = set()
    for entry in commands:
        with open(entry["file"], encoding="utf-8") as source:
            text = source.read()
        words = shlex.split(entry["command"])
        for header, folder in folders.items():
            if f"#include <{header}>" in text:
                seen.add(header)
                check(str(folder) in words, f"{entry['file']} is not told where {header} is")
    check({"xxhash.h", "hwloc.h", "cblas.h"} <= seen, f"only {seen} are included")


def architectures(*flags, **env):
    """Which GPUs kernels are compiled for, and the least capability, where this is asked for."""
    script = harness.scratch / "ask.cmake"
    script.write_text(f"include({harness.ROOT}/kernels/cuda/architectures.cmake)\n"
                      "dp_default_architectures()\n"
                      'if(NOT CMAKE_CUDA_ARCHITECTURES)  # as enabling CUDA does\n'
                      '  set(CMAKE_CUDA_ARCHITECTURES "$ENV{CUDAARCHS}")\nendif()\n'
                      "dp_least_capability(least)\n"
                      'message("${CMAKE_CUDA_ARCHITECTURES} ${least}")\n')
    done = subprocess.run(["cmake", *flags, "-P", script], capture_output=True, text=True,
                          env={**os.environ, **env}, timeout=harness.PATIENCE, check=False)
    return done.stderr.strip()


def case_kernels_are_compiled_for_the_gpus_that_are_asked_for():
    same(architectures(), "80-real;90-real;90-virtual 80", "without a wish")
    same(architectures("-DCMAKE_CUDA_ARCHITECTURES=90-real"), "90-real 90", "for one alone")
    same(architectures(CUDAARCHS="100"), "100 100", "by the environment")
    same(architectures("-DCMAKE_CUDA_ARCHITECTURES=native"), "native", "for what is here")


if __name__ == "__main__":
    harness.main(globals())
