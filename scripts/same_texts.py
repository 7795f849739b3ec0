#!/usr/bin/env python3
"""Compares greedy texts of dstrain generate and of transformers: a small random model of each family, 200 tokens.

    scripts/same_texts.py build/release/bin/dstrain [--families llama gemma2] [--dtype bf16]

needs torch and transformers. Exit status 1 where a text differs. Texts of a random model are no test of the largest logit
where two are nearly equal: weights are large, so that this is rare, and a text that differs is shown with both logits.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import torch
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = 200
SIZES = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
         "vocab_size": 301, "max_position_embeddings": 256, "initializer_range": 0.3,
         "eos_token_id": None, "bos_token_id": None, "pad_token_id": None}
KEYS = {"num_key_value_heads": 2}
HEADS = {"num_key_value_heads": 2, "head_dim": 16}
CHOSEN = {"num_experts": 6, "num_experts_per_tok": 2}
EXPERTS = CHOSEN | {"moe_intermediate_size": 20}
FAMILIES = {
    "gpt2": {"n_embd": 48, "n_layer": 3, "n_head": 4, "n_positions": 256, "vocab_size": 301,
             "initializer_range": 0.3, "eos_token_id": None, "bos_token_id": None},
    "llama": SIZES | KEYS,
    "mistral": SIZES | KEYS | {"sliding_window": 37},
    "qwen2": SIZES | KEYS,
    "qwen3": SIZES | HEADS,
    "gemma": SIZES | HEADS,
    "gemma2": SIZES | HEADS | {"sliding_window": 37, "query_pre_attn_scalar": 16},
    "gemma3_text": SIZES | HEADS | {"sliding_window": 37, "query_pre_attn_scalar": 16},
    "gpt_neox": SIZES | {"rotary_pct": 0.5},
    "mixtral": SIZES | KEYS | {"num_local_experts": 5},
    "qwen2_moe": SIZES | KEYS | EXPERTS | {"shared_expert_intermediate_size": 24, "mlp_only_layers": [1]},
    "qwen3_moe": SIZES | HEADS | EXPERTS | {"norm_topk_prob": True},
    "olmoe": SIZES | KEYS | CHOSEN | {"clip_qkv": 2.0},
    "deepseek_v3": SIZES | {"num_key_value_heads": 4, "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 3,
                            "moe_intermediate_size": 20, "first_k_dense_replace": 1, "q_lora_rank": 24, "kv_lora_rank": 16,
                            "qk_nope_head_dim": 12, "qk_rope_head_dim": 8, "v_head_dim": 12},
}


def expected_texts(model, prompts):
    texts = []
    for prompt in prompts:
        ids = torch.tensor([prompt])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False,
                             max_new_tokens=TOKENS, pad_token_id=0)
        texts.append(out[0].tolist())
    return texts


def compare(program, family, dtype, folder):
    torch.manual_seed(3)
    config = AutoConfig.for_model(family, **FAMILIES[family])
    model = AutoModelForCausalLM.from_config(config).to(dtype).eval()
    model.save_pretrained(folder)
    model = model.float()  # dstrain computes in f32
    prompts = [[5], [7, 11, 13, 17, 19, 23, 29], [(31 * i) % 301 for i in range(43)]]
    (folder / "prompts.txt").write_text("".join(",".join(map(str, p)) + "\n" for p in prompts))
    out = subprocess.run([program, "generate", "--model", folder, "--prompts",
                          folder / "prompts.txt", "--tokens", str(TOKENS), "--temperature", "0"],
                         check=True, capture_output=True, text=True).stdout
    got = [list(map(int, line.split(","))) for line in out.splitlines()]
    same = True
    for text, other in zip(expected_texts(model, prompts), got, strict=True):
        if text == other:
            continue
        same = False
        at = next(i for i, (a, b) in enumerate(zip(text, other)) if a != b)
        logits = model(torch.tensor([text[:at]])).logits[0, -1]
        print(f"{family}: token {at} is {other[at]} ({logits[other[at]]:.6f}), in transformers "
              f"{text[at]} ({logits[text[at]]:.6f})")
    print(f"{family}: {'the same texts' if same else 'texts differ'}, "
          f"{len({i for text in got for i in text})} different tokens", flush=True)
    return same


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32")
    args = parser.parse_args()
    dtype = torch.float32 if args.dtype == "fp32" else torch.bfloat16
    same = True
    for family in args.families:
        with tempfile.TemporaryDirectory() as folder:
            same &= compare(args.program, family, dtype, pathlib.Path(folder))
    sys.exit(0 if same else 1)


if __name__ == "__main__":
    main()
