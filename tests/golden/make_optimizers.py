#!/usr/bin/env python3
"""Generates gptlite/optimizers.json: 20 steps of the case gptlite, with GELU, under other optimizers than AdamW, in fp64.

    python3 tests/golden/make_optimizers.py        # after make_golden.py; needs torch, numpy, safetensors

Adagrad is torch.optim.Adagrad. The others are written here from their papers, and with what DeepSpeed adds to them
(docs/config.md). GELU, because the input of a ReLU may be within rounding of zero.
"""
import json
import math
import platform

import numpy as np
import torch
from safetensors.numpy import load_file

import make_golden


def lerp(a, b, share):
    return a + share * (b - a)


class Lion:
    """Chen et al., 2023."""

    def __init__(self, weights, params):
        self.w, self.p = weights, params
        self.m = {k: torch.zeros_like(v) for k, v in weights.items()}

    def step(self):
        beta1, beta2 = self.p["betas"]
        for k, w in self.w.items():
            sign = torch.sign(beta1 * self.m[k] + (1 - beta1) * w.grad)
            w -= self.p["lr"] * (sign + self.p["weight_decay"] * w)
            self.m[k] = beta2 * self.m[k] + (1 - beta2) * w.grad


class Moments:
    """Adam's two moments of one tensor."""

    def __init__(self, w):
        self.m, self.v = torch.zeros_like(w), torch.zeros_like(w)

    def add(self, g, betas):
        self.m = betas[0] * self.m + (1 - betas[0]) * g
        self.v = betas[1] * self.v + (1 - betas[1]) * g * g


class Lamb:
    """You et al., 2020, with DeepSpeed's limits of the trust ratio and its place of the bias corrections."""

    def __init__(self, weights, params):
        self.w, self.p, self.t = weights, params, 0
        self.moments = {k: Moments(v) for k, v in weights.items()}

    def step(self):
        p = self.p
        self.t += 1
        rate = p["lr"] * math.sqrt(1 - p["betas"][1] ** self.t) / (1 - p["betas"][0] ** self.t)
        for k, w in self.w.items():
            moments = self.moments[k]
            moments.add(w.grad, p["betas"])
            u = moments.m / (moments.v.sqrt() + p["eps"]) + p["weight_decay"] * w
            trust = min(max((w.norm() / u.norm()).item(), p["min_coeff"]), p["max_coeff"])
            w -= rate * trust * u


def orthogonalized(x):
    """Five Newton-Schulz steps (Jordan, 2024)."""
    if x.shape[0] > x.shape[1]:
        return orthogonalized(x.T).T
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x


class Muon:
    """Jordan et al., 2024: hidden matrices; AdamW for the rest."""

    def __init__(self, weights, params):
        self.w, self.p, self.t = weights, params, 0
        self.moments = {k: Moments(v) for k, v in weights.items()}

    def step(self):
        p = self.p
        self.t += 1
        for k, w in self.w.items():
            moments = self.moments[k]
            if w.ndim == 2 and "embed" not in k and "lm_head" not in k:
                moments.m = lerp(moments.m, w.grad, 1 - p["momentum"])
                step = orthogonalized(lerp(w.grad, moments.m, p["momentum"]))
                step *= math.sqrt(max(1, w.shape[0] / w.shape[1]))
                lr = p["muon_lr"]
            else:
                moments.add(w.grad, p["betas"])
                m = moments.m / (1 - p["betas"][0] ** self.t)
                v = moments.v / (1 - p["betas"][1] ** self.t)
                step = m / (v.sqrt() + p["eps"])
                lr = p["adam_lr"]
            w -= lr * (step + p["weight_decay"] * w)


def adagrad(weights, params):
    return torch.optim.Adagrad(weights.values(), **params)


RULES = {"Adagrad": adagrad, "Lion": Lion, "Lamb": Lamb, "Muon": Muon}
PARAMS = {
    "Adagrad": {"lr": 2e-2, "eps": 1e-10, "weight_decay": 0.05},
    "Lion": {"lr": 5e-4, "betas": [0.9, 0.99], "weight_decay": 0.1},
    "Lamb": {
        "lr": 1e-2, "betas": [0.9, 0.99], "eps": 1e-6, "weight_decay": 0.1,
        "min_coeff": 0.05, "max_coeff": 2.0,
    },
    "Muon": {
        "muon_lr": 1e-2, "adam_lr": 2e-3, "momentum": 0.95, "betas": [0.9, 0.95], "eps": 1e-10,
        "weight_decay": 0.1,
    },
}  # fmt: skip


def train(name, config, weights, batches, dtype):
    model = {**config["dstrain"]["model"], "activation": "gelu"}
    w = {k: torch.from_numpy(v.copy()).to(dtype).requires_grad_() for k, v in weights.items()}
    optimizer = RULES[name](w, PARAMS[name])
    size, accumulation = config["train_batch_size"], config["gradient_accumulation_steps"]
    curve = []
    for step in range(make_golden.STEPS):
        x, y = batches.batch(step, size)
        loss = 0.0
        for v in w.values():
            v.grad = None
        for xm, ym in zip(x.chunk(accumulation), y.chunk(accumulation)):
            logits = make_golden.gptlite_logits(w, xm, model)
            part = make_golden.mean_cross_entropy(logits, ym) / accumulation
            part.backward()
            loss += part.item()
        norm = torch.nn.utils.clip_grad_norm_(w.values(), config["gradient_clipping"]).item()
        with torch.no_grad():
            optimizer.step()
        curve.append({"loss": loss, "grad_norm": norm})
    return curve


def main():
    torch.set_num_threads(1)
    folder = make_golden.HERE / "gptlite"
    config = json.loads((folder / "config.json").read_text())
    text = (folder / "text.txt").read_bytes().decode()
    alphabet = sorted(set(text))
    ids = np.array([alphabet.index(c) for c in text])
    weights = load_file(folder / "init.safetensors")
    batches = make_golden.TokenBatches(ids, config["dstrain"]["model"], config["dstrain"]["data"])
    result = {
        "made_with": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        }
    }
    for name, params in PARAMS.items():
        curve = train(name, config, weights, batches, torch.float64)
        single = train(name, config, weights, batches, torch.float32)
        deviation = max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(curve, single))
        result[name] = {"params": params, "torch_fp32_deviation": deviation, "steps": curve}
        print(
            f"{name}: loss {curve[0]['loss']:.4f} -> {curve[-1]['loss']:.4f}, "
            f"torch fp32 deviates by {deviation:.1e}"
        )
    (folder / "optimizers.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
