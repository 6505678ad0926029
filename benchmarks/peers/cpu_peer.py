"""What peers on a CPU share: arguments, the cores they may use, samples, the timed steps, and the
line of JSON that compare_peers reads. Imports no framework."""
import argparse
import gzip
import json
import os
import pathlib
import sys
import time

import numpy

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
import descriptions  # noqa: E402

MODELS = {**descriptions.MODELS, "resnet50": descriptions.resnet50}

MEAN, DEVIATION = 0.2860, 0.3530
MOMENTUM = 0.9
SHAPES = {"resnet50": (224, 224, 3)}  # of a sample: height, width, channels
PLAIN_SHAPE = (28, 28, 1)  # of the other models
SYNTHETIC_SAMPLES, SYNTHETIC_CLASSES = 256, 10  # of models of other shapes
FEW = 5  # steps whose mean loss is compared with that of the last ones


def parse_arguments(variants):
    """Binds the process to its cores, too: before a framework makes its threads."""
    parser = argparse.ArgumentParser(description="Trains one of the shipped models, timed.")
    parser.add_argument("--model", required=True, choices=MODELS)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--variant", choices=variants, default=variants[0])
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=50, help="timed steps, after warm-up")
    parser.add_argument("--warm-up", type=int, default=10, help="steps")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--data", default="/usr/share/datasets/fashion-mnist")
    args = parser.parse_args()
    args.shape = SHAPES.get(args.model, PLAIN_SHAPE)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:args.cores])
    return args


def read_idx(folder, name, header):
    with gzip.open(pathlib.Path(folder) / name) as file:
        return numpy.frombuffer(file.read(), dtype=numpy.uint8, offset=header)


def make_samples(shape):
    """Samples made up, which can be learned: each class has a picture of its own, half of which is
    noise."""
    random = numpy.random.default_rng(1)
    pictures = random.integers(0, 128, (SYNTHETIC_CLASSES, *shape), dtype=numpy.uint8)
    labels = random.integers(0, SYNTHETIC_CLASSES, SYNTHETIC_SAMPLES, dtype=numpy.int32)
    noise = random.integers(0, 128, (SYNTHETIC_SAMPLES, *shape), dtype=numpy.uint8)
    return pictures[labels] + noise, labels


class Batches:
    """Images [batch, *shape] as bytes and labels, in an order shuffled anew each epoch."""

    def __init__(self, args):
        if args.model in SHAPES:
            self.images, self.labels = make_samples(args.shape)
        else:
            images = read_idx(args.data, "train-images-idx3-ubyte.gz", 16)
            self.images = images.reshape(-1, *args.shape)
            self.labels = read_idx(args.data, "train-labels-idx1-ubyte.gz", 8).astype(numpy.int32)
        self.batch = args.batch
        self.epoch, self.at, self.order = 0, 0, numpy.empty(0, dtype=int)

    def next(self):
        if self.at + self.batch > len(self.order):
            self.order = numpy.random.default_rng(self.epoch).permutation(len(self.labels))
            self.epoch, self.at = self.epoch + 1, 0
        rows = self.order[self.at:self.at + self.batch]
        self.at += self.batch
        return self.images[rows], self.labels[rows]


class Initial:
    """Initial weights, by the rule of PyTorch's layers: uniform within 1 / sqrt(fan in)."""

    def __init__(self):
        self.random = numpy.random.default_rng(1)

    def __call__(self, shape, fan):
        return self.random.uniform(-1, 1, shape).astype(numpy.float32) / fan**0.5


def time_steps(args, version, step):
    """Runs step(images, labels), which returns a loss that float() waits for; prints the JSON."""
    batches = Batches(args)
    losses = [step(*batches.next()) for _ in range(args.warm_up)]
    float(losses[-1])
    begin = time.perf_counter()
    for _ in range(args.steps):
        losses.append(step(*batches.next()))
    float(losses[-1])
    seconds = time.perf_counter() - begin
    losses = [float(loss) for loss in losses]
    print(json.dumps({
        "version": version,
        "variant": args.variant,
        "samples_per_second": args.batch * args.steps / seconds,
        "first_loss": sum(losses[:FEW]) / FEW,
        "last_loss": sum(losses[-FEW:]) / FEW,
    }), flush=True)
