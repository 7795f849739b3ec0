#!/usr/bin/env python3
"""Generates the golden results of this folder with transformers and PEFT in fp64.

    python3 tests/golden/families/make_families.py     # needs torch, transformers, peft, safetensors, numpy

Writes, beside this file: MODEL/model.safetensors (initial weights in fp32), MODEL/gradients.safetensors (every gradient of the
first step of the case that has the model's name, computed in fp64), ADAPTER/ (an adapter as PEFT saves it), token files with
their masks and documents, config.json (what dstrain runs), and cases.json: of each case the
model's config.json, what the section "dstrain" adds, the data, and loss and gradient norm of each step.
"""
import copy
import json
import math
import pathlib
import platform

import numpy
import peft
import torch
import transformers
from safetensors.torch import save_file
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

from family_models import IDS, LENGTH, MODELS, UNDIVIDED

HERE = pathlib.Path(__file__).resolve().parent
STEPS, BATCH = 8, 4
ADAMW = {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.1}
CLIP = 1.5
IGNORED = -100

# An adapter: its model's case, PEFT's settings, and dstrain's.
ADAPTERS = {
    "lora_gpt2": ("gpt2", {"target_modules": ["c_attn", "mlp.c_proj"], "lora_alpha": 12, "fan_in_fan_out": True},
                  {"alpha": 12, "targets": ["c_attn", "mlp.c_proj"]}),
    "lora_llama": ("llama", {"target_modules": ["q_proj", "v_proj"], "lora_alpha": 16},
                   {"alpha": 16, "targets": ["q_proj", "v_proj"]}),
    "lora_mistral": ("mistral", {"target_modules": ["o_proj", "gate_proj"], "lora_alpha": 5},
                     {"alpha": 5, "targets": ["o_proj", "gate_proj"]}),
    "lora_qwen2": ("qwen2", {"target_modules": "all-linear", "lora_alpha": 6, "use_rslora": True},
                   {"alpha": 6, "targets": "all-linear", "rslora": True}),
    "lora_gpt_neox": ("gpt_neox", {"target_modules": ["query_key_value", "dense_4h_to_h"], "lora_alpha": 7},
                      {"alpha": 7, "targets": ["query_key_value", "dense_4h_to_h"]}),
    "lora_qwen3": ("qwen3", {"target_modules": ["k_proj", "down_proj"], "lora_alpha": 3},
                   {"alpha": 3, "targets": ["k_proj", "down_proj"]}),
    # Modules that are trained as a whole: two tables, and one that is the head, too.
    "whole_llama": ("llama", {"target_modules": ["q_proj"], "lora_alpha": 4, "modules_to_save": ["embed_tokens", "lm_head"]},
                    {"alpha": 4, "targets": ["q_proj"], "modules_to_save": ["embed_tokens", "lm_head"]}),
    "whole_qwen2": ("qwen2", {"target_modules": ["up_proj"], "lora_alpha": 4, "modules_to_save": ["embed_tokens"],
                              "ensure_weight_tying": True},
                    {"alpha": 4, "targets": ["up_proj"], "modules_to_save": "embed_tokens"}),
}
# The codes of 4-bit normal floats (Dettmers et al., QLoRA, appendix E).
NF4 = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0])


# ---------------------------------------------------------------- weights
def from_config(config):
    # The usual implementation of experts has no fp64.
    experts = {"experts_implementation": "eager"} if config.model_type in UNDIVIDED else {}
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", **experts)


def random_model(config, seed):
    """Weights far from those of an initialisation, so that every term of every gradient matters."""
    torch.manual_seed(seed)
    model = from_config(config)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn_like(p) * 0.25 + (0.7 if p.dim() == 1 else 0.0))
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.copy_(torch.randn_like(buffer) * 0.2)
    return model


def with_weights(config, model):
    """Returns the model with the same weights and another configuration."""
    other = from_config(config)
    other.load_state_dict(model.state_dict())
    return other


def in_blocks(weight, base):
    """Returns a weight as a base in blocks of 64 values, each with a scale in fp32, has it."""
    flat = torch.nn.functional.pad(weight.float().flatten(), (0, -weight.numel() % 64)).view(-1, 64)
    largest = flat.abs().amax(1, keepdim=True)
    if base == "int8":
        values = torch.round(flat / (largest / 127)) * (largest / 127)
    else:
        values = NF4[(flat / largest).unsqueeze(-1).sub(NF4).abs().argmin(-1)] * largest
    return values.flatten()[: weight.numel()].view(weight.shape)


def rounded(model, base):
    """Returns the model with the products' weights of its layers in blocks."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 2 and any(part.isdigit() for part in name.split(".")):
                p.copy_(in_blocks(p, base))
    return model


# ---------------------------------------------------------------- data
def windows(tokens, targets):
    """Returns samples of LENGTH tokens: (documents, targets), a document being (first token of it in the sample, its ids)."""
    result = []
    for i in range((len(tokens) - 1) // LENGTH):
        ids, next_ids = tokens[i * LENGTH:(i + 1) * LENGTH], tokens[i * LENGTH + 1:(i + 1) * LENGTH + 1]
        counts = targets[i * LENGTH + 1:(i + 1) * LENGTH + 1]
        result.append([(ids, numpy.where(counts, next_ids, IGNORED))])
    return result


def packed(tokens, starts):
    """Packs documents as dstrain.data.packing "pack" is defined: the longest first, each into the sample with the least room
    that it fits in, of several the one that was filled last."""
    documents = [tokens[a:b][:LENGTH] for a, b in zip(starts, starts[1:])]
    samples, room, filled = [], [], []
    for now, document in enumerate(sorted(documents, key=len, reverse=True)):
        fits = [i for i, r in enumerate(room) if r >= len(document)]
        at = min(fits, key=lambda i: (room[i], -filled[i])) if fits else len(samples)
        if not fits:
            samples.append([])
            room.append(LENGTH)
            filled.append(now)
        samples[at].append((document, numpy.append(document[1:], IGNORED)))
        room[at] -= len(document)
        filled[at] = now
    return samples


def make_data():
    rng = numpy.random.default_rng(3)
    tokens = rng.integers(0, IDS, 15 * LENGTH + 1).astype(numpy.uint16)
    tokens.tofile(HERE / "tokens.bin")
    tokens.tofile(HERE / "masked.bin")
    counts = (rng.random(len(tokens)) < 0.6).astype(numpy.uint8)
    counts.tofile(HERE / "masked.bin.targets")
    lengths = [7, 3, 12, 5, 2, 9, 4, 15, 6, 8, 3, 11, 10, 2, 5, 7, 6, 4, 9, 3, 8, 2, 12, 5, 7, 4]
    starts = numpy.concatenate([[0], numpy.cumsum(lengths)]).astype(numpy.uint64)
    documents = rng.integers(0, IDS, int(starts[-1])).astype(numpy.uint16)
    documents.tofile(HERE / "packed.bin")
    starts.tofile(HERE / "packed.bin.documents")
    ids = tokens.astype(numpy.int64)
    return {"tokens.bin": windows(ids, numpy.ones(len(ids))), "masked.bin": windows(ids, counts),
            "packed.bin": packed(documents.astype(numpy.int64), [int(s) for s in starts])}


# ---------------------------------------------------------------- training
def batch_loss(model, batch):
    """The mean over all targets of the batch, and what keeps experts balanced. Each document passes by itself, so that positions
    and attention begin with it."""
    total, count, routers = 0.0, 0, []
    for sample in batch:
        for ids, targets in sample:
            result = model(input_ids=torch.from_numpy(ids)[None])
            logits = result.logits[0].double()
            routers.append(getattr(result, "router_logits", None))
            targets = torch.from_numpy(targets)
            total = total + torch.nn.functional.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
            count += int((targets != IGNORED).sum())
    return total / count + balance_loss(model, routers)


def balance_loss(model, routers):
    """The mean over the batch's two micro-batches, times its coefficient."""
    if routers[0] is None:
        return 0.0
    half, config = len(routers) // 2, model.config
    losses = []
    for part in (routers[:half], routers[half:]):
        layers = tuple(torch.cat(layer) for layer in zip(*part))
        losses.append(load_balancing_loss_func(layers, layers[0].shape[-1], config.num_experts_per_tok))
    return config.router_aux_loss_coef * sum(losses) / 2


class Routers:
    """What the section "experts" says of a step: the z-loss of routers, and the change of the biases by which experts are chosen."""

    def __init__(self, model, bias_update=0.0, z_loss=0.0):
        self.bias_update, self.z_loss, self.seen = bias_update, z_loss, []
        self.routers = [m for m in model.modules() if hasattr(m, "e_score_correction_bias")] if bias_update or z_loss else []
        for router in self.routers:
            router.register_forward_hook(lambda module, _, result: self.seen.append((module, result[0], result[2])))

    def loss(self):
        """The mean over two micro-batches of the sum over layers of the mean over rows."""
        half, total = len(self.seen) // 2, 0.0
        for part in (self.seen[:half], self.seen[half:]):
            for router in self.routers:
                logits = torch.cat([logits for module, logits, _ in part if module is router]).double()
                total = total + torch.logsumexp(logits, -1).square().mean() / 2
        return self.z_loss * total

    def end_step(self):
        for router in self.routers:
            chosen = torch.cat([indices.flatten() for module, _, indices in self.seen if module is router])
            counts = torch.bincount(chosen, minlength=len(router.e_score_correction_bias)).double()
            router.e_score_correction_bias += self.bias_update * torch.sign(counts.mean() - counts)
        self.seen.clear()


def train(model, samples, experts=None):
    """Returns the steps and the gradients of the first one."""
    model = copy.deepcopy(model).double().train()
    routers = Routers(model, **(experts or {}))
    trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
    optimizer = torch.optim.AdamW(trained.values(), lr=ADAMW["lr"], betas=tuple(ADAMW["betas"]), eps=ADAMW["eps"],
                                  weight_decay=ADAMW["weight_decay"])
    steps, gradients = [], None
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = batch_loss(model, [samples[(step * BATCH + i) % len(samples)] for i in range(BATCH)]) + routers.loss()
        loss.backward()
        norm = math.sqrt(sum(float((p.grad ** 2).sum()) for p in trained.values()))
        if gradients is None:
            gradients = {name: p.grad.float().clone() for name, p in trained.items()}
        for p in trained.values():
            p.grad *= min(1.0, CLIP / (norm + 1e-6))
        optimizer.step()
        routers.end_step()
        steps.append({"loss": loss.item(), "grad_norm": norm})
    return steps, gradients


# ---------------------------------------------------------------- cases
def config_of(model):
    config = json.loads(model.config.to_json_string(use_diff=False))
    kept = set(json.loads(model.config.to_json_string())) | {"model_type", "architectures"}
    return {"architectures": [type(model).__name__], **{k: v for k, v in config.items() if k in kept and k != "transformers_version"}}


def experts_in_files(name, tensors):
    """Returns tensors in which each expert has its own."""
    gate, up, down, block = ("w1", "w3", "w2", "block_sparse_moe.") if name == "mixtral" else ("gate_proj", "up_proj", "down_proj", "mlp.")
    result = {}
    for n, t in tensors.items():
        stem = n.replace("mlp.", block)
        if n.endswith(".experts.gate_up_proj"):
            for e, (a, b) in enumerate(zip(*t.chunk(2, dim=1))):
                result[f"{stem[:-len('gate_up_proj')]}{e}.{gate}.weight"] = a.clone()
                result[f"{stem[:-len('gate_up_proj')]}{e}.{up}.weight"] = b.clone()
        elif n.endswith(".experts.down_proj"):
            for e, a in enumerate(t):
                result[f"{stem[:-len('down_proj')]}{e}.{down}.weight"] = a.clone()
        else:
            result[stem] = t
    return result


def in_files(name, tensors):
    """Returns the tensors with the names that save_pretrained gives them."""
    if name in UNDIVIDED:
        return experts_in_files(name, tensors)
    return {"embed_out.weight" if name == "gpt_neox" and n == "lm_head.weight" else n: t for n, t in tensors.items()}


def adapter(model, name):
    _, settings, _ = ADAPTERS[name]
    torch.manual_seed(11)
    result = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(r=3, task_type="CAUSAL_LM", **settings))
    with torch.no_grad():
        for key, p in result.named_parameters():
            if "lora_B" in key:  # zeros would leave the first gradients of A zero
                p.copy_(torch.randn_like(p) * 0.2)
            elif "modules_to_save" in key:  # other values than the base has
                p.add_(torch.randn_like(p) * 0.1)
    return result


def save_adapter(model, name):
    model.save_pretrained(HERE / name)
    (HERE / name / "README.md").unlink(missing_ok=True)


def main():
    torch.set_num_threads(2)
    data = make_data()
    own = {"data": {"format": "bin", "order": "sequential", "val_fraction": 0, "seq_len": LENGTH}, "steps": STEPS, "save_last": False}
    config = {"train_batch_size": BATCH, "gradient_accumulation_steps": 2, "gradient_clipping": CLIP,
              "optimizer": {"type": "AdamW", "params": ADAMW}, "dstrain": own}
    cases, models = [], {}

    for name, (weights, model_config) in MODELS.items():
        fresh = name == weights
        model = random_model(model_config, len(models)) if fresh else with_weights(model_config, models[weights])
        steps, gradients = train(model, data["tokens.bin"])
        cases.append({"name": name, "weights": weights, "config": config_of(model), "data": "tokens.bin", "dstrain": {}, "steps": steps,
                      **({"undivided": True} if weights in UNDIVIDED else {})})
        if fresh:
            models[name] = model
            (HERE / name).mkdir(exist_ok=True)
            tied = model.config.tie_word_embeddings
            tensors = {n: p.detach().clone() for n, p in model.named_parameters() if not (tied and n == "lm_head.weight")}
            tensors.update({n: b.clone() for n, b in model.named_buffers() if n.endswith("e_score_correction_bias")})
            save_file(in_files(name, tensors), HERE / name / "model.safetensors", metadata={"format": "pt"})
            save_file(in_files(name, gradients), HERE / name / "gradients.safetensors")
    configs = {case["name"]: case["config"] for case in cases}

    def add_case(name, model, weights, file, section):
        steps, _ = train(model, data[file], section.get("experts"))
        cases.append({"name": name, "weights": weights, "config": configs[weights], "data": file, "dstrain": section, "steps": steps})

    for name, (weights, _, section) in ADAPTERS.items():
        model = adapter(models[weights], name)
        save_adapter(model, name)
        add_case(name, model, weights, "tokens.bin", {"lora": {"r": 3, **section, "init": name}})
    weights, _, section = ADAPTERS["lora_llama"]
    for base in ("int8", "nf4"):
        model = adapter(rounded(models[weights], base), "lora_llama")
        add_case(f"lora_llama_{base}", model, weights, "tokens.bin",
                 {"lora": {"r": 3, **section, "init": "lora_llama", "base": base}})
    add_case("deepseek_v3_biases", models["deepseek_v3"], "deepseek_v3", "tokens.bin",
             {"experts": {"bias_update": 0.05, "z_loss": 0.01}})
    for weights in ("gpt2", "mistral", "gpt_neox"):
        add_case(f"{weights}_masked", models[weights], weights, "masked.bin", {})
        add_case(f"{weights}_packed", models[weights], weights, "packed.bin", {"data": {"packing": "pack"}})
    made_with = {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__,
                 "python": platform.python_version()}
    (HERE / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (HERE / "cases.json").write_text(json.dumps({"made_with": made_with, "cases": cases}, indent=1) + "\n")


if __name__ == "__main__":
    main()
