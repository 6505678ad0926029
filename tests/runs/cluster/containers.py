"""Images and the job for Kubernetes: the launcher's command trains, the manifest has the fields of
the MPI Operator and, in tests/run --long, pods as Kubernetes' own schema wants them."""
import fnmatch
import json
import os
import re
import shutil
import subprocess

import harness
from harness import ROOT, Skipped, check, same

IGNORED = (ROOT / ".dockerignore").read_text().split()
MANIFEST = ROOT / "launch/kubernetes/mpijob.yaml"
DOCKER = sorted((ROOT / "launch/docker").glob("*.Dockerfile"))
# kubeflow.org/v2beta1, MPIJobSpec and what is below it, up to the pods' templates.
FIELDS = {
    "spec": {"slotsPerWorker", "runLauncherAsWorker", "runPolicy", "mpiReplicaSpecs",
             "sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation"},
    "runPolicy": {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds",
                  "backoffLimit", "schedulingPolicy", "suspend", "managedBy"},
    "replicas": {"replicas", "template", "restartPolicy"},
}


def case_the_command_of_the_launcher_trains():
    text = re.sub(r"#[^\n]*", "", MANIFEST.read_text())
    words = re.search(r"args: \[([^]]*)\]", text)[1].replace('"', "").split(",")
    words = [word.strip() for word in words]
    same(words[:3], ["-np", "8", "--bind-to"], "the first arguments of mpirun")
    ranks = int(re.search(r"slotsPerWorker: (\d+)", text)[1]) * \
        int(re.search(r"Worker:\s+replicas: (\d+)", text)[1])
    same(int(words[1]), ranks, "ranks that the workers have room for")
    model = harness.scratch / "model.cfg"
    model.write_text((ROOT / "models/mlp.cfg").read_text())
    settings = "data.source=synthetic data.samples=64 data.test_samples=32 train.global_batch=32"
    for steps in ("2", "4"):  # the second goes on from the first
        command = [{"ddp_train": str(harness.build / "ddp_train"), "/data/model.cfg": str(model),
                    "/data/runs/first": str(harness.scratch / "out"), "8": "2"}.get(word, word)
                   for word in words]
        command += [word for one in settings.split() for word in ("--set", one)]
        done = subprocess.run([ROOT / "launch/mpirun", *command, "--steps", steps],
                              capture_output=True, text=True, timeout=harness.PATIENCE,
                              check=False, stdin=subprocess.DEVNULL)
        same(done.returncode, 0, f"the exit code of {' '.join(command)}\n{done.stderr}\n")
    run = json.loads((harness.scratch / "out/run.json").read_text())
    same([run["world_size"], run["steps"]], [2, 4], "ranks and steps")
    check(run["resumed_from"], "the second did not go on from the first")


def case_what_an_image_copies_and_calls_is_there():
    same(len(DOCKER), 2, "images")
    for file in DOCKER:
        text = file.read_text()
        for script in re.findall(r"launch/docker/(\w+)", text):
            if not script.endswith("Dockerfile") and script not in ("cpu", "cuda"):
                check(os.access(ROOT / "launch/docker" / script, os.X_OK),
                      f"{file.name}: no {script}")
        check(f"-f launch/docker/{file.name}" in text, f"{file.name} does not say how")
    for script in ("build_package", "setup_image"):
        done = subprocess.run(["bash", "-n", ROOT / "launch/docker" / script], check=False,
                              capture_output=True, text=True)
        same((done.returncode, done.stderr), (0, ""), script)
    text = MANIFEST.read_text() + "".join(file.read_text() for file in DOCKER)
    installed = (ROOT / "launch/install/install.cmake").read_text()
    check("/usr/share/lockstep/mpirun" in text and "launch/mpirun" in installed, "no mpirun")
    sshd = re.search(r"command: \[(start_\w+)\]", text)[1]
    check(f"/usr/local/bin/{sshd}" in (ROOT / "launch/docker/setup_image").read_text(), sshd)


def case_an_image_is_made_of_sources_alone():
    for line in (ROOT / ".gitignore").read_text().split():
        line = line.rstrip("/")
        pattern = line[1:] if line.startswith("/") else f"**/{line}"
        check(pattern in IGNORED, f"docker would send {line}")
    sent = harness.scratch / "sent"
    top = [pattern.split("/") for pattern in IGNORED if not pattern.startswith("**/")]

    def ignored(folder, names):
        above = os.path.relpath(folder, ROOT).split("/") if folder != str(ROOT) else []
        return [name for name in names if name == "__pycache__" or any(
            pattern[:-1] == above and fnmatch.fnmatchcase(name, pattern[-1]) for pattern in top)]

    shutil.copytree(ROOT, sent, symlinks=True, ignore=ignored)
    check(not (sent / "tests").exists(), "tests are sent")
    done = subprocess.run(["cmake", "-S", sent, "-B", harness.scratch / "made", "-DDP_TESTS=OFF"],
                          capture_output=True, text=True, check=False)
    same(done.returncode, 0, f"the exit code of cmake without {IGNORED}\n{done.stderr}\n")


def case_images_install_packages_by_their_scripts_alone():
    """What NVIDIA's bases have they also hold: apt-get refuses to install a newer one."""
    for file in DOCKER:
        for command in re.findall(r"^RUN (.*)", file.read_text(), re.M):
            check(re.match(r"/src/launch/docker/build_package( |$)|/tmp/setup_image ", command),
                  f"{file.name}: RUN {command}")


def case_the_image_for_gpus_has_the_library_that_computes_convolutions():
    bases = re.findall(r"^FROM (\S+)", (ROOT / "launch/docker/cuda.Dockerfile").read_text(), re.M)
    check("-cudnn-runtime-" in bases[-1], f"no cuDNN in {bases[-1]}")


def case_the_manifest_is_what_the_operator_and_kubernetes_take():
    if "DP_TEST_LONG" not in os.environ:
        raise Skipped("Kubernetes' schemas are 140 MB: tests/run --long")
    python = harness.python_with("kubernetes", "kubernetes-validate==1.37.0")
    shown = subprocess.run([python, "-c", "import json, sys, yaml; "
                            "print(json.dumps(yaml.safe_load(open(sys.argv[1]))))", MANIFEST],
                           capture_output=True, text=True, check=True).stdout
    job = json.loads(shown)
    same([job["apiVersion"], job["kind"]], ["kubeflow.org/v2beta1", "MPIJob"], "what it is")
    check(set(job["spec"]) <= FIELDS["spec"], f"{list(job['spec'])}")
    check(set(job["spec"]["runPolicy"]) <= FIELDS["runPolicy"], f"{job['spec']['runPolicy']}")
    replicas = job["spec"]["mpiReplicaSpecs"]
    same(set(replicas), {"Launcher", "Worker"}, "roles")
    for role, spec in replicas.items():
        check(set(spec) <= FIELDS["replicas"], f"{role}: {list(spec)}")
        for wrong in (False, True):
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": role.lower()},
                   "spec": dict(spec["template"]["spec"])}
            if wrong:  # the schema does refuse what it does not know
                pod["spec"]["container"] = []
            file = harness.scratch / f"{role}.json"
            file.write_text(json.dumps(pod))
            done = subprocess.run([python.parent / "kubernetes-validate", "--strict", file],
                                  capture_output=True, text=True, check=False)
            same(done.returncode != 0, wrong, f"{role}: {done.stdout}{done.stderr}")


if __name__ == "__main__":
    harness.main(globals())
