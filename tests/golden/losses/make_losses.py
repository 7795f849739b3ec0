#!/usr/bin/env python3
"""Generates gptlite/losses.json: 8 AdamW steps of the case gptlite with other losses than plain cross-entropy, in fp64.

    python3 tests/golden/losses/make_losses.py        # after make_golden.py; needs torch, numpy, safetensors

The smoothed cross-entropy is torch's own; the z-loss is the square of torch.logsumexp. The validation loss, after the
last step, has neither. The cases `distill` learn from a teacher whose log-probabilities teacher() makes.
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
DISTILL = [(0.5, 3), (1.0, 5)]  # kd_ratio, tokens of a teacher


def teacher(places, top_k, ids):
    """Returns the teacher's tokens and log-probabilities behind the tokens at these places of the text: (..., top_k) each."""
    i, j = places[..., None], np.arange(top_k)
    return torch.from_numpy((7 * i + 3 * j * j + 5 * j) % ids), torch.from_numpy(-(1 + 0.5 * j + 0.25 * ((i + j) % 3)))


def distilled(logits, targets, places, kd_ratio, top_k):
    """Returns the loss, the mean cross-entropy and the mean divergence."""
    log_q = torch.log_softmax(logits, dim=-1)
    ids, log_p = teacher(places, top_k, logits.shape[-1])
    divergence = (log_p.exp() * (log_p - log_q.gather(-1, ids))).sum(-1).mean()
    plain = -log_q.gather(-1, targets[..., None]).mean()
    return (1 - kd_ratio) * plain + kd_ratio * divergence, plain, divergence


def loss_of(logits, targets, smoothing, z_loss):
    logits = logits.reshape(-1, logits.shape[-1])
    plain = torch.nn.functional.cross_entropy(logits, targets.reshape(-1), label_smoothing=smoothing)
    return plain + z_loss * (torch.logsumexp(logits, dim=-1) ** 2).mean()


def train(config, weights, batches, validation, loss_at):
    """Trains with loss_at(logits, targets, step) -> (loss, further values). Returns the lists of losses, norms and values."""
    model, adam = config["dstrain"]["model"], config["optimizer"]["params"]
    w = {k: torch.from_numpy(v.copy()).double().requires_grad_() for k, v in weights.items()}
    optimizer = torch.optim.AdamW(
        w.values(), lr=adam["lr"], betas=adam["betas"], eps=adam["eps"], weight_decay=adam["weight_decay"]
    )
    losses, norms, further = [], [], []
    for step in range(STEPS):
        x, y = batches.batch(step, config["train_batch_size"])
        optimizer.zero_grad()
        loss, *others = loss_at(make_golden.gptlite_logits(w, x, model), y, step)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(w.values(), config["gradient_clipping"]).item())
        optimizer.step()
        losses.append(loss.item())
        further.append([value.item() for value in others])
    with torch.no_grad():
        after = make_golden.mean_cross_entropy(make_golden.gptlite_logits(w, validation[0], model), validation[1])
    return {"loss": losses, "grad_norm": norms, "val_loss": after.item()}, further


def smoothed_case(smoothing, z_loss, *run):
    values, _ = train(*run, lambda logits, targets, step: (loss_of(logits, targets, smoothing, z_loss),))
    return {"label_smoothing": smoothing, "z_loss": z_loss, **values}


def distilled_case(kd_ratio, top_k, text, config, weights, batches, validation):
    def loss_at(logits, targets, step):
        first = batches.places(step, config["train_batch_size"])
        places = first[:, None] + np.arange(targets.shape[1])
        return distilled(logits, targets, places, kd_ratio, top_k)

    values, further = train(config, weights, batches, validation, loss_at)
    return {"kd_ratio": kd_ratio, "top_k": top_k, "tokens": len(text), "ids": len(set(text)), **values,
            "ce_loss": [v[0] for v in further], "kd_loss": [v[1] for v in further]}


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
    arguments = config, weights, batches, validation
    cases = [smoothed_case(*case, *arguments) for case in CASES]
    taught = [distilled_case(*case, text, *arguments) for case in DISTILL]
    made_by = f"torch {torch.__version__}, numpy {np.__version__}, Python {platform.python_version()}"
    (folder / "losses.json").write_text(json.dumps({"made_by": made_by, "cases": cases, "distill": taught}, indent=1) + "\n")


if __name__ == "__main__":
    main()
