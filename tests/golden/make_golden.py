#!/usr/bin/env python3
"""Generates the golden results in this folder with PyTorch in fp64 (and fp32, for comparison).

    python3 tests/golden/make_golden.py        # needs torch, numpy, safetensors

One folder per case: config.json (what dstrain runs), init.safetensors (initial weights, fp32),
gradients.safetensors (first step, global batch, computed in fp64), expected.json (20 steps), and the
data where the case has a file. The models are written in plain tensor algebra, so that nothing here shares
code with dstrain or with the scripts of benchmarks/peers.
"""
import json
import math
import pathlib
import platform

import numpy as np
import safetensors
import torch
from safetensors.numpy import save_file

import benchmark_samples

HERE = pathlib.Path(__file__).resolve().parent
STEPS = 20


# ---------------------------------------------------------------- models
def layer_norm(x, w, b):
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * w + b


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def attention(qkv, heads):
    batch, t, c3 = qkv.shape
    size = c3 // 3 // heads
    q, k, v = (a.view(batch, t, heads, size).transpose(1, 2) for a in qkv.split(c3 // 3, dim=-1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(size)
    future = torch.ones(t, t, dtype=torch.bool).triu(1)
    p = torch.softmax(scores.masked_fill(future, -math.inf), dim=-1)
    return (p @ v).transpose(1, 2).reshape(batch, t, c3 // 3)


def gptlite_logits(w, ids, model):
    def linear(x, name):
        y = x @ w[name + ".weight"].T
        return y + w[name + ".bias"] if name + ".bias" in w else y

    def norm(x, name):
        return layer_norm(x, w[name + ".weight"], w[name + ".bias"])

    act = gelu_tanh if model.get("activation") == "gelu" else torch.relu
    x = w["token_embedding_table.weight"][ids] + w["position_embedding_table.weight"]
    for i in range(model["n_layer"]):
        p = f"blocks.{i}."
        a = attention(linear(norm(x, p + "ln1"), p + "attn.qkv"), model["n_head"])
        x = x + linear(a, p + "attn.out_proj")
        x = x + linear(act(linear(norm(x, p + "ln2"), p + "mlp.fc")), p + "mlp.proj")
    head = w.get("lm_head.weight", w["token_embedding_table.weight"])
    return norm(x, "ln") @ head.T


def benchmark_logits(w, x, model):
    x = x.to(w["layers.0.weight"].dtype)
    for i in range(model["n_layer"]):
        x = torch.relu(x @ w[f"layers.{i}.weight"].T + w[f"layers.{i}.bias"])
    return x


def mean_cross_entropy(logits, targets):
    logits = logits.reshape(-1, logits.shape[-1])
    picked = logits.gather(1, targets.reshape(-1, 1)).squeeze(1)
    return (torch.logsumexp(logits, dim=-1) - picked).mean()


# ---------------------------------------------------------------- initial weights
# The spread is larger than that of dstrain's initialisation and biases are not zero, so that attention is far from
# uniform and every term of every gradient matters.
def gptlite_weights(model, rng):
    c, layers = model["n_embd"], model["n_layer"]
    w = {
        "token_embedding_table.weight": rng.normal(0, 0.35, (model["vocab_size"], c)),
        "position_embedding_table.weight": rng.normal(0, 0.3, (model["block_size"], c)),
    }

    def norm(name):
        w[name + ".weight"] = rng.normal(1, 0.2, c)
        w[name + ".bias"] = rng.normal(0, 0.1, c)

    def linear(name, out, inputs, bias=True):
        w[name + ".weight"] = rng.normal(0, 0.9 / math.sqrt(inputs), (out, inputs))
        if bias:
            w[name + ".bias"] = rng.normal(0, 0.1, out)

    for i in range(layers):
        p = f"blocks.{i}."
        norm(p + "ln1")
        linear(p + "attn.qkv", 3 * c, c, model.get("qkv_bias", False))
        linear(p + "attn.out_proj", c, c)
        norm(p + "ln2")
        linear(p + "mlp.fc", 4 * c, c)
        linear(p + "mlp.proj", c, 4 * c)
    norm("ln")
    if not model.get("tied_head", False):
        linear("lm_head", model["vocab_size"], c, bias=False)
    return {k: v.astype(np.float32) for k, v in w.items()}


def benchmark_weights(model, rng):
    w = {}
    for i in range(model["n_layer"]):
        inputs = model["in_size"] if i == 0 else model["hidden_size"]
        out = model["out_size"] if i + 1 == model["n_layer"] else model["hidden_size"]
        bound = 1 / math.sqrt(inputs)
        w[f"layers.{i}.weight"] = rng.uniform(-bound, bound, (out, inputs)).astype(np.float32)
        w[f"layers.{i}.bias"] = rng.uniform(-bound, bound, out).astype(np.float32)
    return w


# ---------------------------------------------------------------- data
def markov_ids(vocabulary, count, rng):
    """Learnable ids: each symbol has a few likely successors; every symbol occurs."""
    successors = rng.integers(0, vocabulary, (vocabulary, 3))
    ids = list(range(vocabulary))
    while len(ids) < count:
        likely = rng.random() < 0.8
        ids.append(int(rng.choice(successors[ids[-1]]) if likely else rng.integers(vocabulary)))
    return np.array(ids[:count])


class TokenBatches:
    """Sequential order: global batch k holds samples k*B .. k*B+B-1, modulo their number."""

    def __init__(self, ids, model, data):
        self.t = model["block_size"]
        self.train = ids[: len(ids) - math.floor(len(ids) * data["val_fraction"])]
        self.samples = (len(self.train) - 1) // self.t

    def places(self, k, size):
        """Returns the places in the text at which the samples of a batch begin."""
        return np.array([(k * size + i) % self.samples * self.t for i in range(size)])

    def batch(self, k, size):
        at = self.places(k, size)
        x = np.stack([self.train[a : a + self.t] for a in at])
        y = np.stack([self.train[a + 1 : a + 1 + self.t] for a in at])
        return torch.from_numpy(x), torch.from_numpy(y)


class BenchmarkBatches:
    def __init__(self, model, seed):
        self.model, self.seed = model, seed

    def batch(self, k, size):
        x, y = zip(
            *(
                benchmark_samples.sample(
                    k * size + i, self.model["in_size"], self.model["out_size"], self.seed
                )
                for i in range(size)
            )
        )
        return torch.from_numpy(np.stack(x)), torch.tensor(y)


# ---------------------------------------------------------------- training
def warmup_lr(params, step):
    """DeepSpeed's WarmupLR as optimizer step `step` (from 1) sees it: the schedule advances after."""
    if step == 1:
        return params["warmup_min_lr"]
    i, n = step - 2, max(2, params["warmup_num_steps"])
    share = math.log(i + 1) / math.log(n) if i < n else 1.0
    return params["warmup_min_lr"] + (params["warmup_max_lr"] - params["warmup_min_lr"]) * share


def train(config, weights, batches, dtype):
    model = config["dstrain"]["model"]
    logits = benchmark_logits if model["type"] == "benchmark" else gptlite_logits
    w = {k: torch.from_numpy(v.copy()).to(dtype).requires_grad_() for k, v in weights.items()}
    adam = config["optimizer"]["params"]
    optimizer = torch.optim.AdamW(
        w.values(), betas=adam["betas"], eps=adam["eps"], weight_decay=adam["weight_decay"]
    )
    size, accumulation = config["train_batch_size"], config["gradient_accumulation_steps"]
    curve, gradients = [], None
    for step in range(1, STEPS + 1):
        x, y = batches.batch(step - 1, size)
        optimizer.zero_grad()
        loss = 0.0
        for xm, ym in zip(x.chunk(accumulation), y.chunk(accumulation)):
            part = mean_cross_entropy(logits(w, xm, model), ym) / accumulation
            part.backward()
            loss += part.item()
        if gradients is None:
            gradients = {k: v.grad.to(torch.float32).numpy().copy() for k, v in w.items()}
        norm = torch.nn.utils.clip_grad_norm_(w.values(), config["gradient_clipping"]).item()
        lr = warmup_lr(config["scheduler"]["params"], step)
        for group in optimizer.param_groups:
            group["lr"] = lr
        optimizer.step()
        curve.append({"loss": loss, "grad_norm": norm, "lr": lr})
    return curve, gradients


def ds_config(model, data, batch, clipping, max_lr):
    return {
        "train_batch_size": batch,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": clipping,
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": max_lr, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        },
        "scheduler": {
            "type": "WarmupLR",
            "params": {
                "warmup_min_lr": max_lr / 8,
                "warmup_max_lr": max_lr,
                "warmup_num_steps": 8,
                "warmup_type": "log",
            },
        },
        "dstrain": {"model": model, "data": data, "steps": STEPS, "seed": 20250607},
    }


def write_case(name, config, weights, batches):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    curve, gradients = train(config, weights, batches, torch.float64)
    single, _ = train(config, weights, batches, torch.float32)
    deviation = max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(curve, single))
    for file, tensors in (("init", weights), ("gradients", gradients)):
        save_file(tensors, folder / f"{file}.safetensors")
        (folder / f"{file}.safetensors").chmod(0o644)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    expected = {
        "made_with": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "safetensors": safetensors.__version__,
        },
        "torch_fp32_deviation": deviation,
        "steps": curve,
    }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    clipped = sum(s["grad_norm"] > config["gradient_clipping"] for s in curve)
    parameters = sum(v.size for v in weights.values())
    print(
        f"{name}: {parameters} parameters, loss {curve[0]['loss']:.4f} -> {curve[-1]['loss']:.4f}, "
        f"{clipped} of {STEPS} steps clipped, torch fp32 deviates by {deviation:.1e}"
    )


def gptlite_case(rng):
    model = {"type": "gptlite", "n_layer": 2, "n_embd": 24, "n_head": 3, "block_size": 13, "dropout": 0.0}
    data = {"format": "char", "order": "sequential", "val_fraction": 0.1}
    alphabet = sorted("\n ',.;abcdefghijklmnopqrstuvwxyz" + "\u00e9\u03bb\u2013\u4e2d\U0001f600")
    ids = markov_ids(len(alphabet), 2003, rng)
    (HERE / "gptlite").mkdir(exist_ok=True)
    text = "".join(alphabet[i] for i in ids)
    (HERE / "gptlite" / "text.txt").write_bytes(text.encode())
    weights = gptlite_weights({**model, "vocab_size": len(alphabet)}, rng)
    config = ds_config(model, data, batch=12, clipping=1.0, max_lr=4e-3)
    write_case("gptlite", config, weights, TokenBatches(ids, model, data))


def gpt2_case(rng):
    model = {
        "type": "gptlite", "n_layer": 2, "n_embd": 28, "n_head": 4, "block_size": 11, "dropout": 0.0,
        "activation": "gelu", "qkv_bias": True, "tied_head": True, "vocab_size": 65,
    }  # fmt: skip
    data = {"format": "bin", "order": "sequential", "val_fraction": 0.05}
    ids = markov_ids(model["vocab_size"], 1801, rng)
    (HERE / "gpt2").mkdir(exist_ok=True)
    ids.astype("<u2").tofile(HERE / "gpt2" / "tokens.bin")
    config = ds_config(model, data, batch=12, clipping=2.5, max_lr=3e-3)
    write_case("gpt2", config, gptlite_weights(model, rng), TokenBatches(ids, model, data))


def benchmark_case(rng):
    model = {"type": "benchmark", "in_size": 20, "hidden_size": 33, "out_size": 10, "n_layer": 4}
    config = ds_config(model, {}, batch=12, clipping=0.75, max_lr=4e-3)
    del config["dstrain"]["data"]
    batches = BenchmarkBatches(model, config["dstrain"]["seed"])
    write_case("benchmark", config, benchmark_weights(model, rng), batches)
    (HERE / "benchmark" / "samples.json").write_text(
        json.dumps(benchmark_samples.reference(), indent=1) + "\n"
    )


def main():
    torch.set_num_threads(1)
    gptlite_case(np.random.default_rng(1))
    gpt2_case(np.random.default_rng(2))
    benchmark_case(np.random.default_rng(3))


if __name__ == "__main__":
    main()
