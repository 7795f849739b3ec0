#!/usr/bin/env python3
"""Compares dstrain's training of a model that transformers saved with PyTorch's in fp64.

  check_family.py --program DSTRAIN --family NAME --folder EMPTY_FOLDER

Makes a tiny model of random weights, biases and norm weights far from 0 and 1, with save_pretrained, and trains it with
PyTorch and with dstrain: logits, losses and gradient norms of eight AdamW steps, every gradient of the first step,
the weights after eight steps in what dstrain wrote, which from_pretrained opens, and in bf16 and fp16 how far gradients are
from those of fp64. Also: what dstrain writes after no step is what
save_pretrained wrote, byte for byte, in one file and in several, in every dtype. A line for each comparison; the exit status
is 1 if one fails. Needs torch, transformers, safetensors and numpy.
"""
import argparse
import copy
import filecmp
import json
import math
import pathlib
import shutil
import subprocess
import sys

import numpy
import torch
import transformers
from safetensors.torch import load_file

from checks import expect, failures, larger, largest_relative_distance, report

STEPS, BATCH, LENGTH, IDS = 8, 4, 12, 61
# eps is above the rounding of gradients in fp32. With 1e-8 the first step makes lr of the rounding of a gradient that is
# nearly 0, and PyTorch's fp32 is 5e-4 from its fp64.
ADAMW = {"lr": 3e-3, "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.1}
CLIP = 1.5
# A key's bias adds the same to all scores of a query where heads are not rotated, so its exact gradient is 0 and what AdamW
# makes of it is noise.
NOISE = {"gpt2": "attn.c_attn.bias"}

DECODER = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 44, "num_attention_heads": 4,
           "max_position_embeddings": LENGTH, "vocab_size": IDS, "bos_token_id": 1, "eos_token_id": 2}

# Names in files, where they are not those of the model.
IN_FILES = {"gpt_neox": {"lm_head.weight": "embed_out.weight"}}

FAMILIES = {
    "gpt2": lambda: transformers.GPT2Config(
        n_layer=2, n_embd=28, n_head=4, n_inner=50, n_positions=LENGTH, vocab_size=IDS, layer_norm_epsilon=3e-4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=1),
    "gpt2_untied": lambda: transformers.GPT2Config(
        n_layer=3, n_embd=24, n_head=2, n_positions=LENGTH, vocab_size=IDS, activation_function="relu",
        tie_word_embeddings=False, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=1, eos_token_id=1),
    "llama": lambda: transformers.LlamaConfig(**DECODER, num_key_value_heads=2, rms_norm_eps=3e-4),
    "llama_biases": lambda: transformers.LlamaConfig(
        **DECODER, num_key_value_heads=4, head_dim=10, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
        rope_parameters={"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "original_max_position_embeddings": 8}),
    "llama_linear": lambda: transformers.LlamaConfig(
        **DECODER, rope_parameters={"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}),
    # Samples are longer than the positions that this model was made for.
    "llama_dynamic": lambda: transformers.LlamaConfig(
        **{**DECODER, "max_position_embeddings": LENGTH - 4}, rope_parameters={"rope_type": "dynamic", "rope_theta": 100.0, "factor": 2.0}),
    "llama_yarn": lambda: transformers.LlamaConfig(
        **DECODER, rope_parameters={"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0,
                                    "original_max_position_embeddings": 6}),
    "mistral": lambda: transformers.MistralConfig(**DECODER, num_key_value_heads=1, sliding_window=5),
    "mistral_whole": lambda: transformers.MistralConfig(**DECODER, num_key_value_heads=2, sliding_window=None),
    "qwen2": lambda: transformers.Qwen2Config(
        **DECODER, num_key_value_heads=2, use_sliding_window=True, sliding_window=4, max_window_layers=1),
    "qwen3": lambda: transformers.Qwen3Config(**DECODER, num_key_value_heads=2, head_dim=12, tie_word_embeddings=True),
    # PyTorch leaves the gradient of a padding token's embedding out.
    "gemma": lambda: transformers.GemmaConfig(**DECODER, num_key_value_heads=1, head_dim=6, pad_token_id=None),
    "gemma2": lambda: transformers.Gemma2Config(
        **DECODER, num_key_value_heads=2, head_dim=12, pad_token_id=None, sliding_window=5, query_pre_attn_scalar=10,
        attn_logit_softcapping=1.5, final_logit_softcapping=2.5),
    "gemma3_text": lambda: transformers.Gemma3TextConfig(
        **DECODER, num_key_value_heads=2, head_dim=12, pad_token_id=None, final_logit_softcapping=4.0, sliding_window=5,
        query_pre_attn_scalar=10, layer_types=["sliding_attention", "full_attention"],
        rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 300.0, "factor": 4.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 20.0}}),
    "mixtral": lambda: transformers.MixtralConfig(
        **DECODER, num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=2),
    "mixtral_one": lambda: transformers.MixtralConfig(
        **DECODER, num_key_value_heads=4, num_local_experts=1, num_experts_per_tok=1, sliding_window=5),
    "qwen2_moe": lambda: transformers.Qwen2MoeConfig(
        **DECODER, num_key_value_heads=2, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=11,
        shared_expert_intermediate_size=13, mlp_only_layers=[1]),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(
        **DECODER, num_key_value_heads=2, num_experts=9, num_experts_per_tok=4, moe_intermediate_size=7, norm_topk_prob=True,
        decoder_sparse_step=2),
    "olmoe": lambda: transformers.OlmoeConfig(
        **DECODER, num_key_value_heads=2, pad_token_id=None, num_experts=4, num_experts_per_tok=2, clip_qkv=0.9),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(
        **{**DECODER, "num_attention_heads": 4}, num_key_value_heads=4, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=3,
        moe_intermediate_size=7, n_shared_experts=2, first_k_dense_replace=1, q_lora_rank=None, kv_lora_rank=9,
        qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=8),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(
        **DECODER, layer_norm_eps=3e-4, rope_parameters={"rope_theta": 100.0, "partial_rotary_factor": 0.5}),
    "gpt_neox_serial": lambda: transformers.GPTNeoXConfig(**DECODER, use_parallel_residual=False, attention_bias=False),
}


def random_model(config):
    torch.manual_seed(7)
    # The usual implementation of experts has no fp64.
    experts = {"experts_implementation": "eager"} if hasattr(config, "num_experts_per_tok") else {}
    attention = "eager" if config.model_type == "gemma2" else "sdpa"
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention, **experts)
    with torch.no_grad():
        for parameter in model.parameters():
            offset = 0.7 if parameter.dim() == 1 else 0.0
            parameter.copy_(torch.randn_like(parameter) * 0.25 + offset)
    return model


def save_tokens(path, samples):
    tokens = numpy.random.default_rng(3).integers(0, IDS, samples * LENGTH + 1).astype(numpy.uint16)
    # The end is for validation.
    numpy.concatenate([tokens, tokens[: len(tokens) // 10]]).tofile(path)
    return torch.from_numpy(tokens.astype(numpy.int64))


def losses_of(model, tokens, first):
    samples = (len(tokens) - 1) // LENGTH
    rows = [(first + i) % samples * LENGTH for i in range(BATCH)]
    ids = torch.stack([tokens[r : r + LENGTH] for r in rows])
    targets = torch.stack([tokens[r + 1 : r + LENGTH + 1] for r in rows])
    logits = model(input_ids=ids).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).double(), targets.reshape(-1))


def train(model, tokens):
    """Returns losses, norms and the gradients of the first step."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=ADAMW["lr"], betas=tuple(ADAMW["betas"]), eps=ADAMW["eps"],
                                  weight_decay=ADAMW["weight_decay"])
    losses, norms, gradients = [], [], None
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = losses_of(model, tokens, step * BATCH)
        loss.backward()
        norm = math.sqrt(sum(float((p.grad.double() ** 2).sum()) for p in model.parameters()))
        if gradients is None:
            gradients = {name: p.grad.detach().clone().double() for name, p in model.named_parameters()}
        for p in model.parameters():
            p.grad *= min(1.0, CLIP / (norm + 1e-6))
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    return losses, norms, gradients


class Dstrain:
    def __init__(self, program, folder, data):
        self.program, self.folder, self.data = program, folder, data
        self.config(STEPS, {"type": "AdamW", "params": ADAMW}, CLIP, "adamw.json")
        self.config(1, {"type": "SGD", "params": {"lr": 2.0**20}}, 0.0, "sgd.json")

    def config(self, steps, optimizer, clip, name, section=None):
        own = {"data": {"format": "bin", "order": "sequential", "val_fraction": 1 / 11, "seq_len": LENGTH},
               "steps": steps,
               "save_last": False, "eval_samples": 1}
        (self.folder / name).write_text(json.dumps({
            "train_batch_size": BATCH, "gradient_accumulation_steps": 2, "gradient_clipping": clip,
            "optimizer": optimizer, "dstrain": own, **(section or {})}))

    def run(self, label, model, *words, config="adamw.json"):
        output = self.folder / label
        command = [self.program, "--device", "cpu", "--config", self.folder / config, "--model", model, "--data", self.data,
                   "--output", output, *(() if "--num_gpus" in words else ("--num_gpus", "1")), *words]
        result = subprocess.run([str(w) for w in command], capture_output=True, text=True)
        if result.returncode != 0:
            sys.exit(f"{' '.join(map(str, command))}\nended with {result.returncode}:\n{result.stdout}{result.stderr}")
        return output

    def export(self, label, run):
        output = self.folder / label
        command = [self.program, "export", run, "--format", "hf", "--output", output]
        subprocess.run([str(w) for w in command], check=True, stdout=subprocess.DEVNULL)
        return output


def compare_logits(folder, program, source, model, tokens):
    command = [program.program, "eval", "--model", source, "--seq_len", LENGTH, "--data", program.data, "--device", "cpu", "--logits",
               folder / "logits.safetensors"]
    subprocess.run([str(w) for w in command], check=True, stdout=subprocess.DEVNULL)
    ours = load_file(folder / "logits.safetensors")["logits"].double()
    with torch.no_grad():
        theirs = copy.deepcopy(model).double().eval()(input_ids=tokens[None, :LENGTH]).logits[0]
    report("logits", float((ours - theirs).abs().max() / theirs.abs().max()), 1e-5)


def column(output, key):
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return [line[key] for line in lines if "loss" in line]


def compare_training(args, folder, program, source, model, tokens):
    losses, norms, gradients = train(copy.deepcopy(model).double(), tokens)
    trained = copy.deepcopy(model).double()
    train(trained, tokens)
    output = program.run("trained", source)
    report("losses", largest_relative_distance(column(output, "loss"), losses), 1e-5)
    report("norms", largest_relative_distance(column(output, "grad_norm"), norms), 1e-5)
    exported = program.export("exported", output)
    expect("an export is what the run wrote, byte for byte", same_tree(exported, output, [p.name for p in exported.iterdir()]))
    opened = transformers.AutoModelForCausalLM.from_pretrained(exported).double()
    noise = NOISE.get(args.family.split("_")[0])
    worst, worst_noise = 0.0, 0.0
    theirs = dict(trained.named_parameters())
    for name, parameter in opened.named_parameters():
        difference = float((parameter - theirs[name]).abs().max() / theirs[name].abs().max())
        if noise and name.endswith(noise):
            worst_noise = larger(worst_noise, difference)
        else:
            worst = larger(worst, difference)
    report("weights after eight steps, opened by from_pretrained", worst, 1e-4)
    if noise:
        report("weights with noise for a gradient", worst_noise, 1e-2)

    once = program.run("gradients", source, config="sgd.json")
    after = dict(transformers.AutoModelForCausalLM.from_pretrained(once).double().named_parameters())
    distances = {}
    for name, before in model.named_parameters():
        ours = (before.double() - after[name]) / 2.0**20
        distances[name] = float((ours - gradients[name]).abs().max() / gradients[name].abs().max())
    where = max(distances, key=lambda name: math.inf if math.isnan(distances[name]) else distances[name])
    report(f"gradients of the first step ({where})", distances[where], 1e-5)


def gradients_in(model, tokens, dtype, scale):
    """Returns the gradients of the first step of a model with weights of `dtype`."""
    model = copy.deepcopy(model).to(dtype)
    model.train()
    (losses_of(model, tokens, 0) * scale).backward()
    return {name: p.grad.double() / scale for name, p in model.named_parameters()}


def distance(a, b):
    return math.sqrt(sum(float(((a[n] - b[n]) ** 2).sum()) for n in b) / sum(float((b[n] ** 2).sum()) for n in b))


def compare_16_bits(program, source, model, tokens):
    """Compares the rounding of 16-bit gradients with that of PyTorch's, each against fp64 at the same rounded weights."""
    for dtype, section, scale in ((torch.bfloat16, {"bf16": {"enabled": True}}, 1.0),
                                  (torch.float16, {"fp16": {"enabled": True, "loss_scale": 256.0}}, 256.0)):
        name = str(dtype).split(".")[1]
        program.config(1, {"type": "SGD", "params": {"lr": 2.0**20}}, 0.0, f"{name}.json", section)
        output = program.run(f"gradients_{name}", source, config=f"{name}.json")
        after = dict(transformers.AutoModelForCausalLM.from_pretrained(output).double().named_parameters())
        ours = {n: ((p.double() - after[n]) / 2.0**20).detach() for n, p in model.named_parameters()}
        exact = gradients_in(copy.deepcopy(model).to(dtype), tokens, torch.float64, 1.0)
        theirs = distance(gradients_in(model, tokens, dtype, scale), exact)
        report(f"{name}: rounding of gradients ({distance(ours, exact):.3g}) over that of PyTorch's ({theirs:.3g})",
               distance(ours, exact) / theirs, 1.5)


def same_tree(ours, theirs, names):
    return all(filecmp.cmp(ours / n, theirs / n, shallow=False) for n in names)


def compare_files(folder, program, model):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        name = str(dtype).split(".")[1]
        source = folder / f"model_{name}"
        copy.deepcopy(model).to(dtype).save_pretrained(source)
        output = program.run(f"same_{name}", source, "--steps", "0")
        expect(f"{name}: what comes in goes out, byte for byte",
               same_tree(output, source, ["config.json", "generation_config.json", "model.safetensors"]))
    source, whole = folder / "model_float32", folder / "model_float32" / "model.safetensors"
    sharded = folder / "model_sharded"
    model.save_pretrained(sharded, max_shard_size="20KB")
    expect("save_pretrained made several files", not (sharded / "model.safetensors").exists())
    output = program.run("joined", sharded, "--steps", "0")
    expect("several files come out as one", filecmp.cmp(output / "model.safetensors", whole, shallow=False))
    output = program.run("divided", source, "--steps", "0", "--set", "dstrain.max_shard_size=20000")
    divided = transformers.AutoModelForCausalLM.from_pretrained(output)
    expect("one file comes out as several, which from_pretrained opens", not (output / "model.safetensors").exists() and
           all(torch.equal(a, b) for a, b in zip(divided.state_dict().values(), model.state_dict().values())))
    again = program.run("divided_again", output, "--steps", "0", "--set", "dstrain.max_shard_size=20000")
    expect("several files come out as they came in",
           same_tree(again, output, [p.name for p in output.glob("model*")]))
    output = program.run("narrow", source, "--steps", "0", "--set", "dstrain.save_dtype=bf16")
    narrow = load_file(output / "model.safetensors")
    theirs = load_file(folder / "model_bfloat16" / "model.safetensors")
    expect("fp32 is rounded to bf16 as PyTorch rounds it",
           narrow.keys() == theirs.keys() and all(torch.equal(narrow[n], theirs[n]) for n in theirs))
    base = folder / "model_base"
    model.base_model.save_pretrained(base)
    if model.config.tie_word_embeddings:
        output = program.run("from_base", base, "--steps", "0")
        expect("a model without its head and prefix has the same weights",
               filecmp.cmp(output / "model.safetensors", whole, shallow=False))
    if hasattr(model.config, "rope_parameters"):
        older = folder / "model_version_4"
        shutil.copytree(source, older)
        config = json.loads((older / "config.json").read_text())
        rope = config.pop("rope_parameters")
        if "sliding_attention" in rope:
            config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
            rope = rope["full_attention"]
        neox = config["model_type"] == "gpt_neox"
        config["rotary_emb_base" if neox else "rope_theta"] = rope.pop("rope_theta")
        if neox:
            config["rotary_pct"] = rope.pop("partial_rotary_factor")
        kind = rope.pop("rope_type")
        config["rope_scaling"] = None if kind == "default" else {**rope, "type": kind}
        config["torch_dtype"] = config.pop("dtype")
        (older / "config.json").write_text(json.dumps(config, indent=2))
        today, then = program.run("version_5", source), program.run("version_4", older)
        expect("version 4's form of config.json trains with the same bits",
               filecmp.cmp(today / "model.safetensors", then / "model.safetensors", shallow=False))
    fresh = program.run("fresh", source, "--steps", "0", "--init_weights", "random")
    in_model = {file: own for own, file in IN_FILES.get(model.config.model_type, {}).items()}
    deviations = {in_model.get(n, n): float(t.std()) for n, t in load_file(fresh / "model.safetensors").items() if t.dim() == 2}
    torch.manual_seed(1)
    reference = transformers.AutoModelForCausalLM.from_config(model.config).state_dict()
    worst = 0.0
    # In memory transformers have one tensor of all experts, of other names.
    for name, deviation in ((n, d) for n, d in deviations.items() if n in reference):
        worst = larger(worst, abs(math.log(deviation / float(reference[name].std()))))
    report("deviations of fresh weights (log of their ratio)", worst, 0.25)


def main():
    parser = argparse.ArgumentParser()
    for name in ("program", "family", "folder"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tokens = save_tokens(folder / "tokens.bin", 9 * BATCH // 2)
    model = random_model(FAMILIES[args.family]())
    source = folder / "model"
    model.save_pretrained(source)
    program = Dstrain(args.program, folder, folder / "tokens.bin")
    compare_logits(folder, program, source, model, tokens)
    compare_training(args, folder, program, source, model, tokens)
    # Rounding that changes the sign of one value in front of a relu changes gradients by far more than itself.
    if getattr(model.config, "activation_function", "") != "relu":
        compare_16_bits(program, source, model, tokens)
    compare_files(folder, program, model)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
