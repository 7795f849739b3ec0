#!/usr/bin/env python3
"""Runs and times training steps in PyTorch for compare_steps.py.

Reads lines from standard input, each a number of steps to run, and answers each with one line of JSON:
{"ms": [...]}, the wall-clock time of every step. It writes {"ready": ...} first, once the model is built and
two warm-up steps are done.

The models are those of dstrain: GPT-lite (pre-norm blocks, ReLU, q/k/v without bias, untied head), the
benchmark DNN, and transformers' own Llama. PyTorch uses its fastest eager form: scaled_dot_product_attention, fused AdamW, clipping by
the foreach path, autocast for bf16, and batches that are already in memory.
"""
import argparse
import json
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, c, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln1, self.ln2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv = nn.Linear(c, 3 * c, bias=False)
        self.out_proj = nn.Linear(c, c)
        self.fc, self.proj = nn.Linear(c, 4 * c), nn.Linear(4 * c, c)

    def forward(self, x):
        batch, t, c = x.shape
        q, k, v = (
            a.view(batch, t, self.heads, c // self.heads).transpose(1, 2)
            for a in self.qkv(self.ln1(x)).split(c, dim=-1)
        )
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout, is_causal=True)
        y = self.out_proj(y.transpose(1, 2).reshape(batch, t, c))
        x = x + F.dropout(y, self.dropout)
        return x + F.dropout(self.proj(F.relu(self.fc(self.ln2(x)))), self.dropout)


class GptLite(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.token = nn.Embedding(o.vocab_size, o.n_embd)
        self.position = nn.Embedding(o.block_size, o.n_embd)
        self.blocks = nn.Sequential(*(Block(o.n_embd, o.n_head, o.dropout) for _ in range(o.n_layer)))
        self.ln = nn.LayerNorm(o.n_embd)
        self.head = nn.Linear(o.n_embd, o.vocab_size, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.position.weight
        return self.head(self.ln(self.blocks(x)))


def benchmark_model(o):
    sizes = [o.in_size] + [o.hidden_size] * (o.n_layer - 1) + [o.out_size]
    layers = []
    for a, b in zip(sizes, sizes[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers)


class Llama(nn.Module):
    """A model of transformers that gives its logits, without dropout. `config`: its config.json."""

    def __init__(self, config):
        super().__init__()
        from transformers import AutoConfig, AutoModelForCausalLM  # only here: the other models do without them

        fields = json.loads(config)
        settings = AutoConfig.for_model(fields.pop("model_type"), **fields, use_cache=False)
        self.model = AutoModelForCausalLM.from_config(settings, attn_implementation="sdpa")
        self.model.train()

    def forward(self, ids):
        return self.model(input_ids=ids).logits


def build(o):
    """Returns the model and one batch that stays in memory."""
    if o.model == "llama":
        model = Llama(o.config)
        vocabulary = model.model.config.vocab_size
        x = torch.randint(vocabulary, (o.batch, o.block_size))
        return model, x, torch.randint(vocabulary, (o.batch * o.block_size,))
    if o.model == "gptlite":
        x = torch.randint(o.vocab_size, (o.batch, o.block_size))
        return GptLite(o), x, torch.randint(o.vocab_size, (o.batch * o.block_size,))
    x = torch.rand(o.batch, o.in_size) * 20 - 10
    return benchmark_model(o), x, torch.randint(o.out_size, (o.batch,))


def start_rank(o):
    """Gives this rank, which the environment names, a core, its threads and a seed. Returns its number."""
    rank = int(os.environ["RANK"])
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank % os.cpu_count()]})
    torch.set_num_threads(o.threads)
    torch.manual_seed(1337)
    return rank


def own_answers():
    """Returns a file for answers on what is standard output now; standard output becomes standard error, because
    DeepSpeed prints messages there."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def answer_requests(step, to=sys.stdout):
    """For every number of steps on standard input, runs them and writes their times."""
    for line in sys.stdin:
        print(json.dumps({"ms": [step() for _ in range(int(line))]}), file=to, flush=True)


def parser():
    p = argparse.ArgumentParser()
    p.add_argument("--model", choices=["gptlite", "benchmark", "llama"], required=True)
    p.add_argument("--dtype", choices=["fp32", "bf16"], required=True)
    p.add_argument("--batch", type=int, required=True)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--config", help="config.json of --model llama")
    for name, default in (
        ("n_layer", 12), ("n_embd", 768), ("n_head", 12), ("block_size", 2048), ("vocab_size", 65),
        ("in_size", 0), ("hidden_size", 0), ("out_size", 0),
    ):  # fmt: skip
        p.add_argument(f"--{name}", type=int, default=default)
    return p


def training_step(o):
    """Builds the model. Returns a function that trains a step and returns its milliseconds, and the number of parameters."""
    torch.set_num_threads(o.threads)
    torch.manual_seed(1337)
    model, x, y = build(o)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step():
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=o.dtype == "bf16"):
            logits = model(x)
        loss = F.cross_entropy(logits.float().flatten(0, -2), y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()
        return (time.perf_counter() - start) * 1e3

    return step, sum(p.numel() for p in model.parameters())


def main():
    step, parameters = training_step(parser().parse_args())
    for _ in range(2):
        step()
    print(json.dumps({"ready": torch.__version__, "parameters": parameters}), flush=True)
    answer_requests(step)


if __name__ == "__main__":
    main()
