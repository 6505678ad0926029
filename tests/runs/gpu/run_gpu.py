"""tests/gpu_bundle and tests/run_gpu, as far as they can be tried without a network and a GPU."""
import json
import os
import pathlib
import shutil
import subprocess

import harness
from harness import ROOT, Skipped, check, same

OPERATIONS = (
    {"kind": "dense", "op": "forward", "width": 1024, "us": 30.0, "tflops": 570.0,
     "best_tflops": 600.0, "of_best": 0.95},
    {"kind": "pass", "op": "relu", "us": 50.0, "gbps": 4000.0, "of_copy": 0.93},
    {"kind": "conv", "op": "backward weights", "rows": 256, "in": [56, 56, 64],
     "out": [28, 28, 128], "kernel": 3, "stride": 2, "us": 60.0, "tflops": 395.0},
    {"kind": "transfer", "memory": "pinned", "to": "GPU", "bytes": 268435456, "gbps": 55.0},
    {"kind": "choice", "what": "conv forward bf16", "ms": 0.0305},
    {"kind": "limits", "machine": "NVIDIA H200, driver 13.0, cuDNN 91900", "nccl": 22805,
     "copy_gbps": 4300.0, "peak_tflops": 790.0},
)


def call(script, *words, path=None):
    env = dict(os.environ)
    if path is not None:
        env["PATH"] = str(path)
    command = [shutil.which("python3"), str(ROOT / script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)


def tools(*names):
    """A folder with those of these programs that are here, and no others."""
    folder = harness.scratch / "tools"
    folder.mkdir()
    for name in names:
        if shutil.which(name) is not None:
            (folder / name).symlink_to(shutil.which(name))
    return folder


def case_the_bundle_takes_what_we_need_and_leaves_what_any_machine_has():
    if shutil.which("apt-cache") is None:
        raise Skipped("there is no apt-cache")
    known = subprocess.run(["apt-cache", "show", "libopenmpi-dev"], capture_output=True,
                           check=False)
    if known.returncode != 0:
        raise Skipped("apt knows no libopenmpi-dev: apt-get update was never run")
    done = call("tests/gpu_bundle", "--list")
    same(done.returncode, 0, f"exit code of gpu_bundle --list:\n{done.stderr}")
    words = done.stdout.split()
    for name in ("libopenmpi-dev", "openmpi-bin", "libhwloc-dev", "libdnnl-dev", "libcmocka-dev"):
        check(name in words, f"{name} in {done.stdout}")
    check(any(word.startswith("libopenmpi3") for word in words), f"its library in {done.stdout}")
    for name in ("libc6", "libc6-dev", "gcc", "libstdc++6", "perl", "openssh-client"):
        check(name not in words, f"no {name} in {done.stdout}")


def case_a_bundle_that_cannot_be_made_is_one_line():
    done = call("tests/gpu_bundle", path=tools("bash", "git", "dirname", "readlink", "id"))
    same(done.returncode, 69, "exit code without apt")
    same(done.stderr,
         "tests/gpu_bundle: apt-cache is missing: this needs Debian or Ubuntu, and git\n",
         "what is said without apt")
    same(done.stdout, "", "standard output without apt")


def case_stages_are_listed_and_shown():
    done = call("tests/run_gpu", "--list")
    same([line.split()[0] for line in done.stdout.splitlines()],
         ["build", "test", "bench", "kernels", "ranks", "memcheck", "racecheck", "report"],
         "stages")
    seconds = [int(words[1]) for words in map(str.split, done.stdout.splitlines())]
    check(sum(seconds) <= 530, f"all stages end within 530 s: {seconds}")
    done = call("tests/run_gpu", "--dry-run", "--build", harness.scratch / "b", "test", "build",
                "racecheck")
    if done.returncode == 69:
        check("there is no nvcc" in done.stdout, done.stdout)
    else:
        same(done.returncode, 0, f"exit code of --dry-run\n{done.stdout}{done.stderr}")
    commands = [line for line in done.stdout.splitlines() if line.startswith("  $ ")]
    for words in ("-L gpu", "-j 4", "DP_TEST_QUICK=1"):
        check(any("ctest" in line and words in line for line in commands), done.stdout)
    check(any("--tool racecheck" in line for line in commands), done.stdout)
    check(not (harness.scratch / "b").exists(), "a dry run leaves nothing")
    done = call("tests/run_gpu", "tests")
    same(done.returncode, 2, "exit code of an unknown stage")
    check("there is no stage tests: there are build, test," in done.stderr, done.stderr)


def case_what_users_ask_for_first_is_measured_first():
    models = call("benchmarks/compare_gpu", "--help").stdout
    check(0 < models.find("resnet50,") < models.find("mlp8192"), models)


def case_a_stage_says_what_this_machine_lacks():
    done = call("tests/run_gpu", "test", "memcheck", "--build", harness.scratch / "b")
    same(done.returncode, 69, f"exit code without a build\n{done.stdout}{done.stderr}")
    check("test: lacking" in done.stdout, done.stdout)
    check("ddp_train is missing: run the stage build first" in done.stdout, done.stdout)
    left = json.loads((harness.scratch / "b/gpu/memcheck.json").read_text())
    same(left["status"], "lacking", "what memcheck left")


def case_why_a_build_fails_is_one_line():
    folder = harness.scratch / "bin"
    folder.mkdir()
    for name, text in (("nvcc", ":"), ("cmake", """cat <<'END'; exit 1
-- The C compiler is there
CMake Error at CMakeLists.txt:7 (message):
  missing: a library and
  another one

-- Configuring incomplete
END""")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    done = call("tests/run_gpu", "build", "--build", harness.scratch / "b",
                path=f"{folder}:{os.environ['PATH']}")
    same(done.returncode, 70, f"exit code\n{done.stdout}{done.stderr}")
    last = done.stdout.splitlines()[-1]
    check(last.endswith(": cmake: exit code 1: missing: a library and another one"), last)


def sanitized(script):
    """What the stage memcheck makes of a compute-sanitizer that does this: exit code, output."""
    build = harness.scratch / "sanitized"
    build.mkdir(exist_ok=True)
    for name, text in (("ddp_train", "echo 'cuda  an NVIDIA GPU'"), ("compute-sanitizer", script)):
        (build / name).write_text(f"#!/bin/sh\n{text}\n")
        (build / name).chmod(0o755)
    done = call("tests/run_gpu", "memcheck", "--seconds", 8, "--build", build,
                path=f"{build}:{os.environ['PATH']}")
    return done.returncode, done.stdout + done.stderr


def case_a_stage_that_checked_nothing_has_not_passed():
    code, text = sanitized("echo '========= ERROR SUMMARY: 0 errors'")
    same(code, 0, f"exit code where all is well\n{text}")
    code, text = sanitized("echo '========= Error: Device not supported'; exit 1")
    same(code, 69, f"exit code of a tool that does not know the device\n{text}")
    check("memcheck: lacking" in text, text)
    code, text = sanitized("sleep 60")
    same(code, 70, f"exit code of a tool that never ends\n{text}")
    check("no time was left for ops, norm" in text, text)
    code, text = sanitized("echo 'skipped: no GPU is visible'; exit 77")
    same(code, 70, f"exit code of tests that skip\n{text}")
    check("ops: exit code 77: skipped: no GPU is visible" in text, text)
    code, text = sanitized("case $5 in *pool) echo ended early;; "
                           "*) echo ERROR SUMMARY: 0 errors;; esac")
    same(code, 70, f"exit code where one of them says nothing\n{text}")
    check("memcheck found: pool: exit code 0: ended early" in text, text)


def shared(odd):
    """What the stage ranks makes of a program that does something odd (a shell's cases): exit code,
    output, report."""
    build = harness.scratch / "shared"
    build.mkdir(exist_ok=True)
    (build / "ddp_train").write_text(f"""#!/bin/sh
test "$1" = --list && echo 'cuda  an NVIDIA GPU' && exit
all="$*" bits=same
while test $# -gt 0; do test "$1" = --out && out=$2; shift; done
case "$OMPI_COMM_WORLD_SIZE $all" in {odd} esac
test "$OMPI_COMM_WORLD_RANK" = 0 || exit 0
mkdir -p "$out/checkpoints/latest"
echo "$bits" >"$out/checkpoints/latest/model.safetensors"
echo '{{"samples_per_second": 12345}}' >"$out/run.json"
""")
    (build / "ddp_train").chmod(0o755)
    done = call("tests/run_gpu", "ranks", "report", "--name", "shared", "--build", build,
                "--results", build)
    return done.returncode, done.stdout + done.stderr, (build / "gpu-shared.md").read_text()


def case_ranks_that_share_gpus_must_end_with_the_bits_of_one():
    code, text, report = shared("")
    same(code, 0, f"exit code where all are equal\n{text}")
    check("| 4 | ipc | 12,345 | equal |" in report, report)
    check("| ranks | passed |" in report, report)
    code, text, report = shared("4*=ipc*) bits=other;;")
    same(code, 70, f"exit code of other bits\n{text}")
    check("| 4 | ipc | 12,345 | DIFFERENT |" in report, report)
    check("4 by ipc: other bits" in report and "2 by ipc" not in report, report)
    code, text, report = shared("2*staged*) echo 'no memory'; exit 69;;")
    same(code, 70, f"exit code where a run fails\n{text}")
    check("| 2 | staged | not yet measured | no memory |" in report, report)


def case_a_table_of_kernels_is_what_twenty_steps_add():
    build = harness.scratch / "profiled"
    build.mkdir()
    (build / "libkernel_profile.so").write_text("")
    (build / "ddp_train").write_text("""#!/bin/sh
test "$1" = --list && echo 'cuda  an NVIDIA GPU' && exit
while test $# -gt 0; do test "$1" = --steps && steps=$2; shift; done
test -n "$DP_KERNEL_PROFILE" || exit 0
cat >"$DP_KERNEL_PROFILE" <<END
name,launches,seconds
"gemm<float, 2>",$((10 + 3 * steps)),$((1 + steps)).5
at the start,7,9.0
rows,$steps,$((steps / 4)).25
END
""")
    (build / "ddp_train").chmod(0o755)
    done = call("tests/run_gpu", "kernels", "report", "--name", "k", "--build", build,
                "--results", build)
    same(done.returncode, 0, f"exit code\n{done.stdout}{done.stderr}")
    text = (build / "gpu-k.md").read_text()
    check("| `gemm<float, 2>` | 3.0 | 1000.000 | 80.0% |" in text, text)
    check("at the start" not in text, text)
    (build / "ddp_train").write_text("#!/bin/sh\necho 'cuda  an NVIDIA GPU'\n")
    done = call("tests/run_gpu", "kernels", "--build", build)
    same(done.returncode, 69, f"exit code without a table\n{done.stdout}{done.stderr}")
    (build / "libkernel_profile.so").unlink()
    done = call("tests/run_gpu", "kernels", "--build", build)
    check("there is no CUPTI, by which kernels are timed" in done.stdout, done.stdout)


def compute_cap(answer):
    """What the stage build would configure beside a GPU of this compute capability."""
    folder = harness.scratch / "smi"
    folder.mkdir(exist_ok=True)
    for name, text in (("nvidia-smi", f"echo {answer}"), ("nvcc", ":"), ("cmake", ":")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    done = call("tests/run_gpu", "build", "--dry-run", "--build", harness.scratch / "b",
                path=f"{folder}:{os.environ['PATH']}")
    return next(line for line in done.stdout.splitlines() if "-DDP_CUDA=on" in line)


def case_kernels_are_compiled_for_the_gpu_that_is_here():
    line = compute_cap("9.0")
    check("-DCMAKE_CUDA_ARCHITECTURES=90-real" in line, line)


def case_libraries_that_compile_engines_are_missed():
    folder = harness.scratch / "no"
    folder.mkdir()
    for name in ("nvcc", "cmake", "ldconfig"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    done = call("tests/run_gpu", "build", "--build", harness.scratch / "b", "--python", "false",
                path=f"{folder}:{os.environ['PATH']}")
    same(done.returncode, 0, f"exit code\n{done.stdout}{done.stderr}")
    check("warning: no loader finds nvrtc, nvrtc-builtins, nvJitLink" in done.stdout, done.stdout)
    wheel = harness.scratch / "wheels/nvidia"
    for name in ("libnvrtc.so.13", "libnvrtc-builtins.so.13.0", "libnvJitLink.so.13"):
        (wheel / "cu13/lib").mkdir(parents=True, exist_ok=True)
        (wheel / "cu13/lib" / name).write_text("")
    python = harness.scratch / "python"
    python.write_text(f"#!/bin/sh\necho {wheel}\n")
    python.chmod(0o755)
    done = call("tests/run_gpu", "build", "--build", harness.scratch / "b", "--python", python,
                path=f"{folder}:{os.environ['PATH']}")
    same(done.returncode, 0, f"exit code\n{done.stdout}{done.stderr}")
    check("warning" not in done.stdout, done.stdout)


def report_of(documents):
    """The report on what stages left."""
    folder = harness.scratch / "b/gpu"
    folder.mkdir(parents=True, exist_ok=True)
    for name, document in documents.items():
        whole = {"stage": name, "seconds": 1.0, **document}
        (folder / f"{name}.json").write_text(json.dumps(whole))
    done = call("tests/run_gpu", "report", "--name", "x", "--build", harness.scratch / "b",
                "--results", harness.scratch / "results")
    same(done.returncode, 0, f"exit code of report\n{done.stdout}{done.stderr}")
    return pathlib.Path(harness.scratch / "results/gpu-x.md").read_text()


def case_what_was_not_measured_is_called_so():
    text = report_of({})
    for stage in ("build", "test", "bench", "kernels", "ranks", "memcheck", "racecheck"):
        check(f"| {stage} | not yet measured |" in text, f"{stage} in\n{text}")
    check("best matrix product: not yet measured TFLOP/s" in text, text)
    same(text.count("\nnot yet measured\n"), 8, f"tables that are not there in\n{text}")
    check("met |" not in text and "MISSED" not in text, f"no verdict in\n{text}")


def case_the_report_judges_what_was_measured():
    row = {"model": "mlp", "measure": "samples/s", "pytorch": 100.0, "lockstep": 320.0,
           "ratio": 3.2, "target_text": ">= 3x", "verdict": "met"}
    case = {"model": "mlp", "pytorch": {"torch": "2.11", "cudnn": 91900},
            "problems": ["no time was left"]}
    test = {"name": "ops_cuda", "result": "Passed", "seconds": 1.0}
    text = report_of({
        "test": {"status": "failed", "failure": "ctest failed: ops_cuda", "tests": [test]},
        "memcheck": {"status": "passed", "checked": {"ops": "ERROR SUMMARY: 0 errors"}},
        "bench": {"status": "passed", "operations": OPERATIONS,
                  "compare": {"cases": [case], "summary": [row]}},
    })
    for line in (
        "| test | failed | 1 | ctest failed: ops_cuda |",
        "| memcheck | passed | 1 | ops: ERROR SUMMARY: 0 errors |",
        "| mlp | samples/s | 100 | 320 | 3.20x | >= 3x | met |",
        "- mlp: no time was left",
        "| forward | 1024 | 30 | 570 | 600 | 0.950 | MISSED |",
        "| relu | 50 | 4,000 | 0.93 | met |",
        "- best matrix product: 790 TFLOP/s; copy: 4,300 GB/s, read and written",
        "- libraries: NVIDIA H200, driver 13.0, cuDNN 91900; NCCL 2.28.5",
        "| backward weights | 56 x 56 x 64 | 128 | 3 | 2 | 60 | 395 | 0.50 |",
        "| GPU | pinned | 268 | 55 |",
        "| `conv forward bf16` | 30 |",
    ):
        check(line in text, f"{line!r} in\n{text}")


harness.main(globals())
