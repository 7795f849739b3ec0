#!/usr/bin/env python3
"""Times training steps of GPT-2 in compiled PyTorch, for measure.py. Prints one line of JSON:
{"torch": version, "step_ms": [...], "peak_bytes": ...}, or {"out_of_memory": why}.

Uses the usual settings for GPT-2 in PyTorch: f32 weights, autocast to bf16, torch.compile of the whole model,
scaled_dot_product_attention, clipping to norm 1, fused AdamW. The batch is on the GPU before the clock starts.
"""
import argparse
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.out_proj = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.fc, self.proj = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x):
        batch, t, c = x.shape
        q, k, v = (a.view(batch, t, self.heads, c // self.heads).transpose(1, 2)
                   for a in self.qkv(self.ln1(x)).split(c, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out_proj(y.transpose(1, 2).reshape(batch, t, c))
        return x + self.proj(F.gelu(self.fc(self.ln2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers, c, heads, vocabulary, seq):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, c), nn.Embedding(seq, c)
        self.blocks = nn.ModuleList(Block(c, heads) for _ in range(layers))
        self.ln = nn.LayerNorm(c)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                residual = name.endswith(("out_proj.weight", ".proj.weight"))
                nn.init.normal_(p, std=0.02 / (2 * layers) ** 0.5 if residual else 0.02)

    def forward(self, ids, targets):
        x = self.token(ids) + self.position.weight
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln(x), self.token.weight)
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def optimizer_of(model, device):
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=device == "cuda")


class Training:
    def __init__(self, o):
        torch.manual_seed(1)
        with torch.device(o.device):
            self.model = Gpt2(o.n_layer, o.n_embd, o.n_head, o.vocab_size, o.seq)
            self.ids, self.targets = torch.randint(o.vocab_size, (2, o.batch, o.seq))
        self.optimizer = optimizer_of(self.model, o.device)
        self.loss_of = self.model if o.eager else torch.compile(self.model, dynamic=False)
        self.autocast = torch.autocast(o.device, dtype=torch.bfloat16)

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        with self.autocast:
            loss = self.loss_of(self.ids, self.targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()


def timed_on_gpu(step, steps):
    """Times steps by CUDA events, without synchronizing with the host in between."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    events[0].record()
    for event in events[1:]:
        step()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:])]


def timed_on_host(step, steps):
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        step()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ("n_layer", "n_embd", "n_head", "vocab_size", "batch", "seq", "steps"):
        p.add_argument(f"--{name}", type=int, required=True)
    p.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    p.add_argument("--eager", action="store_true", help="do not compile")
    o = p.parse_args()
    gpu = o.device == "cuda"
    try:
        training = Training(o)
        for _ in range(3):
            training.step()
        times = (timed_on_gpu if gpu else timed_on_host)(training.step, o.steps)
    except torch.OutOfMemoryError as problem:
        print(json.dumps({"out_of_memory": str(problem).split("\n")[0]}), flush=True)
        return
    peak = torch.cuda.max_memory_allocated() if gpu else None
    print(json.dumps({"torch": torch.__version__, "step_ms": times, "peak_bytes": peak}), flush=True)


if __name__ == "__main__":
    main()
