#!/usr/bin/env python3
"""Trains one of the shipped models with PyTorch on some cores of one process: see compare_peers.

Variants: `plain` and `channels_last` use one thread a core inside each operation; `compiled` is
channels_last by torch.compile; `halves` runs a Python thread a core, each of which computes its
part of the batch alone, on weights that all share.
"""
import concurrent.futures
import os

import cpu_peer

VARIANTS = ("plain", "channels_last", "compiled", "halves")

args = cpu_peer.parse_arguments(VARIANTS)
os.environ["OMP_NUM_THREADS"] = str(1 if args.variant == "halves" else args.cores)
import torch  # noqa: E402

import torch_models  # noqa: E402


def numbers_of(images, labels, memory_format):
    x = torch.from_numpy(images).permute(0, 3, 1, 2)
    x = x.float().mul_(1 / (255 * cpu_peer.DEVIATION)).sub_(cpu_peer.MEAN / cpu_peer.DEVIATION)
    return x.contiguous(memory_format=memory_format), torch.from_numpy(labels).long()


class Part:
    """A model that computes the gradient of its rows; the loss is of the whole batch's mean."""

    def __init__(self, memory_format, share):
        torch.manual_seed(1)
        self.format, self.share = memory_format, share
        self.model = torch_models.build(cpu_peer.MODELS[args.model](), args.shape)
        self.model = self.model.to(memory_format=memory_format)
        self.weights = list(self.model.parameters())
        self.run = torch.compile(self.loss) if args.variant == "compiled" else self.loss

    def loss(self, x, y):
        with torch.autocast("cpu", torch.bfloat16, enabled=args.precision == "bf16"):
            out = self.model(x)
        return torch.nn.functional.cross_entropy(out.float(), y) * self.share

    def gradient(self, images, labels):
        loss = self.run(*numbers_of(images, labels, self.format))
        return loss.detach(), torch.autograd.grad(loss, self.weights)


def make_step():
    memory_format = torch.contiguous_format
    if args.variant != "plain" and args.model != "mlp":
        memory_format = torch.channels_last
    count = args.cores if args.variant == "halves" else 1
    parts = [Part(memory_format, 1 / count) for _ in range(count)]
    weights = parts[0].weights
    for part in parts[1:]:
        for own, first in zip(part.weights, weights):
            own.data = first.data
    optimizer = torch.optim.SGD(weights, lr=args.lr, momentum=cpu_peer.MOMENTUM, foreach=True)
    pool = concurrent.futures.ThreadPoolExecutor(count)

    def step(images, labels):
        rows = len(labels) // count
        cut = [slice(i * rows, (i + 1) * rows) for i in range(count)]
        waits = [pool.submit(part.gradient, images[rows], labels[rows])
                 for part, rows in zip(parts[1:], cut[1:])]
        loss, gradient = parts[0].gradient(images[cut[0]], labels[cut[0]])
        for wait in waits:
            other, more = wait.result()
            loss = loss + other
            torch._foreach_add_(gradient, more)
        for weight, own in zip(weights, gradient):
            weight.grad = own
        optimizer.step()
        return loss

    return step


def main():
    torch.set_num_threads(1 if args.variant == "halves" else args.cores)
    cpu_peer.time_steps(args, torch.__version__, make_step())


if __name__ == "__main__":
    main()
