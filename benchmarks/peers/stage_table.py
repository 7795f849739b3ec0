#!/usr/bin/env python3
"""Measures the wide and the deep benchmark model at every ZeRO stage on several ranks: throughput and peak
memory, as a table and a plot.

    python3 -m venv .deps/peer && .deps/peer/bin/pip install matplotlib
    .deps/peer/bin/python benchmarks/peers/stage_table.py [--ranks 2,4] [--steps N] [--batch N]

Writes benchmarks/results/stage_table.json and stage_table.png (without matplotlib: the table alone).
The runs are made one after the other, so their medians show orders of magnitude only; compare_stages.py
alternates between stages to measure what a stage costs.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

from contenders import ROOT, processor, read_commented_json

MODELS = {"wide": "W=8192, 3 layers", "deep": "W=256, 2048 layers"}


def run(program, name, stage, ranks, options, folder):
    config = read_commented_json((ROOT / f"configs/benchmark_{name}.json").read_text())
    config.pop("train_batch_size", None)
    config["train_micro_batch_size_per_gpu"] = options.batch
    config["gradient_accumulation_steps"] = 1
    config["zero_optimization"] = {
        "stage": stage,
        "stage3_max_reuse_distance": 0,
        "stage3_param_persistence_threshold": 0,
    }
    config["dstrain"]["steps"] = options.steps
    config["dstrain"]["save_last"] = False
    path = folder / f"{name}-{stage}-{ranks}"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    command = [program, "--num_gpus", str(ranks), "--device", "cpu"]
    command += ["--config", path / "config.json", "--overwrite", "--output", path / "out"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{name}, stage {stage}, {ranks} ranks:\n{done.stderr}")
    steps = [json.loads(line) for line in (path / "out/metrics.jsonl").read_text().splitlines()]
    shutil.rmtree(path)
    return {
        "model": name, "stage": stage, "ranks": ranks, "batch": options.batch,
        "samples_per_s": statistics.median(s["samples_per_second"] for s in steps[1:]),
        "peak_bytes": steps[-1]["peak_bytes"],
        "comm_bytes": steps[-1]["comm_bytes"],
        "loss": steps[-1]["loss"],
    }  # fmt: skip


def plot(rows, path):
    try:
        import matplotlib
    except ImportError:
        print("no matplotlib: no plot")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, len(MODELS), figsize=(9, 6.5), sharex=True, squeeze=False)
    for column, (name, title) in enumerate(MODELS.items()):
        for ranks in sorted({r["ranks"] for r in rows}):
            mine = [r for r in rows if r["model"] == name and r["ranks"] == ranks]
            stages = [r["stage"] for r in mine]
            label = f"{ranks} ranks"
            axes[0][column].plot(stages, [r["peak_bytes"] / 1e9 for r in mine], "o-", label=label)
            axes[1][column].plot(stages, [r["samples_per_s"] for r in mine], "o-", label=label)
        axes[0][column].set_title(f"{name}: {title}")
        axes[1][column].set_xlabel("ZeRO stage")
        for row in axes:
            row[column].set_ylim(bottom=0)
            row[column].grid(alpha=0.3)
    axes[0][0].set_ylabel("peak memory of a rank, GB")
    axes[1][0].set_ylabel("samples/s, all ranks")
    axes[0][0].legend()
    axes[1][0].set_xticks(range(4))
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--ranks", default="2,4")
    p.add_argument("--steps", type=int, default=5)
    p.add_argument("--batch", type=int, default=8, help="samples per rank")
    p.add_argument("--models", default=",".join(MODELS))
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    options = p.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="dstrain-table-"))
    rows = []
    print(f"{'model':6} {'ranks':>5} {'stage':>5} {'samples/s':>10} {'GB a rank':>10} {'MB sent a step':>15}")
    try:
        for name in options.models.split(","):
            for ranks in (int(n) for n in options.ranks.split(",")):
                for stage in range(4):
                    r = run(options.program, name, stage, ranks, options, folder)
                    rows.append(r)
                    print(
                        f"{name:6} {ranks:5} {stage:5} {r['samples_per_s']:10.1f} "
                        f"{r['peak_bytes'] / 1e9:10.2f} {r['comm_bytes'] / 1e6:15.1f}",
                        flush=True,
                    )
                losses = {r["loss"] for r in rows if r["model"] == name and r["ranks"] == ranks}
                if len(losses) != 1:
                    sys.exit(f"{name} on {ranks} ranks: the stages disagree: {losses}")
    finally:
        shutil.rmtree(folder)
    results = ROOT / "benchmarks/results"
    results.mkdir(parents=True, exist_ok=True)
    record = {"processor": processor(), "cores": os.cpu_count(), "results": rows}
    (results / "stage_table.json").write_text(json.dumps(record, indent=1) + "\n")
    plot(rows, results / "stage_table.png")


if __name__ == "__main__":
    main()
