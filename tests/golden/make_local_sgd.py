#!/usr/bin/env python3
"""Generates gptlite/local_sgd.json: 8 steps of the case gptlite, with GELU, under post-local SGD, in fp64.

    python3 tests/golden/make_local_sgd.py        # after make_golden.py; needs torch, numpy, safetensors

Groups of ranks have weights and an optimizer of their own. Up to the start all of them get the gradient of the whole
batch; after it each gets that of its own samples, clipped by its own norm, and after update number u (from 0) the weights
of all groups become their mean if (u - start) is a multiple of the period, as PyTorch's PeriodicModelAverager has it.
The loss is the mean over all samples, each with its group's weights; the norm is the root of the mean square of the
groups' norms; the validation loss is that of the mean weights.
"""
import copy
import json
import math
import platform

import numpy as np
import torch
from safetensors.numpy import load_file

import make_golden

STEPS, BATCH, ACCUMULATION, CLIPPING, VALIDATION_SAMPLES = 8, 24, 2, 1.0, 7
PARAMS = {"lr": 2e-3, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}
CASES = [  # ranks, ranks of a group, steps before the start, period, type and parameters of the optimizer
    (2, 1, 2, 3, "AdamW"),
    (3, 1, 0, 2, "AdamW"),
    (4, 1, 3, 4, "AdamW"),
    (4, 2, 1, 3, "AdamW"),
    (4, 2, 0, 1, "SGD"),
    (3, 1, 1, 3, "SGD"),
]


class Group:
    """The weights and the optimizer of some ranks."""

    def __init__(self, weights, optimizer):
        self.w = {k: torch.from_numpy(v.copy()).double().requires_grad_() for k, v in weights.items()}
        if optimizer == "SGD":
            self.optimizer = torch.optim.SGD(self.w.values(), lr=0.05, momentum=0.9)
        else:
            self.optimizer = torch.optim.AdamW(self.w.values(), **PARAMS)

    def add_gradient(self, x, y, model, samples):
        """Adds the gradient of the sum of the samples' losses over `samples`; returns that sum."""
        loss = make_golden.mean_cross_entropy(make_golden.gptlite_logits(self.w, x, model), y) * len(x)
        (loss / samples).backward()
        return loss.item()


def local_sgd(weights, batches, validation, model, case):
    ranks, size, start, period, optimizer = case
    groups = [Group(weights, optimizer) for _ in range(ranks // size)]
    micro = BATCH // ACCUMULATION // ranks
    curve = []
    for step in range(STEPS):
        x, y = batches.batch(step, BATCH)
        loss = 0.0
        for g, group in enumerate(groups):
            group.optimizer.zero_grad()
            own = range(g * size, (g + 1) * size) if step >= start else range(ranks)
            for m in range(ACCUMULATION):
                for r in own:
                    at = slice((m * ranks + r) * micro, (m * ranks + r + 1) * micro)
                    part = group.add_gradient(x[at], y[at], model, len(own) * micro * ACCUMULATION)
                    loss += part if step >= start or g == 0 else 0
        norms = [torch.nn.utils.clip_grad_norm_(g.w.values(), CLIPPING).item() for g in groups]
        for group in groups:
            group.optimizer.step()
        mean = {k: torch.stack([g.w[k].detach() for g in groups]).mean(0) for k in weights}
        if step >= start and (step - start) % period == 0:
            for group in groups:
                for k, v in group.w.items():
                    v.data.copy_(mean[k])
        with torch.no_grad():
            after = make_golden.mean_cross_entropy(
                make_golden.gptlite_logits(mean, validation[0], model), validation[1]
            )
        norm = math.sqrt(sum(n * n for n in norms) / len(norms))
        curve.append({"loss": loss / BATCH, "grad_norm": norm, "val_loss": after.item()})
    return curve


def main():
    torch.set_num_threads(1)
    folder = make_golden.HERE / "gptlite"
    config = json.loads((folder / "config.json").read_text())["dstrain"]
    model = {**copy.deepcopy(config["model"]), "activation": "gelu"}
    text = (folder / "text.txt").read_bytes().decode()
    alphabet = sorted(set(text))
    ids = np.array([alphabet.index(c) for c in text])
    weights = load_file(folder / "init.safetensors")
    batches = make_golden.TokenBatches(ids, model, config["data"])
    rest, t = ids[len(batches.train) :], model["block_size"]
    rows = [rest[i * t : i * t + t + 1] for i in range(VALIDATION_SAMPLES)]
    validation = tuple(torch.from_numpy(np.stack([r[a : a + t] for r in rows])) for a in (0, 1))
    result = {
        "made_with": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "batch": BATCH,
        "accumulation": ACCUMULATION,
        "clipping": CLIPPING,
        "validation_samples": VALIDATION_SAMPLES,
        "cases": [],
    }
    for case in CASES:
        ranks, size, start, period, optimizer = case
        curve = local_sgd(weights, batches, validation, model, case)
        params = {"lr": 0.05, "momentum": 0.9} if optimizer == "SGD" else PARAMS
        result["cases"].append(
            {
                "ranks": ranks,
                "group": size,
                "start": start,
                "period": period,
                "optimizer": {"type": optimizer, "params": params},
                "steps": curve,
            }
        )
        print(case, f"loss {curve[0]['loss']:.4f} -> {curve[-1]['loss']:.4f}")
    (folder / "local_sgd.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
