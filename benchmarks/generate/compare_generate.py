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
    """All texts go forward together, a token of each in a batch, by the library's own calls."""
    name = "llama.cpp"

    def __init__(self, path, batch, threads):
        import llama_cpp
        import numpy

        self.lib, self.numpy, self.texts = llama_cpp, numpy, batch
        llama_cpp.llama_log_set(self.quiet, None)
        self.model = llama_cpp.llama_model_load_from_file(path.encode(), llama_cpp.llama_model_default_params())
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_seq_max = 1024 * batch, PROMPT * batch, batch
        params.n_threads = params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        self.ids = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(PROMPT * batch, 0, 1)

    @staticmethod
    def log(level, text, data):
        pass

    @property
    def quiet(self):
        if not hasattr(LlamaCpp, "callback"):
            LlamaCpp.callback = self.lib.llama_log_callback(LlamaCpp.log)
        return LlamaCpp.callback

    def decode(self, rows):
        """Computes rows (token, place, text, whether its logits are wanted)."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for i, (token, place, text, wanted) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, place, 1
            batch.seq_id[i][0], batch.logits[i] = text, wanted
        if self.lib.llama_decode(self.context, batch) != 0:
            raise RuntimeError("llama_decode failed")

    def best(self, row):
        logits = self.lib.llama_get_logits_ith(self.context, row)
        return int(self.numpy.ctypeslib.as_array(logits, shape=(self.ids,)).argmax())

    def seconds(self, tokens):
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)
        begin = time.perf_counter()
        self.decode([(token, place, text, place == PROMPT - 1)
                     for text in range(self.texts) for place, token in enumerate(prompt_ids(text))])
        rows = [PROMPT * (text + 1) - 1 for text in range(self.texts)]
        for added in range(tokens):
            best = [self.best(row) for row in rows]
            if added == tokens - 1:
                break
            self.decode([(best[text], PROMPT + added, text, True) for text in range(self.texts)])
            rows = list(range(self.texts))
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
    if (args.models / f"{dtype}.gguf").exists():
        try:
            yield LlamaCpp(str(args.models / f"{dtype}.gguf"), batch, args.threads)
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
