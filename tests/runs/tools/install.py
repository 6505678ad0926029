"""An installed Lockstep: programs of one's own on liblockstep, Python, manual pages, completion."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import time

import harness
from harness import ROOT, Result, Skipped, check, same


def command(*words, env=None, cwd=None):
    words = list(map(str, words))
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=harness.PATIENCE, check=False, cwd=cwd,
                          env={**os.environ, **(env or {})})
    return Result(words, done.returncode, done.stdout, done.stderr, 0)


def well(*words, **how):
    result = command(*words, **how)
    same(result.code, 0, f"the exit code of\n{result}\n")
    return result


def on_ranks(count, *words, **how):
    start = [ROOT / "launch/mpirun", "-np", count] if count > 1 else []
    return command(*start, *words, **how)


def installed(*components):
    """The folder of a fresh installation: what has been built is copied."""
    if not (harness.build / "liblockstep.so").exists():
        raise Skipped("this build has no liblockstep: DP_LIBRARY=OFF")
    prefix = harness.scratch / "prefix"
    for component in components or (None,):
        flags = [] if component is None else ["--component", component]
        well("cmake", "--install", harness.build, "--prefix", prefix, *flags)
    return prefix


def case_a_program_with_its_own_data_is_built_by_cmake():
    prefix, folder = installed("library"), harness.scratch / "embed"
    well("cmake", "-S", ROOT / "examples/embed", "-B", folder, f"-DCMAKE_PREFIX_PATH={prefix}")
    well("cmake", "--build", folder)
    for ranks in (1, 2):
        out = harness.scratch / f"out-{ranks}"
        result = on_ranks(ranks, folder / "embed", out)
        same(result.code, 0, f"the exit code of\n{result}\n")
        found = re.search(r"(\d) ranks: test accuracy ([\d.]+) %", result.out)
        check(found and int(found[1]) == ranks and float(found[2]) > 90, f"{result}")
        check((out / "checkpoints/latest/model.safetensors").exists(), "no checkpoint")
    result = on_ranks(1, folder / "embed", harness.scratch / "out-2")
    check("step " not in result.out and "1 ranks: test accuracy" in result.out,
          f"it did not go on from the end:\n{result}")


def case_a_layer_of_ones_own_is_built_by_pkg_config():
    prefix = installed("library")
    ask = ("pkg-config", "--cflags", "--libs", "lockstep")
    path = {"PKG_CONFIG_PATH": str(prefix / "lib/pkgconfig")}
    asked = shlex.split(well(*ask, env=path).out)
    check(f"-L{prefix}/lib" in asked, f"pkg-config says {asked}")
    moved = shlex.split(well(*ask, "--define-variable=prefix=/two words", env=path).out)
    check({"-I/two words/include/lockstep", "-L/two words/lib"} <= set(moved), f"{moved}")
    program, cfg = harness.scratch / "my_layer", ROOT / "examples/my_layer/model.cfg"
    well("cc", "-Wall", "-Wextra", "-Werror", ROOT / "examples/my_layer/my_layer.c", "-o", program,
         *asked, f"-Wl,-rpath,{prefix}/lib")
    lines = []
    for ranks in (1, 2):
        result = on_ranks(ranks, program, cfg, "train.lanes=2")
        same(result.code, 0, f"the exit code of\n{result}\n")
        lines.append(result.out.replace(f"on {ranks} ranks", "on ranks"))
    same(lines[0], lines[1], "what one rank and two come to")
    check(float(re.search(r"accuracy ([\d.]+)", lines[0])[1]) > 30, lines[0])  # of 10 classes
    result = on_ranks(2, program, cfg, "model.layers[2].prelu.initial=7")
    check(result.code == 78 and len(result.errors) == 1, f"{result}")


def case_its_kernel_compiles_with_nvcc():
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        raise Skipped("there is no nvcc")
    well(nvcc, "-arch=sm_80", "--Werror=all-warnings", "-c", ROOT / "examples/my_layer/my_layer.cu",
         "-o", harness.scratch / "my_layer.o")


TRAINS = """
import sys
import lockstep
with lockstep.Training(sys.argv[1], {"train.lanes": 2}, out=sys.argv[2]) as training:
    while training.steps < 5:
        step = training.step()
    if training.rank == 0:
        print(training.ranks, step.step, step.rows, step.loss.hex(), training.evaluate().accuracy)
    else:
        training.evaluate()
    training.save()
run = lockstep.read_run(sys.argv[2])
assert [line["step"] for line in run.of("step")] == [1, 2, 3, 4, 5], run.lines
assert run.summary is None and "model:" in run.config
for use in ("steps", "done", "step", "evaluate", "save"):
    try:
        getattr(training, use)()
        sys.exit(f"{use} of a closed training")
    except ValueError as error:
        assert "closed" in str(error), error
try:
    lockstep.Training("missing.cfg")
except lockstep.LockstepError as error:
    if training.rank == 0:
        print("refused:", error)
"""


def case_python_drives_a_training_and_reads_its_files():
    path, script = installed("library") / "share/lockstep/python", harness.scratch / "train.py"
    script.write_text(TRAINS)
    lines = []
    for ranks in (1, 2):
        out = harness.scratch / f"run-{ranks}"
        result = on_ranks(ranks, sys.executable, script, harness.small_cfg(), out,
                          env={"PYTHONPATH": str(path)})
        same(result.code, 0, f"the exit code of\n{result}\n")
        check("\nrefused: input is missing\n" in result.out, f"{result}")
        lines.append(next(line for line in result.out.splitlines() if "0x" in line).split()[1:])
    same(lines[0], lines[1], "what one rank and two come to")


FAILS = """
import sys
import lockstep
training = lockstep.Training(sys.argv[1])
while training.steps < 1000000:
    training.step()
    if training.rank == 1 and training.steps == 5:
        raise KeyError("one rank alone")
"""


def case_a_python_program_that_fails_on_one_rank_ends_all():
    path, script = installed("library") / "share/lockstep/python", harness.scratch / "fail.py"
    script.write_text(FAILS)
    begun = time.monotonic()
    result = on_ranks(2, sys.executable, script, harness.small_cfg(),
                      env={"PYTHONPATH": str(path)})
    same(result.code, 70, f"the exit code of\n{result}\n")
    check("KeyError: 'one rank alone'" in result.err, f"{result}")
    check(time.monotonic() - begun < harness.PATIENCE / 2, "the other rank went on")


COMPLETES = """
source "$1"
complete_of() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
    _lockstep "$1" "${@: -1}" "${@: -2:1}"
    echo "${COMPREPLY[*]}"
}
complete_of "$2" --set train.global_b
complete_of "$2" --exp
complete_of "$2" --list comp
"""


def case_bash_completes_flags_keys_and_families():
    script = harness.scratch / "complete.sh"
    script.write_text(COMPLETES)
    done = well("bash", script, ROOT / "launch/install/completion.bash",
                harness.build / "ddp_train")
    same(done.out.splitlines(), ["train.global_batch=", "--explain", "compressors"], "words")


def case_zsh_reads_its_completion():
    if shutil.which("zsh") is None:
        raise Skipped("there is no zsh")
    result = well("zsh", "-fn", ROOT / "launch/install/_lockstep")
    same(result.err, "", "what zsh says of it")


def case_every_program_has_a_manual_page_and_completion():
    prefix = installed()
    programs = sorted(one.name for one in (prefix / "bin").glob("ddp_*"))
    check({"ddp_train", "ddp_report", "ddp_sweep"} <= set(programs), f"{programs}")
    for program in programs:
        check((prefix / "share/bash-completion/completions" / program).exists(),
              f"{program} is not completed")
    if shutil.which("help2man") is None:
        raise Skipped("there is no help2man")
    for program in programs:
        page = (prefix / f"share/man/man1/{program}.1").read_text()
        check(f".TH {program.upper()} " in page and "\\-\\-version" in page, f"{program}:\n{page}")
        check(re.search(rf"^{program} \\- \w", page, re.M), f"no line that says what {program} is")


def case_a_debian_package_names_what_it_needs():
    if shutil.which("dpkg-shlibdeps") is None:
        raise Skipped("there is no dpkg-dev")
    installed("scripts")  # or there is nothing to pack
    well("cpack", "--config", harness.build / "CPackConfig.cmake", "-B", harness.scratch)
    package, = harness.scratch.glob("lockstep_*.deb")
    needs = well("dpkg-deb", "--field", package, "Depends").out
    for what in ("openmpi-bin", "libopenblas0-openmp", "libhwloc15", "libyaml-0-2"):
        check(what in needs, f"no {what} in {needs}")
    well("dpkg-deb", "--extract", package, harness.scratch / "root")
    same(well(harness.scratch / "root/usr/bin/ddp_train", "--version").out[:9], "lockstep ",
         "what the packed program prints")


if __name__ == "__main__":
    harness.main(globals())
