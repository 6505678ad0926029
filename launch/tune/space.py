"""space.yaml: a line for each key that is tried.

    optimizer.lr: {log: [1e-4, 1]}               a number, evenly by its logarithm
    optimizer.momentum: {float: [0, 0.95]}       a number
    model.layers[7].dense.units: {int: [16, 512]}
    train.global_batch: {choice: [64, 128]}      one of these
"""
import json
import math
import re

from sweep.failure import CONFIGURATION, NO_INPUT, Failure

KINDS = ("log", "float", "int", "choice")
KEY = re.compile(r"[A-Za-z_][\w.\[\]]*")


class Axis:
    """One key: its kind, and its two ends, or its values."""

    def __init__(self, key, kind, values):
        self.key, self.kind, self.values = key, kind, values

    def samples(self):
        """Values that must all be allowed, for a check before the first trial."""
        return self.values

    def distribution(self, optuna):
        low, high = self.values[0], self.values[-1]
        if self.kind == "choice":
            return optuna.distributions.CategoricalDistribution(self.values)
        if self.kind == "int":
            return optuna.distributions.IntDistribution(low, high)
        return optuna.distributions.FloatDistribution(low, high, log=self.kind == "log")


def text_of(value):
    """As --set takes it: JSON is YAML."""
    return value if isinstance(value, str) else json.dumps(value)


def number(value):
    """YAML 1.1 reads 1e-4 as a text."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError
    found = float(value)
    if not math.isfinite(found):
        raise ValueError
    return found


def read_ends(where, kind, values):
    try:
        low, high = (number(value) for value in values)
    except (TypeError, ValueError):
        raise Failure(f"{where}: {kind} wants [lowest, highest]", CONFIGURATION) from None
    if kind == "int":
        if low != int(low) or high != int(high):
            raise Failure(f"{where}: int wants whole numbers", CONFIGURATION)
        low, high = int(low), int(high)
    wrong = ("its lower end comes first" if low > high else
             "that of a logarithm begins above 0" if kind == "log" and low <= 0 else None)
    if wrong is not None:
        raise Failure(f"{where}: [{low:g}, {high:g}] is no range: {wrong}", CONFIGURATION)
    return [low, high]


def read_axis(path, key, entry):
    where = f"{path}: {key}"
    if not isinstance(key, str) or KEY.fullmatch(key) is None:
        raise Failure(f"{where}: expected a key of model.cfg", CONFIGURATION)
    if not isinstance(entry, dict) or len(entry) != 1 or next(iter(entry)) not in KINDS:
        raise Failure(f"{where}: expected one of {{log: [a, b]}}, {{float: [a, b]}}, "
                      "{int: [a, b]}, {choice: [a, b, ...]}", CONFIGURATION)
    kind, values = next(iter(entry.items()))
    if not isinstance(values, list) or not values:
        raise Failure(f"{where}: {kind} wants a list", CONFIGURATION)
    if kind != "choice":
        return Axis(key, kind, read_ends(where, kind, values))
    texts = [text_of(value) for value in values]
    if len(set(texts)) < len(texts):
        raise Failure(f"{where}: a value is given twice", CONFIGURATION)
    plain = (bool, int, float, str)  # what Optuna keeps as it is: a number stays one
    return Axis(key, kind, [value if isinstance(value, plain) else text
                            for value, text in zip(values, texts)])


def refuse_repeated(path, node):
    """PyYAML takes the last one of keys that are equal."""
    lines = {}
    for key, _ in node.value:
        line = key.start_mark.line + 1
        if key.value in lines:
            raise Failure(f"{path}:{line}: repeated key '{key.value}' (first in line "
                          f"{lines[key.value]})", CONFIGURATION)
        lines[key.value] = line


def read(path, yaml):
    """The axes of a space, in the order of the file; yaml: the module that reads it."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        space = yaml.safe_load(text)
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}", NO_INPUT) from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        why = str(error).replace('in "<unicode string>", ', "in ")
        raise Failure(f"{path}: not YAML: {why}", CONFIGURATION) from error
    if not isinstance(space, dict) or not space:
        raise Failure(f"{path}: expected lines like optimizer.lr: {{log: [1e-4, 1]}}",
                      CONFIGURATION)
    refuse_repeated(path, yaml.compose(text))
    return [read_axis(path, key, entry) for key, entry in space.items()]
