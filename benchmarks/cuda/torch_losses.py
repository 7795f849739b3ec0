#!/usr/bin/env python3
"""Trains GPT-2 in PyTorch from weights that dstrain wrote, on the same samples in order, and prints the loss of each
step as a line of JSON, {"step": ..., "loss": ...}. With the settings of torch_gpt2.py, not compiled.

  benchmarks/cuda/torch_losses.py --weights RUN/model.safetensors --tokens tokens.bin --batch 16 --heads 12 --steps 20
"""
import argparse
import json
import pathlib
import struct

import torch

from torch_gpt2 import Gpt2, optimizer_of

NAMES = {"token_embedding_table.weight": "token.weight", "position_embedding_table.weight": "position.weight",
         "attn.qkv.": "qkv.", "attn.out_proj.": "out_proj.", "mlp.fc.": "fc.", "mlp.proj.": "proj."}


def weights_of(path):
    """Returns the f32 tensors of a safetensors file by PyTorch's names of them."""
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, about in json.loads(data[8:begin]).items():
        if name == "__metadata__":
            continue
        assert about["dtype"] == "F32", about
        first, last = about["data_offsets"]
        values = torch.frombuffer(bytearray(data[begin + first:begin + last]), dtype=torch.float32)
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        tensors[name] = values.reshape(about["shape"])
    return tensors


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--weights", type=pathlib.Path, required=True)
    p.add_argument("--tokens", type=pathlib.Path, required=True, help="uint16 values")
    for name in ("batch", "heads", "steps"):
        p.add_argument(f"--{name}", type=int, required=True)
    p.add_argument("--device", default="cuda")
    o = p.parse_args()
    weights = weights_of(o.weights)
    vocabulary, channels = weights["token.weight"].shape
    seq = weights["position.weight"].shape[0]
    layers = sum(name.endswith("ln1.weight") for name in weights)
    model = Gpt2(layers, channels, o.heads, vocabulary, seq)
    model.load_state_dict(weights)
    model.to(o.device)
    data = o.tokens.read_bytes()
    tokens = torch.tensor(struct.unpack(f"<{len(data) // 2}H", data), device=o.device)
    optimizer = optimizer_of(model, o.device)
    for step in range(o.steps):
        at = step * o.batch * seq
        ids = tokens[at:at + o.batch * seq].view(o.batch, seq)
        targets = tokens[at + 1:at + 1 + o.batch * seq].view(o.batch, seq)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(o.device, dtype=torch.bfloat16):
            loss = model(ids, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(json.dumps({"step": step + 1, "loss": loss.item()}), flush=True)


if __name__ == "__main__":
    main()
