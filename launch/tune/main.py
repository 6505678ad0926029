"""What ddp_tune does, from arguments to exit code."""
import os
import subprocess
import time

from sweep.ending import exit_code_of
from sweep.failure import (CONFIGURATION, INTERNAL, NOT_AVAILABLE, STOPPED, Failure, complain,
                           one_line, say)
from sweep.folder import make_folder, write_text
from sweep.jobs import Jobs
from sweep.local import Signals, Stopped
from sweep.main import CHECK_S, Tools
from tune import options, space
from tune.goals import GOALS
from tune.study import JOB, Study, identity_of, load
from tune.trial import JobTrial, LocalTrial, share_of

LOOK_S = 0.1  # between two looks at the runs under way


def print_config(args, tools, overrides):
    """The resolved configuration, as ddp_train has it; Failure with its own line and code."""
    words = [tools.train, model_path(args), "--print-config"]
    for override in (*args.settings, *overrides):
        words += ["--set", override]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", timeout=CHECK_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failure(f"{tools.train} does not run: {error}", NOT_AVAILABLE) from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        text = (lines or [f"{tools.train} --print-config failed"])[0]
        raise Failure(text.removeprefix("lockstep: error: "), done.returncode)
    return done.stdout


def model_path(args):
    """One that is no flag."""
    return args.model if "/" in args.model else os.path.join(".", args.model)


def check_goal(goal, config, axes):
    """A figure that no trial will have would be missed only after the last one."""
    if goal.impossible(config, [axis.key for axis in axes]):
        raise Failure(f"--goal: {goal.why_none()}", CONFIGURATION)


def check_space(args, tools, axes):
    """Each value alone, so that a typing error ends no night of trials."""
    for axis in axes:
        for value in axis.values:
            print_config(args, tools, [f"{axis.key}={space.text_of(value)}"])


def overrides_of(params):
    return [f"{key}={space.text_of(value)}" for key, value in params.items()]


def in_words(params):
    return ", ".join(f"{key}={value:.4g}" if isinstance(value, float)
                     else f"{key}={space.text_of(value)}"
                     for key, value in params.items())


class Tuning:
    """A study, and the trials that are under way."""

    def __init__(self, args, tools, study):
        self.args, self.tools, self.study = args, tools, study
        self.goal, self.signals = GOALS[args.goal], Signals()
        self.cores, self.running, self.done = os.sched_getaffinity(0), {}, len(study.done())
        self.code = INTERNAL  # of the last trial that failed
        self.slurm = Jobs(args.sbatch, tools.array) if args.slurm else None

    def command(self, params, folder):
        words = [self.tools.train, model_path(self.args), "--quiet", "--out", str(folder / "run")]
        for override in (*self.args.settings, *overrides_of(params)):
            words += ["--set", override]
        if self.args.ranks > 1 and self.slurm is None:
            words = [self.tools.mpirun, "-np", str(self.args.ranks), "--bind-to", "none", *words]
        return [*words, *self.args.flags]

    def begin(self, slot):
        asked = self.study.ask()
        folder = self.args.out / "trials" / f"{asked.number:04d}"
        asked.set_user_attr("folder", str(folder.relative_to(self.args.out)))
        command = self.command(asked.params, folder)
        if self.slurm is not None:
            trial = JobTrial(folder, command, self.slurm, self.args.ranks)
            asked.set_user_attr(JOB, trial.task)
        else:
            trial = LocalTrial(folder, command,
                               share_of(self.cores, slot, self.args.parallel))
        self.running[slot] = (asked, trial)

    def look(self, slot):
        """At a run under way: tells Optuna of its evaluations, and ends it where that says so."""
        asked, trial = self.running[slot]
        ended = trial.ended()  # before its last evaluations are read
        if self.goal.early is not None:
            for found in trial.evaluations():
                value = found.get(self.goal.early)
                if isinstance(value, (int, float)):
                    asked.report(float(value), int(found["step"]))
                    if not trial.pruned and asked.should_prune():
                        trial.pruned = True  # whether or not it has ended meanwhile
                        trial.stop()
        if ended:
            del self.running[slot]
            self.end(asked, trial)

    def end(self, asked, trial):
        value = self.goal.value(trial.run() or {}) if trial.code == 0 else None
        if trial.pruned:
            self.study.tell_pruned(asked)
            text = "pruned"
        elif value is not None:
            self.study.tell(asked, value)
            text = f"{self.goal.name} {value:.6g}"
        else:
            why = trial.why() if trial.code != 0 else self.goal.why_none()
            self.code = trial.code or CONFIGURATION
            self.study.tell_failed(asked, why, trial.code)
            text = f"FAILED with exit code {trial.code}: {why}"
        self.done += 1
        say(one_line(f"[{self.done}/{self.args.trials}] trial {asked.number}: {text}; "
                     f"{in_words(asked.params)}; {trial.seconds:.1f} s"))

    def ask_slurm(self):
        """Which jobs are gone, now and then."""
        tasks = {trial.task: trial for _, trial in self.running.values()}
        alive = self.slurm.now_and_then(tasks) if tasks else None
        for task, trial in tasks.items():
            trial.gone = trial.gone or alive is not None and task not in alive

    def go(self):
        while self.running or self.done < self.args.trials:
            if self.slurm is not None:
                self.ask_slurm()
            for slot in range(self.args.parallel):
                self.signals.check()
                if slot in self.running:
                    self.look(slot)
                elif self.done + len(self.running) < self.args.trials:
                    self.begin(slot)
            self.signals.waiting = True
            time.sleep(LOOK_S)
            self.signals.waiting = False

    def interrupt(self):
        """Ends what is under way; it is done again by the next start."""
        self.signals.waiting = False
        for _, trial in self.running.values():
            trial.stop()
        for asked, trial in self.running.values():
            trial.wait()
            self.study.again(asked.number, asked.params)


def write_best(args, tools, study):
    """best.yaml, and a line about it."""
    best = study.best()
    if best is None:
        return None
    path = args.out / "best.yaml"
    text = print_config(args, tools, overrides_of(best.params))
    write_text(path, f"# {args.goal} {best.value:.6g}: trial {best.number} of {len(study.done())} "
                     f"of ddp_tune, {in_words(best.params)}\n{text}")
    say(one_line(f"best: {args.goal} {best.value:.6g} by {in_words(best.params)} (trial "
                 f"{best.number}); a model.cfg: {path}"))
    return best


def tune(args, tools):
    yaml = load("yaml")
    axes = space.read(args.space, yaml)
    text = print_config(args, tools, ())
    check_space(args, tools, axes)
    load("optuna")  # before anything is written
    check_goal(GOALS[args.goal], yaml.safe_load(text), axes)
    make_folder(args.out)
    if args.slurm:
        Jobs.check()
    study = Study(args, GOALS[args.goal], axes, identity_of(args, axes, text))
    for job in study.left_behind:  # of a start that was killed
        Jobs.cancel(job)
    tuning = Tuning(args, tools, study)
    trials = "1 trial" if args.trials == 1 else f"{args.trials} trials"
    say(f"ddp_tune: {trials} of {args.model} for {args.goal}, in {args.out}"
        + (f"; {tuning.done} are done" if tuning.done > 0 else ""))
    try:
        tuning.go()
    except Stopped:
        tuning.interrupt()
        write_best(args, tools, study)
        complain("error", f"stopped by a signal after {tuning.done} trials; the same command goes "
                 "on")
        return STOPPED
    if write_best(args, tools, study) is None:
        complain("error", f"no trial was finished; see {args.out}/trials/*/stderr.txt")
        return tuning.code
    return 0


def main(words, bin_folder, launch_folder, version):
    return exit_code_of(
        lambda: tune(options.parse(words, version), Tools(bin_folder, launch_folder)))
