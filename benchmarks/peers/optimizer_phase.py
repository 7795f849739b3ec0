#!/usr/bin/env python3
"""Runs and times the optimizer phase of DeepSpeed's CPUAdam or PyTorch's fused AdamW for compare_optimizers.py.

The phase starts with bf16 gradients and ends with bf16 weights, as in both programs' mixed precision with states on the
host: gradients widened to fp32, their norm, clipping, the update of the fp32 weights, the bf16 copy.
"""
import argparse
import json
import os
import time

import torch
from torch_steps import answer_requests


def build(o):
    weights = torch.nn.Parameter(torch.rand(o.millions * 1000000) * 0.04 - 0.02)
    gradients = (weights.detach() * 0.05).bfloat16()
    if o.program == "torch":
        return weights, gradients, torch.optim.AdamW([weights], lr=1e-4, weight_decay=0.01, fused=True)
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    return weights, gradients, DeepSpeedCPUAdam([weights], lr=1e-4, weight_decay=0.01)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--program", choices=["torch", "deepspeed"], required=True)
    p.add_argument("--millions", type=int, required=True)
    p.add_argument("--threads", type=int, required=True)
    o = p.parse_args()
    to = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed writes to standard output
    torch.set_num_threads(o.threads)
    weights, gradients, optimizer = build(o)
    weights.grad = torch.empty_like(weights)
    copy = torch.empty_like(gradients)

    def step():
        start = time.perf_counter()
        weights.grad.copy_(gradients)
        torch.nn.utils.clip_grad_norm_([weights], 1.0)
        optimizer.step()
        copy.copy_(weights.detach())
        return (time.perf_counter() - start) * 1e3

    for _ in range(2):
        step()
    version = torch.__version__
    if o.program == "deepspeed":
        import deepspeed

        version = deepspeed.__version__
    print(json.dumps({"ready": version}), file=to, flush=True)
    answer_requests(step, to)


if __name__ == "__main__":
    main()
