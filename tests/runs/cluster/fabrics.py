"""Ranks whose messages go by other libraries than Open MPI's own: UCX, libfabric."""
import json
import shutil
import subprocess

import harness
from harness import ROOT, Skipped, check, same

SETTINGS = ["data.source=synthetic", "data.samples=128", "data.test_samples=32",
            "train.global_batch=32", "train.lanes=2", "comm.strategy=direct"]
LIBRARIES = {  # arguments of mpirun, environment, and how the run names it
    "Open MPI": ([], {}, "shared memory"),
    "UCX": (["--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices",
             "any"], {"UCX_TLS": "shm,self"}, "UCX (UCX_TLS=shm,self)"),
    "libfabric": (["--mca", "pml", "cm", "--mca", "mtl", "ofi", "--mca",
                   "mtl_ofi_provider_include", "tcp"], {}, "libfabric"),
}


def component_is_there(name):
    shown = subprocess.run(["ompi_info", "--parsable", "--param", *name.split("/")],
                           capture_output=True, text=True, check=False).stdout
    return f"mca:{name.replace('/', ':')}:" in shown


def train_by(library):
    flags, env, _ = LIBRARIES[library]
    out = harness.scratch / library.replace(" ", "-")
    words = [ROOT / "launch/mpirun", "-np", "2", *flags, harness.build / "ddp_train",
             ROOT / "models/lenet.cfg", "--steps", "3", "--out", out]
    for setting in SETTINGS:
        words += ["--set", setting]
    done = subprocess.run(words, env={**harness.environment("fabrics"), **env}, text=True,
                          stdin=subprocess.DEVNULL, capture_output=True, check=False,
                          timeout=harness.PATIENCE)
    same(done.returncode, 0, f"the exit code by {library}\n{done.stdout}{done.stderr}\n")
    told = [f"messages by {LIBRARIES[library][2]}"] if library != "Open MPI" else []
    same([line for line in done.stdout.splitlines() if line.startswith("messages by ")], told,
         f"what the first lines say of messages by {library}")
    return (out / "checkpoints/latest/model.safetensors").read_bytes(), \
        json.loads((out / "run.json").read_text())["fabric"]


def case_other_fabrics_give_the_same_bits_and_are_named():
    if shutil.which("ompi_info") is None:
        raise Skipped("no Open MPI here")
    weights, name = train_by("Open MPI")
    same(name, LIBRARIES["Open MPI"][2], "what messages go by")
    tried = 0
    for library, component in (("UCX", "pml/ucx"), ("libfabric", "mtl/ofi")):
        if component_is_there(component):
            other, name = train_by(library)
            same(name, LIBRARIES[library][2], f"what messages go by with {library}")
            check(other == weights, f"{library} gives other weights")
            tried += 1
    if tried == 0:
        raise Skipped("this Open MPI has neither UCX nor libfabric")


def case_a_dry_run_draws_the_nodes():
    words = [ROOT / "launch/mpirun", "-np", "2", harness.build / "ddp_train",
             ROOT / "models/lenet.cfg", "--dry-run"]
    for setting in SETTINGS:
        words += ["--set", setting]
    shown = subprocess.run(words, text=True, stdin=subprocess.DEVNULL, capture_output=True,
                           check=False, timeout=harness.PATIENCE).stdout
    check("\nmessages by shared memory\n  node " in shown, shown)
    check("\n    rank 0: host " in shown and "\n    rank 1: host " in shown, shown)


if __name__ == "__main__":
    harness.main(globals())
