"""model.recompute: backward computes activations again, in less memory, and to the same bits."""
import re

import harness
from harness import check, close, run_json, same, small_cfg, train, train_well, weights

LAYERS = """\
    - conv2d: {filters: 6, kernel: 3, padding: 1}
    - batchnorm: {}
    - relu: {}
    - residual:
        body:
          - conv2d: {filters: 6, kernel: 3, padding: 1}
          - batchnorm: {}
        shortcut: []
    - relu: {}
    - maxpool: {size: 2}
    - dropout: {rate: 0.2}
    - concat: {branches: [[conv2d: {filters: 4, kernel: 1}], []]}
    - conv2d: {filters: 8, kernel: 3, padding: 1}
    - groupnorm: {groups: 2}
    - gelu: {}
    - flatten: {}
    - dense: {units: 24}
    - relu: {}
    - dropout: {}
    - dense: {units: 10}
"""
# 128 rows of 32 x 32 x 8 float32: 4 MB a layer.
DEEP = "    - conv2d: {filters: 8, kernel: 3, padding: 1}\n    - relu: {}\n" * 16
WIDE = f"""\
name: wide
data: {{source: synthetic, samples: 128, test_samples: 8}}
train: {{global_batch: 128, steps: 2, eval_every: 0}}
model:
  input: [32, 32, 3]
  layers:
{DEEP}    - global_avgpool: {{}}
    - dense: {{units: 4}}
"""
MB = 2**20


def trained(name, *flags, steps=3, **sets):
    """The weights after some steps of two ranks, which do not measure one of them alone."""
    out, baseline = harness.scratch / name, harness.scratch / "baseline.json"
    baseline.write_text('{"single_rank_samples_per_second": 1000}')
    texts = [text for key, value in sets.items()
             for text in ("--set", f"{key.replace('__', '.')}={value}")]
    train_well(small_cfg(LAYERS), "--steps", str(steps), "--baseline", baseline, *texts, *flags,
               "--out", out, ranks=2)
    return weights(out)


def case_the_weights_are_the_same():
    sets = {"train__precision": "bf16", "train__lanes": 4}
    same(trained("parts", model__recompute=5, **sets), trained("plain", **sets), "weights")


def case_it_may_be_changed_when_a_run_goes_on():
    sets = {"train__precision": "fp16", "train__micro_batch": 9}
    trained("changed", steps=2, model__recompute=3, **sets)
    same(trained("changed", "--resume", **sets), trained("plain", **sets),
         "weights of a run that went on without")


def predicted(cfg, *flags):
    """MB of activations of --check for one rank; its line about parts."""
    out = train_well(cfg, "--check", *flags).out
    row = re.search(r"^ 1 rank +[\d.]+ +[\d.]+ +[\d.]+ +([\d.]+)", out, re.MULTILINE)
    line = re.search(r"^recompute, 1 rank: (\d+) parts?: activations take ([\d.]+) MB a rank, "
                     r"(?:not|as) ([\d.]+); ([\d.]+) % more FLOPs$", out, re.MULTILINE)
    return float(row[1]), line and [float(text) for text in line.groups()]


def case_the_memory_falls_as_check_predicts():
    cfg = harness.scratch / "wide.cfg"
    cfg.write_text(WIDE)
    plain, none = predicted(cfg)
    same(none, None, "what --check says of parts where there are none")
    less, (parts, said, without, more) = predicted(cfg, "--set", "model.recompute=4")
    same((parts, said, without), (4, less, plain), "parts and MB of --check")
    check(less < 0.65 * plain and 5 < more < 25, f"{less} MB of {plain}, {more} % more")
    peaks = []
    for name, flags in (("plain", ()), ("parts", ("--set", "model.recompute=4"))):
        train_well(cfg, *flags, "--out", harness.scratch / name, ranks=1)
        peaks.append(run_json(harness.scratch / name)["memory"])
    for memory, mb in zip(peaks, (plain, less), strict=True):
        close(memory["activations"], mb * MB, 0.02, "activations of a run")
    fell = (peaks[0]["peak"] - peaks[1]["peak"]) / MB
    check(abs(fell - (plain - less)) < 0.2 * (plain - less),
          f"the peak fell by {fell} MB, not by {plain - less}")
    same(weights(harness.scratch / "plain"), weights(harness.scratch / "parts"), "the weights")


def case_auto_takes_the_fewest_parts_that_fit():
    cfg = harness.scratch / "wide.cfg"
    cfg.write_text(WIDE)
    auto = ("--set", "model.recompute=auto")
    plain, (parts, *_) = predicted(cfg, *auto)
    same(parts, 1, "parts where all fits")
    whole = train_well(cfg, "--check", "--set", "model.recompute=3").out
    rank = float(re.search(r"^ 1 rank .* ([\d.]+) \(128 rows\)", whole, re.MULTILINE)[1])
    _, (parts, *_) = predicted(cfg, *auto, "--set", f"report.memory_budget_mb={int(rank) + 1}")
    same(parts, 3, "parts within what three need")
    result = train_well(cfg, *auto, "--set", "report.memory_budget_mb=1", "--out",
                        harness.scratch / "out", ranks=1)
    line = re.search(r"activations computed again in backward: (\d+) parts: activations take "
                     r"([\d.]+) MB a rank, not ([\d.]+); [\d.]+ % more FLOPs; no number of parts "
                     r"fits$", result.out, re.MULTILINE)
    check(line and float(line[3]) == plain and float(line[2]) < 0.65 * plain, f"{result}")


def case_what_cannot_be_is_refused():
    result = train(small_cfg(LAYERS), "--set", "model.recompute=900", ranks=2)
    same((result.code, len(result.errors)), (78, 1), f"exit code and lines\n{result}")
    check(re.search(r"model.recompute: these layers can be cut into \d+ parts at most, not 900",
                    result.errors[0]), result)


harness.main(globals())
