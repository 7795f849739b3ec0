#!/usr/bin/env python3
"""Trains ResNet-18 by PyTorch and by dstrain on the same images and compares the accuracies that they reach.

    python3 -m venv .deps/peer && .deps/peer/bin/pip install torch numpy safetensors
    .deps/peer/bin/python benchmarks/peers/compare_resnet_accuracy.py [--images 10000] [--epochs 10] [--width 64]

The images are generated in CIFAR-10's shape and binary format: a class is the direction and the frequency of a wave, whose
phase, color and contrast are random, in noise. --data names the folder of CIFAR-10 itself instead. Each seed draws fresh weights
from torchvision's distributions, the order of the images, crops and mirrorings, in each program by its own generator, so what
is compared is the mean over seeds. Writes benchmarks/results/accuracy/resnet.json.
"""
import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/golden/resnet"))
MEAN, STD = 0.5, 0.25
RECORD = 3073


def generated(count, seed):
    """Returns records of CIFAR-10's binary version."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 10, count).astype(np.uint8)
    rows, columns = np.mgrid[0:32, 0:32] / 32
    records = np.empty((count, RECORD), np.uint8)
    for i, label in enumerate(labels):
        direction = math.pi / 2 * (label % 5 + 0.5) / 5  # within a quarter, so that mirrored ones are no other class
        waves = 4 if label < 5 else 6.5
        phase, contrast = random.uniform(0, 2 * math.pi), random.uniform(20, 50)
        wave = np.sin(2 * math.pi * waves * (rows * math.sin(direction) + columns * math.cos(direction)) + phase)
        color = random.uniform(-1, 1, (3, 1, 1))
        pixels = 127 + random.uniform(-40, 40, (3, 1, 1)) + contrast * wave * color + random.normal(0, 20, (3, 32, 32))
        records[i, 0] = label
        records[i, 1:] = np.clip(pixels, 0, 255).astype(np.uint8).reshape(-1)
    return records


def write_data(folder, options):
    generated(options.images, 1).tofile(folder / "data_batch_1.bin")
    generated(options.test, 2).tofile(folder / "test_batch.bin")


def read_records(folder, pattern):
    files = sorted(folder.glob(pattern))
    return np.concatenate([np.fromfile(f, np.uint8).reshape(-1, RECORD) for f in files])


def ours(options, folder, seed, output):
    """Returns the accuracy that dstrain reaches."""
    steps = options.images * options.epochs // options.batch
    config = {
        "train_batch_size": options.batch,
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_clipping": 0,
        "optimizer": {"type": "SGD", "params": {"lr": options.lr, "momentum": 0.9, "weight_decay": 5e-4}},
        "dstrain": {
            "model": {"type": "resnet", "depth": 18, "stem": options.stem, "image_size": 32, "num_classes": 10,
                      "width": options.width},
            "data": {"format": "images", "path": str(folder), "val_path": str(folder), "mean": MEAN, "std": STD,
                     "crop": 4, "flip": True},
            "steps": steps, "seed": seed, "eval_samples": options.test, "save_last": False,
        },
    }
    (output / "c.json").write_text(json.dumps(config))
    words = [options.program, "--config", str(output / "c.json"), "--output", str(output / "run"), "--overwrite",
             "--device", "cpu"]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (output / "run/metrics.jsonl").read_text().splitlines()]
    return [line["val_accuracy"] for line in lines if "val_accuracy" in line][-1]


def theirs(options, folder, seed):
    """Returns the accuracy that PyTorch reaches."""
    import torch
    import torch.nn.functional as F
    from make_resnet import Basic, ResNet

    torch.manual_seed(seed)
    torch.set_num_threads(options.threads)
    model = ResNet(Basic, [2, 2, 2, 2], options.stem == "cifar", options.width, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=5e-4)

    def split(pattern):
        records = torch.from_numpy(read_records(folder, pattern))
        return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].long()

    images, labels = split("data_batch_*.bin")
    for _ in range(options.epochs):
        for chosen in torch.randperm(len(images))[: len(images) // options.batch * options.batch].split(options.batch):
            padded = F.pad(images[chosen], (4, 4, 4, 4))
            batch = torch.stack([image[:, t : t + 32, l : l + 32] for image, t, l in
                                 zip(padded, torch.randint(0, 9, (len(chosen),)), torch.randint(0, 9, (len(chosen),)))])
            mirrored = torch.rand(len(chosen)) < 0.5
            batch[mirrored] = batch[mirrored].flip(3)
            loss = F.cross_entropy(model((batch.float() / 255 - MEAN) / STD), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()
    images, labels = split("test_batch.bin")
    right = 0
    with torch.no_grad():
        for batch, of in zip(images.split(options.batch), labels.split(options.batch)):
            right += (model((batch.float() / 255 - MEAN) / STD).argmax(1) == of).sum().item()
    return right / len(labels)


def spread(values):
    return {"mean": statistics.mean(values), "lowest": min(values), "highest": max(values), "all": values}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--data", help="a folder of CIFAR-10's binary version; none: generated images")
    p.add_argument("--images", type=int, default=10000, help="for training")
    p.add_argument("--test", type=int, default=2000, help="images for the accuracy, a multiple of the batch")
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--width", type=int, default=64, help="channels of the first stage; ResNet-18 has 64")
    p.add_argument("--stem", choices=("cifar", "imagenet"), default="cifar", help="imagenet: torchvision's")
    p.add_argument("--batch", type=int, default=100)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--seeds", type=int, default=3)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    p.add_argument("--result", default=str(ROOT / "benchmarks/results/accuracy/resnet.json"))
    options = p.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(options.data or temporary).resolve()
        if not options.data:
            write_data(folder, options)
        else:
            options.images = len(read_records(folder, "data_batch_*.bin"))
            options.test = len(read_records(folder, "test_batch.bin")) // options.batch * options.batch
        output = pathlib.Path(temporary)
        our, their = [], []
        for seed in range(1, options.seeds + 1):
            our.append(ours(options, folder, seed, output))
            their.append(theirs(options, folder, seed))
            print(f"seed {seed}: dstrain {our[-1]:.4f}, PyTorch {their[-1]:.4f}", flush=True)
    result = {"images": options.images, "test": options.test, "epochs": options.epochs, "width": options.width,
              "stem": options.stem, "batch": options.batch, "lr": options.lr, "data": "CIFAR-10" if options.data else "generated",
              "command": "benchmarks/peers/compare_resnet_accuracy.py " + " ".join(
                  f"--{key} {getattr(options, key)}" for key in ("images", "test", "epochs", "width", "stem", "batch", "lr", "seeds")),
              "dstrain": spread(our), "torch": spread(their)}
    for name in ("dstrain", "torch"):
        s = result[name]
        print(f"{name:8} accuracy {s['mean']:.4f} ({s['lowest']:.4f}-{s['highest']:.4f})")
    pathlib.Path(options.result).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
