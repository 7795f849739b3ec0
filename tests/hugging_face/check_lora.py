#!/usr/bin/env python3
"""Compares dstrain's training of low-rank adapters and of parameter groups with PEFT's and PyTorch's in fp64.

  check_lora.py --program DSTRAIN --family NAME --folder EMPTY_FOLDER [--whole]

Makes a tiny model with save_pretrained (check_family.py) and an adapter of it with PEFT, whose parts are both random, trains
the adapter with PEFT and with dstrain for twenty steps, and compares losses, gradient norms and the adapter's tensors, which
PEFT then opens from what dstrain wrote, and transformers with the base; also the merged model's logits, here and in
transformers, and what dstrain reads again; and adapters of a base in blocks, against PEFT on the weights that the blocks stand for. Then a model with parameter groups (frozen ones, learning-rate scales, decays) against PyTorch's. With --whole the tables of tokens are
trained as a whole beside the adapter (modules_to_save), and this alone is compared. A line for each comparison; the exit status is
1 if one fails. Needs torch, transformers, peft, safetensors and numpy.
"""
import argparse
import copy
import json
import math
import pathlib
import sys

import peft
import torch
from safetensors.torch import load_file

import check_family as family
from checks import expect, failures, larger, largest_relative_distance, report

STEPS = 20
ALL = "all-linear"
# Targets, PEFT's settings and dstrain's.
LORAS = {
    "gpt2": (["c_attn", "mlp.c_proj"], {"lora_alpha": 12}),
    "llama": (["q_proj", "v_proj"], {"lora_alpha": 16}),
    "qwen2": (ALL, {"lora_alpha": 6, "use_rslora": True}),
    "qwen3": (["k_proj", "down_proj"], {"lora_alpha": 3}),
}


def whole_modules(model):
    """Returns the modules of the tables of tokens, which may be one."""
    table = "wte" if model.config.model_type == "gpt2" else "embed_tokens"
    return [table, "lm_head"]


def adapted(model, name, whole=False):
    """Returns the model with an adapter whose second part is not 0, or the first step's gradients of A would be."""
    targets, settings = LORAS[name]
    torch.manual_seed(11)
    if whole:
        settings = {**settings, "modules_to_save": whole_modules(model), "ensure_weight_tying": model.config.tie_word_embeddings}
    config = peft.LoraConfig(r=3, target_modules=targets, task_type="CAUSAL_LM", fan_in_fan_out=name.startswith("gpt2"), **settings)
    result = peft.get_peft_model(copy.deepcopy(model), config)
    with torch.no_grad():
        for key, p in result.named_parameters():
            if "lora_B" in key:
                p.copy_(torch.randn_like(p) * 0.2)
            elif "modules_to_save" in key:
                p.add_(torch.randn_like(p) * 0.1)
    return result


def lora_section(name):
    targets, settings = LORAS[name]
    return {"r": 3, "alpha": settings["lora_alpha"], "targets": targets, "rslora": settings.get("use_rslora", False)}


def train(model, tokens, groups):
    """Trains in fp64; returns losses and norms. `groups` are those of torch.optim.AdamW."""
    model.train()
    optimizer = torch.optim.AdamW(groups, lr=family.ADAMW["lr"], betas=tuple(family.ADAMW["betas"]), eps=family.ADAMW["eps"],
                                  weight_decay=family.ADAMW["weight_decay"])
    trained = [p for group in optimizer.param_groups for p in group["params"]]
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = family.losses_of(model, tokens, step * family.BATCH)
        loss.backward()
        norm = math.sqrt(sum(float((p.grad ** 2).sum()) for p in trained))
        for p in trained:
            p.grad *= min(1.0, family.CLIP / (norm + 1e-6))
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm)
    return losses, norms


def compare_steps(what, output, losses, norms):
    report(f"{what}: losses", largest_relative_distance(family.column(output, "loss"), losses), 1e-5)
    report(f"{what}: norms", largest_relative_distance(family.column(output, "grad_norm"), norms), 1e-4)


def worst_of(ours, theirs):
    worst = 0.0
    for name, expected in theirs.items():
        expected = expected.detach().double()
        worst = larger(worst, float((ours[name].double() - expected).abs().max() / expected.abs().max()))
    return worst


def configure(program, name, own, optimizer=None):
    program.config(STEPS, optimizer or {"type": "AdamW", "params": family.ADAMW}, family.CLIP, name)
    path = program.folder / name
    config = json.loads(path.read_text())
    config["dstrain"].update(own)
    path.write_text(json.dumps(config))


def logits_of(program, source, folder, option="--model"):
    command = [program.program, "eval", option, source, "--data", program.data, "--device", "cpu", "--logits", folder / "logits.safetensors"]
    if option == "--model":
        command += ["--seq_len", family.LENGTH]
    family.subprocess.run([str(w) for w in command], check=True, stdout=family.subprocess.DEVNULL)
    return load_file(folder / "logits.safetensors")["logits"].double()


def opened_logits(opens, folder, tokens):
    """Returns the logits of what transformers or PEFT open from a folder, in fp64."""
    with torch.no_grad():
        return opens.from_pretrained(folder).double().eval()(input_ids=tokens[None, : family.LENGTH]).logits[0]


def compare_opened(output, merged, source, expected, tokens):
    """What the library opens by itself: the base with an adapter, and a merged model without its adapter once more."""
    auto = family.transformers.AutoModelForCausalLM
    for opens in (auto, peft.AutoPeftModelForCausalLM):
        found = opened_logits(opens, output, tokens)
        report(f"logits of {opens.__name__} of the run's directory", float((found - expected).abs().max() / expected.abs().max()), 1e-6)
    model = auto.from_pretrained(merged)
    expect("the merged model has no adapter", not hasattr(model, "peft_config"))
    weights = load_file(merged / "model.safetensors")
    expect("the merged model's weights are those of its file",
           all(torch.equal(p, weights[n]) for n, p in model.state_dict().items() if n in weights))
    found = opened_logits(auto, merged, tokens)
    report("logits of the merged model in transformers", float((found - expected).abs().max() / expected.abs().max()), 1e-5)
    apart = peft.PeftModel.from_pretrained(auto.from_pretrained(source), merged / "adapter").double().eval()
    with torch.no_grad():
        found = apart(input_ids=tokens[None, : family.LENGTH]).logits[0]
    report("logits of the merged run's adapter", float((found - expected).abs().max() / expected.abs().max()), 1e-6)


def compare_lora(args, folder, program, source, model, tokens):
    lora = adapted(model, args.family, args.whole)
    first = folder / "adapter"
    lora.save_pretrained(first)
    trained = copy.deepcopy(lora).double()
    losses, norms = train(trained, tokens, [p for p in trained.parameters() if p.requires_grad])
    section = {**lora_section(args.family), "init": str(first)}
    if args.whole:
        section["modules_to_save"] = whole_modules(model)
    configure(program, "lora.json", {"lora": section})
    output = program.run("lora", source, config="lora.json")
    compare_steps("lora", output, losses, norms)
    expect("the run's directory has the adapter and no weights of the model", not list(output.glob("model*.safetensors")))
    trained.save_pretrained(folder / "theirs")
    theirs, ours = (load_file(f / "adapter_model.safetensors") for f in (folder / "theirs", output))
    expect("the adapter's tensors have PEFT's names and shapes", {n: t.shape for n, t in ours.items()} == {n: t.shape for n, t in theirs.items()})
    report("the adapter after twenty steps", worst_of(ours, theirs), 1e-4)
    opened = peft.PeftModel.from_pretrained(copy.deepcopy(model), output).double().eval()
    with torch.no_grad():
        expected = opened(input_ids=tokens[None, : family.LENGTH]).logits[0]
    report("logits of eval --run", float((logits_of(program, output, folder, "--run") - expected).abs().max() / expected.abs().max()), 1e-5)
    again = program.run("again", source, "--steps", "0", "--set", f"dstrain.lora.init={output}", config="lora.json")
    expect("an adapter comes out as it came in, byte for byte",
           family.filecmp.cmp(again / "adapter_model.safetensors", output / "adapter_model.safetensors", shallow=False))
    merged = program.run("merged", source, "--set", "dstrain.lora.merge=true", config="lora.json")
    report("logits of the merged model", float((logits_of(program, merged, folder) - expected).abs().max() / expected.abs().max()), 1e-5)
    compare_opened(output, merged, source, expected, tokens)
    again = program.run("again_merged", source, "--steps", "0", "--set", f"dstrain.lora.init={merged}", config="lora.json")
    expect("a merged run's adapter comes out as it came in, byte for byte",
           family.filecmp.cmp(again / "adapter_model.safetensors", output / "adapter_model.safetensors", shallow=False))
    fresh = program.run("fresh_adapter", source, "--steps", "0", "--set", "dstrain.lora.init=null", config="lora.json")
    tensors = load_file(fresh / "adapter_model.safetensors")
    reference = peft.get_peft_model(copy.deepcopy(model), lora.peft_config["default"]).state_dict()
    a = [n for n in tensors if "lora_A" in n]
    expect("a fresh adapter adds nothing", all(not tensors[n].any() for n in tensors if "lora_B" in n))
    ours, theirs = (torch.cat([t.flatten() for t in ts]) for ts in (
        [tensors[n] for n in a], [t for n, t in reference.items() if "lora_A" in n]))
    report("deviation of a fresh adapter (log of the ratio)", abs(math.log(float(ours.std() / theirs.std()))), 0.2)
    for ranks, words in ((2, ["--set", "zero_optimization.stage=3"]), (2, ["--set", "pipeline.stages=2"])):
        several = program.run(f"ranks{len(words[1])}", source, "--num_gpus", str(ranks), *words, config="lora.json")
        report(f"adapter of {ranks} ranks, {words[1]}",
               worst_of(load_file(several / "adapter_model.safetensors"), load_file(output / "adapter_model.safetensors")), 1e-4)


NF4 = torch.tensor([
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0])


def in_blocks(weight, base):
    """Returns a weight (outputs, inputs) as blocks of 64 values have it, each with a scale in fp32."""
    flat = torch.nn.functional.pad(weight.float().flatten(), (0, -weight.numel() % 64)).view(-1, 64)
    largest = flat.abs().amax(1, keepdim=True)
    if base == "int8":
        scale = largest / 127
        values = torch.round(flat / scale) * scale
    else:
        values = NF4[(flat / largest).unsqueeze(-1).sub(NF4).abs().argmin(-1)] * largest
    return values.flatten()[: weight.numel()].view(weight.shape)


def compare_blocks(args, folder, program, source, model, tokens):
    """A base in blocks trains as PEFT does on the weights that the blocks stand for."""
    for base in ("int8", "nf4"):
        rounded = copy.deepcopy(model)
        with torch.no_grad():
            for name, p in rounded.named_parameters():
                layer = any(part.isdigit() for part in name.split("."))
                if layer and p.dim() == 2:
                    transposed = args.family.startswith("gpt2")
                    values = in_blocks(p.T.contiguous() if transposed else p, base)
                    p.copy_(values.T if transposed else values)
        lora = adapted(rounded, args.family)
        lora.save_pretrained(folder / "adapter_of_blocks")
        lora = lora.double()
        losses, norms = train(lora, tokens, [p for p in lora.parameters() if p.requires_grad])
        section = {**lora_section(args.family), "base": base, "init": str(folder / "adapter_of_blocks")}
        configure(program, f"{base}.json", {"lora": section})
        output = program.run(base, source, config=f"{base}.json")
        compare_steps(f"base in {base}", output, losses, norms)
        lora.save_pretrained(folder / "theirs_of_blocks")
        theirs, ours = (load_file(f / "adapter_model.safetensors") for f in (folder / "theirs_of_blocks", output))
        report(f"base in {base}: the adapter after twenty steps", worst_of(ours, theirs), 1e-4)
        several = program.run(f"{base}_sharded", source, "--num_gpus", "2", "--set", "zero_optimization.stage=3", config=f"{base}.json")
        report(f"base in {base}: adapter of 2 ranks at stage 3", worst_of(load_file(several / "adapter_model.safetensors"), ours), 1e-4)


def compare_groups(args, folder, program, source, model, tokens):
    """Norms and biases with settings of their own, the first layer frozen but for its norms' weights."""
    layer = "transformer.h.0." if args.family.startswith("gpt2") else "model.layers.0."
    norms = "*ln_*.weight" if args.family.startswith("gpt2") else "*norm.weight"
    others = {"gpt2": ["*.bias"], "qwen2": ["*.bias", "*down_proj*"]}.get(args.family, ["*down_proj*"])
    own = [{"match": [norms], "lr_scale": 0.25, "weight_decay": 0}, {"match": [layer + "*"], "trainable": False},
           {"match": others, "lr_scale": 2, "weight_decay": 0.3}]
    configure(program, "groups.json", {"parameter_groups": own})
    output = program.run("groups", source, config="groups.json")
    trained = copy.deepcopy(model).double()

    def group_of(name):
        import fnmatch
        return next((i for i, g in enumerate(own) if any(fnmatch.fnmatchcase(name, m) for m in g["match"])), None)
    groups = [{"params": [p for n, p in trained.named_parameters() if group_of(n) is None]},
              {"params": [p for n, p in trained.named_parameters() if group_of(n) == 0], "lr": family.ADAMW["lr"] * 0.25, "weight_decay": 0},
              {"params": [p for n, p in trained.named_parameters() if group_of(n) == 2], "lr": family.ADAMW["lr"] * 2, "weight_decay": 0.3}]
    losses, gradient_norms = train(trained, tokens, [g for g in groups if g["params"]])
    compare_steps("groups", output, losses, gradient_norms)
    ours = family.transformers.AutoModelForCausalLM.from_pretrained(output).double().state_dict()
    theirs, before = dict(trained.named_parameters()), model.state_dict()
    frozen = [n for n in theirs if group_of(n) == 1]
    expect("frozen parameters are as they were", frozen and all(torch.equal(ours[n].float(), before[n]) for n in frozen))
    noise = family.NOISE.get(args.family.split("_")[0], "none of them")
    report("weights after twenty steps", worst_of(ours, {n: p for n, p in theirs.items() if n not in frozen and not n.endswith(noise)}), 1e-4)


def main():
    parser = argparse.ArgumentParser()
    for name in ("program", "family", "folder"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--whole", action="store_true")
    args = parser.parse_args()
    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tokens = family.save_tokens(folder / "tokens.bin", 9 * family.BATCH // 2)
    model = family.random_model(family.FAMILIES[args.family]())
    source = folder / "model"
    model.save_pretrained(source)
    program = family.Dstrain(args.program, folder, folder / "tokens.bin")
    compare_lora(args, folder, program, source, model, tokens)
    if args.whole:
        return 1 if failures else 0
    compare_blocks(args, folder, program, source, model, tokens)
    compare_groups(args, folder, program, source, model, tokens)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
