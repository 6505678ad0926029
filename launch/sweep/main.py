"""What ddp_sweep does, from arguments to exit code."""
import os
import re
import subprocess

from sweep import csv_file, options, page, plan, prices, prune, results, table
from sweep.ending import exit_code_of
from sweep.failure import INTERNAL, NO_INPUT, NOT_AVAILABLE, STOPPED, Failure, complain, say
from sweep.folder import SCHEMA, Folder, write_json, write_text
from sweep.local import Local, Stopped, exit_code
from sweep.project.curves import project_curves
from sweep.project.main import project
from sweep.running import as_jobs, one_by_one
from sweep.slurm import Slurm

CHECK_S = 120  # ddp_train takes a tenth of a second to read a configuration


class Tools:
    """Where the other programs lie: in a build folder and the sources, or installed."""

    def __init__(self, bin_folder, launch_folder):
        self.train = self.find("ddp_train", bin_folder)
        self.bench = os.path.join(bin_folder, "ddp_bench")
        self.mpirun = self.find("mpirun", launch_folder)
        self.netlab = self.find("netlab", launch_folder, bin_folder)
        self.array = os.path.join(launch_folder, "slurm/array.sbatch")
        self.template = os.path.join(launch_folder, "page.html")
        if not os.path.exists(self.template):
            self.template = os.path.join(launch_folder, "../runtime/report/page/page.html")

    @staticmethod
    def find(name, *folders):
        for folder in folders:
            path = os.path.join(folder, name)
            if os.access(path, os.X_OK):
                return path
        raise Failure(f"{os.path.join(folders[0], name)} is missing: build and install anew",
                      NOT_AVAILABLE)


# ---- the model ----


def resolve(args, tools, overrides):
    """The resolved configuration, as ddp_train has it; Failure with its own line and code."""
    words = [tools.train, args.model_path, "--print-config"]
    for override in overrides:
        words += ["--set", override]
    try:
        done = subprocess.run([*words, *args.flags], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, errors="replace", timeout=CHECK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"{tools.train} does not run: {error}", NOT_AVAILABLE) from error
    if done.returncode != 0:
        lines = [line.removeprefix("lockstep: error: ") for line in done.stderr.splitlines()
                 if line.startswith("lockstep: error: ")]
        text = (lines or [f"{tools.train} --print-config failed"])[0]
        more = f"; and {len(lines) - 1} more, see ddp_train --check" if len(lines) > 1 else ""
        raise Failure(text + more, exit_code(done.returncode))
    return done.stdout


def value_of(text, section, key):
    """A scalar of a resolved configuration."""
    found = re.search(rf"^{section}:\n((?:  .*\n)*)", text, re.M)
    line = re.search(rf"^  {key}: (.*)$", found[1] if found else "", re.M)
    if line is None:
        raise Failure(f"ddp_train --print-config prints no {section}.{key}", INTERNAL)
    return line[1].strip("\"'")


def check_values(args, tools):
    """Each value of each axis alone, so that a typing error ends no night of runs; combinations
    that cannot run are found when they are tried."""
    for strategy in args.strategy or ():
        resolve(args, tools, [f"comm.strategy={strategy}"])
    for compressor in args.compressor or ():
        resolve(args, tools, [f"comm.compressor={compressor}"])
    for key, values in args.settings:
        for value in values:
            resolve(args, tools, [f"{key}={value}"])


def read_model(args, tools):
    """(strategy, compressor and global batch of the model; its resolved configuration)."""
    args.model_path = args.model if "/" in args.model else os.path.join(".", args.model)
    text = resolve(args, tools, ())
    check_values(args, tools)
    return {"strategy": value_of(text, "comm", "strategy"),
            "compressor": value_of(text, "comm", "compressor"),
            "global_batch": int(value_of(text, "train", "global_batch"))}, text


# ---- what is known ----


# Of a manifest, where that is another status than a point's.
SHOWN = {"running": "interrupted", "submitted": "pending"}


def describe(point, folder):
    """A point of sweep.json."""
    run, note = point.run, folder.known(point.run) or {"status": "pending"}
    status = SHOWN.get(note["status"], note["status"])
    found = results.read_run(folder.run_folder(run)) if status == "finished" else None
    return {"ranks": run.ranks, "strategy": run.strategy, "compressor": run.compressor,
            "global_batch": run.global_batch, "mode": point.mode, "repeat": run.repeat,
            "batch": point.batch, "set": [list(pair) for pair in run.settings], "status": status,
            "exit_code": note.get("exit_code"), "error": note.get("error"),
            **results.figures(found or {}), "seconds": note.get("seconds"),
            "run": str(folder.run_folder(run).relative_to(folder.path))}


class Sweep:
    """A sweep that has begun: its points, folder, and what is known."""

    def __init__(self, args, tools, defaults, text):
        self.args, self.tools = args, tools
        self.machines = prices.read(args.prices) if args.prices is not None else None
        self.points = plan.points_of(args, defaults)
        self.runs = plan.order_of(self.points, args.repeat)
        self.identity, self.text = plan.identity(args, defaults, text), text
        self.others = self.read_others() if self.machines else []
        self.folder, self.cores = None, None

    def read_others(self):
        """(machine type, curves) of each --with."""
        prices.check_name(self.machines, self.args.machine)
        others = [prices.read_other(path, self.identity["model"]) for path in self.args.others]
        return [(other.get("machine"), other["summary"]["curves"]) for other in others]

    def open(self):
        self.folder = Folder(self.args.out, self.identity)

    def waiting(self):
        return [run for run in self.runs if not self.folder.is_finished(run)]

    def write(self, ended=False):
        """sweep.json, and all that is made of it; returns it, and the prices side by side. ended:
        no run comes after it, so that curves may be projected."""
        points = [describe(point, self.folder) for point in self.points]
        machine, comparison = None, None
        if self.machines:
            hosts = sorted({host for point in points for host in point["hosts"]})
            machine = prices.machine_of(self.machines, self.args.machine, hosts)
            prices.add_to_points(points, machine)
        curves = results.curves_of(points)
        results.add_strong_efficiency(points, curves)
        if ended:
            project_curves(curves, points, self.args, self.tools, self.folder.path)
        if self.machines:
            name = machine.name if machine else None
            comparison = prices.compare(self.machines, [(name, curves), *self.others])
        told = {"schema": SCHEMA, "model": self.args.model, "identity": self.identity,
                "configuration": self.text, "steps": self.args.steps, "cores": self.cores,
                "machine": machine.name if machine else None, "points": points,
                "summary": {"curves": curves, "knee_share": results.KNEE, "prices": comparison}}
        path = self.folder.path
        write_json(path / "sweep.json", told)
        write_text(path / "sweep.csv", csv_file.text_of(points))
        write_text(path / "sweep.html", page.text_of(
            told, curves, comparison, self.tools.template,
            lambda run: (path / run / "report.html").exists(), self.cores))
        return told, comparison


# ---- running ----


def tell_plan(sweep):
    args = sweep.args
    say(f"ddp_sweep: {len(sweep.runs)} run{'s' if len(sweep.runs) > 1 else ''} of {args.model}, "
        + (f"{args.steps} steps each" if args.steps else "as long as the model says")
        + f", in {args.out}")


def dry_run(sweep):
    tell_plan(sweep)
    for number, run in enumerate(sweep.runs, 1):
        say(f"{number:4d}  {run.text}, repeat {run.repeat}")


def show(sweep):
    """The table; the exit code."""
    told, comparison = sweep.write(ended=True)
    points = told["points"]
    say()
    for line in table.lines_of(told["summary"]["curves"], sweep.cores):
        say(line)
    if comparison:
        say()
        for line in (*prices.lines_of(comparison), *table.wrapped(comparison["rent"])):
            say(line)
    say(f"files: {sweep.folder.path}/{{sweep.html,sweep.json,sweep.csv}}, runs in points/")
    failed = [point for point in points if point["status"] == "failed"]
    if failed:
        runs = {point["run"]: point for point in failed}
        complain("warning", f"{len(runs)} of {len(sweep.runs)} runs failed; the same command tries "
                 f"them again; see {sweep.folder.path}/{failed[0]['run']}/stderr.txt")
    if failed and not any(point["status"] == "finished" for point in points):
        return failed[0]["exit_code"] or INTERNAL
    return 0


def do_runs(sweep, tools):
    """Stopped passes through, with what there is to know for the user."""
    args = sweep.args
    place = Slurm(args, tools) if args.slurm else Local(args, tools)
    begins = not args.collect and not (args.out / "sweep.json").exists()
    if begins:  # before it makes folders
        place.check()
    sweep.open()
    sweep.cores = place.cores if not args.slurm and args.hostfile is None else None
    if not begins and sweep.waiting() and (args.slurm or not args.collect):
        place.check()
    tell_plan(sweep)
    sweep.write()
    try:
        if args.slurm:
            as_jobs(sweep, place)
        elif not args.collect:
            one_by_one(sweep, place)
    except Stopped as stopped:
        left = len(sweep.waiting())
        runs = f"{left} run{'s' if left > 1 else ''}"
        raise Stopped(f"stopped waiting for {runs}; jobs go on, and the same command waits for "
                      "them" if args.slurm else
                      "stopped by a signal; the same command goes on with the "
                      f"{runs} that {'are' if left > 1 else 'is'} left") from stopped


def do_sweep(args, tools):
    defaults, text = read_model(args, tools)
    args.hosts = {"hostfile": str(args.hostfile) if args.hostfile else None,
                  "netlab": list(args.netlab) if args.netlab else None, "slurm": args.slurm}
    sweep = Sweep(args, tools, defaults, text)
    if args.dry_run:
        dry_run(sweep)
        return 0
    if args.collect and not (args.out / "sweep.json").exists():
        raise Failure(f"--collect: no sweep in {args.out}", NO_INPUT)
    try:
        do_runs(sweep, tools)
    except Stopped as stopped:
        show(sweep)
        complain("error", stopped)
        return STOPPED
    return show(sweep)


def main(words, bin_folder, launch_folder, version):
    def program():
        args = options.parse(words, version)
        if args.prune is not None:
            return prune.prune(args.prune, args.yes)
        tools = Tools(bin_folder, launch_folder)
        return project(args, tools) if args.source is not None else do_sweep(args, tools)

    return exit_code_of(program)
