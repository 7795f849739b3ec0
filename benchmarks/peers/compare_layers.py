#!/usr/bin/env python3
"""Times two ranks with a core each that divide layers or samples, alternately with a reference, and prints median ratios.

    python3 benchmarks/peers/compare_layers.py tensor       # needs neither PyTorch nor DeepSpeed
    python3 benchmarks/peers/compare_layers.py sequence
    .deps/peer/bin/python benchmarks/peers/compare_layers.py torch
    .deps/peer/bin/python benchmarks/peers/compare_layers.py deepspeed

tensor     the time of one rank with two threads over that of a tensor group of two ranks
sequence   the same of a sequence group, for one sample of 8192 tokens
torch      PyTorch's time (torch.distributed.tensor.parallel, gloo) over that of our tensor group
deepspeed  the time of DeepSpeed's AutoTP (CPU accelerator, gloo) over that of our tensor group

A Llama of 768 channels in 6 layers, 4 samples of 512 tokens. The programs of a comparison exist at the same time and
alternate, as in compare_steps.py. Rows go to benchmarks/results/layers.json; rows of other suites from the same kind of
machine are kept.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile

from contenders import ROOT, Dstrain, deepspeed_contender, processor, ranks_contender, take_turns, torch_environment

RANKS = 2
CONFIG = {
    "model_type": "llama", "hidden_size": 768, "num_hidden_layers": 6, "num_attention_heads": 12,
    "num_key_value_heads": 4, "intermediate_size": 2048, "vocab_size": 8192, "max_position_embeddings": 8192,
    "tie_word_embeddings": False,
}  # fmt: skip
TENSOR = {"tensor_parallel": {"autotp_size": RANKS}}
SEQUENCE = {"sequence_parallel_size": RANKS}


def model_of(tokens):
    return {"type": "llama", "block_size": tokens, "config": CONFIG}


def ours(options, dtype, folder, ranks, settings, tokens, batch):
    os.environ["OMP_NUM_THREADS"] = str(RANKS // ranks)  # each run has both cores
    return Dstrain(options.program, model_of(tokens), batch, dtype, folder, ranks, settings)


def compare(options, folder, make_subject, make_reference):
    """Returns the reference's time over the subject's, for each round."""
    contenders = []
    try:
        for make in (make_subject, make_reference):
            place = folder / str(len(contenders))
            contenders.append(make(place))
        return take_turns(*contenders, options.rounds, options.steps)[2]
    finally:
        for contender in contenders:
            contender.close()


def run_tensor(options, dtype, folder):
    return "one rank over tensor 2", compare(
        options, folder, lambda f: ours(options, dtype, f, RANKS, TENSOR, options.seq, options.batch),
        lambda f: ours(options, dtype, f, 1, {}, options.seq, options.batch),
    )  # fmt: skip


def run_sequence(options, dtype, folder):
    return "one rank over sequence 2, T=8192", compare(
        options, folder, lambda f: ours(options, dtype, f, RANKS, SEQUENCE, 8192, 1),
        lambda f: ours(options, dtype, f, 1, {}, 8192, 1),
    )  # fmt: skip


def run_torch(options, dtype, folder):
    return "PyTorch's tensor parallelism over ours", compare(
        options, folder, lambda f: ours(options, dtype, f, RANKS, TENSOR, options.seq, options.batch),
        lambda f: ranks_contender(
            options.python, "torch_layers_steps.py", model_of(options.seq), options.batch, dtype, RANKS,
            options.environment),
    )  # fmt: skip


def run_deepspeed(options, dtype, folder):
    return "DeepSpeed's AutoTP over ours", compare(
        options, folder, lambda f: ours(options, dtype, f, RANKS, TENSOR, options.seq, options.batch),
        lambda f: deepspeed_contender(
            options.python, model_of(options.seq), options.batch, dtype, {"stage": 0}, RANKS,
            options.environment, RANKS),
    )  # fmt: skip


def main():
    suites = {"tensor": run_tensor, "sequence": run_sequence, "torch": run_torch, "deepspeed": run_deepspeed}
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("suite", choices=sorted(suites))
    p.add_argument("--dtypes", default="fp32,bf16")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--steps", type=int, default=2, help="steps per block")
    p.add_argument("--batch", type=int, default=4, help="samples of a micro-batch")
    p.add_argument("--seq", type=int, default=512)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    p.add_argument("--python", default=sys.executable, help="Python interpreter with torch (deepspeed) installed")
    options = p.parse_args()
    if options.rounds < 5:
        p.error("--rounds must be at least 5: the median of fewer ratios says little")
    path = ROOT / "benchmarks/results/layers.json"
    old = json.loads(path.read_text()) if path.exists() else {}
    rows = old.get("results", []) if old.get("processor") == processor() else []
    for dtype in options.dtypes.split(","):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="dstrain-layers-"))
        try:
            if options.suite in ("torch", "deepspeed"):
                options.environment = torch_environment(options.python, folder)
            name, ratios = suites[options.suite](options, dtype, folder)
            size = "" if (options.batch, options.seq) == (4, 512) else f", {options.batch} x {options.seq}"
            row = {"case": f"{name}, {dtype}{size}", "ratio": statistics.median(ratios), "ratios": ratios}
            rows = [r for r in rows if r["case"] != row["case"]] + [row]
            print(f"{row['case']:46} {row['ratio']:6.3f}   {min(ratios):.3f}-{max(ratios):.3f}", flush=True)
            path.write_text(json.dumps({"processor": processor(), "results": rows}, indent=1) + "\n")
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
