"""Where a build for GPUs finds the libraries of CUDA, and which of them no loader finds: for
tests/run_gpu."""
import pathlib
import re
import shutil
import subprocess

WHEELS = re.compile(r"lib(cublas|cublasLt|cudnn\w*|nccl|nvrtc|nvrtc-builtins|nvJitLink|cupti)"
                    r"\.so\.\d+(\.\d+)?$")
COMPILED_BY = ("nvrtc", "nvrtc-builtins", "nvJitLink")  # engines that cuDNN compiles when it runs
HEADERS = re.compile(r"(cublas|cudnn|nccl)\w*\.h$")
FIND_WHEELS = "import nvidia; print('\\n'.join(nvidia.__path__))"


def has_cublas(env):
    nvcc = shutil.which("nvcc", path=env["PATH"])
    if nvcc is None:
        return False
    toolkit = pathlib.Path(nvcc).resolve().parent.parent
    return any(toolkit.glob("lib64/libcublasLt.so")) or any(
        toolkit.glob("targets/*/lib/libcublasLt.so"))


def link_wheels(args, env):
    """cuBLAS (where the toolkit has none), cuDNN, what it compiles with, and NCCL out of Python's
    wheels, which have libraries of full names alone: a folder of links with the names that a
    compiler looks for, or None."""
    try:
        done = subprocess.run([args.python, "-c", FIND_WHEELS], capture_output=True, text=True,
                              check=False)
    except OSError:
        return None
    roots = [pathlib.Path(line) for line in done.stdout.splitlines()]
    own = has_cublas(env)
    links = args.build / "wheels"
    found = 0
    for path in sorted(path for root in roots for path in root.glob("*/*/*")):
        is_header = path.parent.name == "include" and HEADERS.match(path.name)
        is_library = path.parent.name == "lib" and WHEELS.match(path.name)
        if not (is_header or is_library) or (own and re.search("cublas|cupti", path.name)):
            continue
        names = [path.name] if is_header else [path.name, path.name.split(".so")[0] + ".so"]
        for name in names:
            link = links / path.parent.name / name
            found += 1
            if not args.dry_run:
                link.parent.mkdir(parents=True, exist_ok=True)
                link.unlink(missing_ok=True)
                link.symlink_to(path)
    return links if found else None


def missing_compilers(env):
    """Of the libraries by which cuDNN compiles engines when it runs, those that no loader finds."""
    ldconfig = shutil.which("ldconfig", path=f"{env['PATH']}:/usr/sbin:/sbin")
    known = subprocess.run([ldconfig or "true", "-p"], capture_output=True, text=True, check=False)
    folders = [pathlib.Path(part) for part in env.get("LD_LIBRARY_PATH", "").split(":") if part]
    nvcc = shutil.which("nvcc", path=env["PATH"])
    if nvcc is not None:
        toolkit = pathlib.Path(nvcc).resolve().parent.parent
        folders += [toolkit / "lib64", *toolkit.glob("targets/*/lib")]
    return [name for name in COMPILED_BY if f"lib{name}.so" not in known.stdout
            and not any(any(folder.glob(f"lib{name}.so*")) for folder in folders)]
