#!/usr/bin/env python3
"""Measures what codecs cost in quality: the validation loss of small runs with each codec against runs without it.

    python3 benchmarks/codecs/convergence.py [--seeds 1 2 3] [--steps 400] [--only zeropp powersgd_4] [--data text.txt]

The model is GPT-lite shrunk to 4 layers of 128, on 4 ranks of two pretended hosts. The text is the King James Bible,
if none is given. Each seed gives other weights and another order of samples; a codec's run and the run that it is
compared with have the same. Prints the final validation loss of each, the median over seeds of the relative
difference, and the median and the largest of the measured relative errors (`codec_error`). Writes
benchmarks/results/codecs_convergence.json and .svg, which shows the losses of the first seed; rows of other codecs
with the same steps and seeds are kept.
"""
import argparse
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks/peers"))
from contenders import processor  # noqa: E402

RANKS = 4
ZERO, HOOK = "zero_optimization.", "dstrain.comm_hook."
STAGE_3 = {"bf16.enabled": True, ZERO + "stage": 3, ZERO + "stage3_param_persistence_threshold": 0}


def local_sgd(alone, start, period):
    return {
        HOOK + "type": "post_localSGD", HOOK + "start_localSGD_iter": start, HOOK + "period": period,
        HOOK + "post_local_gradient_allreduce": not alone,
    }  # fmt: skip


def power_sgd(rank, start):
    return {HOOK + "type": "powerSGD", HOOK + "matrix_approximation_rank": rank, HOOK + "start_powerSGD_iter": start}


def zero_one_adam(most_steps):
    """Ranks synchronise at least every `most_steps` steps."""
    params = {
        "betas": [0.9, 0.97], "var_freeze_step": 150, "var_update_scaler": 64, "local_step_scaler": 100,
        "local_step_clipper": most_steps,
    }  # fmt: skip
    codec = {"optimizer.type": "ZeroOneAdam", **{"optimizer.params." + key: value for key, value in params.items()}}
    return {"optimizer.params.betas": params["betas"]}, codec


# What is compared with what: settings of the run without a codec, and those that add the codec.
CASES = {
    "zeropp": (
        STAGE_3,
        {
            ZERO + "zero_quantized_weights": True, ZERO + "zero_quantized_gradients": True,
            ZERO + "zero_hpz_partition_size": RANKS // 2,
        },
    ),
    "bf16_compress": ({}, {HOOK + "type": "bf16_compress"}),
    "powersgd_4": ({}, power_sgd(4, 300)),
    "powersgd_4_early": ({}, power_sgd(4, 200)),
    "powersgd_16": ({}, power_sgd(16, 100)),
    "local_sgd_hosts": ({}, local_sgd(False, 300, 4)),
    "local_sgd_hosts_early": ({}, local_sgd(False, 100, 4)),
    "local_sgd_ranks": ({}, local_sgd(True, 300, 4)),
    # The second moment is not corrected for its zeros at the beginning: it must have forgotten them when it is frozen.
    "onebit_adam": (
        {"optimizer.params.betas": [0.9, 0.97]}, {"optimizer.type": "OneBitAdam", "optimizer.params.freeze_step": 150},
    ),
    "onebit_lamb": (
        {"optimizer.type": "Lamb", "optimizer.params.betas": [0.9, 0.97], "optimizer.params.bias_correction": False},
        {"optimizer.type": "OneBitLamb", "optimizer.params.freeze_step": 150},
    ),
    "zero_one_adam": zero_one_adam(1),
    "zero_one_adam_local": zero_one_adam(4),
}  # fmt: skip
COLORS = {"without": "#1f5fa8", "with": "#d2691e"}


def text_of(value):
    return json.dumps(value) if isinstance(value, (bool, list)) else str(value)


def train(settings, seed, options, folder):
    """Returns the training losses by step, the final validation loss, and the codec errors of each class of tensors."""
    out = folder / "out"
    command = [options.program, f"--num_gpus={RANKS}", "--launcher", "openmpi", "--device", "cpu"]
    command += ["--config", str(folder / "c.json"), "--data", str(options.data), "--overwrite", "--output", str(out)]
    command += ["--steps", str(options.steps), "--set", "dstrain.save_last=false"]
    everything = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "optimizer.type": "Adam",
        "optimizer.params.lr": 0.001,
        "scheduler.type": "WarmupCosineLR",
        "scheduler.params.total_num_steps": options.steps,
        "scheduler.params.warmup_num_steps": 20,
        "scheduler.params.cos_min_ratio": 0.05,
        "dstrain.seed": seed,
        "dstrain.model.n_layer": 4,
        "dstrain.model.n_embd": 128,
        "dstrain.model.n_head": 4,
        "dstrain.model.block_size": 64,
        "dstrain.model.dropout": 0,
        "dstrain.eval_interval": options.steps,
        "dstrain.eval_samples": 256,
        **settings,
    }
    for key, value in everything.items():
        command += ["--set", f"{key}={text_of(value)}"]
    environment = dict(
        os.environ, DSTRAIN_COMM="hosts:2", OMP_NUM_THREADS="1",
        OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    )  # fmt: skip
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=3600)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}{done.stderr}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    errors = {}
    for line in lines:
        for tensors, error in line.get("codec_error", {}).items():
            errors.setdefault(tensors, []).append(error)
    losses = [line["loss"] for line in lines if "loss" in line]
    return losses, [x["val_loss"] for x in lines if "val_loss" in x][-1], errors


def picture(rows, steps):
    """Returns one small plot a codec: the training losses of the first seed, averaged over 10 steps."""
    width, height, left, columns = 250, 170, 36, 3
    lines = (len(rows) + columns - 1) // columns
    size = f'width="{columns * (width + left)}" height="{lines * (height + 40) + 20}"'
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="11">']
    parts.append(f'<rect {size} fill="#ffffff"/>')
    for i, row in enumerate(rows):
        x0, y0 = left + (i % columns) * (width + left), 30 + (i // columns) * (height + 40)
        curves = row["curves"]
        low, high = min(min(c) for c in curves.values()), max(max(c) for c in curves.values())
        parts.append(f'<text x="{x0}" y="{y0 - 8}">{row["codec"]}, {steps} steps, loss {low:.2f} to {high:.2f}</text>')
        parts.append(f'<rect x="{x0}" y="{y0}" width="{width}" height="{height}" fill="none" stroke="#dddddd"/>')
        for name, curve in curves.items():
            points = " ".join(
                f"{x0 + width * k / max(1, len(curve) - 1):.1f},{y0 + height * (high - v) / (high - low):.1f}"
                for k, v in enumerate(curve)
            )
            parts.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[name]}" stroke-width="1.2"/>')
    for name, color, x in (("without", COLORS["without"], 0), ("with the codec", COLORS["with"], 70)):
        parts.append(f'<text x="{left + x}" y="{lines * (height + 40) + 12}" fill="{color}">{name}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def compare(case, options, folder, known):
    """Returns the row of a codec. `known` keeps the runs without codecs, which several codecs are compared with."""
    plain, codec = CASES[case]
    row = {"codec": case, "with": [], "without": [], "curves": {}}
    errors = {}
    for seed in options.seeds:
        for name, settings in (("without", plain), ("with", {**plain, **codec})):
            run = (json.dumps(settings, sort_keys=True), seed)
            losses, validation, measured = known.get(run) or train(settings, seed, options, folder)
            if name == "without":
                known[run] = losses, validation, {}
            for tensors, values in measured.items():
                errors.setdefault(tensors, []).extend(values)
            row[name].append(validation)
            means = [round(statistics.mean(losses[k : k + 10]), 4) for k in range(0, len(losses) - 9, 10)]
            row["curves"].setdefault(name, means)
    row["codec_error"] = {
        tensors: {"median": statistics.median(values), "largest": max(values)} for tensors, values in errors.items()
    }
    row["difference"] = statistics.median(w / without - 1 for w, without in zip(row["with"], row["without"]))
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    p.add_argument("--steps", type=int, default=400)
    p.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    p.add_argument("--data", type=pathlib.Path)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    o = p.parse_args()
    rows, known = [], {}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "c.json").write_text("{}")
        if not o.data:
            o.data = folder / "bible.txt"
            with open(o.data, "w") as file:
                subprocess.run(["bible", "-f", "Gen1:1-Rev22:21"], stdout=file, check=True)
        print("codec            validation loss of each seed without, with   median   errors: median (largest)")
        for case in o.only:
            row = compare(case, o, folder, known)
            rows.append(row)
            each = "  ".join(f"{a:.4f} {b:.4f}" for a, b in zip(row["without"], row["with"]))
            errors = " ".join(f"{k} {v['median']:.3f} ({v['largest']:.3f})" for k, v in row["codec_error"].items())
            print(f"{case:15}  {each:48} {row['difference'] * 100:+8.2f} %  {errors}", flush=True)
    file = ROOT / "benchmarks/results/codecs_convergence.json"
    report = {"processor": processor(), "steps": o.steps, "seeds": o.seeds}
    before = json.loads(file.read_text()) if file.exists() else {}
    if all(before.get(key) == report[key] for key in ("steps", "seeds")):
        by_name = {row["codec"]: row for row in [*before["results"], *rows]}
        rows = [by_name[case] for case in CASES if case in by_name]
    report["results"] = rows
    file.write_text(json.dumps(report, indent=1) + "\n")
    file.with_suffix(".svg").write_text(picture(rows, o.steps))


if __name__ == "__main__":
    main()
