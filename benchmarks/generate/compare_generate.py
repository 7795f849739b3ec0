#!/usr/bin/env python3
"""The time of a generated token: dstrain generate, transformers' generate and llama.cpp take turns on the same cores.

    make_models.py /tmp/models
    compare_generate.py --program build/release/bin/dstrain --models /tmp/models

needs torch and transformers, and for llama.cpp the package llama-cpp-python. Each contender reads a prompt of 16 tokens and adds
`--tokens`; the time of a token is what the longer of two texts takes more than the shorter, so that loading does not
count. Prints the median of the ratios of the rounds with the lowest and the highest, and the floor: the bytes of the
weights at the bandwidth of a sum over as many bytes.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

SHORT, PROMPT = 16, 16


def prompt_ids(text):
    return [(7919 * (text + 1) * (i + 1)) % 50257 for i in range(PROMPT)]


class Dstrain:
    name = "dstrain"

    def __init__(self, program, model, batch):
        self.program, self.model = program, model
        with tempfile.NamedTemporaryFile("w", suffix=".txt", delete=False) as file:
            for text in range(batch):
                file.write(",".join(map(str, prompt_ids(text))) + "\n")
        self.prompts = file.name

    def seconds(self, tokens):
        begin = time.perf_counter()
        subprocess.run([self.program, "generate", "--model", self.model, "--prompts", self.prompts,
                        "--tokens", str(tokens), "--temperature", "0"],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return time.perf_counter() - begin


class Transformers:
    name = "transformers"

    def __init__(self, model, batch, threads):
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(model, dtype="auto").eval()
        self.ids = torch.tensor([prompt_ids(text) for text in range(batch)])

    def seconds(self, tokens):
        begin = time.perf_counter()
        with self.torch.inference_mode():
            self.model.generate(self.ids, attention_mask=self.torch.ones_like(self.ids),
                                max_new_tokens=tokens, do_sample=False, pad_token_id=0)
        return time.perf_counter() - begin


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, path, threads):
        from llama_cpp import Llama

        self.model = Llama(path, n_ctx=1024, n_threads=threads, n_threads_batch=threads, verbose=False)

    def seconds(self, tokens):
        self.model.reset()
        begin = time.perf_counter()
        self.model.eval(prompt_ids(0))
        for _ in range(tokens - 1):
            self.model.eval([self.model.sample(temp=0.0, repeat_penalty=1.0)])
        return time.perf_counter() - begin


def token_seconds(contender, tokens):
    return (contender.seconds(tokens) - contender.seconds(SHORT)) / (tokens - SHORT)


def bandwidth(threads):
    import torch

    torch.set_num_threads(threads)
    values = torch.ones(100_000_000)
    times = []
    for _ in range(7):
        begin = time.perf_counter()
        values.sum()
        times.append(time.perf_counter() - begin)
    return values.numel() * 4 / min(times)


def contenders(args, dtype, batch):
    model = str(args.models / dtype)
    yield Dstrain(args.program, model, batch)
    yield Transformers(model, batch, args.threads)
    if batch == 1 and (args.models / f"{dtype}.gguf").exists():
        try:
            yield LlamaCpp(str(args.models / f"{dtype}.gguf"), args.threads)
        except ModuleNotFoundError:
            print("llama.cpp: the package llama-cpp-python is not there")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--models", type=pathlib.Path, required=True)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    rate = bandwidth(args.threads)
    print(f"bandwidth {rate / 1e9:.1f} GB/s")
    results = []
    for dtype, size in (("fp32", 4), ("bf16", 2)):
        for batch in (1, 8):
            runs = list(contenders(args, dtype, batch))
            times = {run.name: [] for run in runs}
            for _ in range(args.rounds):
                for run in runs:
                    times[run.name].append(token_seconds(run, args.tokens))
            floor = 124_439_808 * size / rate
            ours = times["dstrain"]
            line = {"dtype": dtype, "batch": batch, "ms": statistics.median(ours) * 1e3,
                    "floor_ms": floor * 1e3}
            text = f"{dtype} batch {batch}: {line['ms']:.1f} ms a step, floor {line['floor_ms']:.1f} ms"
            for name, theirs in times.items():
                if name == "dstrain":
                    continue
                ratios = sorted(t / o for t, o in zip(theirs, ours))
                line[name] = [statistics.median(ratios), ratios[0], ratios[-1]]
                text += (f"; {name}'s time over ours {line[name][0]:.2f} "
                         f"({ratios[0]:.2f}-{ratios[-1]:.2f})")
            print(text, flush=True)
            results.append(line)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
