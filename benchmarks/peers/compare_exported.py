#!/usr/bin/env python3
"""Times steps of exported PyTorch graphs alternately with PyTorch, and with the built-in family that has the same operations.

    python3 -m venv .deps/peer && .deps/peer/bin/pip install torch numpy transformers safetensors
    .deps/peer/bin/python benchmarks/peers/compare_exported.py [--cases REGEX] [--rounds N]

A ratio above 1 means that the exported graph is faster (compare_steps.py says how programs take turns). Peak memory is that of
the process that trains. Writes benchmarks/results/steps/exported.json.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from contenders import ROOT, Asked, Dstrain, processor, take_turns, torch_environment
from exported_models import BUILT_IN, LENGTHS, MODELS


def our_batch(folder):
    """Returns the samples of the data, from the header of the file."""
    data = (folder / "data.safetensors").read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    return header["x"]["shape"][0]


def exported(options, dtype, folder):
    model = {"type": "exported", "file": str(folder / "model.pt2")}
    data = {"path": str(folder / "data.safetensors"), "format": "arrays", "val_fraction": 0}
    return Dstrain(
        options.program, model, our_batch(folder), dtype, folder / "ours", settings={"dstrain": {"data": data}}
    )


def built_in(name, options, dtype, folder):
    model = {"type": BUILT_IN[name]["model_type"], "block_size": LENGTHS[name], "config": BUILT_IN[name]}
    return Dstrain(options.program, model, our_batch(folder), dtype, folder / "built-in")


def torch_steps(name, options, dtype, folder):
    script = str(ROOT / "benchmarks/peers/torch_exported_steps.py")
    environment = {"OMP_NUM_THREADS": str(options.threads), **torch_environment(options.python, folder)}
    return Asked([options.python, script, "steps", name, dtype, str(options.threads)], [environment])


def compare(name, dtype, peer, folder, options):
    ours = exported(options, dtype, folder)
    try:
        theirs = (torch_steps if peer == "torch" else built_in)(name, options, dtype, folder)
        try:
            our_ms, their_ms, ratios = take_turns(ours, theirs, options.rounds, options.steps)
            return {
                "case": f"{name}-{dtype}-{peer}",
                "ratio": statistics.median(ratios),
                "ratios": ratios,
                "exported_ms": statistics.median(our_ms),
                "peer_ms": statistics.median(their_ms),
                "exported_bytes": max(ours.peak_rss()),
                "peer_bytes": max(theirs.peak_rss()),
            }
        finally:
            theirs.close()
    finally:
        ours.close()


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--cases", default="", help="run only the cases (MODEL-DTYPE-PEER) that match this regular expression")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=3, help="steps per block")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    p.add_argument("--python", default=sys.executable, help="Python interpreter with torch installed")
    p.add_argument("--result", default=str(ROOT / "benchmarks/results/steps/exported.json"))
    options = p.parse_args()
    version = subprocess.run([options.program, "--version"], capture_output=True, text=True)
    path = pathlib.Path(options.result)
    old = json.loads(path.read_text()) if path.exists() else {}
    results = old.get("results", []) if old.get("processor") == processor() else []
    record = {
        "dstrain": version.stdout.strip(),
        "processor": processor(),
        "threads": options.threads,
        "results": results,
    }
    print(f"{'case':26} {'exported ms':>11} {'peer ms':>9} {'ratio':>7}   lowest-highest   memory of the peer's")
    for name in MODELS:
        cases = [
            (dtype, peer)
            for dtype in ("fp32", "bf16")
            for peer in ("torch", "built-in")
            if (peer == "torch" or name in BUILT_IN) and re.search(options.cases, f"{name}-{dtype}-{peer}")
        ]
        if not cases:
            continue
        with tempfile.TemporaryDirectory(prefix="dstrain-exported-") as scratch:
            folder = pathlib.Path(scratch)
            script = str(ROOT / "benchmarks/peers/torch_exported_steps.py")
            subprocess.run([options.python, script, "export", name, scratch], check=True)
            for dtype, peer in cases:
                r = compare(name, dtype, peer, folder, options)
                results[:] = [other for other in results if other["case"] != r["case"]] + [r]
                print(
                    f"{r['case']:26} {r['exported_ms']:11.1f} {r['peer_ms']:9.1f} {r['ratio']:6.2f}x   "
                    f"{min(r['ratios']):.2f}-{max(r['ratios']):.2f}   "
                    f"{r['exported_bytes'] / r['peer_bytes']:.2f}",
                    flush=True,
                )
                path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
