#!/usr/bin/env python3
"""Runs and times training steps of DeepSpeed's PipelineModule (its 1F1B schedule) on its CPU accelerator, as one stage
of several, for compare_pipelines.py. Requests and answers are those of torch_steps.py, and every rank is asked. Rank,
size and address come from the environment, as DeepSpeed's launcher would set them."""
import contextlib
import json
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch_steps import GptLite, answer_requests, own_answers, parser, start_rank


class Embedding(nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.token, self.position = whole.token, whole.position

    def forward(self, ids):
        return self.token(ids) + self.position.weight


class Head(nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.ln, self.head = whole.ln, whole.head

    def forward(self, x):
        return self.head(self.ln(x))


def loss_of(logits, targets):
    return F.cross_entropy(logits.float().flatten(0, -2), targets.flatten())


def main():
    p = parser()
    p.add_argument("--micro_batches", type=int, required=True)
    o = p.parse_args()
    answers = own_answers()
    start_rank(o)
    with contextlib.redirect_stdout(sys.stderr):
        import deepspeed
        from deepspeed.pipe import PipelineModule

        deepspeed.init_distributed(dist_backend="gloo")
        whole = GptLite(o)
        model = PipelineModule(
            layers=[Embedding(whole), *whole.blocks, Head(whole)], loss_fn=loss_of,
            num_stages=int(os.environ["WORLD_SIZE"]), partition_method="parameters",
        )  # fmt: skip
        config = {
            "train_micro_batch_size_per_gpu": o.batch,
            "gradient_accumulation_steps": o.micro_batches,
            "gradient_clipping": 1.0,
            "steps_per_print": 10**9,
            "bf16": {"enabled": o.dtype == "bf16"},
            "zero_allow_untested_optimizer": True,
        }
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
        engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    x = torch.randint(o.vocab_size, (o.batch, o.block_size))
    y = torch.randint(o.vocab_size, (o.batch, o.block_size))

    def batches():
        while True:
            yield x, y

    data = batches()

    def step():
        start = time.perf_counter()
        engine.train_batch(data_iter=data)
        return (time.perf_counter() - start) * 1e3

    for _ in range(2):
        step()
    print(json.dumps({"ready": deepspeed.__version__}), file=answers, flush=True)
    answer_requests(step, answers)


if __name__ == "__main__":
    main()
