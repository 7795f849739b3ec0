#!/usr/bin/env python3
"""Measures what the monitors cost: runs of GPT-lite with `tensorboard` and `csv_monitor`, and without them, in turns.

    benchmarks/step/monitors.py [--program dstrain] [--ranks 1] [--steps 300] [--rounds 7]

The model is that of configs/quickstart.json with a batch of 8 samples, of which a step is short, so that the monitors'
share is large. A round has one run of each kind, the first one in turns. Prints medians of the rounds: the seconds of a
whole run, and their ratio with the lowest and the highest of a round.
"""
import argparse
import json
import os
import pathlib
import resource
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "peers"))
from contenders import processor  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]


def configuration(folder, name, steps, monitors):
    text = "".join(f"the quick brown fox jumps over the lazy dog {i}\n" for i in range(4000))
    (folder / "text.txt").write_text(text)
    model = {"type": "gptlite", "n_layer": 6, "n_embd": 192, "n_head": 6, "block_size": 128, "dropout": 0}
    config = {
        "train_batch_size": 8,
        "steps_per_print": steps,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "dstrain": {"model": model, "data": {"path": "text.txt"}, "steps": steps, "save_last": False},
    }
    for monitor in monitors:
        config[monitor] = {"enabled": True, "output_path": str(folder / "monitors"), "job_name": "job"}
    (folder / name).write_text(json.dumps(config))


def run(program, folder, name, ranks):
    """Returns the seconds of a run, and the CPU seconds of its processes."""
    command = [program, "--config", name, "--num_gpus", str(ranks), "--output", "out", "--overwrite"]
    cpu = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return seconds, after.ru_utime + after.ru_stime - cpu.ru_utime - cpu.ru_stime


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--steps", type=int, default=300)
    p.add_argument("--rounds", type=int, default=7)
    o = p.parse_args()
    kinds = {"without": [], "with": ["tensorboard", "csv_monitor"]}
    times = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for kind, monitors in kinds.items():
            configuration(folder, f"{kind}.json", o.steps, monitors)
            run(o.program, folder, f"{kind}.json", o.ranks)
        for i in range(o.rounds):
            for kind in list(kinds)[:: 1 if i % 2 == 0 else -1]:
                times[kind].append(run(o.program, folder, f"{kind}.json", o.ranks))
    print(f"{processor()}, {os.cpu_count()} cores; {o.ranks} ranks, {o.steps} steps, {o.rounds} rounds")
    for what, index in (("wall", 0), ("CPU", 1)):
        without, monitored = ([run[index] for run in times[kind]] for kind in ("without", "with"))
        ratios = [b / a for a, b in zip(without, monitored)]
        print(
            f"{what}: {statistics.median(without):.2f} s without, {statistics.median(monitored):.2f} s with monitors, "
            f"ratio {statistics.median(ratios):.4f} ({min(ratios):.4f}-{max(ratios):.4f})"
        )


if __name__ == "__main__":
    main()
