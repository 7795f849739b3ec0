#!/usr/bin/env python3
"""Runs and times training steps with torch.distributed.pipelining over gloo, as one stage of several, for
compare_pipelines.py. Requests and answers are those of torch_steps.py, and every rank is asked. Rank, size and
address come from the environment, as torchrun would set them."""
import json
import os
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleavedZeroBubble
from torch_steps import GptLite, answer_requests, parser, start_rank

SCHEDULES = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B, "zb-h1": ScheduleInterleavedZeroBubble}


class Part(nn.Module):
    """The blocks [first, last) of a GPT-lite, with the embedding or the head if it has the first or last block."""

    def __init__(self, whole, first, last):
        super().__init__()
        self.blocks = nn.Sequential(*list(whole.blocks)[first:last])
        self.token = whole.token if first == 0 else None
        self.position = whole.position if first == 0 else None
        ends = last == len(whole.blocks)
        self.ln, self.head = (whole.ln, whole.head) if ends else (None, None)

    def forward(self, x):
        if self.token is not None:
            x = self.token(x) + self.position.weight
        x = self.blocks(x)
        return x if self.head is None else self.head(self.ln(x))


class InDtype(nn.Module):
    """A part under autocast: schedules call it outside of any context."""

    def __init__(self, part, bf16):
        super().__init__()
        self.part, self.bf16 = part, bf16

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            return self.part(x)


def main():
    p = parser()
    p.add_argument("--schedule", choices=sorted(SCHEDULES), default="1f1b")
    p.add_argument("--micro_batches", type=int, required=True)
    o = p.parse_args()
    rank, ranks = start_rank(o), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    whole = GptLite(o)
    part = InDtype(
        Part(whole, o.n_layer * rank // ranks, o.n_layer * (rank + 1) // ranks), o.dtype == "bf16"
    )
    stage = PipelineStage(part, rank, ranks, torch.device("cpu"))

    def loss_of(logits, targets):
        return F.cross_entropy(logits.float().flatten(0, -2), targets.flatten())

    kind = SCHEDULES[o.schedule]
    stages = [stage] if kind is ScheduleInterleavedZeroBubble else stage
    schedule = kind(stages, n_microbatches=o.micro_batches, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    samples = o.batch * o.micro_batches
    x = torch.randint(o.vocab_size, (samples, o.block_size))
    y = torch.randint(o.vocab_size, (samples, o.block_size))

    def step():
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(**({"target": y, "losses": []} if rank == ranks - 1 else {}))
        # The clip norm of the whole model.
        square = sum(p.grad.float().pow(2).sum() for p in part.parameters())
        dist.all_reduce(square)
        scale = (1.0 / (square.sqrt() + 1e-6)).clamp(max=1.0)
        for q in part.parameters():
            q.grad.mul_(scale)
        optimizer.step()
        dist.barrier()
        return (time.perf_counter() - start) * 1e3

    for _ in range(2):
        step()
    print(json.dumps({"ready": torch.__version__}), flush=True)
    answer_requests(step)


if __name__ == "__main__":
    main()
