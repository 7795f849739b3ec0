#!/usr/bin/env python3
"""Measures what `overlap_comm` gains: two ranks on two hosts with a slow link between them, with and without it.

    sudo python3 benchmarks/overlap/slow_link.py [--stages 0 2 3] [--mbit 200] [--rounds 5] [--threads 2]

The hosts are two network namespaces of this machine (two_hosts.py); their link is limited to --mbit million bits per
second in each direction.

The runs with and without overlap alternate. A round is one run of each; a run's time is the median of its steps.
Prints the median over rounds of the ratio, and the seconds per step that rank 0 waits for communication (from
dstrain.trace). Fails unless the losses are equal. Writes benchmarks/results/overlap.json.
"""
import argparse
import contextlib
import json
import pathlib
import shlex
import statistics
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks/peers"))
from contenders import processor  # noqa: E402
from two_hosts import Hosts, train, write_inputs  # noqa: E402


def settings(stage, overlap, options, trace):
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": 1,
        "bf16.enabled": options.dtype == "bf16",
        "zero_optimization.stage": stage,
        "zero_optimization.overlap_comm": overlap,
        "zero_optimization.stage3_max_reuse_distance": 0,
        "zero_optimization.stage3_param_persistence_threshold": 0,
        "dstrain.model.n_layer": options.layers,
        "dstrain.model.n_embd": options.width,
        "dstrain.model.n_head": options.width // 64,
        "dstrain.model.block_size": options.seq,
        "dstrain.trace": trace,
        "dstrain.steps": options.steps,
    }


def run(hosts, stage, overlap, options, folder):
    """Runs once. Returns the losses, the median seconds per step, and how many of them rank 0 waits for
    communication."""
    trace = folder / "trace.json"
    steps = train(hosts, options, settings(stage, overlap, options, trace), folder)
    exposed = [
        e["args"]["exposed_comm_ms"] / 1e3
        for e in json.loads(trace.read_text())["traceEvents"]
        if e["ph"] == "X" and e["pid"] == 0 and e["name"].startswith("step ")
    ]
    return {
        "losses": [s["loss"] for s in steps],
        "step_s": statistics.median(s["step_ms"] for s in steps[1:]) / 1e3,
        "exposed_s": statistics.median(exposed[1:]),
        "comm_bytes": steps[-1]["comm_bytes"],
    }


def compare(hosts, stage, options, folder):
    runs = {True: [], False: []}
    for _ in range(options.rounds):
        for overlap in (True, False):
            runs[overlap].append(run(hosts, stage, overlap, options, folder))
    if any(r["losses"] != runs[True][0]["losses"] for both in runs.values() for r in both):
        sys.exit(f"stage {stage}: the losses differ")
    ratios = [without["step_s"] / w["step_s"] for w, without in zip(runs[True], runs[False])]
    row = {
        "stage": stage, "speedup": statistics.median(ratios), "speedups": ratios,
        "comm_bytes": runs[True][0]["comm_bytes"],
    }  # fmt: skip
    for overlap, name in ((True, "overlap"), (False, "no_overlap")):
        for what in ("step_s", "exposed_s"):
            row[f"{name}_{what}"] = statistics.median(r[what] for r in runs[overlap])
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--stages", type=int, nargs="+", default=[0, 2, 3])
    p.add_argument("--mbit", type=int, default=200, help="rate of the link in either direction")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--threads", type=int, default=2, help="threads per rank")
    p.add_argument("--dtype", choices=("bf16", "fp32"), default="bf16")
    p.add_argument("--layers", type=int, default=16)
    p.add_argument("--width", type=int, default=192)
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    o = p.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write_inputs(folder)
        with contextlib.closing(Hosts(o.mbit, folder)) as hosts:
            print("stage  speed-up (lowest-highest)  step with, without  exposed with, without (s)")
            for stage in o.stages:
                row = compare(hosts, stage, o, folder)
                rows.append(row)
                print(
                    f"{stage:5} {row['speedup']:9.2f} ({min(row['speedups']):.2f}-"
                    f"{max(row['speedups']):.2f}) {row['overlap_step_s']:17.3f}"
                    f" {row['no_overlap_step_s']:7.3f} {row['overlap_exposed_s']:13.3f}"
                    f" {row['no_overlap_exposed_s']:7.3f}",
                    flush=True,
                )
    options = {k: v for k, v in vars(o).items() if k not in ("program", "stages")}
    path = ROOT / "benchmarks/results/overlap.json"
    command = shlex.join(["python3", "benchmarks/overlap/slow_link.py", *sys.argv[1:]])
    result = {"command": command, "processor": processor(), "options": options, "results": rows}
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
