#!/usr/bin/env python3
"""Times our training step and PyTorch's alternately on the same cores and prints the median ratio.

    python3 -m venv .deps/peer && .deps/peer/bin/pip install torch numpy transformers
    .deps/peer/bin/python benchmarks/peers/compare_steps.py [--cases REGEX] [--rounds N]

Both programs exist at the same time and alternate: while one runs its block of steps, the other is
stopped (SIGSTOP) or waits for a request. A round is one block of each; its ratio is PyTorch's median
step over ours, so above 1 means that dstrain is faster. Changes in the machine's speed cancel out of such a
ratio; they would not cancel out of two runs made one after the other. Writes benchmarks/results/steps/steps.json.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from contenders import ROOT, VOCABULARY, Dstrain, processor, read_commented_json
from contenders import take_turns, torch_contender, torch_environment


# 153 M parameters in fp32: the shape that people call 160 M.
LLAMA = {
    "model_type": "llama", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_key_value_heads": 4, "intermediate_size": 3072, "vocab_size": 32000, "max_position_embeddings": 2048,
}  # fmt: skip


def cases():
    """Returns name -> (our model section, micro-batch, dtype)."""
    table = {}
    for dtype in ("fp32", "bf16"):
        for t, batch in ((256, 8), (2048, 1)):
            for dropout in (0.0, 0.1):
                model = {"type": "gptlite", "block_size": t, "dropout": dropout, "vocab_size": VOCABULARY}
                table[f"gptlite-T{t}-dropout{dropout:g}-{dtype}"] = (model, batch, dtype)
        for name in ("wide", "deep"):
            config = read_commented_json((ROOT / f"configs/benchmark_{name}.json").read_text())
            table[f"benchmark-{name}-{dtype}"] = (
                config["dstrain"]["model"], config["train_batch_size"], dtype
            )  # fmt: skip
        model = {"type": "llama", "block_size": 512, "config": LLAMA}
        table[f"llama-160M-{dtype}"] = (model, 4, dtype)
    return table


def compare(name, options):
    model, batch, dtype = cases()[name]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dstrain-peers-"))
    ours = theirs = None
    try:
        ours = Dstrain(options.program, model, batch, dtype, folder)
        environment = torch_environment(options.python, folder)
        theirs = torch_contender(
            options.python, model, batch, dtype, options.threads, environment
        )
        our_ms, their_ms, ratios = take_turns(ours, theirs, options.rounds, options.steps)
        # Peak memory without weights, gradients and moments; PyTorch's are fp32 in autocast too.
        memory = {
            "dstrain_other_bytes": max(ours.peak_rss()) - ours.state_bytes(),
            "torch_other_bytes": max(theirs.peak_rss()) - theirs.ready[0]["parameters"] * 16,
        }
        return {
            "case": name,
            "ratio": statistics.median(ratios),
            "ratios": ratios,
            "dstrain_ms": statistics.median(our_ms),
            "torch_ms": statistics.median(their_ms),
            **memory,
            "torch": theirs.version,
            "torch_environment": sorted(environment),
        }
    finally:
        for process in (ours, theirs):
            if process:
                process.close()
        shutil.rmtree(folder)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--cases", default="", help="run only the cases whose name matches this regular expression")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=3, help="steps per block")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    p.add_argument("--python", default=sys.executable, help="Python interpreter with torch installed")
    p.add_argument("--result", default=str(ROOT / "benchmarks/results/steps/steps.json"))
    options = p.parse_args()
    if options.rounds < 5:
        p.error("--rounds must be at least 5: the median of fewer ratios says little")

    version = subprocess.run([options.program, "--version"], capture_output=True, text=True)
    path = pathlib.Path(options.result)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Earlier results of other cases are kept if they come from the same kind of machine.
    old = json.loads(path.read_text()) if path.exists() else {}
    results = old.get("results", []) if old.get("processor") == processor() else []
    record = {
        "dstrain": version.stdout.strip(),
        "processor": processor(),
        "threads": options.threads,
        "results": results,
    }
    print(f"{'case':36} {'dstrain ms':>11} {'torch ms':>10} {'ratio':>7}   lowest-highest")
    for name in cases():
        if not re.search(options.cases, name):
            continue
        r = compare(name, options)
        results[:] = [other for other in results if other["case"] != name] + [r]
        print(
            f"{name:36} {r['dstrain_ms']:11.1f} {r['torch_ms']:10.1f} {r['ratio']:6.2f}x   "
            f"{min(r['ratios']):.2f}-{max(r['ratios']):.2f}   other memory "
            f"{r['dstrain_other_bytes'] / r['torch_other_bytes']:.2f} of PyTorch's",
            flush=True,
        )
        # Written after every case, so that an interrupted run keeps its results.
        path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
