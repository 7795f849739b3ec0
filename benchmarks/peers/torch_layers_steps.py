#!/usr/bin/env python3
"""Runs and times training steps of transformers' Llama with torch.distributed.tensor.parallel over gloo, as one rank of a
tensor group, for compare_layers.py. Requests and answers are those of torch_steps.py, and every rank is asked. Rank, size
and address come from the environment, as torchrun would set them.

The division is Megatron-LM's, as torchtitan has it: attention and MLP by columns and rows, embedding and head by the
vocabulary, with a loss that gathers no logits."""
import contextlib
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module,
)  # fmt: skip
from torch_steps import answer_requests, build, parser, start_rank


def divide(llama, mesh):
    parallelize_module(llama, mesh, {
        "model.embed_tokens": RowwiseParallel(input_layouts=Replicate()),
        "lm_head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    })  # fmt: skip
    for layer in llama.model.layers:
        plan = {f"self_attn.{name}_proj": ColwiseParallel() for name in "qkv"}
        plan |= {f"mlp.{name}_proj": ColwiseParallel() for name in ("gate", "up")}
        plan |= {"self_attn.o_proj": RowwiseParallel(), "mlp.down_proj": RowwiseParallel()}
        parallelize_module(layer, mesh, plan)


def main():
    o = parser().parse_args()
    start_rank(o)
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (int(os.environ["WORLD_SIZE"]),))
    model, x, y = build(o)
    divide(model.model, mesh)
    divided = [p for p in model.parameters() if isinstance(p, DTensor)]
    whole = [p for p in model.parameters() if not isinstance(p, DTensor)]
    optimizer = torch.optim.AdamW([{"params": divided}, {"params": whole}], lr=1e-4, weight_decay=0.01, fused=True)

    def clip():
        square = sum(p.grad.to_local().float().pow(2).sum() for p in divided)
        dist.all_reduce(square)
        square += sum(p.grad.float().pow(2).sum() for p in whole)
        scale = (1.0 / (square.sqrt() + 1e-6)).clamp(max=1.0)
        for p in divided:
            p.grad.to_local().mul_(scale)
        for p in whole:
            p.grad.mul_(scale)

    def step():
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        in_bf16 = torch.autocast("cpu", dtype=torch.bfloat16) if o.dtype == "bf16" else contextlib.nullcontext()
        with loss_parallel():
            with in_bf16:
                logits = model(x)
            F.cross_entropy(logits.float().flatten(0, -2), y).backward()
        clip()
        optimizer.step()
        dist.barrier()
        return (time.perf_counter() - start) * 1e3

    for _ in range(2):
        step()
    print(json.dumps({"ready": torch.__version__}), flush=True)
    answer_requests(step)


if __name__ == "__main__":
    main()
