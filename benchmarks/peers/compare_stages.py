#!/usr/bin/env python3
"""Times ZeRO stages, recompute and offload on two ranks, alternately, and prints median ratios and peak memory.

    .deps/peer/bin/pip install torch deepspeed
    .deps/peer/bin/python benchmarks/peers/compare_stages.py stages [--dtypes bf16] [--layers N]
    .deps/peer/bin/python benchmarks/peers/compare_stages.py deepspeed
    python3 benchmarks/peers/compare_stages.py recompute     # needs neither PyTorch nor DeepSpeed
    python3 benchmarks/peers/compare_stages.py offload --nvme_path FOLDER
    .deps/peer/bin/python benchmarks/peers/compare_stages.py deepspeed_offload

stages      our stages 1, 2, 3 against our stage 0: the stage's throughput over stage 0's
deepspeed   our stages 0 to 3 against DeepSpeed's (CPU accelerator, gloo): DeepSpeed's time over ours
recompute   recompute of every block, and selective, against none: the step's time over that without
offload     state in the host's memory and on disk against none of it: the throughput with offload over that without
deepspeed_offload   our stage 3 with offload to the host's memory against DeepSpeed's: DeepSpeed's time over ours

The programs of a comparison exist at the same time and alternate, as in compare_steps.py: a ratio compares
two blocks of one round, and the median of at least five rounds is printed. Results go to
benchmarks/results/<suite>.json, one row per comparison; rows of earlier runs on the same kind of machine
are kept.
"""
import argparse
import json
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from contenders import ROOT, VOCABULARY, Dstrain, deepspeed_contender, processor
from contenders import take_turns, torch_environment


def zero(stage, **more):
    return {"zero_optimization": {"stage": stage, **more}}


# No parameters stay gathered: stage 3 then saves the most memory and costs the most time.
LEAN = {"stage3_max_reuse_distance": 0, "stage3_param_persistence_threshold": 0}


CPU = {"device": "cpu"}
OPTIMIZER = {"offload_optimizer": CPU}
ALL = {**OPTIMIZER, "offload_param": CPU}


def offloads(path):
    """Returns the comparisons of the suite `offload`. Offloaded parameters are gathered for each use."""
    table = {
        "optimizer in host memory over none": (zero(3, **OPTIMIZER), zero(3)),
        "half of the optimizer over none": (zero(3, offload_optimizer={**CPU, "ratio": 0.5}), zero(3)),
        "all in host memory over none": (zero(3, **LEAN, **ALL), zero(3, **LEAN)),
    }
    if path:
        nvme = {"device": "nvme", "nvme_path": path}
        table["optimizer on disk over none"] = (zero(3, offload_optimizer=nvme), zero(3))
        table["optimizer on disk over host memory"] = (
            zero(3, offload_optimizer=nvme), zero(3, **OPTIMIZER),
        )  # fmt: skip
    return table


def comparisons(suite, path):
    """Returns name -> (settings of the subject, settings of the reference or None for DeepSpeed's stage). `path`: a
    folder on the drive to offload to, or None."""
    if suite == "offload":
        return offloads(path)
    if suite == "deepspeed_offload":
        return {
            "optimizer in host memory against DeepSpeed's": (zero(3, **OPTIMIZER), None),
            "all in host memory against DeepSpeed's": (zero(3, **LEAN, **ALL), None),
        }
    if suite == "stages":
        table = {f"stage {s} over 0": (zero(s), zero(0)) for s in (1, 2, 3)}
        table["stage 3, nothing kept, over 0"] = (zero(3, **LEAN), zero(0))
        return table
    if suite == "deepspeed":
        return {f"stage {s} against DeepSpeed's": (zero(s), None) for s in (0, 1, 2, 3)}
    return {
        f"recompute {kind} over none": ({"dstrain": {"recompute": kind}}, {})
        for kind in (1, "selective")
    }


def run(name, subject, reference, dtype, options, folder):
    model = {
        "type": "gptlite", "n_layer": options.layers, "block_size": options.seq,
        "dropout": options.dropout, "vocab_size": VOCABULARY,
    }  # fmt: skip
    batch, ranks = options.batch, options.ranks
    contenders = []
    try:
        ours = Dstrain(options.program, model, batch, dtype, folder / "subject", ranks, subject)
        contenders.append(ours)
        if reference is None:
            other = deepspeed_contender(
                options.python, model, batch, dtype, subject["zero_optimization"], ranks,
                torch_environment(options.python, folder),
            )  # fmt: skip
        else:
            other = Dstrain(
                options.program, model, batch, dtype, folder / "reference", ranks, reference
            )
        contenders.append(other)
        mine, theirs, ratios = take_turns(ours, other, options.rounds, options.steps)
        tokens = batch * ranks * options.seq
        row = {
            "case": f"{name}, {dtype}", "layers": options.layers, "seq": options.seq,
            "dropout": options.dropout, "batch": batch, "ranks": ranks,
            "speed": statistics.median(ratios), "speeds": ratios,
            "tokens_per_s": 1e3 * tokens / statistics.median(mine),
            "reference_tokens_per_s": 1e3 * tokens / statistics.median(theirs),
            "planned_bytes": ours.newest["peak_bytes"],
            "peak_rss_bytes": max(ours.peak_rss()),
            "reference_peak_rss_bytes": max(other.peak_rss()),
        }  # fmt: skip
        if reference is None:
            row["deepspeed"] = other.version
        return row
    finally:
        for contender in contenders:
            contender.close()


def setting(row):
    """Returns the fields that identify a row in its file."""
    return row["case"], row["seq"], row.get("dropout", 0.0)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("suite", choices=["stages", "deepspeed", "recompute", "offload", "deepspeed_offload"])
    p.add_argument("--nvme_path", help="offload: a folder on the drive; without it nothing is measured on disk")
    p.add_argument("--dtypes", default="fp32,bf16")
    p.add_argument("--cases", default="", help="run only the cases whose name matches this regular expression")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=2, help="steps per block")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--layers", type=int, default=12)
    p.add_argument("--seq", type=int, default=256)
    p.add_argument("--batch", type=int, default=4, help="samples per rank")
    p.add_argument("--dropout", type=float, default=0.0)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    p.add_argument("--python", default=sys.executable, help="Python interpreter with DeepSpeed installed")
    options = p.parse_args()
    if options.rounds < 5:
        p.error("--rounds must be at least 5: the median of fewer ratios says little")
    path = ROOT / f"benchmarks/results/{options.suite}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    old = json.loads(path.read_text()) if path.exists() else {}
    rows = old.get("results", []) if old.get("processor") == processor() else []
    version = subprocess.run([options.program, "--version"], capture_output=True, text=True)
    print(f"{'case':48} {'speed':>7}   lowest-highest   tokens/s   reference   GB (peak RSS of a rank)")
    for dtype in options.dtypes.split(","):
        for name, (subject, reference) in comparisons(options.suite, options.nvme_path).items():
            if not re.search(options.cases, name):
                continue
            folder = pathlib.Path(tempfile.mkdtemp(prefix="dstrain-stages-"))
            try:
                row = run(name, subject, reference, dtype, options, folder)
            finally:
                shutil.rmtree(folder)
            rows = [r for r in rows if setting(r) != setting(row)] + [row]
            print(
                f"{row['case']:48} {row['speed']:6.2f}x   {min(row['speeds']):.2f}-"
                f"{max(row['speeds']):.2f}   {row['tokens_per_s']:11.0f} "
                f"{row['reference_tokens_per_s']:11.0f}   {row['peak_rss_bytes'] / 1e9:.2f} against "
                f"{row['reference_peak_rss_bytes'] / 1e9:.2f}",
                flush=True,
            )
            record = {
                "dstrain": version.stdout.strip(),
                "processor": processor(),
                "results": rows,
            }
            path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
