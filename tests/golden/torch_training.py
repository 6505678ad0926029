"""A training of PyTorch on the rows and from the weights that a run of ours would take: the images
of Fashion-MNIST in their order, and initial weights by the random numbers of base/random.h.
"""
import gzip
import math
import pathlib

import numpy as np
import torch
from torch import nn

import torch_models
from torch_large_batch import Lamb, Lars

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
MEAN, STD = 0.2860, 0.3530
RANDOM_WEIGHTS = 1 << 24  # base/random.h: DP_RANDOM_WEIGHTS
SOFTMAX = "softmax_cross_entropy"


def read_rows(count):
    """The first `count` training images, [count, 28, 28] bytes, and their labels."""
    with gzip.open(DATA / "train-images-idx3-ubyte.gz") as file:
        images = np.frombuffer(file.read(16 + count * 784), np.uint8, offset=16)
    with gzip.open(DATA / "train-labels-idx1-ubyte.gz") as file:
        labels = np.frombuffer(file.read(8 + count), np.uint8, offset=8)
    return images.reshape(count, 28, 28), labels.astype(np.int64)


def philox(seed, what, step, count):
    """`count` 32-bit numbers of the sequence (seed, what, step): base/random.h, in numpy."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    block = np.arange((count + 3) // 4, dtype=np.uint64)
    c = [block & low, block >> half, np.full_like(block, step), np.full_like(block, what)]
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * c[0]
        p1 = np.uint64(0xCD9E8D57) * c[2]
        c = [
            (p1 >> half) ^ c[1] ^ np.uint64(k0),
            p1 & low,
            (p0 >> half) ^ c[3] ^ np.uint64(k1),
            p0 & low,
        ]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(c, axis=1).reshape(-1)[:count].astype(np.uint32)


def initial_weights(model, seed):
    """Interface: uniform in +-1/sqrt(fan_in), keyed by tensor and element. float32, by key."""
    fan_in = {}
    for name, module in model.named_modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            fan_in[name] = module.weight[0].numel()
    weights = {}
    for number, (key, param) in enumerate(model.named_parameters()):
        owner, local = key.rsplit(".", 1)
        if owner not in fan_in:
            flat = np.full(param.numel(), 1 if local == "weight" else 0, np.float32)
        else:
            bits = philox(seed, RANDOM_WEIGHTS + number, 0, param.numel())
            unit = (bits >> 8).astype(np.float32) * np.float32(2.0**-24)
            bound = np.float32(1.0 / math.sqrt(fan_in[owner]))
            flat = (np.float32(2) * unit - np.float32(1)) * bound
        weights[key] = torch.from_numpy(flat.reshape(tuple(param.shape)))
    return weights


ADAM_SLOTS = {k: k for k in ("exp_avg", "exp_avg_sq")}
SLOTS = {"sgd": {"momentum": "momentum_buffer"}, "adamw": ADAM_SLOTS,
         "lars": {"momentum": "momentum_buffer"}, "lamb": ADAM_SLOTS}


def make_optimizer(model, options):
    """The optimizer; parameters that no_decay lists are in a group of their own."""
    left_out = options.get("no_decay", ["bias", "norm"] if options["name"] in LAYERWISE else [])
    groups = [{"params": []}, {"params": [], "weight_decay": 0.0, "fixed": True}]
    for module in model.modules():
        norm = isinstance(module, (nn.BatchNorm2d, nn.GroupNorm, nn.LayerNorm))
        for name, param in module.named_parameters(recurse=False):
            word = "norm" if norm else name
            groups[word in left_out]["params"].append(param)
    groups = [group for group in groups if group["params"]]
    common = {"lr": options["lr"], "weight_decay": options.get("weight_decay", 0.0)}
    for key in ("momentum", "nesterov", "betas", "eps", "trust_coefficient"):
        if key in options:
            common[key] = options[key]
    kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW, **LAYERWISE}[options["name"]]
    return kind(groups, **common)


LAYERWISE = {"lars": Lars, "lamb": Lamb}


def sum_losses(name, output, labels, smoothing=0.0):
    """The sum of the rows' losses, each of which is a mean over outputs, as in PyTorch's "mean"."""
    if name == SOFTMAX:
        return nn.functional.cross_entropy(output, labels, reduction="sum",
                                           label_smoothing=smoothing)
    outputs = output.shape[1]
    if not labels.is_floating_point():
        labels = nn.functional.one_hot(labels, outputs)
    labels = labels.to(output.dtype)
    functions = {"binary_cross_entropy": nn.functional.binary_cross_entropy_with_logits,
                 "mse": nn.functional.mse_loss}
    return functions[name](output, labels, reduction="sum") / outputs


class Training:
    """A model and its optimizer in one element type and memory format. `options` are the
    optimizer's, and the loss (softmax where there is none)."""

    def __init__(self, layers, options, dtype, memory_format, autocast=None):
        self.autocast = autocast  # the type of torch.autocast; None: without
        self.scale = 1.0  # of the loss
        self.model = torch_models.build(layers).to(dtype)
        self.model = self.model.to(memory_format=memory_format)
        self.options, self.dtype, self.memory_format = options, dtype, memory_format
        self.norms = [m for m in self.model.modules() if isinstance(m, nn.BatchNorm2d)]
        self.optimizer = make_optimizer(self.model, options)
        self.steps = 0

    def load(self, state, steps):
        """Takes over a state; groups that it leaves out begin at zero."""
        named = dict(self.model.named_parameters())
        buffers = dict(self.model.named_buffers())
        with torch.no_grad():
            for key, value in state["params"].items():
                named[key].copy_(value)
            for key, value in state.get("running", {}).items():
                buffers[key].copy_(value)
            for norm in self.norms:
                norm.num_batches_tracked.fill_(steps)
        for group, slot in SLOTS[self.options["name"]].items():
            for key, value in state.get(group, {}).items():
                own = self.optimizer.state[named[key]]
                own[slot] = value.to(self.dtype).clone(memory_format=torch.preserve_format)
                own.setdefault("step", torch.tensor(float(steps)))
        self.steps = steps

    def state(self):
        """A copy in float64: {group: {key: tensor}}."""
        named = list(self.model.named_parameters())
        groups = {"params": {key: value for key, value in named}}
        for group, slot in SLOTS[self.options["name"]].items():
            groups[group] = {key: self.optimizer.state[value][slot] for key, value in named}
        if self.norms:
            groups["running"] = {
                key: value for key, value in self.model.named_buffers() if "running" in key
            }
        return {
            group: {key: v.detach().double().contiguous().clone() for key, v in tensors.items()}
            for group, tensors in groups.items()
        }

    def input(self, images):
        x = torch.from_numpy(images.copy()).to(self.dtype).unsqueeze(1)
        return ((x / 255 - MEAN) / STD).contiguous(memory_format=self.memory_format)

    def step(self, images, labels, ranks, order):
        """One step as `ranks` ranks make it; `order` gives the order of n rows. The loss."""
        x, y = self.input(images), torch.from_numpy(labels.copy())
        total, loss_sum = len(labels), 0.0
        before = [(n.running_mean.clone(), n.running_var.clone()) for n in self.norms]
        shares = [[torch.zeros_like(part) for part in pair] for pair in before]
        for norm in self.norms:
            norm.momentum = 1.0  # the buffers then hold this rank's statistics alone
        self.optimizer.zero_grad()
        for rank in range(ranks):
            begin, end = rank * total // ranks, (rank + 1) * total // ranks
            rows = begin + order(end - begin)
            with torch.autocast("cpu", self.autocast, enabled=self.autocast is not None):
                output = self.model(x[rows])
                loss = sum_losses(self.options.get("loss", SOFTMAX), output, y[rows],
                                  self.options.get("label_smoothing", 0.0)) / total
            (loss * self.scale).backward()
            loss_sum += loss.item()
            self.add_statistics(shares, (end - begin) / total)
        self.set_running(before, shares)
        for param in self.model.parameters():
            param.grad /= self.scale
        clip = self.options.get("clip_norm", 0.0)
        if clip > 0:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), clip)
            assert not norm <= 1.5 * clip, "this case shall clip"
        self.optimizer.step()
        self.steps += 1
        return loss_sum

    def add_statistics(self, shares, weight):
        for norm, (mean, variance) in zip(self.norms, shares):
            mean += weight * norm.running_mean
            variance += weight * norm.running_var

    def set_running(self, before, shares):
        """running = 0.9 running + 0.1 (statistics over all ranks, by rows)."""
        for norm, old, new in zip(self.norms, before, shares):
            norm.running_mean.copy_(0.9 * old[0] + 0.1 * new[0])
            norm.running_var.copy_(0.9 * old[1] + 0.1 * new[1])
            norm.num_batches_tracked.fill_(self.steps + 1)


def float64_training(layers, options):
    return Training(layers, options, torch.float64, torch.contiguous_format)


def orders():
    """Three orders of a batch's rows: as they are, backwards, shuffled."""

    def shuffled(n):
        return torch.randperm(n, generator=torch.Generator().manual_seed(5))

    return [torch.arange, lambda n: torch.arange(n).flip(0), shuffled]
