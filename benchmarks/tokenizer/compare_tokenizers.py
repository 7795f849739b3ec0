#!/usr/bin/env python3
"""Times our tokenizer and the tokenizers library alternately on one core, and prints the median ratio of the library's
time to ours for each published pattern and kind of text. Writes benchmarks/results/tokenizer.json.

    python3 -m venv .deps/tokenizers && .deps/tokenizers/bin/pip install tokenizers==0.23.3
    .deps/tokenizers/bin/python benchmarks/tokenizer/compare_tokenizers.py

Both keep their memory of pieces from round to round, and both have met every document before. The texts are this
repository's own pages and sources, and names of countries in 28 scripts in random order.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks/peers"), str(ROOT / "tests/data/tokenizer/golden")]
from contenders import Asked, processor, take_turns  # noqa: E402

DOCUMENT = 4096  # characters


def answer_requests(tokenizer_file, documents_file):
    """The library's process."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)
    documents = [json.loads(line)["text"] for line in open(documents_file, encoding="utf-8")]

    def round_ms():
        start = time.perf_counter()
        encodings = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        return (time.perf_counter() - start) * 1e3, encodings

    tokens = sum(len(encoding.ids) for encoding in round_ms()[1])
    print(json.dumps({"ready": tokens}), flush=True)
    for line in sys.stdin:
        print(json.dumps({"ms": [round_ms()[0] for _ in range(int(line))]}), flush=True)


def corpora(megabytes):
    """{name: text}"""
    size = int(megabytes * 1e6)
    files = sorted(path for ending in ("md", "cpp", "h") for top in ("docs", "runtime", "kernels", "launcher")
                   for path in (ROOT / top).rglob("*." + ending) if "unicode" not in path.parts)
    pages = "".join(path.read_text(encoding="utf-8") for path in files)[:size]
    lines = (ROOT / "tests/data/tokenizer/golden/scripts.txt").read_text(encoding="utf-8").splitlines()
    words = [word for line in lines for word in line.split(": ", 1)[1].rstrip(".").split(", ")]
    draw, scripts = random.Random(1), []
    while len(scripts) * 10 < size:
        scripts.append(draw.choice(words))
    return {"pages and sources": pages, "28 scripts": ", ".join(scripts)[:size]}


def compare(name, make, title, text, o, folder):
    tokenizer = make(size=o.vocabulary, text=text)
    tokenizer.save(str(folder / "tokenizer.json"))
    with open(folder / "documents.jsonl", "w", encoding="utf-8") as lines:
        for begin in range(0, len(text), DOCUMENT):
            lines.write(json.dumps({"text": text[begin:begin + DOCUMENT]}) + "\n")
    files = [str(folder / "tokenizer.json"), str(folder / "documents.jsonl")]
    alone = {"RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
    ours = Asked([o.program, *files], [alone])
    theirs = Asked([sys.executable, __file__, "--answer", *files], [alone])
    try:
        if ours.version != theirs.version:
            sys.exit(f"{name}, {title}: {ours.version} tokens of ours, {theirs.version} of theirs")
        our_ms, their_ms, ratios = take_turns(ours, theirs, o.rounds, 1)
    finally:
        ours.close()
        theirs.close()
    size = len(text.encode())
    return {"pattern": name, "text": title, "bytes": size, "tokens": ours.version,
            "ratio": statistics.median(ratios), "ratios": ratios,
            "dstrain_mb_per_second": size / 1e3 / statistics.median(our_ms),
            "library_mb_per_second": size / 1e3 / statistics.median(their_ms)}


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--answer", nargs=2, help=argparse.SUPPRESS)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--megabytes", type=float, default=2)
    p.add_argument("--vocabulary", type=int, default=16000)
    p.add_argument("--program", default=str(ROOT / "build/release/bin/tokenizer_bench"))
    p.add_argument("--result", default=str(ROOT / "benchmarks/results/tokenizer.json"))
    o = p.parse_args()
    if o.answer:
        return answer_requests(*o.answer)
    if o.rounds < 5:
        p.error("--rounds must be at least 5: the median of fewer ratios says little")
    import make_tokenizers
    import tokenizers

    os.environ["TOKENIZERS_PARALLELISM"] = "true"  # of the training
    results = []
    for title, text in corpora(o.megabytes).items():
        for name in ("gpt2", "llama3", "qwen2"):
            with tempfile.TemporaryDirectory() as folder:
                r = compare(name, make_tokenizers.ALL[name], title, text, o, pathlib.Path(folder))
            results.append(r)
            print(f"{name}, {title}: {r['ratio']:.2f} ({min(r['ratios']):.2f} to {max(r['ratios']):.2f}); dstrain "
                  f"{r['dstrain_mb_per_second']:.1f} MB/s, library {r['library_mb_per_second']:.1f} MB/s", flush=True)
    record = {"processor": processor(), "tokenizers": tokenizers.__version__, "results": results}
    pathlib.Path(o.result).write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
