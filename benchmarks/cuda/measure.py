#!/usr/bin/env python3
"""Measures dstrain on this machine's GPU, compares it with PyTorch if that is installed, and writes a JSON file.

  benchmarks/cuda/measure.py kernels --build build/gpu --output figures.json
  benchmarks/cuda/measure.py steps   --build build/gpu --output figures.json

kernels: times every kernel against its lower bound (bench_cuda), then alternately with PyTorch's.
steps: times the step of GPT-2 124M to 1.5B: ours, PyTorch's, ours again, at one micro-batch; on the emulated device
that of a tiny model.
Figures already in the output file are kept. If a figure fails, the reason is noted and the next one follows.
After --seconds no new figure is begun.
"""
import argparse
import json
import os
import pathlib
import queue
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time

import figures

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROUNDS = 3  # per comparison of kernels
ANSWER_SECONDS = 90  # timeout for one answer
STEPS, FIRST_STEPS = 12, 3  # timed steps, and warm-up steps before them


class Failed(Exception):
    pass


class Server:
    """A program that answers a line with a line of JSON. It is started at the first request, and again after it
    has ended or timed out."""

    def __init__(self, command, errors, seconds=ANSWER_SECONDS):
        self.command, self.errors, self.seconds = command, errors, seconds
        self.process, self.lines, self.hello = None, None, {}

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, text=True)
        self.lines = queue.Queue()
        threading.Thread(target=self.read, args=(self.process.stdout, self.lines), daemon=True).start()
        self.hello = self.answer(self.seconds)

    @staticmethod
    def read(stream, lines):
        with stream:
            for line in stream:
                lines.put(line)
        lines.put(None)

    def answer(self, seconds):
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            self.close()
            raise Failed(f"no answer in {seconds} s") from None
        if line is None:
            process, self.process = self.process, None
            process.stdin.close()
            status = process.wait()
            raise Failed(f"{' '.join(self.command[:2])} ended with status {status}")
        return json.loads(line)

    def ask(self, name):
        """Returns the answer to `name`. Raises Failed with the reason if there is none."""
        if self.process is None:
            self.start()
        try:
            self.process.stdin.write(name + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.close()
            raise Failed(f"{self.command[0]} ended before it was asked") from None
        answer = self.answer(self.seconds)
        if "failed" in answer:
            self.close()  # the failure may have destroyed the device's context
            raise Failed(answer["failed"])
        return answer

    def close(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdin.close()
            self.process = None


class Figures:
    """The file of results: lists of figures by kind, written after each figure."""

    def __init__(self, path):
        self.path = path
        self.all = json.loads(path.read_text()) if path.exists() else {}

    def replace(self, kind, value):
        self.all[kind] = value
        self.path.write_text(json.dumps(self.all, indent=1) + "\n")

    def add(self, kind, figure):
        others = [f for f in self.all.get(kind, []) if f["name"] != figure["name"]]
        self.replace(kind, others + [figure])


def has_torch(python):
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def guarded(name, work, deadline):
    """Returns the figure of work(), or one with the reason of its failure."""
    if time.monotonic() > deadline:
        return {"name": name, "skipped": "no time left"}
    try:
        return work()
    except (Failed, OSError, ValueError, KeyError) as problem:
        return {"name": name, "failed": f"{problem}"}


def print_kernel(f):
    if "us" not in f:
        print(f"{f['name']:44} {f}", flush=True)
        return
    print(f"{f['name']:44} {f['us']:10.2f} us {f['gb_per_second']:8.1f} GB/s {f['tflops']:7.1f} TFLOP/s "
          f"{f['fraction']:6.3f} of {f['bound']}", flush=True)


def measure_kernels(o, results, deadline):
    errors = open(o.folder / "bench_cuda.log", "w")
    ours = Server([str(o.build / "bin/bench_cuda"), "--serve", "--device", o.device, "--cases", o.cases],
                  errors)
    ours.start()
    results.replace("gpu", ours.hello["ready"])
    results.replace("probes", ours.hello["probes"])
    print("probes:", ours.hello["probes"], flush=True)
    for name in ours.hello["cases"]:
        figure = guarded(name, lambda: ours.ask(name), deadline)
        results.add("kernels", figure)
        print_kernel(figure)
    if o.device == "emulated" or not has_torch(o.python):
        print("no peers:", "emulated" if o.device == "emulated" else "no PyTorch here", flush=True)
        ours.close()
        return
    theirs = Server([o.python, str(HERE / "torch_kernels.py")], errors)
    for name, (our_cases, their_cases) in figures.peers().items():
        if not re.search(o.cases, name):
            continue
        figure = guarded(name, lambda: compare(name, ours, our_cases, theirs, their_cases), deadline)
        results.add("peers", figure)
        ratio = f"{figure['ratio']:6.2f}x PyTorch ({figure['torch_way']})" if "ratio" in figure else figure
        print(f"{name:44} {ratio}", flush=True)
    ours.close()
    theirs.close()


def compare(name, ours, our_cases, theirs, their_cases):
    """Compares alternately. A variant of PyTorch that fails is left out. If ours fails, or every variant of
    PyTorch, the comparison fails."""
    ways, failed, rounds = list(their_cases), {}, []
    for _ in range(ROUNDS):
        our_us = [ours.ask(case)["us"] for case in our_cases]
        their_us = {}
        for way in list(ways):
            try:
                their_us[way] = theirs.ask(way)["us"]
            except Failed as problem:
                failed[way] = str(problem)
                ways.remove(way)
        if not ways:
            raise Failed(f"PyTorch: {failed}")
        rounds.append((our_us, their_us))
    rounds = [(a, {way: b[way] for way in ways}) for a, b in rounds]
    return {**figures.ratio_figure(name, rounds), **({"torch_failed": failed} if failed else {})}


def words_of(settings):
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


class Steps:
    """Times the steps of one model in dstrain and in PyTorch."""

    def __init__(self, o, model):
        self.o, self.model = o, model
        m = figures.model_named(model)
        self.sizes = {"n_layer": m.layers, "n_embd": m.channels, "n_head": m.heads,
                      "vocab_size": figures.padded(m.vocabulary), "seq": m.seq}  # PyTorch's
        self.vocabulary = m.vocabulary

        self.steps = STEPS if o.device == "cuda" else 2

    def settings(self, micro_batch):
        return figures.settings_of(self.model, micro_batch)

    def dstrain(self, *words):
        return [str(self.o.build / "bin/dstrain"), *words, "--config",
                str(ROOT / "configs/gpt2_124m.json"), "--num_gpus", "1", "--device", self.o.device]

    def plan(self, micro_batch):
        command = self.dstrain("plan") + ["--json"] + words_of(self.settings(micro_batch))
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode != 0:
            raise Failed(f"dstrain plan: {run.stderr.strip()}")
        return json.loads(run.stdout)

    def micro_batch(self):
        if self.o.device == "emulated":
            return 1
        has = gpu_bytes()
        found = figures.fitting_micro_batch(lambda b: self.plan(b)["memory"]["total"], has)
        if found is None:
            raise Failed(f"one sample does not fit into {has} bytes")
        return found

    def ours(self, micro_batch):
        """Returns the milliseconds of self.steps steps. A signal ends the run, so that it writes no weights."""
        folder = self.o.folder / "run"
        shutil.rmtree(folder, ignore_errors=True)
        command = self.dstrain() + ["--data", str(tokens(self.o.folder, self.vocabulary)), "--steps", "1000000",
                                    "--overwrite", "--output", str(folder), "--set",
                                    "dstrain.save_last=false"]
        command += words_of(self.settings(micro_batch))
        with open(self.o.folder / "dstrain.log", "w+") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
            try:
                return self.our_times(process, folder / "metrics.jsonl", time.monotonic() + 120)
            except Failed as problem:
                log.seek(0)
                raise Failed(f"{problem}: {log.read()[-600:].strip()}") from None
            finally:
                process.kill()
                process.wait()

    def our_times(self, process, metrics, until):
        while time.monotonic() < until:
            ended = process.poll() is not None
            if metrics.exists():
                lines = metrics.read_text().split("\n")[:-1]
                times = [step["step_ms"] for step in map(json.loads, lines) if "loss" in step]
                if len(times) >= FIRST_STEPS + self.steps:
                    return times[FIRST_STEPS:FIRST_STEPS + self.steps]
            if ended:
                raise Failed(f"dstrain ended with status {process.returncode}")
            time.sleep(0.02)
        raise Failed(f"dstrain did not do {FIRST_STEPS + self.steps} steps in time")

    def theirs(self, micro_batch, steps, seconds):
        command = [self.o.python, str(HERE / "torch_gpt2.py"), "--batch", str(micro_batch),
                   "--steps", str(steps)]
        command += [word for key, value in self.sizes.items() for word in (f"--{key}", str(value))]
        try:
            run = subprocess.run(command, capture_output=True, text=True, timeout=max(seconds, 1),
                                 env={**os.environ, **torch_cache(self.o.cache)})
        except subprocess.TimeoutExpired:
            raise Failed(f"PyTorch did not end in {seconds:.0f} s") from None
        if run.returncode != 0:
            raise Failed(f"PyTorch: {run.stderr.strip().splitlines()[-1:]}")
        return json.loads(run.stdout.splitlines()[-1])


def torch_cache(folder):
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"),
            "TRITON_CACHE_DIR": str(folder / "triton"), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1",
            "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}


def tokens(folder, vocabulary):
    path = folder / f"tokens_{vocabulary}.bin"
    if not path.exists():
        numbers = random.Random(1).choices(range(vocabulary), k=1_000_000)
        path.write_bytes(struct.pack(f"<{len(numbers)}H", *numbers))
    return path


def gpu_bytes():
    """Returns the GPU's total memory: the free memory would depend on other work."""
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    return int(subprocess.check_output(command, text=True).split()[0]) << 20


def measure_step(o, model, results, deadline):
    """Times ours, PyTorch's, and ours again. If PyTorch runs out of memory, both take half the micro-batch."""
    side = Steps(o, model)
    gemm = results.all.get("probes", {}).get("gemm_tflops")
    gpu = results.all.get("gpu", "")
    micro_batch = side.micro_batch()
    before, theirs = side.ours(micro_batch), None
    while o.device == "cuda" and has_torch(o.python):
        try:
            theirs = side.theirs(micro_batch, side.steps, deadline - time.monotonic())
        except Failed as problem:
            theirs = {"failed": str(problem)}
        if "out_of_memory" not in theirs or micro_batch == 1:
            break
        micro_batch //= 2
        before = side.ours(micro_batch)
    after = side.ours(micro_batch)
    flops = figures.step_flops(side.plan(micro_batch))
    seq = side.sizes["seq"]
    figure = {"name": model, **figures.step_figure(micro_batch, before + after, flops, gemm, gpu, seq)}
    if theirs is None:
        why = "no PyTorch here" if o.device == "cuda" else "emulated"
        return {**figure, "torch": {"skipped": why}}
    if "step_ms" not in theirs:
        return {**figure, "torch": theirs}
    peer = figures.step_figure(micro_batch, theirs["step_ms"], flops, gemm, gpu, seq)
    ratio = figure["tokens_per_second"] / peer["tokens_per_second"]
    more = {"version": theirs["torch"], "peak_bytes": theirs["peak_bytes"]}
    return {**figure, "torch": {**peer, **more}, "ratio": ratio}


def measure_steps(o, results, deadline):
    with open(o.folder / "bench_cuda.log", "w") as errors:  # of which products' speed is a step?
        ours = Server([str(o.build / "bin/bench_cuda"), "--serve", "--device", o.device], errors)
        ours.start()
        ours.close()
    results.replace("gpu", ours.hello["ready"])
    results.replace("probes", ours.hello["probes"])
    for model in figures.MODELS if o.device == "cuda" else figures.TINY:
        if not re.search(o.cases, model):
            continue
        figure = guarded(model, lambda: measure_step(o, model, results, deadline), deadline)
        results.add("steps", figure)
        print(json.dumps(figure), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("what", choices=["kernels", "steps"])
    p.add_argument("--build", type=pathlib.Path, required=True,
                   help="build folder with bin/bench_cuda and bin/dstrain")
    p.add_argument("--output", type=pathlib.Path, default=pathlib.Path("figures.json"))
    p.add_argument("--cases", default="",
                   help="measure only kernels, comparisons and models whose name matches this regular expression")
    p.add_argument("--python", default=sys.executable, help="Python interpreter, with torch for comparisons")
    p.add_argument("--cache", type=pathlib.Path, help="folder of PyTorch's cache; default: a temporary one")
    p.add_argument("--seconds", type=float, default=600, help="begin no new figure after so many seconds")
    p.add_argument("--device", choices=["cuda", "emulated"], default="cuda",
                   help="emulated: kernels at small sizes, which tests this script and measures nothing")
    o = p.parse_args()
    deadline = time.monotonic() + o.seconds
    with tempfile.TemporaryDirectory(prefix="dstrain-measure-") as folder:
        o.folder = pathlib.Path(folder)
        o.cache = o.cache or o.folder / "cache"
        results = Figures(o.output)
        try:
            (measure_kernels if o.what == "kernels" else measure_steps)(o, results, deadline)
        except Failed as problem:
            print((o.folder / "bench_cuda.log").read_text()[-1000:], file=sys.stderr)
            sys.exit(f"measure.py: {problem}")


if __name__ == "__main__":
    main()
