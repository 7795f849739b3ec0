#!/usr/bin/env python3
"""Exports a model of exported_models.py, or runs and times training steps of it in PyTorch, for compare_exported.py.

    torch_exported_steps.py export MODEL FOLDER     writes model.pt2 and data.safetensors
    torch_exported_steps.py steps MODEL fp32|bf16 THREADS

`steps` answers requests as torch_steps.py does. PyTorch uses its fastest eager form: fused AdamW, clipping by the foreach
path, autocast for bf16, images with channels last.
"""
import json
import sys
import time

import torch
from exported_models import build
from torch_steps import answer_requests


def export(name, folder):
    from safetensors.torch import save_file

    model, (x, y) = build(name)
    program = torch.export.export(model, (x, y)).run_decompositions({})
    torch.export.save(program, f"{folder}/model.pt2")
    save_file({"x": x, "y": y}, f"{folder}/data.safetensors")


def training_step(name, dtype):
    model, (x, y) = build(name)
    if x.dim() == 4:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bf16"):
            loss = model(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        return (time.perf_counter() - start) * 1e3

    return step, sum(p.numel() for p in model.parameters())


def main():
    if sys.argv[1] == "export":
        return export(*sys.argv[2:4])
    name, dtype, threads = sys.argv[2:5]
    torch.set_num_threads(int(threads))
    step, parameters = training_step(name, dtype)
    for _ in range(2):
        step()
    print(json.dumps({"ready": torch.__version__, "parameters": parameters}), flush=True)
    answer_requests(step)


if __name__ == "__main__":
    main()
