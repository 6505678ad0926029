#!/usr/bin/env python3
"""Trains one of the shipped models with PyTorch and prints its rate as one line of JSON.

One process per rank, started by compare_pytorch: DistributedDataParallel over gloo where there are
several, the plain module where there is one. Each rank computes with one thread. What slows a
peer down needlessly is left out: there is no DataLoader (the images lie in memory as bytes), the
optimizer updates all tensors at once, buckets are views of the gradient, running statistics are
not broadcast, and nothing reads the loss.
"""
import argparse
import gzip
import json
import os
import pathlib
import resource
import sys
import time
import warnings


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world", type=int, default=1)
    parser.add_argument("--store", help="file through which the ranks meet; a new one each run")
    parser.add_argument("--global-batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50, help="timed steps, after warm-up")
    parser.add_argument("--warm-up", type=int, default=10, help="steps")
    parser.add_argument("--format", choices=("contiguous", "channels_last"), default="contiguous")
    parser.add_argument("--hook", choices=("none", "fp16", "bf16"), default="none",
                        help="what gradients are sent as; none: as they are")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--cpu", type=int, help="bind to this core; without: any")
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--started", type=float, default=time.time(), help="Unix time of launch")
    return parser.parse_args()


args = parse_arguments()
if args.cpu is not None:
    os.sched_setaffinity(0, {args.cpu})  # before torch starts its threads
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
import torch_models  # noqa: E402


def read_idx(name, header):
    with gzip.open(pathlib.Path(args.data) / name) as file:
        return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8)


class Batches:
    """This rank's rows of every global batch, in an order shuffled anew for each epoch."""

    def __init__(self, memory_format):
        self.images = read_idx("train-images-idx3-ubyte.gz", 16).reshape(-1, 1, 28, 28)
        self.labels = read_idx("train-labels-idx1-ubyte.gz", 8).long()
        self.memory_format = memory_format
        self.epoch, self.at, self.order = 0, 0, torch.empty(0, dtype=torch.long)

    def next(self):
        if self.at + args.global_batch > len(self.order):
            generator = torch.Generator().manual_seed(self.epoch)
            self.order = torch.randperm(len(self.labels), generator=generator)
            self.epoch, self.at = self.epoch + 1, 0
        begin = self.at + args.rank * args.global_batch // args.world
        end = self.at + (args.rank + 1) * args.global_batch // args.world
        self.at += args.global_batch
        rows = self.order[begin:end]
        x = self.images[rows].float().mul_(1 / (255 * 0.3530)).sub_(0.2860 / 0.3530)
        return x.contiguous(memory_format=self.memory_format), self.labels[rows]


def make_model(memory_format):
    torch.manual_seed(1)
    model = torch_models.build(torch_models.MODELS[args.model]())
    model = model.to(memory_format=memory_format)
    if args.world == 1:
        return model
    model = torch.nn.parallel.DistributedDataParallel(
        model, gradient_as_bucket_view=True, broadcast_buffers=False
    )
    if args.hook != "none":
        model.register_comm_hook(None, getattr(default_hooks, f"{args.hook}_compress_hook"))
    return model


def main():
    warnings.simplefilter("ignore", FutureWarning)  # broadcast_buffers: its heir is newer than many
    torch.set_num_threads(1)
    memory_format = {
        "contiguous": torch.contiguous_format,
        "channels_last": torch.channels_last,
    }[args.format]
    if args.world > 1:
        dist.init_process_group(
            "gloo", init_method=f"file://{args.store}", rank=args.rank, world_size=args.world
        )
    model, batches = make_model(memory_format), Batches(memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, foreach=True)

    def step():
        x, y = batches.next()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()
    first_step = time.time() - args.started
    for _ in range(args.warm_up - 1):
        step()
    if args.world > 1:
        dist.barrier()
    begin = time.perf_counter()
    for _ in range(args.steps):
        step()
    if args.world > 1:
        dist.barrier()
    seconds = time.perf_counter() - begin
    result = {
        "rank": args.rank,
        "model": args.model,
        "world_size": args.world,
        "global_batch": args.global_batch,
        "format": args.format,
        "hook": args.hook,
        "bound": args.cpu is not None,
        "steps": args.steps,
        "samples_per_second": args.global_batch * args.steps / seconds,
        "first_step_s": first_step,
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "torch": torch.__version__,
    }
    print(json.dumps(result), flush=True)
    if args.world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
