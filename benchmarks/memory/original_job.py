#!/usr/bin/env python3
"""Measures the peak memory of a rank on the job of configs/ds_config.json (GPT-lite of 86.7 M parameters, fp32,
T=2048, micro-batch 1) at each ZeRO stage: by the plan for 8 ranks, by the plan for --ranks ranks, and by a run
with --ranks ranks.

    python3 benchmarks/memory/original_job.py [--ranks 4]

The original job's figures for DeepSpeed on 8 GPUs, maximum memory of a rank: DDP 10.16, ZeRO-1 9.61,
ZeRO-2 9.33, ZeRO-3 9.37 GB.
Writes benchmarks/results/original_job.json.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks/peers"))
from contenders import processor  # noqa: E402

PUBLISHED_GB = {0: 10.16, 1: 9.61, 2: 9.33, 3: 9.37}
CASES = [(0, "none"), (1, "none"), (2, "none"), (3, "none"), (3, 1)]


def words(stage, recompute, ranks):
    settings = {
        "train_batch_size": ranks,
        "zero_optimization.stage": stage,
        "zero_optimization.stage3_max_reuse_distance": 0,
        "zero_optimization.stage3_param_persistence_threshold": 0,
        "dstrain.recompute": recompute,
    }
    list_of_words = ["--config", str(ROOT / "configs/ds_config.json"), "--num_gpus", str(ranks)]
    for key, value in settings.items():
        list_of_words += ["--set", f"{key}={value}"]
    return list_of_words


def plan(program, stage, recompute, ranks):
    done = subprocess.run(
        [program, "plan", "--json", *words(stage, recompute, ranks)], capture_output=True, text=True
    )
    if done.returncode != 0:
        sys.exit(done.stderr)
    return json.loads(done.stdout)["memory"]


def proportional_bytes(session):
    """Returns the proportional set sizes of the processes that train, largest first."""
    sizes = []
    for entry in pathlib.Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(fields[3]) != session or not (entry / "comm").read_text().startswith("dstrain"):
                continue
            rollup = (entry / "smaps_rollup").read_text()
        except (OSError, ValueError, IndexError):
            continue  # not a process, or one that has ended
        sizes.append(int(re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE).group(1)) * 1024)
    return sorted(sizes, reverse=True)


def measure(program, stage, recompute, ranks):
    """Returns the peak proportional set size of the largest rank while two steps run."""
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder) / "input.txt"
        # 65 different characters, and enough of them for all samples
        text.write_text("".join(chr(48 + (i * i + i // 7) % 65) for i in range(200000)))
        command = [program, "--device", "cpu", *words(stage, recompute, ranks), "--steps", "2"]
        command += ["--data", str(text), "--overwrite", "--output", f"{folder}/out", "--set", "dstrain.save_last=false"]
        run = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        peak = 0
        while run.poll() is None:
            peak = max([peak, *proportional_bytes(run.pid)[:1]])
            time.sleep(0.2)
        if run.returncode != 0:
            sys.exit(run.stderr.read())
    return peak


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--ranks", type=int, default=4)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    o = p.parse_args()
    rows = []
    print(f"GB a rank       plan, 8 ranks   plan, {o.ranks} ranks   measured, {o.ranks} ranks   DeepSpeed, 8 GPUs")
    for stage, recompute in CASES:
        row = {
            "stage": stage, "recompute": recompute, "ranks": o.ranks,
            "plan_8_bytes": plan(o.program, stage, recompute, 8)["total"],
            "plan_bytes": plan(o.program, stage, recompute, o.ranks)["total"],
            "process_bytes": measure(o.program, stage, recompute, o.ranks),
            "deepspeed_8_gpus_gb": PUBLISHED_GB[stage],
        }  # fmt: skip
        rows.append(row)
        name = f"ZeRO-{stage}" + (", recompute" if recompute != "none" else "")
        print(
            f"{name:18} {row['plan_8_bytes'] / 1e9:10.3f} {row['plan_bytes'] / 1e9:15.3f} "
            f"{row['process_bytes'] / 1e9:19.3f} {PUBLISHED_GB[stage]:19.2f}",
            flush=True,
        )
    path = ROOT / "benchmarks/results/original_job.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"processor": processor(), "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
