#!/usr/bin/env python3
"""Generates gptlite/losses.json: 8 AdamW steps of the case gptlite with other losses than plain cross-entropy, in fp64.

    python3 tests/golden/losses/make_losses.py        # after make_golden.py; needs torch, numpy, safetensors

The smoothed cross-entropy is torch's own; the z-loss is the square of torch.logsumexp. The validation loss, after the
last step, has neither.
"""
import json
import pathlib
import platform
import sys

import numpy as np
import torch
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import make_golden  # noqa: E402

STEPS, VALIDATION_SAMPLES = 8, 7
CASES = [  # label smoothing, weight of the z-loss
    (0.1, 0.0),
    (0.0, 1e-2),
    (0.3, 1e-3),
]


def loss_of(logits, targets, smoothing, z_loss):
    logits = logits.reshape(-1, logits.shape[-1])
    plain = torch.nn.functional.cross_entropy(logits, targets.reshape(-1), label_smoothing=smoothing)
    return plain + z_loss * (torch.logsumexp(logits, dim=-1) ** 2).mean()


def run(config, weights, batches, validation, smoothing, z_loss):
    model, adam = config["dstrain"]["model"], config["optimizer"]["params"]
    w = {k: torch.from_numpy(v.copy()).double().requires_grad_() for k, v in weights.items()}
    optimizer = torch.optim.AdamW(
        w.values(), lr=adam["lr"], betas=adam["betas"], eps=adam["eps"], weight_decay=adam["weight_decay"]
    )
    losses, norms = [], []
    for step in range(STEPS):
        x, y = batches.batch(step, config["train_batch_size"])
        optimizer.zero_grad()
        loss = loss_of(make_golden.gptlite_logits(w, x, model), y, smoothing, z_loss)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), config["gradient_clipping"]).item())
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        after = make_golden.mean_cross_entropy(make_golden.gptlite_logits(w, validation[0], model), validation[1])
    return {
        "label_smoothing": smoothing,
        "z_loss": z_loss,
        "loss": losses,
        "grad_norm": norms,
        "val_loss": after.item(),
    }


def main():
    folder = make_golden.HERE / "gptlite"
    config = json.loads((folder / "config.json").read_text())
    model, data = config["dstrain"]["model"], config["dstrain"]["data"]
    text = (folder / "text.txt").read_text()
    known = sorted(set(text))
    ids = np.array([known.index(c) for c in text])
    batches = make_golden.TokenBatches(ids, model, data)
    held = ids[len(batches.train) :]
    at = [i * batches.t for i in range(VALIDATION_SAMPLES)]
    validation = (
        torch.from_numpy(np.stack([held[a : a + batches.t] for a in at])),
        torch.from_numpy(np.stack([held[a + 1 : a + 1 + batches.t] for a in at])),
    )
    weights = load_file(folder / "init.safetensors")
    cases = [run(config, weights, batches, validation, *case) for case in CASES]
    made_by = f"torch {torch.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    (folder / "losses.json").write_text(json.dumps({"made_by": made_by, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
