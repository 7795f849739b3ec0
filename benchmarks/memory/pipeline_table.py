#!/usr/bin/env python3
"""The memory of a rank with 1, 2, 4 and 8 pipeline stages, on GPT-lite as configs/ds_config.json has it (86.7 M
parameters, fp32, T=2048) and on configs/benchmark_deep.json (2048 layers): by the plans of all stages, and for 1, 2 and
4 stages by the largest processes of a run. One sample per micro-batch, 8 micro-batches, 1F1B.

    python3 benchmarks/memory/pipeline_table.py [--ranks 4] [--seconds 40]

A rank reserves and touches its memory before the first step, so a run is ended after --seconds.
Writes benchmarks/results/pipeline_table.json and pipeline_table.svg.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

from original_job import ROOT, proportional_bytes

sys.path.append(str(ROOT / "benchmarks/peers"))
from contenders import processor  # noqa: E402

MODELS = {"GPT-lite": "ds_config.json", "deep benchmark": "benchmark_deep.json"}
STAGES = [1, 2, 4, 8]
MICRO_BATCHES = 8


def words(config, stages, partition):
    settings = {
        "train_batch_size": MICRO_BATCHES,
        "train_micro_batch_size_per_gpu": 1,
        "pipeline.partition": partition,
    }
    list_of_words = ["--config", str(ROOT / "configs" / config), "--device", "cpu", "--num_gpus", str(stages)]
    list_of_words += ["--pipeline_num_stages", str(stages)]
    for key, value in settings.items():
        list_of_words += ["--set", f"{key}={value}"]
    return list_of_words


def plan(program, config, stages, partition):
    """Returns the planned bytes of a rank of each stage."""
    peaks = []
    for rank in range(stages):
        command = [program, "plan", "--json", "--rank", str(rank), *words(config, stages, partition)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)
        peaks.append(json.loads(done.stdout)["memory"]["total"])
    return peaks


def measure(program, config, stages, partition, seconds):
    """Returns the peaks of the ranks' proportional set sizes, largest first."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "input.txt"
        text.write_text("".join(chr(48 + (i * i + i // 7) % 65) for i in range(200000)))
        command = [program, *words(config, stages, partition), "--steps", "1000", "--overwrite", "--output", f"{folder}/out"]
        command += ["--set", "dstrain.save_last=false"]
        if config == "ds_config.json":
            command += ["--data", str(text)]
        run = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        peaks = [0] * stages
        end = time.monotonic() + seconds
        while run.poll() is None and time.monotonic() < end:
            sizes = (proportional_bytes(run.pid) + peaks)[:stages]
            peaks = [max(pair) for pair in zip(peaks, sizes)]
            time.sleep(0.5)
        if run.poll() is not None:
            sys.exit(run.stderr.read())
        os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        while proportional_bytes(run.pid):  # ranks of mpirun end with it
            time.sleep(0.2)
    return peaks


def bars(rows):
    """Returns a picture: for each model and number of stages the largest plan, and the largest process."""
    width, height, left, bottom = 760, 300, 60, 40
    most = max(max(max(r["plan_bytes"]), max(r["process_bytes"] or [0])) for r in rows)
    slot = (width - left) / len(rows)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height + bottom + 30}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height + bottom + 30}" fill="#ffffff"/>',
        '<text x="60" y="16">GB of the largest rank: plan (dark), process in a run (light)</text>',
    ]
    for tenth in range(0, 5):
        y = 30 + (height - 30) * (1 - tenth / 4)
        parts.append(f'<line x1="{left}" y1="{y:.1f}" x2="{width}" y2="{y:.1f}" stroke="#dddddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{most * tenth / 4e9:.2f}</text>')
    for i, row in enumerate(rows):
        x = left + i * slot
        for bar, (bytes_, color) in enumerate(
            [(max(row["plan_bytes"]), "#1f5fa8"), (max(row["process_bytes"] or [0]), "#9cc3ea")]
        ):
            tall = (height - 30) * bytes_ / most
            parts.append(
                f'<rect x="{x + slot * (0.15 + 0.35 * bar):.1f}" y="{height - tall:.1f}" '
                f'width="{slot * 0.32:.1f}" height="{tall:.1f}" fill="{color}"/>'
            )
        parts.append(f'<text x="{x + slot / 2:.1f}" y="{height + 18}" text-anchor="middle">{row["stages"]}</text>')
    for model in MODELS:
        places = [i for i, row in enumerate(rows) if row["model"] == model]
        x = left + slot * (sum(places) / len(places) + 0.5)
        parts.append(f'<text x="{x:.1f}" y="{height + 38}" text-anchor="middle">{model}, stages</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--ranks", type=int, default=4, help="the most ranks of a run")
    p.add_argument("--seconds", type=float, default=40)
    p.add_argument("--partition", default="memory")
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    o = p.parse_args()
    rows = []
    print(f"{'model':15} stages   {'plan, GB of each stage':60} largest/mean   processes, GB")
    for model, config in MODELS.items():
        for stages in STAGES:
            peaks = plan(o.program, config, stages, o.partition)
            runs = stages <= o.ranks
            processes = measure(o.program, config, stages, o.partition, o.seconds) if runs else None
            rows.append({"model": model, "stages": stages, "plan_bytes": peaks, "process_bytes": processes})
            each = " ".join(f"{b / 1e9:.3f}" for b in peaks)
            measured = " ".join(f"{b / 1e9:.3f}" for b in processes) if runs else "-"
            ratio = max(peaks) * stages / sum(peaks)
            print(f"{model:15} {stages:6}   {each:60} {ratio:12.3f}   {measured}", flush=True)
    results = ROOT / "benchmarks/results"
    report = {"processor": processor(), "partition": o.partition, "micro_batches": MICRO_BATCHES, "results": rows}
    (results / "pipeline_table.json").write_text(json.dumps(report, indent=1) + "\n")
    (results / "pipeline_table.svg").write_text(bars(rows))


if __name__ == "__main__":
    main()
