"""Other things where a run wants to write, and things of others beside them."""
import os
import pathlib
import shutil
import socket
import stat

import harness
import lab
from harness import check, same
from lab import QUICK, STEPS, attempt, case, cfg, each, finished, mounted, says, shell, whole

GROUP = "outputs"
NAMES = ("config.yaml", "metrics.jsonl", "run.json", ".lockstep.lock", "checkpoints",
         "checkpoints/latest", "checkpoints/step-00000400", f"checkpoints/step-{STEPS:08}",
         "checkpoints/.tmp-step-00000400-vm-1-999999", "checkpoints/.old-step-00000400-vm-1-99")
RUN = (*QUICK, "--quiet", "--set", f"train.steps={STEPS}", "--set", "checkpoint.every_steps=400",
       "--set", "checkpoint.keep=1")


def plant(path, kind):
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "file":
        path.write_text(lab.CANARY)
    elif kind == "empty file":
        path.touch()
    elif kind == "folder":
        path.mkdir()
        (path / "thesis.txt").write_text(lab.CANARY)
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))
    elif kind == "device":
        try:
            os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        except PermissionError as error:
            raise harness.Skipped("no right to make a device") from error
    else:
        target = {"link to a file": lab.home / "canary.txt", "link to a folder":
                  lab.home / "canary", "link to nothing": "/nowhere/to/be/found",
                  "link to itself": path.name, "link to a pipe": harness.scratch / "pipe"}[kind]
        path.symlink_to(target)
        if kind == "link to a pipe":
            os.mkfifo(target)


KINDS = ("file", "empty file", "folder", "pipe", "socket", "device", "link to a file",
         "link to a folder", "link to nothing", "link to itself", "link to a pipe")


def still_there(path, kind):
    """What is not ours is, though a run that is asked to go on may replace its own names."""
    lab.canaries_live()
    if kind == "folder":
        same((path / "thesis.txt").read_text(), lab.CANARY, f"what was in {path}")
    elif kind in ("pipe", "socket", "device") and path.name.startswith(("step", "latest")):
        check(not stat.S_ISREG(path.lstat().st_mode), f"{path} was replaced")


def try_all(name, kind, ranks):
    heard = []
    out = harness.scratch / "out"
    plant(out / name, kind)
    for flags in ((), ("--resume",), ("--resume", "--steps", STEPS + 5)):
        result = attempt(cfg(), *RUN, "--out", out, *flags, ranks=ranks)
        still_there(out / name, kind)
        heard.append(str(result.code))
        if result.code == 0:
            whole(out)
    return ", ".join(heard)


for name in NAMES:
    @case(GROUP, f"{name}: each of {len(KINDS)} other kinds", "refused or avoided, not deleted")
    def _(name=name):
        return each(KINDS, lambda kind: try_all(name, kind, 0))

    @case(GROUP, f"{name}: a pipe, 2 ranks", "refused or avoided, not deleted, no wait")
    def _(name=name):
        return each(("pipe",), lambda kind: try_all(name, kind, 2))

THESES = ("checkpoints/thesis.txt", "checkpoints/step-00000006/thesis.txt",
          "checkpoints/.tmp-notes/thesis.txt", "checkpoints/latest.txt", "thesis.txt",
          "checkpoints/step-00000001/thesis.txt", "checkpoints/step-6/thesis.txt",
          "checkpoints/step-00000006.bak/MANIFEST", ".lockstep.lock.bak")


@case(GROUP, "files of others in the folder of a run, which goes on", "0, all of them stay")
def _():
    out = finished(harness.scratch / "out")
    for name in THESES:
        plant(out / name, "file")
    for steps in (12, 18, 24):
        result = attempt(cfg(), *QUICK, "--set", "checkpoint.keep=1", "--out", out, "--resume",
                         "--steps", steps, codes={0})
    for name in THESES:
        if name != "checkpoints/step-00000006/thesis.txt":
            same((out / name).read_text(), lab.CANARY, name)
    same([path.read_text() for path in out.rglob("thesis.txt")], [lab.CANARY] * 6, "the theses")
    return says(result)



def try_out_of_kind(kind):
    out = harness.scratch / "out"
    plant(out, kind)
    return attempt(cfg(), *QUICK, "--out", out, codes={0} if kind == "folder" else {64, 74}).code


@case(GROUP, "--out is no folder, or one of others", "64 or 74; 0")
def _():
    return each(("pipe", "folder", "link to itself", "device"), try_out_of_kind)


@case(GROUP, "--out with names that cannot be", "0, 64 or 74")
def _():
    names = ("", "/dev/null/x", "/proc/nothing", "/sys/nothing", "a" * 300, "a/" * 2500, ".", "~")
    return each(names, lambda out: attempt(cfg(), *QUICK, f"--out={out}", codes={0, 64, 74},
                                           cwd=harness.scratch).code)


@case(GROUP, "--out read-only", "74")
def _():
    out = harness.scratch / "out"
    out.mkdir()
    return says(attempt(cfg(), *QUICK, "--out", out, wrapper=mounted("ro", out), codes={74}))


@case(GROUP, "--out deleted while it runs", "an error, not a folder of somebody else's")
def _():
    out = harness.scratch / "out"
    started, out = harness.begin(cfg(), *QUICK, ranks=0)
    shutil.rmtree(out)
    (harness.scratch / "out").mkdir()
    started.signal(10)
    result = started.finish(lab.LIMIT_S)
    lab.judge(result, {74, 75})
    return says(result)


@case(GROUP, "checkpoints/ moved away and replaced by a link while it runs", "canaries live")
def _():
    started, out = harness.begin(cfg(), *QUICK, "--set", "checkpoint.every_steps=50",
                                 "--set", "checkpoint.keep=1", ranks=0)
    started.wait_for("a checkpoint", (out / "checkpoints/latest").exists)
    (out / "checkpoints").rename(out / "away")
    (out / "checkpoints").symlink_to("away")
    started.signal(10)
    result = started.finish(lab.LIMIT_S)
    lab.judge(result, {74, 75})
    check(pathlib.Path(out / "away").is_dir(), "gone")
    return says(result)


@case(GROUP, "the current folder is deleted", "0 or 74")
def _():
    wrapper = shell('mkdir gone; cd gone; rmdir ../gone; exec "$@"')
    return says(attempt(cfg(), *QUICK, wrapper=wrapper, cwd=harness.scratch, codes={64, 66, 74}))
