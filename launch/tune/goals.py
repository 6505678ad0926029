"""What is sought: where the figure stands in run.json, which evaluations tell of it before, and
whether more is better."""


class Goal:
    def __init__(self, name, path, more, early=None):
        self.name, self.path, self.more = name, path, more
        self.early = early  # the key of an evaluation in metrics.jsonl; None: only the end tells

    @property
    def direction(self):
        return "maximize" if self.more else "minimize"

    def value(self, run):
        """Of a run.json; None where there is none."""
        for key in self.path:
            run = run.get(key) if isinstance(run, dict) else None
        return float(run) if isinstance(run, (int, float)) else None


GOALS = {goal.name: goal for goal in (
    Goal("test_accuracy", ("final", "test_accuracy"), True, "test_accuracy"),
    Goal("test_loss", ("final", "test_loss"), False, "test_loss"),
    Goal("samples_per_second", ("samples_per_second",), True),
    Goal("samples_per_dollar", ("samples_per_dollar",), True),
    Goal("time_to_target", ("cost", "seconds_to_target"), False),
)}

# What a run without the figure lacks, in words.
LACKS = {
    "test_accuracy": "it has no test_accuracy: with train.loss mse take --goal test_loss",
    "samples_per_dollar": "it has no price: set report.price_per_hour",
    "time_to_target": "report.target_accuracy is not set, or was not reached",
}
