#!/usr/bin/env python3
"""Makes the goldens of this folder with PyTorch in float64, and with --autocast the file
autocast.json: how far PyTorch itself is from them in bf16 and fp16. README.md says what they hold.

Needs torch and numpy, and Fashion-MNIST (package dataset-fashion-mnist). The same machine and the
same PyTorch give the same bytes again; elsewhere the last bits differ.
"""
import argparse
import json
import math
import pathlib
import struct

import numpy as np
import torch
from torch import nn

import torch_models
from torch_training import (MEAN, RANDOM_WEIGHTS, STD, Training, float64_training, initial_weights,
                            orders, philox, read_rows)

HERE = pathlib.Path(__file__).resolve().parent
SEED = 1
LOSS_SCALE = 65536.0  # that of fp16 at the beginning of training

# Small models: the whole state, after SMALL_BEFORE steps: (name, layers, optimizer, ranks, batch,
# seed). One step of a small residual net jumps wherever rounding moves the input of a relu across
# zero, and a golden beside such a place measures luck. The seeds of resnet20-small are those of
# 1..60 with which no input of a relu lies so near zero; step_margin() checks it.
SGD = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
NESTEROV = {"name": "sgd", "lr": 0.02, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}
CLIPPED = {**NESTEROV, "clip_norm": 0.5}
ADAMW = {"name": "adamw", "lr": 0.002, "betas": [0.9, 0.99], "eps": 1e-6, "weight_decay": 0.05}
NO_DECAY = {**NESTEROV, "no_decay": ["bias", "norm"]}
NO_BIAS_DECAY = {**ADAMW, "no_decay": ["bias"]}
LARS = {"name": "lars", "lr": 2.0, "momentum": 0.9, "weight_decay": 0.01, "eps": 1e-8,
        "trust_coefficient": 0.01}
LAMB = {"name": "lamb", "lr": 0.01, "betas": [0.9, 0.99], "eps": 1e-6, "weight_decay": 0.05}
BINARY = {**SGD, "loss": "binary_cross_entropy"}  # with the optimizer's options, as Training has it
BINARY_ADAMW = {**ADAMW, "loss": "binary_cross_entropy"}
SMOOTHED = {**SGD, "label_smoothing": 0.1}
MSE = {**NESTEROV, "loss": "mse"}
MLP_SMALL = torch_models.mlp((8, 10))
LENET_SMALL = torch_models.lenet((4, 8), 16)
RESNET_SMALL = torch_models.resnet20((2, 4, 8))
SMOOTH_SMALL = torch_models.smooth()
GROUPED_SMALL = torch_models.grouped()
BRANCHED_SMALL = torch_models.branched()
SMALL = [
    ("mlp-small-sgd", MLP_SMALL, SGD, (1,), 13, 1),
    ("mlp-small-clipped", MLP_SMALL, CLIPPED, (1,), 13, 1),
    ("mlp-small-adamw", MLP_SMALL, ADAMW, (1,), 13, 1),
    ("mlp-small-lars", MLP_SMALL, LARS, (1,), 13, 1),
    ("mlp-small-lamb", MLP_SMALL, LAMB, (1,), 13, 1),
    ("mlp-small-no-decay", MLP_SMALL, NO_BIAS_DECAY, (1,), 13, 1),
    ("mlp-small-smoothed", MLP_SMALL, SMOOTHED, (1,), 13, 1),
    ("mlp-binary-one", torch_models.mlp((4, 6), 1), BINARY, (1,), 13, 1),
    ("mlp-binary-labels", torch_models.mlp((4, 6), 3), BINARY_ADAMW, (1,), 13, 1),
    ("mlp-binary-classes", torch_models.mlp((4, 6)), BINARY, (1,), 13, 1),
    ("mlp-mse-one", torch_models.mlp((4, 6), 1), MSE, (1,), 13, 1),
    ("mlp-mse-numbers", torch_models.mlp((4, 6), 3), MSE, (1,), 13, 1),
    ("lenet-small-sgd", LENET_SMALL, SGD, (1,), 13, 1),
    ("lenet-small-nesterov", LENET_SMALL, NESTEROV, (1,), 13, 1),
    ("lenet-small-adamw", LENET_SMALL, ADAMW, (1,), 13, 1),
    ("smooth-small-sgd", SMOOTH_SMALL, SGD, (1,), 7, 1),
    ("grouped-small-sgd", GROUPED_SMALL, SGD, (1,), 7, 1),
    ("branched-small-sgd", BRANCHED_SMALL, SGD, (1,), 7, 1),
    ("resnet20-small-sgd", RESNET_SMALL, SGD, (1, 2), 7, 29),
    ("resnet20-small-clipped", RESNET_SMALL, CLIPPED, (1, 3), 7, 6),
    ("resnet20-small-adamw", RESNET_SMALL, ADAMW, (1,), 7, 20),
    ("resnet20-small-lars", RESNET_SMALL, LARS, (1,), 7, 3),
    ("resnet20-small-no-decay", RESNET_SMALL, NO_DECAY, (1,), 7, 8),
]
SMALL_BEFORE = 3
SMALL_MARGIN = 1.5e-5  # float32 is off by less than 1e-5 at the relus of resnet20-small

# Full models from our own initial weights: some elements of every tensor. (name, layers, optimizer,
# ranks, steps, elements, batch, seed). Twenty steps of the mlp are that far from a jump, too, with
# this seed of 1..40; on 64 rows no seed is. Lenet's own float32 results jump.
SLOW_SGD = {"name": "sgd", "lr": 0.01, "momentum": 0.9}
FULL = [
    ("mlp", torch_models.mlp(), SLOW_SGD, (1,), 20, 512, 16, 40),
    ("lenet", torch_models.lenet(), SLOW_SGD, (1,), 20, 512, 64, 1),
    ("resnet20", torch_models.resnet20(), SLOW_SGD, (1, 2, 3), 1, 192, 64, 1),
]
MLP_MARGIN = 2e-6  # float32 is off by less than 1.5e-6 at the relus of mlp


def float32_states(layers, options, start, steps, images, labels, ranks):
    """What PyTorch in float32 gives: both memory formats, three orders each."""
    size = len(labels) // steps
    states = []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        for order in orders():
            run = Training(layers, options, torch.float32, memory_format)
            run.load(*start)
            for k in range(steps):
                rows = slice(k * size, (k + 1) * size)
                run.step(images[rows], labels[rows], ranks, order)
            states.append(run.state())
    return states


def own_distances(before, after, others, name):
    """PyTorch-float32's own distance: for every group "value worst_value worst_tensor"."""
    metadata, values = {}, {}
    for group, expected in after.items():
        zero = {key: torch.zeros_like(value) for key, value in expected.items()}
        base = before.get(group, zero)
        update = {key: (value - base[key]).norm() for key, value in expected.items()}
        whole = math.hypot(*update.values())
        values[group], worst = [], (0.0, "")
        for other in others:
            error = {key: (other[group][key] - value).norm() for key, value in expected.items()}
            values[group].append(math.hypot(*error.values()) / whole)
            ratios = [(float(error[k] / update[k]), k) for k in error if update[k] > 0]
            worst = max(worst, max(ratios))
        metadata[f"{name}.{group}"] = f"{max(values[group]):.6e}"
        metadata[f"{name}.{group}.worst"] = f"{worst[0]:.6e} {worst[1]}"
    spread = " ".join(f"{value:.1e}" for value in values["params"])
    print(f"    {name}: {spread}", flush=True)
    return metadata


AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast_states(layers, options, start, images, labels, ranks, precision, scale):
    """The same with autocast, one step with this loss scale, and the losses; None: it overflows."""
    states, losses = [], []
    for memory_format in (torch.contiguous_format, torch.channels_last):
        for order in orders():
            run = Training(layers, options, torch.float32, memory_format, AUTOCAST[precision])
            run.scale = scale
            run.load(*start)
            losses.append(run.step(images, labels, ranks, order))
            states.append(run.state())
    finite = all(v.isfinite().all() for state in states for v in state["params"].values())
    return (states, losses) if finite else None


def autocast_distances(layers, options, start, images, labels, ranks, loss, chosen=None):
    """For each narrow type and group how far one step of PyTorch's autocast is: the largest of six
    ways; with the first loss scale that does not overflow. `chosen`: of these elements alone."""
    exact = float64_training(layers, options)
    exact.load(*start)
    exact.step(images, labels, ranks, torch.arange)
    before, after = start[0], exact.state()
    if chosen is not None:
        before, after = pick(before, chosen), pick(after, chosen)
    found = {}
    for precision in AUTOCAST:
        scale, result = 1.0 if precision == "bf16" else LOSS_SCALE, None
        while result is None:
            result = autocast_states(
                layers, options, start, images, labels, ranks, precision, scale
            )
            scale /= 2
        others, losses = result
        if chosen is not None:
            others = [pick(other, chosen) for other in others]
        notes = own_distances(before, after, others, f"{precision}.p{ranks}")
        found[precision] = {
            name.split(".")[-1]: float(value)
            for name, value in notes.items()
            if not name.endswith(".worst")
        }
        found[precision]["scale"] = 2 * scale
        found[precision]["loss"] = float(f"{max(abs(other - loss) for other in losses):.6e}")
    return found


def autocast_small(name, layers, options, all_ranks, size, seed):
    before, images, labels = walk_before(layers, options, size, seed)
    print(name)
    found = {}
    for ranks in all_ranks:
        run, start = float64_training(layers, options), (before, SMALL_BEFORE)
        run.load(*start)
        loss = run.step(images, labels, ranks, torch.arange)
        found[f"p{ranks}"] = autocast_distances(layers, options, start, images, labels, ranks, loss)
    return found


def autocast_full(name, layers, options, all_ranks, free_steps, limit, size, seed):
    images, labels = read_rows(size)
    model = torch_models.build(layers)
    running = {k: v.double() for k, v in model.named_buffers() if "running" in k}
    params = {k: v.double() for k, v in initial_weights(model, seed).items()}
    state = {"params": params, "running": running} if running else {"params": params}
    chosen = choose_elements(params, running, limit)
    print(name)
    found = {}
    for ranks in all_ranks:
        run = float64_training(layers, options)
        run.load(state, 0)
        loss = run.step(images, labels, ranks, torch.arange)
        found[f"p{ranks}"] = autocast_distances(
            layers, options, (state, 0), images, labels, ranks, loss, chosen
        )
    return found


def make_autocast(names):
    """All of the file, or with names these alone: the others stay."""
    path = HERE / "autocast.json"
    old = json.loads(path.read_text()) if names else {}
    found = {}
    for cases, make in ((SMALL, autocast_small), (FULL, autocast_full)):
        for case in cases:
            kept = names and case[0] not in names
            found[case[0]] = old[case[0]] if kept else make(*case)
    lines = ",\n".join(f'  "{name}": {json.dumps(value)}' for name, value in found.items())
    text = f'{{\n  "torch": "{torch.__version__}",\n{lines}\n}}\n'
    path.write_text(text)


def flat_names(prefix, state):
    """{group: {key: value}} as names of tensors: the groups of PyTorch's state_dict have none."""
    for group, tensors in state.items():
        middle = "" if group in ("params", "running") else f"{group}."
        for key, value in tensors.items():
            yield f"{prefix}.{middle}{key}", value.numpy()


def config_yaml(name, layers, options, batch, steps, seed, sync):
    of_train = ("loss", "label_smoothing")
    train = "".join(f", {key}: {options[key]}" for key in of_train if key in options)
    options = {key: value for key, value in options.items() if key not in of_train}
    return (
        f"name: {name}\n"
        f"data:\n  source: fashion-mnist\n"
        f"  normalize: {{mean: [{MEAN}], std: [{STD}]}}\n  shuffle: false\n"
        f"train: {{global_batch: {batch}, steps: {steps}, seed: {seed}{train}}}\n"
        f"optimizer: {torch_models.flow(options)}\n"
    ) + torch_models.model_yaml(layers, sync)


def describe(name, layers, options, batch, before, steps, seed):
    """The metadata that every golden has; `steps` counts from the beginning of training."""
    metadata = {
        "config": config_yaml(name, layers, options, batch, steps, seed, False),
        "steps_before": str(before),
        "torch": torch.__version__,
    }
    if any(kind == "batchnorm" for kind, _ in layers):
        metadata["config.sync"] = config_yaml(name, layers, options, batch, steps, seed, True)
    return metadata


def write(name, tensors, metadata):
    """A safetensors file whose bytes depend on its content alone: wide elements first, by name."""
    types = {"float64": "F64", "int64": "I64", "float32": "F32", "int32": "I32", "uint8": "U8"}
    header, blobs, offset = {"__metadata__": dict(sorted(metadata.items()))}, [], 0
    for key in sorted(tensors, key=lambda key: (-tensors[key].itemsize, key)):
        array = np.asarray(tensors[key], order="C")
        header[key] = {
            "dtype": types[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
        blobs.append(array.astype(array.dtype.newbyteorder("<")).tobytes())
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path = HERE / f"{name}.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    print(f"{path.name}: {path.stat().st_size // 1024} KiB", flush=True)


def rounded(state):
    """The same state in values that float32 can hold."""
    return {
        group: {key: value.float().double() for key, value in tensors.items()}
        for group, tensors in state.items()
    }


def step_margin(run, images, ranks):
    """How near to zero the inputs of relus come in this step: the smallest magnitude."""
    least, hooks = [], []
    for module in run.model.modules():
        if isinstance(module, (nn.ReLU, nn.LeakyReLU)):
            hook = module.register_forward_hook(lambda _, x, __: least.append(x[0].abs().min()))
            hooks.append(hook)
    x = run.input(images)
    with torch.no_grad():
        for rank in range(ranks):
            run.model(x[rank * len(x) // ranks : (rank + 1) * len(x) // ranks])
    for hook in hooks:
        hook.remove()
    return float(min(least, default=math.inf))


def make_targets(loss, outputs, rows):
    """Numbers to train on, float32 [rows, outputs]; of binary cross-entropy shares, half of them 0
    or 1."""
    draw = philox(SEED, RANDOM_WEIGHTS + (1 << 21), 0, rows * outputs).reshape(rows, outputs)
    share = (draw >> 8).astype(np.float32) * np.float32(2.0**-24)
    if loss == "mse":
        return 4 * share - 2
    return np.where(draw % 2 == 0, np.round(share), share).astype(np.float32)


def walk_before(layers, options, batch, seed):
    """The state after SMALL_BEFORE steps from our own weights, and the next batch."""
    images, labels = read_rows(batch * (SMALL_BEFORE + 1))
    outputs = layers[-1][1]["units"]
    if "loss" in options and outputs != 10:  # others have classes for labels
        labels = make_targets(options["loss"], outputs, len(labels))
    walk = float64_training(layers, options)
    walk.load({"params": initial_weights(walk.model, seed)}, 0)
    for k in range(SMALL_BEFORE):
        rows = slice(k * batch, (k + 1) * batch)
        walk.step(images[rows], labels[rows], 1, torch.arange)
    return rounded(walk.state()), images[-batch:], labels[-batch:]


def make_small(name, layers, options, all_ranks, size, seed):
    """One step from a state that is SMALL_BEFORE steps old: all of it."""
    before, images, labels = walk_before(layers, options, size, seed)
    tensors = {"images": images, "labels" if labels.ndim == 1 else "targets": labels}
    tensors.update((k, v.astype(np.float32)) for k, v in flat_names("before", before))
    metadata = describe(name, layers, options, size, SMALL_BEFORE, SMALL_BEFORE + 1, seed)
    print(name)
    for ranks in all_ranks:
        probe, run = float64_training(layers, options), float64_training(layers, options)
        probe.load(before, SMALL_BEFORE)
        run.load(before, SMALL_BEFORE)
        margin = step_margin(probe, images, ranks)
        assert margin > SMALL_MARGIN or not run.norms, f"{name}: a relu at {margin}"
        loss = run.step(images, labels, ranks, torch.arange)
        start = before, SMALL_BEFORE
        others = float32_states(layers, options, start, 1, images, labels, ranks)
        tensors.update(flat_names(f"after.p{ranks}", run.state()))
        metadata[f"loss.p{ranks}"] = f"{loss:.15e}"
        metadata.update(own_distances(before, run.state(), others, f"own.p{ranks}"))
    write(name, tensors, metadata)


def choose_elements(params, running, limit):
    """Up to `limit` elements of every tensor, at random by a fixed key, in rising order."""
    chosen = {}
    for number, (key, value) in enumerate([*params.items(), *running.items()]):
        draw = philox(SEED, RANDOM_WEIGHTS + (1 << 20) + number, 0, value.numel())
        chosen[key] = np.sort(np.argsort(draw, kind="stable")[:limit]).astype(np.int32)
    return chosen


def pick(state, chosen):
    """The chosen elements, of parameters and running statistics."""
    return {
        group: {key: state[group][key].reshape(-1)[chosen[key]] for key in state[group]}
        for group in ("params", "running")
        if group in state
    }


def make_full(name, layers, options, all_ranks, free_steps, limit, size, seed):
    """The first step, and `free_steps` steps, of a whole model from our own initial weights."""
    images, labels = read_rows(size * free_steps)
    model = torch_models.build(layers)
    running = {k: v.double() for k, v in model.named_buffers() if "running" in k}
    params = {k: v.double() for k, v in initial_weights(model, seed).items()}
    start = {"params": params, "running": running} if running else {"params": params}
    chosen = choose_elements(params, running, limit)
    before = pick(start, chosen)
    tensors = {f"index.{key}": index for key, index in chosen.items()}
    tensors.update((k, v.astype(np.float32)) for k, v in flat_names("before", before))
    metadata = describe(name, layers, options, size, 0, free_steps, seed)
    print(name)
    cases = [(1, ranks) for ranks in all_ranks] + [(n, 1) for n in (free_steps,) if n > 1]
    for steps, ranks in cases:
        suffix = f"p{ranks}" if steps == 1 else f"p{ranks}.step{steps}"
        run = float64_training(layers, options)
        run.load(start, 0)
        for k in range(steps):
            rows = slice(k * size, (k + 1) * size)
            if name == "mlp":
                margin = step_margin(run, images[rows], ranks)
                assert margin > MLP_MARGIN, f"{name}: a relu at {margin} in step {k}"
            loss = run.step(images[rows], labels[rows], ranks, torch.arange)
        after, count = pick(run.state(), chosen), size * steps
        batch = images[:count], labels[:count]
        others = float32_states(layers, options, (start, 0), steps, *batch, ranks)
        tensors.update(flat_names(f"after.{suffix}", after))
        metadata[f"loss.{suffix}"] = f"{loss:.15e}"
        others = [pick(other, chosen) for other in others]
        metadata.update(own_distances(before, after, others, f"own.{suffix}"))
    write(name, tensors, metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="goldens to make; none: all of them")
    parser.add_argument("--autocast", action="store_true", help="make autocast.json instead")
    args = parser.parse_args()
    names = args.names
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    known = {case[0] for case in SMALL + FULL}
    for name in set(names) - known:
        parser.error(f"no golden is called {name}: there are {', '.join(sorted(known))}")
    if args.autocast:
        make_autocast(names)
        return
    for case in SMALL:
        if not names or case[0] in names:
            make_small(*case)
    for case in FULL:
        if not names or case[0] in names:
            make_full(*case)


if __name__ == "__main__":
    main()
