#!/usr/bin/env python3
"""Times pipelines of two stages with a core each, alternately with a reference, and prints median ratios.

    python3 benchmarks/peers/compare_pipelines.py model       # needs neither PyTorch nor DeepSpeed
    python3 benchmarks/peers/compare_pipelines.py schedules
    .deps/peer/bin/python benchmarks/peers/compare_pipelines.py torch
    .deps/peer/bin/python benchmarks/peers/compare_pipelines.py deepspeed

model      a step of 1F1B over the bubble model: the time of the same step on one rank with one core, divided by the
           stages and multiplied by (M + S - 1) / M for M micro-batches and S stages
schedules  the time of 1F1B over a zero-bubble schedule's, beside the ratio that the plan predicts
torch      PyTorch's time (torch.distributed.pipelining, gloo, the same schedule) over ours
deepspeed  the time of DeepSpeed's PipelineModule (CPU accelerator, gloo) over that of our 1F1B, its only schedule

GPT-lite of 8 layers. The programs of a comparison exist at the same time and alternate, as in compare_steps.py. Rows go
to benchmarks/results/pipelines.json; rows of other suites from the same kind of machine are kept.
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

from contenders import ROOT, VOCABULARY, Asked, Dstrain, processor
from contenders import free_port, take_turns, torch_environment, words_of

STAGES = 2


def model_of(options):
    return {
        "type": "gptlite", "n_layer": 8, "n_embd": options.width, "n_head": options.width // 64,
        "block_size": options.seq, "dropout": options.dropout, "vocab_size": VOCABULARY,
    }  # fmt: skip


def settings(schedule, micro_batches):
    pipeline = {"stages": STAGES, "schedule": schedule, "partition": "time"} if schedule else {}
    return {"gradient_accumulation_steps": micro_batches, "pipeline": pipeline}


def predicted_step(options, dtype, schedule):
    """Returns the length of a step by the plan's picture, in its own unit."""
    words = ["--config", str(options.config_of[dtype]), "--num_gpus", str(STAGES), "--device", "cpu"]
    words += ["--pipeline_schedule", schedule, "--timeline", "--rank", "0"]
    done = subprocess.run([options.program, "plan", *words], capture_output=True, text=True)
    found = re.search(r"bubble ([\d.]+) ?%", done.stdout)
    if done.returncode != 0 or not found:
        sys.exit(f"no bubble in the plan:\n{done.stderr}{done.stdout[-500:]}")
    return 1 / (1 - float(found.group(1)) / 100)


def peer_stages(options, dtype, script, more):
    """Starts one process of a peer per stage, each on its own core, as torchrun or DeepSpeed's launcher would."""
    command = [options.python, str(ROOT / "benchmarks/peers" / script)]
    words = {**model_of(options), "model": "gptlite", "batch": options.batch, "dtype": dtype, "threads": 1}
    words |= {"micro_batches": options.micro_batches, **more}
    del words["type"]
    port = free_port()
    each = [
        {
            "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(STAGES), "LOCAL_SIZE": str(STAGES),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": "1", **options.environment,
        }
        for rank in range(STAGES)
    ]  # fmt: skip
    return Asked(command + words_of(words), each)


def ours(options, dtype, folder, schedule):
    ranks = STAGES if schedule else 1
    return Dstrain(
        options.program, model_of(options), options.batch, dtype, folder, ranks,
        settings(schedule, options.micro_batches),
    )  # fmt: skip


def compare(name, dtype, options, folder, make_subject, make_reference):
    """Returns the reference's time over the subject's, for each round."""
    contenders = []
    try:
        for make in (make_subject, make_reference):
            contenders.append(make(folder / str(len(contenders))))
        return take_turns(*contenders, options.rounds, options.steps)[2]
    finally:
        for contender in contenders:
            contender.close()


def run_model(options, dtype, folder):
    schedule = "1f1b"
    ratios = compare(
        "model", dtype, options, folder,
        lambda f: ours(options, dtype, f, schedule), lambda f: ours(options, dtype, f, None),
    )  # fmt: skip
    m = options.micro_batches
    ideal = (m + STAGES - 1) / m / STAGES
    yield f"{schedule} over the bubble model", [1 / (r * ideal) for r in ratios], {}


def run_schedules(options, dtype, folder):
    for schedule in ("zb-h1", "zb-v"):
        place = folder / schedule
        place.mkdir()
        ratios = compare(
            schedule, dtype, options, place,
            lambda f: ours(options, dtype, f, schedule), lambda f: ours(options, dtype, f, "1f1b"),
        )  # fmt: skip
        options.config_of = {dtype: place / "0" / "config.json"}
        predicted = predicted_step(options, dtype, "1f1b") / predicted_step(options, dtype, schedule)
        yield f"1f1b over {schedule}", ratios, {"predicted": predicted}


def run_torch(options, dtype, folder):
    for schedule in ("gpipe", "1f1b"):
        place = folder / schedule
        place.mkdir()
        ratios = compare(
            schedule, dtype, options, place,
            lambda f: ours(options, dtype, f, schedule),
            lambda f: peer_stages(options, dtype, "torch_pipeline_steps.py", {"schedule": schedule}),
        )  # fmt: skip
        yield f"PyTorch's {schedule} over ours", ratios, {}


def run_deepspeed(options, dtype, folder):
    ratios = compare(
        "1f1b", dtype, options, folder,
        lambda f: ours(options, dtype, f, "1f1b"),
        lambda f: peer_stages(options, dtype, "deepspeed_pipeline_steps.py", {}),
    )  # fmt: skip
    yield "DeepSpeed's PipelineModule over ours", ratios, {}


def main():
    suites = {"model": run_model, "schedules": run_schedules, "torch": run_torch, "deepspeed": run_deepspeed}
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("suite", choices=sorted(suites))
    p.add_argument("--dtypes", default="fp32,bf16")
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--steps", type=int, default=3, help="steps per block")
    p.add_argument("--micro_batches", type=int, default=8)
    p.add_argument("--batch", type=int, default=2, help="samples per micro-batch")
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--width", type=int, default=768)
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    p.add_argument("--python", default=sys.executable, help="Python interpreter with torch (deepspeed) installed")
    options = p.parse_args()
    if options.rounds < 5:
        p.error("--rounds must be at least 5: the median of fewer ratios says little")
    os.environ["OMP_NUM_THREADS"] = "1"
    path = ROOT / "benchmarks/results/pipelines.json"
    old = json.loads(path.read_text()) if path.exists() else {}
    rows = old.get("results", []) if old.get("processor") == processor() else []
    dropout = f", dropout {options.dropout:g}" if options.dropout else ""
    for dtype in options.dtypes.split(","):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="dstrain-pipelines-"))
        try:
            if options.suite in ("torch", "deepspeed"):
                options.environment = torch_environment(options.python, folder)
            for name, ratios, more in suites[options.suite](options, dtype, folder):
                row = {
                    "case": f"{name}, {dtype}{dropout}", "micro_batches": options.micro_batches,
                    "width": options.width, "seq": options.seq, "batch": options.batch,
                    "ratio": statistics.median(ratios), "ratios": ratios, **more,
                }  # fmt: skip
                rows = [r for r in rows if r["case"] != row["case"]] + [row]
                said = f"   predicted {more['predicted']:.3f}" if more else ""
                print(
                    f"{row['case']:36} {row['ratio']:6.3f}   {min(ratios):.3f}-{max(ratios):.3f}{said}",
                    flush=True,
                )
                record = {"processor": processor(), "results": rows}
                path.write_text(json.dumps(record, indent=1) + "\n")
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
