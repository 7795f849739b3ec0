#!/usr/bin/env python3
"""Verifies random layouts: sequence and tensor ranks, pipelines, ZeRO stages, adapters, packed samples, pairs, teachers, tensors on disk.

  scripts/random_layouts.py PROGRAM [--cases 100] [--seed 1]

PROGRAM is a dstrain of any build. Each case is a configuration, which `dstrain verify` trains on up to eight ranks of this
machine and compares with plain training. A case fails if it is not equal, ends with an error other than that of a refused
configuration, or if a sanitizer reports anything. A failed case prints its seed and its configuration, and
`--seed N --cases 1` repeats it. The exit status is 1 if a case has failed, or if more than half are refused.
"""
import argparse
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

LIMIT_S = 900
# GCC 12's address sanitizer does not hold its allocator's locks while a process forks, so that a rank may wait for one for
# ever. A case that ends so is run again.
SILENCE_S, TRIES = 20, 8
HANGING = "has not moved for"
LIMITS = (0, 100, 3000, 50_000, 1_000_000_000)
# Families whose ranks do not divide layers or samples.
EXPERTS = ("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "deepseek_v3")
REPORTS = ("Sanitizer", "runtime error:", "internal error")
TABLES = {"gptlite": "token_embedding_table", "gpt_neox": "embed_in"}  # of tokens, as modules


def model(r):
    layers, heads = r.choice((1, 2, 3, 4)), r.choice((2, 4, 8))
    if r.random() < 0.5:
        return {"type": "gptlite", "n_layer": layers, "n_embd": 8 * heads, "n_head": heads, "block_size": 16,
                "vocab_size": r.choice((7, 40, 97)), "dropout": r.choice((0, 0.1)), "activation": "gelu",
                "tied_head": r.random() < 0.3}
    kind = r.choice(("llama", "qwen2", "qwen3", "gemma2", "gemma3_text", "gpt_neox") + EXPERTS)
    sizes = {"type": kind, "num_hidden_layers": layers, "hidden_size": 8 * heads, "intermediate_size": r.choice((37, 64)),
             "num_attention_heads": heads, "max_position_embeddings": 16, "vocab_size": r.choice((7, 40, 97))}
    if kind == "gpt_neox":
        return {**sizes, "rope_parameters": {"partial_rotary_factor": 0.5}, "use_parallel_residual": r.random() < 0.5}
    sizes["num_key_value_heads"] = heads // r.choice((1, 2, heads))
    if kind == "deepseek_v3":
        groups = r.choice((1, 2, 4))
        sizes.pop("num_key_value_heads")
        return {**sizes, "n_routed_experts": 8, "n_group": groups, "topk_group": r.randint(1, groups), "num_experts_per_tok": 2,
                "moe_intermediate_size": r.choice((5, 16)), "n_shared_experts": r.choice((1, 2)),
                "first_k_dense_replace": r.choice((0, 1)), "q_lora_rank": r.choice((0, 12)), "kv_lora_rank": 10,
                "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": r.choice((6, 14)),
                "norm_topk_prob": r.random() < 0.5, "rope_interleave": r.random() < 0.5}
    if kind in EXPERTS:
        experts = r.choice((1, 3, 8))
        sizes.update({"num_local_experts" if kind == "mixtral" else "num_experts": experts},
                     num_experts_per_tok=r.randint(1, experts), output_router_logits=r.random() < 0.5)
    if kind in ("qwen2_moe", "qwen3_moe"):
        sizes.update(moe_intermediate_size=r.choice((5, 16)), dense_layers=r.choice(("", "0")), norm_topk_prob=r.random() < 0.5)
    if kind == "gemma2":
        sizes.update(head_dim=8, sliding_window=5, query_pre_attn_scalar=12, attn_logit_softcapping=2.0,
                     final_logit_softcapping=3.0)
    if kind == "gemma3_text":
        sizes.update(head_dim=8, sliding_window=5, sliding_window_pattern=2, tie_word_embeddings=r.random() < 0.5)
    return sizes


def zero(r, data_ranks, drive):
    section = {"stage": r.choice((0, 1, 2, 3, 3)), "overlap_comm": r.random() < 0.5,
               "reduce_bucket_size": r.choice(LIMITS[1:])}
    if section["stage"] == 3:
        for key in ("prefetch_bucket_size", "param_persistence_threshold", "max_live_parameters", "max_reuse_distance"):
            section["stage3_" + key] = r.choice(LIMITS)
        if r.random() < 0.5:
            section["offload_param"] = {"device": r.choice(("cpu", "nvme")), "nvme_path": drive}
        if data_ranks > 1 and r.random() < 0.3:
            section["zero_quantized_weights"] = True
    if section["stage"] > 0 and r.random() < 0.5:
        section["offload_optimizer"] = {"device": r.choice(("cpu", "nvme")), "nvme_path": drive}
    return section


def configuration(r, drive):
    """Returns a configuration and its number of ranks."""
    while True:
        stages, data, sequence, tensor = (r.choice((1, 1, 2)) for _ in range(4))
        if stages * data * sequence * tensor <= 8:
            break
    own = {"model": model(r), "reduce": r.choice(("boundary", "micro_batch")),
           "recompute": r.choice((0, 0, 1, 2, "selective")), "loss_chunks": r.choice((1, 2)),
           "mlp_chunks": r.choice((1, 2)), "gather_again": r.random() < 0.5,
           "offload": {"activations": r.choice(("none", "none", "cpu", "nvme")), "nvme_path": drive}}
    if r.random() < 0.3:
        own["data"] = {"format": "bin", "packing": "pack"}
    if r.random() < 0.4:
        own["lora"] = {"r": r.choice((1, 2))}
        if tensor == 1 and r.random() < 0.5:
            own["lora"]["base"] = r.choice(("int8", "nf4"))
    micro, accumulation = r.choice((1, 2)), r.choice((1, 2, 4))
    config = {"train_batch_size": micro * accumulation * data, "train_micro_batch_size_per_gpu": micro,
              "sequence_parallel_size": sequence, "tensor_parallel": {"autotp_size": tensor},
              "optimizer": {"type": r.choice(("AdamW", "AdamW", "Lion", "Lamb", "Muon", "SGD")), "params": {"lr": 1e-3}},
              "zero_optimization": zero(r, data, drive), "dstrain": own}
    if stages > 1:
        config["pipeline"] = {"stages": stages, "schedule": r.choice(("gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"))}
    if r.random() < 0.3:
        config["bf16"] = {"enabled": True}
    # Last, so that a seed's layout is the one that it was before there were pairs.
    if sequence * tensor == 1 and "data" not in own and r.random() < 0.4:
        own["objective"] = r.choice(({"type": "dpo"}, {"type": "dpo", "loss_type": "ipo"}, {"type": "simpo"}, {"type": "orpo"},
                                     {"type": "kto"}, {"type": "reward"}))
    if sequence * tensor == 1 and "objective" not in own and r.random() < 0.25:
        own["objective"] = {"type": "distill", "teacher_top_k": r.choice((1, 5)), "kd_ratio": r.choice((0.3, 1))}
    experts = own["model"].get("num_local_experts", own["model"].get("num_experts", 1))
    if experts % 2 == 0 and data > 1 and r.random() < 0.7:
        config["expert_parallel"] = {"enabled": True, "autoep_size": 2}
    if "lora" in own and r.random() < 0.5:
        own["lora"]["modules_to_save"] = [TABLES.get(own["model"]["type"], "embed_tokens")]
    return config, stages * data * sequence * tensor


def run(program, config, ranks, folder):
    """Returns "equal", "refused", or what is wrong. A rank that stands still is no fault the first times."""
    for _ in range(TRIES):
        result = run_once(program, config, ranks, folder)
        if HANGING not in result or any(report in result for report in REPORTS):
            break
    return result


def run_once(program, config, ranks, folder):
    file = folder / "layout.json"
    file.write_text(json.dumps(config))
    command = [program, "verify", "--config", str(file), "--num_gpus", str(ranks), "--steps", "3",
               "--set", f"dstrain.timeout_s={SILENCE_S}"]
    environment = dict(os.environ)
    # Ranks are forks that end without a search for leaks.
    environment.setdefault("ASAN_OPTIONS", "detect_leaks=0")
    # They start threads of their own.
    environment.setdefault("TSAN_OPTIONS", "die_after_fork=0")
    try:
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"it has not ended after {LIMIT_S} s"
    text = ended.stdout + ended.stderr
    if any(report in text for report in REPORTS):
        return text
    if ended.returncode == 0:
        return "equal"
    refused = ended.returncode == 1 and ended.stdout == "" and "error: " in ended.stderr
    return "refused" if refused else text


def divide_experts(config, ranks):
    """Takes out of a configuration what does not run beside expert_parallel. Returns its number of ranks."""
    ranks //= config["sequence_parallel_size"] * config["tensor_parallel"]["autotp_size"]
    config["sequence_parallel_size"] = config["tensor_parallel"]["autotp_size"] = 1
    config["zero_optimization"].pop("zero_quantized_weights", None)
    config["dstrain"].pop("lora", None)
    if config["optimizer"]["type"] == "Lamb":
        config["optimizer"]["type"] = "AdamW"
    if "objective" in config["dstrain"]:
        config["dstrain"]["model"]["output_router_logits"] = False
    return ranks


def layouts(options, drive):
    """Yields seeds, and the configurations and numbers of ranks that they make."""
    for seed in itertools.count(options.seed):
        config, ranks = configuration(random.Random(seed), drive)
        if not options.experts:
            yield seed, config, ranks
        elif "expert_parallel" in config:
            yield seed, config, divide_experts(config, ranks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("--cases", type=int, default=100, help="how many")
    parser.add_argument("--seed", type=int, default=1, help="of the first case; the next ones count up")
    parser.add_argument("--experts", action="store_true", help="those alone in which ranks divide experts")
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    counts = {"equal": 0, "refused": 0, "failed": 0}
    with tempfile.TemporaryDirectory(prefix="dstrain-layouts-") as name:
        folder = pathlib.Path(name)
        for seed, config, ranks in itertools.islice(layouts(options, name), options.cases):
            result = run(program, config, ranks, folder)
            counts[result if result in counts else "failed"] += 1
            if result not in ("equal", "refused"):
                print(f"seed {seed}, {ranks} ranks: {json.dumps(config)}\n{result}", flush=True)
    print(f"{options.cases} layouts from seed {options.seed} on: {counts['equal']} equal, {counts['refused']} refused, "
          f"{counts['failed']} failed")
    return 1 if counts["failed"] > 0 or counts["refused"] * 2 > options.cases else 0


if __name__ == "__main__":
    sys.exit(main())
