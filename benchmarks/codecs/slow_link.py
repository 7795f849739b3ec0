#!/usr/bin/env python3
"""Measures what codecs gain where the link is slow: steps of two hosts, with a codec and without it.

    sudo python3 benchmarks/codecs/slow_link.py [--mbit 200 1000] [--rounds 5] [--only zeropp powersgd]

The hosts are two network namespaces of this machine (benchmarks/overlap/two_hosts.py) with one or two ranks each. The
runs with a codec and without it alternate; a round is one run of each, and a run's time is the median of the steps in
which the codec is at work. Prints the median over rounds of the ratio of these times, and the bytes that rank 0 sends
in a step. Writes benchmarks/results/codecs_slow_link.json.

fp16_compress is timed with one rank per host and with two. A sum over ranks is made in rank order, in f32, and rounded
once: what two ranks of a host contribute crosses the link as one f32 element or as two f16 elements, four bytes in
either case, and its result as two. So with two ranks an element is three bytes in either direction instead of four.
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
sys.path += [str(ROOT / "benchmarks/peers"), str(ROOT / "benchmarks/overlap")]
from contenders import processor  # noqa: E402
from two_hosts import Hosts, train, write_inputs  # noqa: E402

ZERO = "zero_optimization."
STAGE_3 = {
    "bf16.enabled": True, ZERO + "stage": 3, ZERO + "stage3_param_persistence_threshold": 0,
    ZERO + "stage3_max_reuse_distance": 0, ZERO + "overlap_comm": True,
}  # fmt: skip
ZEROPP = {
    ZERO + "zero_quantized_weights": True, ZERO + "zero_quantized_gradients": True,
    ZERO + "zero_hpz_partition_size": 2,
}  # fmt: skip
HOOK = "dstrain.comm_hook."
POWER = {HOOK + "type": "powerSGD", HOOK + "start_powerSGD_iter": 2, HOOK + "matrix_approximation_rank": 4}
FP16 = {HOOK + "type": "fp16_compress"}
ONEBIT = {"optimizer.type": "OneBitAdam", "optimizer.params.freeze_step": 2}
# Of each case: the settings without the codec, those that it adds, and the ranks of a host.
CASES = {
    "zeropp": (STAGE_3, ZEROPP, 2),
    "fp16_compress": ({}, FP16, 1),
    "fp16_compress_2": ({}, FP16, 2),
    "powersgd": ({}, POWER, 2),
    "onebit_adam": ({}, ONEBIT, 2),
}
FIRST_STEP = 4  # of those that are timed: all codecs are at work


def settings(case, with_codec, options):
    plain, codec, _ = CASES[case]
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": 1,
        "optimizer.type": "Adam",
        "dstrain.model.n_layer": options.layers,
        "dstrain.model.n_embd": options.width,
        "dstrain.model.n_head": options.width // 64,
        "dstrain.model.block_size": options.seq,
        "dstrain.steps": options.steps,
        **plain,
        **(codec if with_codec else {}),
    }


def run(hosts, case, with_codec, options, folder):
    """Returns the median seconds and the bytes of a step."""
    lines = train(hosts, options, settings(case, with_codec, options), folder, CASES[case][2])
    steps = [line for line in lines if "step_ms" in line][FIRST_STEP - 1 :]
    return {
        "step_s": statistics.median(step["step_ms"] for step in steps) / 1e3,
        "comm_bytes": steps[-1]["comm_bytes"],
    }


def compare(hosts, case, options, folder):
    runs = {True: [], False: []}
    for _ in range(options.rounds):
        for with_codec in (True, False):
            runs[with_codec].append(run(hosts, case, with_codec, options, folder))
    ratios = [plain["step_s"] / codec["step_s"] for codec, plain in zip(runs[True], runs[False])]
    row = {"codec": case, "ranks_per_host": CASES[case][2], "speedup": statistics.median(ratios), "speedups": ratios}
    for with_codec, name in ((True, "codec"), (False, "plain")):
        row[name + "_step_s"] = statistics.median(r["step_s"] for r in runs[with_codec])
        row[name + "_bytes"] = runs[with_codec][0]["comm_bytes"]
    return row


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--mbit", type=int, nargs="+", default=[200, 1000], help="rates of the link in either direction")
    p.add_argument("--only", nargs="+", choices=list(CASES), default=list(CASES))
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--threads", type=int, default=1, help="threads per rank")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--width", type=int, default=256)
    p.add_argument("--seq", type=int, default=64)
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/dstrain"))
    o = p.parse_args()
    rows = []
    for mbit in o.mbit:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            write_inputs(folder)
            with contextlib.closing(Hosts(mbit, folder)) as hosts:
                print(f"{mbit} Mbit/s")
                print("codec            speed-up (lowest-highest)  step with, without (s)  MB with, without")
                for case in o.only:
                    row = {"mbit": mbit, **compare(hosts, case, o, folder)}
                    rows.append(row)
                    print(
                        f"{case:16} {row['speedup']:8.2f} ({min(row['speedups']):.2f}-{max(row['speedups']):.2f})"
                        f" {row['codec_step_s']:16.3f} {row['plain_step_s']:8.3f}"
                        f" {row['codec_bytes'] / 1e6:12.2f} {row['plain_bytes'] / 1e6:8.2f}",
                        flush=True,
                    )
    options = {k: v for k, v in vars(o).items() if k != "program"}
    command = shlex.join(["python3", "benchmarks/codecs/slow_link.py", *sys.argv[1:]])
    result = {"command": command, "processor": processor(), "options": options, "results": rows}
    path = ROOT / "benchmarks/results/codecs_slow_link.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
