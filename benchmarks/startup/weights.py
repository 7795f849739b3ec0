#!/usr/bin/env python3
"""Measures how fast weights come in: the time from the command to the first instruction of a run that begins with a
directory of transformers' files, and the time in which this drive gives the same file.

    python3 benchmarks/startup/weights.py [--ranks 1,2] [--rounds 9] [--folder PATH]

The model is a Llama of 125 M parameters, 500 MB in fp32, which dstrain itself writes first. Both read a file that is not in
the page cache; a round is one run and one plain read in blocks of 8 MiB. Prints the median of drive's time over
dstrain's, by number of ranks; the folder (default: the current one) says which drive is meant.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks/peers"))
from contenders import processor  # noqa: E402

MODEL = {
    "model_type": "llama", "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_key_value_heads": 4, "intermediate_size": 3072, "vocab_size": 13600, "max_position_embeddings": 2048,
}  # fmt: skip
BLOCK = 8 << 20


def run(program, folder, model, ranks, *options):
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "dstrain": {
            "data": {"path": str(folder / "tokens.bin"), "format": "bin", "seq_len": 16},
            "save_last": False,
            "eval_samples": 1,
            "trace": str(folder / "trace.json"),
        },
    }
    (folder / "config.json").write_text(json.dumps(config))
    command = [program, "--num_gpus", str(ranks), "--device", "cpu", "--model", model, "--config", folder / "config.json",
               "--overwrite"]
    done = subprocess.run([*command, *options], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)


def forget(path):
    """Removes a file from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def drive_seconds(path):
    forget(path)
    block = bytearray(BLOCK)
    before = time.monotonic()
    with open(path, "rb", buffering=0) as file:
        while file.readinto(block):
            pass
    return time.monotonic() - before


def run_seconds(program, folder, weights, ranks):
    forget(weights)
    before = time.monotonic()
    run(program, folder, weights.parent, ranks, "--steps", "1", "--output", folder / "out", "--overwrite")
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return min(e["ts"] for e in events if e["ph"] == "X") / 1e6 - before


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--ranks", default="1,2")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--folder", default=".")
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    o = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=o.folder) as name:
        folder = pathlib.Path(name)
        (folder / "tokens.bin").write_bytes(bytes(20000))
        (folder / "model.json").write_text(json.dumps(MODEL))
        run(o.program, folder, folder / "model.json", 1, "--steps", "0", "--output", folder / "model")
        weights = folder / "model/model.safetensors"
        size = weights.stat().st_size
        for ranks in map(int, o.ranks.split(",")):
            ours, drives = [], []
            for _ in range(o.rounds):
                drives.append(drive_seconds(weights))
                ours.append(run_seconds(o.program, folder, weights, ranks))
            ratios = [drive / our for drive, our in zip(drives, ours)]
            row = {
                "ranks": ranks, "bytes": size, "ratio": statistics.median(ratios), "ratios": ratios,
                "first_instruction_s": statistics.median(ours), "drive_s": statistics.median(drives),
            }  # fmt: skip
            rows.append(row)
            print(
                f"{ranks} ranks, {size / 1e6:.0f} MB: first instruction after {row['first_instruction_s']:.2f} s, the drive alone "
                f"{row['drive_s']:.2f} s ({size / row['drive_s'] / 1e9:.2f} GB/s), ratio {row['ratio']:.2f} "
                f"({min(ratios):.2f}-{max(ratios):.2f})",
                flush=True,
            )
    path = ROOT / "benchmarks/results/weights.json"
    path.write_text(json.dumps({"processor": processor(), "cores": os.cpu_count(), "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
