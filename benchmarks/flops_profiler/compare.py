#!/usr/bin/env python3
"""Compares the report of flops_profiler with what DeepSpeed's FlopsProfiler counts for transformers' model.

  compare.py --program DSTRAIN --folder EMPTY_FOLDER [--family gpt2|llama] [--samples N] [--tokens N]

Makes a config.json of transformers (GPT-2 of 124M parameters, or a Llama of 2 layers) and runs one step of it on the CPU
with dstrain, whose report it reads, and one forward pass of transformers' model with DeepSpeed's profiler. Compares
parameters, MACs and flops of the model, and parameters and MACs of every module that has the same name in both. Prints a
line for each number of the model that says how far apart they are, and one for the modules; the exit status is 1 if a
number differs by more than 1 percent. Needs a Python with torch, transformers, numpy and deepspeed 0.19.8.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

import numpy
import torch
import transformers
from deepspeed.profiling.flops_profiler import profiler

UNITS = {"T": 1e12, "B": 1e9, "G": 1e9, "M": 1e6, "K": 1e3, "": 1}
LIMIT = 0.01

FAMILIES = {
    "gpt2": lambda tokens: transformers.GPT2Config(n_positions=tokens),
    "llama": lambda tokens: transformers.LlamaConfig(
        num_hidden_layers=2, hidden_size=512, intermediate_size=1408, num_attention_heads=8, num_key_value_heads=4,
        vocab_size=32000, max_position_embeddings=tokens),
}


def number(text):
    """Returns the value of '124.44 M', '145.83 GMACs' or '12'."""
    value, unit = re.match(r"([\d.e+-]+) ?([TBGMK]?)", text).groups()
    return float(value) * UNITS[unit]


def run_dstrain(args, config):
    args.folder.mkdir(parents=True, exist_ok=True)
    config.save_pretrained(args.folder / "model")
    samples = args.samples + 12
    ids = numpy.random.default_rng(7).integers(0, config.vocab_size, samples * args.tokens + 1, dtype=numpy.uint16)
    ids.tofile(args.folder / "tokens.bin")
    report = args.folder / "report.txt"
    (args.folder / "c.json").write_text(json.dumps({
        "train_batch_size": args.samples, "gradient_accumulation_steps": 1,
        "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
        "flops_profiler": {"enabled": True, "profile_step": 0, "output_file": str(report)},
        "dstrain": {"data": {"format": "bin", "seq_len": args.tokens, "val_fraction": 0.1}, "steps": 1,
                    "save_last": False, "eval_samples": 1}}))
    command = [args.program, "--device", "cpu", "--num_gpus", "1", "--config", args.folder / "c.json", "--model",
               args.folder / "model", "--init_weights", "random", "--data", args.folder / "tokens.bin", "--output",
               args.folder / "out", "--overwrite"]
    result = subprocess.run([str(w) for w in command], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\nended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return report.read_text()


def summary_of(report):
    """Returns the values of the summary by label."""
    return {line[:70].strip().rstrip(":"): line[72:].strip() for line in report.splitlines()
            if len(line) > 72 and line[:70].rstrip().endswith(":")}


def modules_of(report):
    """Returns (parameters, MACs) of every module of the tree by its path."""
    modules, path = {}, []
    for line in report[report.index("Detailed Profile"):].splitlines():
        named = re.match(r"( *)\((\S+)\): ", line)
        if named:
            path = path[:len(named[1]) // 2 - 1] + [named[2]]
        numbers = re.search(r"([\d.]+ ?[KMBG]?) = \S+% Params, ([\d.]+ [KMGT]?)MACs", line)
        if numbers and path:
            # The numbers of a module with others in it follow its name, two columns further in.
            modules.setdefault(".".join(path), (number(numbers[1]), number(numbers[2])))
    return modules


def profile_transformers(args, config):
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    ids = torch.randint(0, config.vocab_size, (args.samples, args.tokens))
    profile = profiler.FlopsProfiler(model)
    profile.start_profile()
    with torch.no_grad():
        model(input_ids=ids, use_cache=False)
    total = {"params": profile.get_total_params(), "MACs": profile.get_total_macs(), "flops": profile.get_total_flops()}
    modules = {name: (module.__params__, profiler.get_module_macs(module)) for name, module in model.named_modules()}
    profile.end_profile()
    return total, modules


def difference(ours, theirs):
    return abs(ours - theirs) / theirs if theirs else abs(ours)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--family", choices=FAMILIES, default="gpt2")
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=1024)
    args = parser.parse_args()
    config = FAMILIES[args.family](args.tokens)
    total, theirs = profile_transformers(args, config)
    report = run_dstrain(args, config)
    summary, ours = summary_of(report), modules_of(report)
    worst = 0.0
    for what, label in (("params", "params per GPU"), ("MACs", "fwd MACs per GPU"), ("flops", "fwd flops per GPU")):
        found = difference(number(summary[label]), total[what])
        worst = max(worst, found)
        print(f"{what}: {summary[label]} against {total[what]:.6g}, {100 * found:.3f} %")
    both = [name for name in ours if name in theirs]
    for name in both:
        for what, mine, other in zip(("params", "MACs"), ours[name], theirs[name]):
            found = difference(mine, other)
            worst = max(worst, found)
            if found > LIMIT:
                print(f"{name}: {what} {mine:.6g} against {other:.6g}, {100 * found:.3f} %")
    print(f"{len(both)} modules of {len(ours)} by name; the largest difference is {100 * worst:.3f} %")
    if not both or worst > LIMIT:
        sys.exit(1)


main()
