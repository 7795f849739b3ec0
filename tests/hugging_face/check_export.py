#!/usr/bin/env python3
"""Compares what `dstrain export` makes of GPT-lite with what transformers compute from it.

  check_export.py --program DSTRAIN --folder EMPTY_FOLDER

Trains GPT-lites from random weights, biases and norm weights far from 0 and 1, exports them as GPT-2, in fp32 and in bf16,
from the run's directory and from a checkpoint, and compares the logits of from_pretrained with those of `dstrain eval`. A
line for each comparison; the exit status is 1 if one fails. Needs torch, transformers, safetensors and numpy.
"""
import argparse
import copy
import json
import pathlib
import subprocess
import sys

import numpy
import torch
import transformers
from safetensors.torch import load_file, save_file

from checks import failures, report

LAYERS, WIDTH, LENGTH, IDS = 3, 28, 12, 61
MODEL = {"type": "gptlite", "n_layer": LAYERS, "n_embd": WIDTH, "n_head": 4, "block_size": LENGTH, "vocab_size": IDS,
         "qkv_bias": True}
VARIANTS = {"gelu": {"activation": "gelu", "tied_head": True},
            "untied_relu": {"activation": "relu", "tied_head": False}}


def random_weights(tied):
    random = numpy.random.default_rng(5)

    def weight(*shape):
        offset = 0.7 if len(shape) == 1 else 0.0
        return torch.from_numpy((random.standard_normal(shape) * 0.25 + offset).astype(numpy.float32))

    tensors = {"token_embedding_table.weight": weight(IDS, WIDTH), "position_embedding_table.weight": weight(LENGTH, WIDTH),
               "ln.weight": weight(WIDTH), "ln.bias": weight(WIDTH)}
    if not tied:
        tensors["lm_head.weight"] = weight(IDS, WIDTH)
    for i in range(LAYERS):
        for norm in ("ln1", "ln2"):
            tensors |= {f"blocks.{i}.{norm}.{kind}": weight(WIDTH) for kind in ("weight", "bias")}
        for name, out, into in (("attn.qkv", 3, 1), ("attn.out_proj", 1, 1), ("mlp.fc", 4, 1), ("mlp.proj", 1, 4)):
            tensors[f"blocks.{i}.{name}.weight"] = weight(out * WIDTH, into * WIDTH)
            tensors[f"blocks.{i}.{name}.bias"] = weight(out * WIDTH)
    return tensors


def call(*words):
    result = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}\nended with {result.returncode}:\n{result.stdout}{result.stderr}")


def opened(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder)


def logits_of(model, tokens):
    with torch.no_grad():
        return copy.deepcopy(model).double().eval()(input_ids=tokens[None, :LENGTH]).logits[0]


def check(program, folder, label, members, data, tokens):
    output = folder / label
    save_file(random_weights(members["tied_head"]), folder / "init.safetensors")
    config = {"train_batch_size": 4, "gradient_accumulation_steps": 2,
              "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
              "dstrain": {"model": {**MODEL, **members}, "data": {"path": str(data), "format": "bin"}, "steps": 4,
                          "save_interval": 4}}
    (folder / f"{label}.json").write_text(json.dumps(config))
    call(program, "--device", "cpu", "--num_gpus", "2", "--config", folder / f"{label}.json", "--output", output,
         "--init_weights", folder / "init.safetensors")
    call(program, "export", output, "--format", "hf")
    call(program, "export", output / "checkpoints" / "step_4", "--format", "hf", "--dtype", "bf16")
    exported, rounded = output / "export" / "hf", output / "export" / "hf_step_4"
    theirs = logits_of(opened(exported), tokens)
    for source in ("--run", output), ("--model", exported):
        call(program, "eval", *source, "--data", data, "--device", "cpu", "--logits", folder / "logits.safetensors")
        ours = load_file(folder / "logits.safetensors")["logits"].double()
        report(f"{label}: logits of eval {source[0]}", float((ours - theirs).abs().max() / theirs.abs().max()), 1e-5)
    whole, halves = opened(exported).state_dict(), load_file(rounded / "model.safetensors")
    different = [name for name, tensor in halves.items() if not torch.equal(tensor, whole[name].to(torch.bfloat16))]
    report(f"{label}: tensors that are not rounded to bf16 as PyTorch rounds them", len(different), 0)
    dtype = transformers.AutoConfig.from_pretrained(rounded).dtype
    report(f"{label}: dtypes of config.json that are not those of the files ({dtype})", int(dtype != torch.bfloat16), 0)


def main():
    parser = argparse.ArgumentParser()
    for name in ("program", "folder"):
        parser.add_argument(f"--{name}", required=True)
    args = parser.parse_args()
    folder = pathlib.Path(args.folder)
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    tokens = numpy.random.default_rng(3).integers(0, IDS, 40 * LENGTH + 1).astype(numpy.uint16)
    tokens.tofile(folder / "tokens.bin")
    tokens = torch.from_numpy(tokens.astype(numpy.int64))
    for label, members in VARIANTS.items():
        check(args.program, folder, label, members, folder / "tokens.bin", tokens)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
