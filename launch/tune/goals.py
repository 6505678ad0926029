"""What is sought: where the figure stands in run.json, which evaluations tell of it before, and
whether more is better."""


class Goal:
    """early: the key of an evaluation in metrics.jsonl that tells of the figure before the end.
    lacking: a key of model.cfg, and its value with which no run has the figure; remedy: what to do
    then, in words."""

    def __init__(self, name, path, more, early=None, lacking=None, remedy=None):
        self.name, self.path, self.more, self.early = name, path, more, early
        self.lacking, self.remedy = lacking, remedy

    @property
    def direction(self):
        return "maximize" if self.more else "minimize"

    def value(self, run):
        """Of a run.json; None where there is none."""
        for key in self.path:
            run = run.get(key) if isinstance(run, dict) else None
        return float(run) if isinstance(run, (int, float)) else None

    def impossible(self, config, tried):
        """Whether no trial can have the figure: config is a resolved model.cfg as a dict, tried are
        the keys that trials change."""
        if self.lacking is None or self.lacking[0] in tried:
            return False
        section, key = self.lacking[0].split(".")
        return config[section][key] == self.lacking[1]

    def why_none(self):
        """Why a run does not have the figure."""
        return f"no {self.name}" + (f": {self.remedy}" if self.remedy else "")


GOALS = {goal.name: goal for goal in (
    Goal("test_accuracy", ("final", "test_accuracy"), True, "test_accuracy",
         ("train.loss", "mse"), "with train.loss mse take --goal test_loss"),
    Goal("test_loss", ("final", "test_loss"), False, "test_loss"),
    Goal("samples_per_second", ("samples_per_second",), True),
    Goal("samples_per_dollar", ("samples_per_dollar",), True, None,
         ("report.price_per_hour", None), "it takes report.price_per_hour"),
    Goal("time_to_target", ("cost", "seconds_to_target"), False, None,
         ("report.target_accuracy", None), "it takes report.target_accuracy, and reaching it"),
)}
