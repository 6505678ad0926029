"""The study of Optuna: asking for values, telling what came of them, going on after an
interruption."""
import importlib
import json

from sweep.failure import CONFIGURATION, NOT_AVAILABLE, Failure

IDENTITY, AGAIN, JOB = "lockstep", "done_again", "job"  # names in the study


def load(name):
    """A module of Optuna, or that it needs itself; or a line that says how to get them."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Failure(f"Optuna is not installed for this Python ({error}): python3 -m venv ~/tune; "
                      "~/tune/bin/pip install optuna; then start ~/tune/bin/python "
                      "build/ddp_tune ...", NOT_AVAILABLE) from error


def pruner_of(optuna, name):
    if name == "median":
        return optuna.pruners.MedianPruner(n_startup_trials=4)
    return optuna.pruners.HyperbandPruner() if name == "hyperband" else optuna.pruners.NopPruner()


class Study:
    def __init__(self, args, goal, axes, identity):
        optuna = load("optuna")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.states, self.goal = optuna.trial.TrialState, goal
        self.distributions = {axis.key: axis.distribution(optuna) for axis in axes}
        self.study = optuna.create_study(
            storage=f"sqlite:///{args.out / 'study.db'}", study_name="ddp_tune",
            load_if_exists=True, direction=goal.direction, pruner=pruner_of(optuna, args.pruner))
        self.left_behind = []  # jobs of Slurm that nobody waits for any more
        self.check_identity(identity, args.out)
        self.mend()
        # Otherwise a study that goes on would draw what it began with once more.
        seed = (args.seed + len(self.study.get_trials(deepcopy=False))) % 2**32
        self.study.sampler = optuna.samplers.TPESampler(
            seed=seed, constant_liar=args.parallel > 1, n_startup_trials=8)

    def check_identity(self, identity, folder):
        known = self.study.user_attrs.get(IDENTITY)
        if known is None:
            self.study.set_user_attr(IDENTITY, identity)
            return
        for key, value in identity.items():
            if known.get(key) != value:
                raise Failure(f"{folder} holds a study with another {key}: choose another --out",
                              CONFIGURATION)

    def mend(self):
        """Trials that were under way when we were ended are done again, with their values."""
        for trial in self.study.get_trials(deepcopy=False, states=(self.states.RUNNING,)):
            if JOB in trial.user_attrs:
                self.left_behind.append(trial.user_attrs[JOB])
            self.again(trial.number, trial.params)

    def again(self, number, params):
        """This trial was interrupted: another one has its values."""
        self.study.set_user_attr(AGAIN, [*self.study.user_attrs.get(AGAIN, ()), number])
        self.study.tell(number, state=self.states.FAIL)
        self.study.enqueue_trial(params)

    def done(self):
        """Trials that have ended by themselves, whatever came of them."""
        again = self.study.user_attrs.get(AGAIN, ())
        return [trial for trial in self.study.get_trials(deepcopy=False)
                if trial.state.is_finished() and trial.number not in again]

    def ask(self):
        return self.study.ask(self.distributions)

    def tell(self, trial, value):
        self.study.tell(trial, value)

    def tell_pruned(self, trial):
        self.study.tell(trial, state=self.states.PRUNED)

    def tell_failed(self, trial, why, code):
        trial.set_user_attr("error", why)
        trial.set_user_attr("exit_code", code)
        self.study.tell(trial, state=self.states.FAIL)

    def best(self):
        """The best trial that was finished, or None."""
        finished = [trial for trial in self.done() if trial.state == self.states.COMPLETE]
        key = (lambda trial: trial.value) if self.goal.more else (lambda trial: -trial.value)
        return max(finished, key=key, default=None)


def identity_of(args, axes, model_text):
    """What must be the same when a study goes on."""
    return {"model": model_text, "goal": args.goal, "ranks": args.ranks, "flags": args.flags,
            "space": json.dumps([[axis.key, axis.kind, axis.values] for axis in axes])}
