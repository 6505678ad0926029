"""ddp_sweep --prune FOLDER: lists runs and sweeps below a folder by size, and deletes them with
--yes. A folder counts as a run if run.json, config.yaml or point.json says that ddp_train or a
sweep made it. In such a folder only files that these programs write are deleted; what else lies
there stays. Runs and sweeps that are under way are left alone. Links are never followed."""
import contextlib
import os
import pathlib
import re

from sweep.failure import CANNOT_WRITE, NO_INPUT, Failure, complain, one_line, say
from sweep.folder import POINT_SCHEMA, RUN_LOCK, SCHEMA, is_held, read_json

RUN_SCHEMA, PLAN_SCHEMA = "lockstep.run/1", '"schema":"lockstep.plan/1"'
OF_A_RUN = (r"(config\.yaml|metrics\.jsonl|run\.json|report\.html|trace\.json|point\.json|"
            r"stdout\.txt|stderr\.txt|exit_code|\.lockstep\.lock|events\.out\.tfevents\.[\w.-]+|"
            r"checkpoints/latest|checkpoints/step-\d{8,}/"
            r"(model\.safetensors|optimizer\.safetensors|state\.json|MANIFEST))(\.new|\.tmp)?")
OF_A_SWEEP = r"sweep\.(json|csv|html)(\.new)?|\.lock|slurm/[\w.-]+|points/[\w.=-]+/" + OF_A_RUN
LOCKS = (".lock", RUN_LOCK)


def kind_of(folder):
    """"sweep", "run", or None: not ours."""
    if (read_json(folder / "sweep.json") or {}).get("schema") == SCHEMA:
        return "sweep"
    if ((read_json(folder / "run.json") or {}).get("schema") == RUN_SCHEMA
            or (read_json(folder / "point.json") or {}).get("schema") == POINT_SCHEMA):
        return "run"
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if PLAN_SCHEMA in (folder / "config.yaml").read_text(encoding="utf-8"):
            return "run"
    return None


def under_way(folder):
    return any(is_held(folder / lock) for lock in LOCKS) or any(
        is_held(lock) for lock in folder.glob(f"points/*/{RUN_LOCK}"))


def find(top):
    """(folder, kind) of all runs and sweeps at or below a folder; not of those inside of others."""
    for path, folders, _ in os.walk(top):
        kind = kind_of(pathlib.Path(path))
        if kind is not None:
            folders.clear()
            yield pathlib.Path(path), kind


def files_of(folder, kind):
    """(ours, bytes of ours, how many others)."""
    pattern = re.compile(OF_A_SWEEP if kind == "sweep" else OF_A_RUN)
    ours, size, others = [], 0, 0
    for path, folders, files in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(path, name))]
        for name in [*files, *links]:
            file = pathlib.Path(path, name)
            if pattern.fullmatch(file.relative_to(folder).as_posix()):
                ours.append(file)
                size += file.lstat().st_size
            else:
                others += 1
    return ours, size, others


def delete(folder, ours):
    """The files, and the folders that are empty afterwards."""
    for file in ours:
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def big(size):
    for limit, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= limit:
            return f"{size / limit:.1f} {unit}"
    return f"{size} B"


def prune(top, really):
    """The exit code."""
    if not top.is_dir():
        raise Failure(f"--prune {top}: no such folder", NO_INPUT)
    found = []
    for folder, kind in find(top):
        if under_way(folder):
            complain("warning", f"{folder} is in use: left alone")
            continue
        found.append((folder, kind, *files_of(folder, kind)))
    found.sort(key=lambda entry: -entry[3])
    for folder, kind, ours, size, others in found:
        try:
            if really:
                delete(folder, ours)
        except OSError as error:
            raise Failure(f"{error.filename}: cannot delete: {error.strerror}",
                          CANNOT_WRITE) from error
        say(one_line(f"{big(size):>10}  {kind:<5}  {folder}"
                     + (f"  ({others} other file{'s stay' if others > 1 else ' stays'})" if others
                        else "")))
    total = f"{big(sum(entry[3] for entry in found))} in {len(found)} runs and sweeps"
    say(f"{total} deleted" if really else f"{total}; nothing was deleted: --yes does it")
    return 0
