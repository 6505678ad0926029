#!/usr/bin/env python3
"""How fast torch's DataLoader makes batches, as one line of JSON; started by compare_input.

    input_torch.py pictures DIR SIDE WORKERS SECONDS   RandomResizedCrop, flip, Normalize
    input_torch.py arrays FILE WORKERS SECONDS         a .npy: RandomCrop, flip, Normalize
"""
import json
import sys
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision import datasets, transforms

WARM = 16  # batches that are not timed


class Arrays(Dataset):
    """As torchvision.datasets.CIFAR10 gives its images."""

    def __init__(self, path, transform):
        from PIL import Image
        self.images, self.transform, self.wrap = numpy.load(path), transform, Image.fromarray

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.wrap(self.images[index])), index % 10


def data_set(kind, path, side):
    last = [transforms.RandomHorizontalFlip(), transforms.ToTensor(),
            transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))]
    if kind == "pictures":
        first = [transforms.RandomResizedCrop(side)]
        return datasets.ImageFolder(path + "/train", transforms.Compose(first + last))
    return Arrays(path, transforms.Compose([transforms.RandomCrop(32, padding=4)] + last))


def forever(loader):
    while True:
        yield from loader


def main():
    kind, path = sys.argv[1:3]
    side, workers, seconds = [float(x) for x in (["0"] if kind == "arrays" else []) + sys.argv[3:]]
    torch.set_num_threads(1)
    batch = 32 if kind == "pictures" else 256
    loader = DataLoader(data_set(kind, path, int(side)), batch, shuffle=True, drop_last=True,
                        num_workers=int(workers), persistent_workers=True)
    rows, begin = 0, 0.0
    for number, (images, _) in enumerate(forever(loader)):
        if number == WARM:
            rows, begin = 0, time.monotonic()
        rows += len(images)
        if number > WARM and time.monotonic() - begin >= seconds:
            break
    print(json.dumps({"samples_per_second": rows / (time.monotonic() - begin),
                      "torch": torch.__version__}))


if __name__ == "__main__":
    main()
