#!/usr/bin/env python3
"""Makes a random GPT-2 of 124 M parameters in fp32 and bf16, as folders of transformers and as files of llama.cpp.

    make_models.py FOLDER            needs torch and transformers; with the package gguf also FOLDER/NAME.gguf
"""

import argparse
import pathlib

import torch
from transformers import GPT2Config, GPT2LMHeadModel

LAYER_NAMES = {
    "ln_1": "attn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}


def make_model(dtype):
    torch.manual_seed(1)
    # No token ends a text, so that all have the same length. Larger weights make texts that do not repeat one token.
    config = GPT2Config(initializer_range=0.06, eos_token_id=None, bos_token_id=None)
    return GPT2LMHeadModel(config).to(dtype)


def llama_name(name):
    tops = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}
    name, end = name.removeprefix("transformer.").rsplit(".", 1)
    if name in tops:
        return f"{tops[name]}.{end}"
    _, layer, rest = name.split(".", 2)
    return f"blk.{layer}.{LAYER_NAMES[rest]}.{end}"


def write_gguf(model, path, dtype):
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "gpt2")
    writer.add_context_length(config.n_positions)
    writer.add_embedding_length(config.n_embd)
    writer.add_feed_forward_length(4 * config.n_embd)
    writer.add_block_count(config.n_layer)
    writer.add_head_count(config.n_head)
    writer.add_layer_norm_eps(config.layer_norm_epsilon)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([f"<{i}>" for i in range(config.vocab_size)])
    writer.add_token_types([1] * config.vocab_size)
    writer.add_token_merges(["< 1"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        values = tensor.float()
        if ".c_" in name and name.endswith("weight"):
            values = values.T.contiguous()
        if values.dim() == 2 and dtype == torch.bfloat16 and "wpe" not in name:
            halves = values.to(torch.bfloat16).view(torch.uint16).numpy()
            writer.add_tensor(llama_name(name), halves.view("uint8"),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(llama_name(name), values.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    folder = parser.parse_args().folder
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        model = make_model(dtype)
        model.save_pretrained(folder / name)
        try:
            write_gguf(model, folder / f"{name}.gguf", dtype)
        except ModuleNotFoundError:
            print("no files for llama.cpp: the package gguf is not there")


if __name__ == "__main__":
    main()
