#!/usr/bin/env python3
"""Where the time of a step goes: by kind of operation ours, its floor on this machine, and PyTorch's.

    .deps/peer/bin/python benchmarks/peers/step_operations.py [--dtypes bf16,fp32] [--rounds N] [--steps N]

GPT-lite at T=256 with 8 samples and at T=2048 with one, dropout 0. A round runs step_profile, which measures the floors
too, and then PyTorch's step under its profiler (self CPU time on the main thread); the table has medians of rounds.
Writes benchmarks/results/steps/operations.json.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

from contenders import ROOT, VOCABULARY, processor

# Kind -> our operations, and PyTorch's. What neither names is "the rest": elementwise operations, embeddings, losses,
# and PyTorch's copies between dtypes.
KINDS = {
    "matrix products": (
        ("linear", "linear_input_grad", "linear_weight_grad", "pack_weight"),
        ("aten::mm", "aten::addmm", "aten::bmm", "aten::mkldnn_linear", "mkldnn::_linear_pointwise"),
    ),
    "attention forward": (("attention",), ("aten::_scaled_dot_product_flash_attention_for_cpu",)),
    "attention backward": (
        ("attention_grad",), ("aten::_scaled_dot_product_flash_attention_for_cpu_backward",)
    ),
    "norms": (
        ("layer_norm", "layer_norm_input_grad", "layer_norm_weight_grad"),
        ("aten::native_layer_norm", "aten::native_layer_norm_backward"),
    ),
    "AdamW": (("adam",), ("aten::_fused_adamw_",)),
    "clipping and casts of weights and gradients": (
        ("sum_squares", "round_wire", "finish_gradients", "reduce_counts"),
        ("aten::_foreach_norm", "aten::_foreach_mul_", "aten::linalg_vector_norm"),
    ),
}  # fmt: skip
REST = "the rest"


def kind_of(name, side):
    return next((kind for kind, names in KINDS.items() if name in names[side]), REST)


def ours(o, dtype, seq, batch):
    """Returns the answer of step_profile, and by kind our milliseconds and the floor's."""
    command = [o.profiler, "--json", "--dropout", "0", "--seq", seq, "--batch", batch, "--steps", o.steps]
    command += ["--bf16"] if dtype == "bf16" else []
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    answer = json.loads(run.stdout)
    times, floors = {}, {}
    for name, op in answer["ops"].items():
        kind = kind_of(name, 0)
        times[kind] = times.get(kind, 0) + op["ms"]
        floors[kind] = floors.get(kind, 0) + op["floor_ms"]
    return answer, times, floors


def profile_torch(o):
    """Runs in a process of its own: prints PyTorch's milliseconds by kind and of the step."""
    import torch  # only here: our side needs no PyTorch
    from torch.profiler import ProfilerActivity, profile
    from torch_steps import parser, training_step

    words = ["--model", "gptlite", "--dtype", o.dtypes, "--batch", o.batch, "--block_size", o.seq]
    words += ["--vocab_size", VOCABULARY]
    step, _ = training_step(parser().parse_args([str(word) for word in words]))
    for _ in range(2):
        step()
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
        total = [step() for _ in range(o.steps)]
    times = {}
    for event in profiler.key_averages():
        kind = kind_of(event.key, 1)
        times[kind] = times.get(kind, 0) + event.self_cpu_time_total / 1e3 / o.steps
    print(json.dumps({"torch": torch.__version__, "step": statistics.median(total), "times": times}))


def theirs(o, dtype, seq, batch):
    command = [sys.executable, __file__, "--profile_torch", "--dtypes", dtype, "--seq", seq, "--batch", batch]
    command += ["--steps", o.steps]
    run = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def table(o, dtype, seq, batch):
    rounds = [(ours(o, dtype, seq, batch), theirs(o, dtype, seq, batch)) for _ in range(o.rounds)]

    def middle(value):
        return statistics.median(value(ours_, theirs_) for ours_, theirs_ in rounds)

    rows = {}
    for kind in [*KINDS, REST]:
        rows[kind] = {
            "dstrain_ms": middle(lambda a, b: a[1].get(kind, 0)),
            "floor_ms": middle(lambda a, b: a[2].get(kind, 0)),
            "torch_ms": middle(lambda a, b: b["times"].get(kind, 0)),
        }
    rows["step"] = {
        "dstrain_ms": middle(lambda a, b: a[0]["step_ms"]),
        "floor_ms": middle(lambda a, b: a[0]["floor_ms"]),
        "torch_ms": middle(lambda a, b: b["step"]),
    }
    rates = {rate: middle(lambda a, b: a[0][rate]) for rate in ("gflops_f32", "gflops_16_bit", "traffic_gb_s")}
    print(f"{dtype}, T={seq} x {batch}: " + ", ".join(f"{name} {value:.1f}" for name, value in rates.items()))
    print(f"  {'ms':44} {'dstrain':>9} {'floor':>9} {'PyTorch':>9}")
    for kind, row in rows.items():
        print(f"  {kind:44} {row['dstrain_ms']:9.1f} {row['floor_ms']:9.1f} {row['torch_ms']:9.1f}", flush=True)
    return {"case": f"{dtype}-T{seq}", "rates": rates, "rows": rows, "torch": rounds[0][1]["torch"]}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--dtypes", default="bf16,fp32")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--profiler", default=str(ROOT / "build/release/bin/step_profile"))
    p.add_argument("--result", default=str(ROOT / "benchmarks/results/steps/operations.json"))
    p.add_argument("--profile_torch", action="store_true", help=argparse.SUPPRESS)
    p.add_argument("--seq", type=int, help=argparse.SUPPRESS)
    p.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    o = p.parse_args()
    if o.profile_torch:
        return profile_torch(o)
    results = [
        table(o, dtype, seq, batch) for dtype in o.dtypes.split(",") for seq, batch in ((256, 8), (2048, 1))
    ]
    record = {"processor": processor(), "results": results}
    pathlib.Path(o.result).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
