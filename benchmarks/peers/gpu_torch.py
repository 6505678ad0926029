#!/usr/bin/env python3
"""Trains one model with PyTorch on one GPU and prints its rate as one line of JSON.

Started by compare_gpu. PyTorch gets what makes it fast: channels_last for images, autocast, a fused
optimizer, with --mode compile or graphs torch.compile, without or with CUDA graphs; and the batch
lies on the GPU, as bytes that each step turns into numbers, while Lockstep brings its own from the
host. Rates are of windows of --steps steps, after warm-up, which compiles.
"""
import argparse
import json
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "golden"))
import torch  # noqa: E402
import torch_models  # noqa: E402

MODELS = {  # layers, input (height, width, channels), classes
    "mlp": (torch_models.mlp, (28, 28, 1), 10),
    "lenet": (torch_models.lenet, (28, 28, 1), 10),
    "resnet50": (torch_models.resnet50, (224, 224, 3), 1000),
    "mlp8192": (lambda: torch_models.mlp((8192,) * 4), (64, 128, 1), 10),
}
TYPES = {"fp32": None, "tf32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
MODES = {"eager": None, "compile": "default", "graphs": "reduce-overhead"}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True, choices=sorted(MODELS))
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--precision", choices=sorted(TYPES), default="fp32")
    parser.add_argument("--mode", choices=sorted(MODES), default="eager")
    parser.add_argument("--steps", type=int, default=50, help="of a window")
    parser.add_argument("--windows", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=10, help="steps")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--device", default="cuda", help="cpu: to try this program")
    return parser.parse_args()


def make_step(args):
    """A function that trains one step."""
    layers, shape, classes = MODELS[args.model]
    height, width, channels = shape
    device = torch.device(args.device)
    image_format = torch.channels_last if channels > 1 else torch.contiguous_format
    torch.manual_seed(1)
    model = torch_models.build(layers(), shape).to(device=device, memory_format=image_format)
    fused = {"fused": True} if device.type == "cuda" else {"foreach": True}
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, **fused)
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (args.batch, channels, height, width), generator=generator,
                           dtype=torch.uint8).to(device, memory_format=image_format)
    labels = torch.randint(classes, (args.batch,), generator=generator).to(device)
    narrow = TYPES[args.precision]

    def loss_of(bytes_in, labels_in):
        x = bytes_in.float().mul(1 / 255)
        with torch.autocast(device.type, dtype=narrow, enabled=narrow is not None):
            return torch.nn.functional.cross_entropy(model(x), labels_in)

    if MODES[args.mode] is not None:
        loss_of = torch.compile(loss_of, mode=MODES[args.mode])

    def step():
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        loss_of(images, labels).backward()
        optimizer.step()

    return step


def main():
    args = parse_arguments()
    on_gpu = args.device == "cuda"
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    torch.backends.cudnn.benchmark = True
    # fp32 rounds no factor on either side; by default PyTorch does, in convolutions.
    torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    step = make_step(args)
    begin = time.perf_counter()
    for _ in range(args.warm_up):
        step()
    wait()
    warm_up_s = time.perf_counter() - begin
    if on_gpu:  # what cuDNN was tried with is no part of a step; nor does ours count
        torch.cuda.reset_peak_memory_stats()
    rates = []
    for _ in range(args.windows):
        begin = time.perf_counter()
        for _ in range(args.steps):
            step()
        wait()
        rates.append(args.batch * args.steps / (time.perf_counter() - begin))
    print(json.dumps({
        "model": args.model,
        "batch": args.batch,
        "precision": args.precision,
        "mode": args.mode,
        "samples_per_second": statistics.median(rates),
        "rates": rates,
        "warm_up_s": warm_up_s,
        "peak_device_bytes": torch.cuda.max_memory_allocated() if on_gpu else None,
        "reserved_device_bytes": torch.cuda.max_memory_reserved() if on_gpu else None,
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name() if on_gpu else None,
        "cudnn": torch.backends.cudnn.version() if on_gpu else None,
    }))


if __name__ == "__main__":
    main()
