"""The shipped models as PyTorch modules: one description gives the nn.Sequential and the YAML.

A model is a list of (layer, options) in the words of model.cfg. The index of a layer in the list
is its index in nn.Sequential, so parameter names equal those of our checkpoints:
`<index>.weight`, `<index>.body.<i>.weight`, `<index>.shortcut.<i>.weight`.
"""
import torch
from torch import nn

from descriptions import (  # noqa: F401: for those that import this one
    MODELS,
    branched,
    grouped,
    lenet,
    mlp,
    resnet20,
    resnet50,
    smooth,
)


class Residual(nn.Module):
    """body(x) + shortcut(x); an empty shortcut is the identity and has no keys."""

    def __init__(self, body, shortcut):
        super().__init__()
        self.body = body
        self.shortcut = shortcut

    def forward(self, x):
        return self.body(x) + self.shortcut(x)


class Concat(nn.Module):
    """The channels of all branches, one after the other."""

    def __init__(self, branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def window(size, options):
    free = size + 2 * options.get("padding", 0) - options["kernel"]
    return free // options.get("stride", 1) + 1


def build_conv2d(options, shape):
    height, width, channels = shape
    module = nn.Conv2d(
        channels,
        options["filters"],
        options["kernel"],
        stride=options.get("stride", 1),
        padding=options.get("padding", 0),
        groups=options.get("groups", 1),
        bias=options.get("bias", True),
    )
    return module, (window(height, options), window(width, options), options["filters"])


def build_residual(options, shape):
    body, out = build_layers(options["body"], shape)
    shortcut, same = build_layers(options["shortcut"], shape)
    if out != same:
        raise ValueError(f"residual: the body gives {out}, the shortcut {same}")
    return Residual(body, shortcut), out


def build_concat(options, shape):
    built = [build_layers(branch, shape) for branch in options["branches"]]
    shapes = [out for _, out in built]
    if len({out[:-1] for out in shapes}) != 1:
        raise ValueError(f"concat: the branches give {shapes}")
    return Concat([module for module, _ in built]), shapes[0][:-1] + (sum(o[-1] for o in shapes),)


def build_layer(kind, options, shape):
    """The module of one layer, and the shape [height, width, channels] or [units] it gives."""
    if kind == "conv2d":
        return build_conv2d(options, shape)
    if kind == "residual":
        return build_residual(options, shape)
    if kind == "concat":
        return build_concat(options, shape)
    if kind == "batchnorm":
        return nn.BatchNorm2d(shape[-1]), shape
    if kind == "relu":
        return nn.ReLU(), shape
    if kind == "groupnorm":
        return nn.GroupNorm(options["groups"], shape[-1]), shape
    if kind == "layernorm":
        return nn.LayerNorm(shape[-1]), shape
    if kind == "silu":
        return nn.SiLU(), shape
    if kind == "leaky_relu":
        return nn.LeakyReLU(options["slope"]), shape
    if kind == "maxpool":
        size, padding = options["size"], options.get("padding", 0)
        window_of = {"kernel": size, "stride": options.get("stride", size), "padding": padding}
        module = nn.MaxPool2d(size, window_of["stride"], padding)
        return module, (window(shape[0], window_of), window(shape[1], window_of), shape[2])
    if kind == "global_avgpool":
        return nn.AdaptiveAvgPool2d(1), (1, 1, shape[-1])
    if kind == "flatten":
        size = 1
        for extent in shape:
            size *= extent
        return nn.Flatten(), (size,)
    if kind == "dense":
        return nn.Linear(shape[0], options["units"]), (options["units"],)
    raise ValueError(f"unknown layer {kind}")


def build_layers(layers, shape):
    modules = []
    for kind, options in layers:
        module, shape = build_layer(kind, options, shape)
        modules.append(module)
    return nn.Sequential(*modules), shape


def build(layers, shape=(28, 28, 1)):
    """The nn.Sequential of a description, with PyTorch's own initial weights."""
    return build_layers(layers, shape)[0]


def flow(value):
    """A value as YAML in flow style."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return str(value)


def layer_yaml(kind, options, sync, indent):
    """The lines of one layer; `sync` goes to every batch norm."""
    if kind == "batchnorm" and sync:
        options = {"sync": True}
    if kind == "concat":
        lines = [f"{indent}- concat:", f"{indent}    branches:"]
        for branch in options["branches"]:
            lines.append(f"{indent}      -" if branch else f"{indent}      - []")
            for inner, inner_options in branch:
                lines += layer_yaml(inner, inner_options, sync, indent + "        ")
        return lines
    if kind != "residual":
        return [f"{indent}- {kind}: {flow(options)}"]
    lines = [f"{indent}- residual:"]
    for part in ("body", "shortcut"):
        if not options[part]:
            lines.append(f"{indent}    {part}: []")
            continue
        lines.append(f"{indent}    {part}:")
        for inner, inner_options in options[part]:
            lines += layer_yaml(inner, inner_options, sync, indent + "      ")
    return lines


def model_yaml(layers, sync=False):
    """The section `model` of a model.cfg."""
    lines = ["model:", "  input: [28, 28, 1]", "  layers:"]
    for kind, options in layers:
        lines += layer_yaml(kind, options, sync, "    ")
    return "\n".join(lines) + "\n"
