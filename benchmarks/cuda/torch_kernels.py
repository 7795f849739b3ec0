#!/usr/bin/env python3
"""Times PyTorch's kernels at the shapes of bench_cuda, for measure.py.

Reads lines from standard input, each the name of a case, and answers each with a line of JSON, {"us": ...}
or {"failed": why}. It writes {"ready": version, "cases": [...]} first. Times are taken as in bench_cuda: the
runs are in a CUDA graph and rotate through sets of operands that together are larger than the cache.
"""
import argparse
import json
import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

ROUNDS, ROUND_SECONDS = 15, 2e-3
SEQ = 1024
PARAMETERS = 124439808
BACKENDS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION,
            "math": SDPBackend.MATH}


class HostClock:
    """The host's clock, to try this program on a machine without a GPU. Its times are no measurement."""

    cache_bytes, device = 1 << 20, "cpu"

    def seconds(self, work):
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    def graph(self, work):
        return work


class CudaClock:
    device = "cuda"

    def __init__(self):
        self.cache_bytes = torch.cuda.get_device_properties(0).L2_cache_size

    def seconds(self, work):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        work()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e-3

    def graph(self, work):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        return graph.replay


def measure(clock, runs, graph=True):
    """Returns the microseconds of one run; `runs` are called in turn."""

    def once():
        for run in runs:
            run()

    if clock.device == "cuda":  # work to be captured must have run before, on another stream
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            once()
            once()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
    else:
        once()
    repeats = max(1, math.ceil(ROUND_SECONDS / max(clock.seconds(once), 1e-9)))

    def round_of_runs():
        for _ in range(repeats):
            once()

    work = clock.graph(round_of_runs) if graph else round_of_runs
    clock.seconds(work)
    seconds = [clock.seconds(work) for _ in range(ROUNDS)]
    return statistics.median(seconds) / repeats / len(runs) * 1e6


def sets_of(clock, make, bytes_of_one):
    """Calls `make` until the sets of operands together are larger than the cache, at least twice."""
    count = min(max(2, math.ceil(4 * clock.cache_bytes / bytes_of_one)), 64)
    return [make() for _ in range(count)]


def values(clock, *shape, dtype=torch.bfloat16, grad=False):
    return torch.randn(shape, device=clock.device, dtype=dtype).requires_grad_(grad)


def attention(clock, backend, batch, c, d, dropout, backward):
    heads = c // d

    def make():
        q, k, v = (values(clock, batch, SEQ, heads, d).transpose(1, 2).requires_grad_(backward)
                   for _ in range(3))
        return q, k, v, values(clock, batch, SEQ, heads, d).transpose(1, 2)

    def run(q, k, v, d_y):
        with sdpa_kernel(BACKENDS[backend]):
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
            if backward:
                torch.autograd.grad(y, (q, k, v), d_y)

    sets = sets_of(clock, make, 8 * batch * SEQ * c)
    return measure(clock, [lambda s=s: run(*s) for s in sets])


def compiled(how, function):
    return torch.compile(function, dynamic=False) if how == "compiled" else function


def layer_norm(clock, how, batch, c):
    norm = compiled(how, lambda x, w, b: F.layer_norm(x, (c,), w, b))

    def make():
        return (values(clock, batch * SEQ, c, grad=True), values(clock, c, grad=True),
                values(clock, c, grad=True), values(clock, batch * SEQ, c))

    def run(x, w, b, d_y):
        torch.autograd.grad(norm(x, w, b), (x, w, b), d_y)

    sets = sets_of(clock, make, 8 * batch * SEQ * c)
    return measure(clock, [lambda s=s: run(*s) for s in sets])


def cross_entropy(clock, how, batch, v):
    def eager(logits, targets):
        return F.cross_entropy(logits, targets)

    def widened(logits, targets):  # fused, so that nothing is written in f32
        return F.cross_entropy(logits.float(), targets)

    loss_of = compiled(how, widened if how == "compiled" else eager)

    def make():
        return (values(clock, batch * SEQ, v, grad=True),
                torch.randint(v, (batch * SEQ,), device=clock.device))

    def run(logits, targets):
        torch.autograd.grad(loss_of(logits, targets), logits)

    sets = sets_of(clock, make, 4 * batch * SEQ * v)
    return measure(clock, [lambda s=s: run(*s) for s in sets])


def adamw(clock, n):
    def make():
        p = values(clock, n, dtype=torch.float32, grad=True)
        p.grad = values(clock, n, dtype=torch.float32)
        return torch.optim.AdamW([p], lr=1e-4, weight_decay=0.1, fused=True)

    # The optimizer counts steps on the host, so it cannot be in a graph; it runs long enough without one.
    return measure(clock, [o.step for o in sets_of(clock, make, 16 * n)], graph=False)


def linear(clock, batch, k, n):
    def make():
        return values(clock, batch * SEQ, k), values(clock, n, k), values(clock, n)

    sets = sets_of(clock, make, 2 * (batch * SEQ * (k + n) + k * n))
    return measure(clock, [lambda s=s: F.linear(*s) for s in sets])


def cases():
    """Returns name -> a function of the clock. Batches are those of bench_cuda."""
    table = {}
    for c, d, batch in ((768, 64, 16), (1600, 64, 8), (768, 128, 16), (1536, 128, 8)):
        for backend in ("flash", "cudnn"):
            for dropout in (0.0, 0.1):
                at = f" C={c} D={d}" + (f" dropout {dropout}" if dropout else "")
                for what in ("forward", "forward+backward"):
                    table[f"sdpa {backend} {what}{at}"] = (
                        lambda clock, a=(backend, batch, c, d, dropout, "backward" in what):
                        attention(clock, *a))
    for c, batch in ((768, 16), (1600, 8)):
        for how in ("eager", "compiled"):
            table[f"layer_norm {how} forward+backward C={c}"] = (
                lambda clock, a=(how, batch, c): layer_norm(clock, *a))
    for v in (50257, 50304):
        for how in ("eager", "compiled"):
            table[f"cross_entropy {how} forward+backward V={v}"] = (
                lambda clock, a=(how, 16, v): cross_entropy(clock, *a))
    table["adamw fused"] = lambda clock: adamw(clock, PARAMETERS)
    for k, n, batch in ((768, 2304, 16), (768, 3072, 16), (3072, 768, 16), (768, 50257, 16),
                        (768, 50304, 16), (1600, 6400, 8)):
        table[f"linear K={k} N={n}"] = lambda clock, a=(batch, k, n): linear(clock, *a)
    return table


def small_cases():
    """Returns the same functions at small sizes, to try this program on a CPU."""
    return {
        "sdpa math forward+backward": lambda clock: attention(clock, "math", 1, 64, 64, 0.0, True),
        "layer_norm compiled": lambda clock: layer_norm(clock, "compiled", 1, 64),
        "cross_entropy eager": lambda clock: cross_entropy(clock, "eager", 1, 65),
        "adamw fused": lambda clock: adamw(clock, 1000),
        "linear": lambda clock: linear(clock, 1, 64, 64),
    }


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--try", dest="trial", action="store_true",
                   help="small cases on the CPU: no measurement")
    o = p.parse_args()
    clock, table = (HostClock(), small_cases()) if o.trial else (CudaClock(), cases())
    print(json.dumps({"ready": torch.__version__, "cases": list(table)}), flush=True)
    for line in sys.stdin:
        name = line.rstrip("\n")
        try:
            answer = {"name": name, "us": table[name](clock)}
        except Exception as problem:  # whatever fails, the next case is still measured
            answer = {"name": name, "failed": f"{type(problem).__name__}: {problem}".split("\n")[0]}
        if not o.trial:
            torch.cuda.empty_cache()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
