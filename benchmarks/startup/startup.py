#!/usr/bin/env python3
"""Measures start-up: the time from the command to the first instruction, and the first step's time over that
of the later steps, on one rank and on several.

    python3 benchmarks/startup/startup.py [--models 2x64,1x768] [--ranks 1,2,4,8] [--repeats 9]

`--models` lists models as LAYERSxWIDTH: GPT-lite with T=256 in fp32. Times come from dstrain's own trace, which
uses the same clock as this script. The runs with different numbers of ranks alternate. Prints medians, the
ratio to the first number of ranks, and as a lower bound the time that the operating system needs to give as
many processes a rank's memory. Writes benchmarks/results/startup.json.
"""
import argparse
import json
import mmap
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks/peers"))
from contenders import VOCABULARY, processor  # noqa: E402


def start(program, model, ranks, folder):
    """Returns the seconds to rank 0's first instruction, the first step's time over the median of the other
    steps, and the bytes that the plan gives a rank."""
    layers, width = map(int, model.split("x"))
    trace = folder / "trace.json"
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,
        "dstrain": {
            "model": {
                "type": "gptlite", "n_layer": layers, "n_embd": width, "n_head": max(1, width // 64),
                "block_size": 256, "dropout": 0.0, "vocab_size": VOCABULARY,
            },
            "data": {"path": str(folder / "tokens.bin"), "format": "bin"},
            "steps": 5,
            "save_last": False,
            "trace": str(trace),
        },
    }  # fmt: skip
    (folder / "tokens.bin").write_bytes(bytes(x for i in range(50000) for x in (i % VOCABULARY, 0)))
    (folder / "config.json").write_text(json.dumps(config))
    command = [program, "--num_gpus", str(ranks), "--device", "cpu"]
    command += ["--config", folder / "config.json", "--overwrite", "--output", folder / "out"]
    before = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    events = json.loads(trace.read_text())["traceEvents"]
    steps = [e for e in events if e["ph"] == "X" and e["tid"] == 0 and e["pid"] == 0]
    others = statistics.median(e["dur"] for e in steps[1:])
    last = (folder / "out/metrics.jsonl").read_text().splitlines()[-1]
    return steps[0]["ts"] / 1e6 - before, steps[0]["dur"] / others, json.loads(last)["peak_bytes"]


def make_present(ranks, size):
    """Returns the seconds until `n` processes have touched `size` bytes of shared memory each, as ranks do."""
    before = time.monotonic()
    children = []
    for _ in range(ranks):
        child = os.fork()
        if child == 0:
            mmap.mmap(-1, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    return time.monotonic() - before


def measure(program, model, sizes, repeats):
    """Prints and returns one row for each number of ranks."""
    times = {n: [] for n in sizes}
    firsts = {n: [] for n in sizes}
    memories = {n: [] for n in sizes}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            for n in sizes:
                seconds, first, size = start(program, model, n, pathlib.Path(folder))
                times[n].append(seconds)
                firsts[n].append(first)
                memories[n].append(make_present(n, size))
    rows = []
    print(f"\n{model}, {size / 1e6:.0f} MB on each of {n} ranks")
    print("ranks   first instruction s   memory alone s   over the first size   first step / median")
    for n in sizes:
        row = {
            "model": model, "ranks": n,
            "first_instruction_s": statistics.median(times[n]),
            "memory_alone_s": statistics.median(memories[n]),
            "all_s": times[n],
            "over_first_size": statistics.median(a / b for a, b in zip(times[n], times[sizes[0]])),
            "first_step_over_median": statistics.median(firsts[n]),
        }  # fmt: skip
        rows.append(row)
        print(
            f"{n:5} {row['first_instruction_s']:21.3f} {row['memory_alone_s']:16.3f} "
            f"{row['over_first_size']:21.2f} {row['first_step_over_median']:21.2f}"
        )
    return rows


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--models", default="2x64,1x768")
    p.add_argument("--ranks", default="1,2,4,8")
    p.add_argument("--repeats", type=int, default=9)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    o = p.parse_args()
    sizes = [int(n) for n in o.ranks.split(",")]
    rows = []
    for model in o.models.split(","):
        rows += measure(o.program, model, sizes, o.repeats)
    path = ROOT / "benchmarks/results/startup.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"processor": processor(), "cores": os.cpu_count(), "results": rows}
    path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
