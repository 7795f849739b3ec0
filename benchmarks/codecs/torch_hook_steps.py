#!/usr/bin/env python3
"""Runs and times training steps of PyTorch's DistributedDataParallel over gloo with a communication hook, as one rank
of several, for compare_hooks.py. Requests and answers are those of torch_steps.py, and every rank is asked; the first
answer also has the losses of this rank's warm-up steps. Rank, size and address come from the environment, as torchrun
would set them.

The weights are read from a file that dstrain wrote, and the samples are those that dstrain takes in sequential order,
so both train the same."""
import json
import os
import pathlib
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks/peers"))
from torch_steps import GptLite, answer_requests, parser  # noqa: E402

POWER = {"powerSGD": powerSGD_hook.powerSGD_hook, "batched_powerSGD": powerSGD_hook.batched_powerSGD_hook}
CASTS = {"fp16_compress": default_hooks.fp16_compress_hook, "bf16_compress": default_hooks.bf16_compress_hook}


def our_weights(path):
    """Returns the tensors of a safetensors file of fp32 under the names that GptLite gives them."""
    data = pathlib.Path(path).read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    weights = {}
    for name, tensor in json.loads(data[8:end]).items():
        if name == "__metadata__":
            continue
        begin, stop = tensor["data_offsets"]
        values = np.frombuffer(data, np.float32, (stop - begin) // 4, end + begin)
        for ours, theirs in (("_embedding_table", ""), ("lm_head", "head"), (".attn.", "."), (".mlp.", ".")):
            name = name.replace(ours, theirs)
        weights[name] = torch.tensor(values).view(tensor["shape"])
    return weights


def batches(o, rank, ranks):
    """Yields the inputs and targets of this rank's samples, step by step, without end."""
    tokens = torch.from_numpy(np.fromfile(o.tokens, np.uint16).astype(np.int64))
    t = o.block_size
    samples = (len(tokens) - len(tokens) // 10 - 1) // t  # the last tenth is for validation
    place = rank * o.batch
    while True:
        begins = [(place + i) % samples * t for i in range(o.batch)]
        yield tuple(torch.stack([tokens[b + shift : b + shift + t] for b in begins]) for shift in (0, 1))
        place += ranks * o.batch


def orthogonalize_matrices_too():
    """Lets powerSGD_hook orthogonalize a single matrix: in PyTorch 2.15 it accepts only a batch of matrices, and
    batched_powerSGD_hook gives it a matrix."""
    of_batch = powerSGD_hook._orthogonalize
    powerSGD_hook._orthogonalize = lambda m, epsilon=0: of_batch(m.view(-1, *m.shape[-2:]), epsilon)


def with_hook(o, model, optimizer, rank, ranks):
    """Registers the hook, and returns the optimizer that goes with it."""
    if o.hook in CASTS:
        model.register_comm_hook(None, CASTS[o.hook])
    elif o.hook in POWER:
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=o.rank_of_factors, start_powerSGD_iter=o.start
        )
        orthogonalize_matrices_too()
        model.register_comm_hook(state, POWER[o.hook])
    elif o.hook == "post_localSGD":
        size = o.ranks_per_group
        groups = [dist.new_group(list(range(first, first + size))) for first in range(0, ranks, size)]
        model.register_comm_hook(
            PostLocalSGDState(None, groups[rank // size], o.start, size > 1), post_localSGD_hook
        )
        averager = PeriodicModelAverager(period=o.period, warmup_steps=o.start)
        return PostLocalSGDOptimizer(optimizer, averager)
    return optimizer


def main():
    p = parser()
    p.add_argument("--hook", choices=["none", *CASTS, *POWER, "post_localSGD"], required=True)
    p.add_argument("--rank_of_factors", type=int, required=True)
    p.add_argument("--start", type=int, required=True, help="steps before powerSGD or post_localSGD begins")
    p.add_argument("--period", type=int, required=True, help="updates from one average of the weights to the next")
    p.add_argument("--ranks_per_group", type=int, required=True, help="ranks that add gradients under post_localSGD")
    p.add_argument("--weights", required=True)
    p.add_argument("--tokens", required=True)
    p.add_argument("--warm_up", type=int, required=True)
    o = p.parse_args()
    torch.set_num_threads(o.threads)
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo")
    model = GptLite(o)
    model.load_state_dict(our_weights(o.weights))
    # A powerSGD hook posts its later collectives where earlier ones end. With several buckets the ranks post them in
    # different orders, and gloo ends the processes.
    bucket = 1000 if o.hook in POWER else None
    model = DistributedDataParallel(model, bucket_cap_mb=bucket, gradient_as_bucket_view=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    optimizer = with_hook(o, model, optimizer, rank, ranks)
    data = batches(o, rank, ranks)
    losses = []

    def step():
        start = time.perf_counter()
        x, y = next(data)
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        return (time.perf_counter() - start) * 1e3

    for _ in range(o.warm_up):
        step()
    print(json.dumps({"ready": torch.__version__, "losses": losses}), flush=True)
    answer_requests(step)


if __name__ == "__main__":
    main()
