#!/usr/bin/env python3
"""Compares `dstrain tokenize` with the tokenizers library, on texts and added tokens that are drawn anew.

  compare_library.py DSTRAIN [--seed N] [--strings N] [--every N]

--every: of the code points above U+33FF that are letters of no common script, each N-th is tried (1: all). Exit status
77 without the library: python3 -m venv .deps/tokenizers && .deps/tokenizers/bin/pip install tokenizers==0.23.3
"""
import argparse
import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

try:
    import tokenizers
    from tokenizers import AddedToken, normalizers, pre_tokenizers
except ImportError:
    print("skipped: no module tokenizers")
    sys.exit(77)
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "golden"))
import make_golden  # noqa: E402
import make_tokenizers  # noqa: E402

COMMON = [(0, 0x3400), (0xA000, 0xAC00), (0xF900, 0x12000), (0x16100, 0x16E00), (0x1E000, 0x1E900)]
# Patterns that are none of the published ones, and that PCRE2 and the library match alike in these texts.
OTHERS = (r"\d{1,2}|[A-Za-z]+|[^A-Za-z\d]+", r"^[A-Z]|[a-z]+$|\n$", r"^", r"$", r"\h{2}|[\h.]|\H", r"x*", r"(?m:a.)|b.",
          r"(?=[ab])|1", r"\A.|.\z")


def strings_of(draw, count, every):
    texts = []
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        if code % every == 0 or any(begin <= code < end for begin, end in COMMON):
            c = chr(code)
            texts += [c, "a" + c, c + "a", "1" + c, c + "1", " " + c, c + " ", c + "'S " + c + c]
    for _ in range(count):
        texts.append("".join(draw.choice(make_golden.POOL) if draw.random() < 0.7 else chr(draw.randrange(0x3000))
                             for _ in range(draw.randrange(20))))
    return texts


def with_random_tokens(tokenizer, draw):
    """The tokenizer with more added tokens: overlapping ones, of white space, with every flag."""
    parts = ["a", "<", ">", " ", "\n", "e\u0301", "\u00e9", "1", "ab", "<x>", "\u65e5", "!"]
    added = []
    for _ in range(12):
        content = "".join(draw.choice(parts) for _ in range(draw.randrange(1, 4)))
        if tokenizer.token_to_id(content) is None and content not in [token.content for token in added]:
            flags = {name: draw.random() < 0.4 for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
            flags["lstrip"] &= not content[0].isspace()  # where the one before has rstrip, the library ends in a panic
            added.append(AddedToken(content, **flags))
    tokenizer.add_tokens(added)
    return tokenizer


def variants(draw):
    """(name, tokenizer) of every kind that is read, the published forms first."""
    for name, make in make_tokenizers.ALL.items():
        yield name, make(size=draw.randrange(300, 1200))
        yield name + " with more tokens", with_random_tokens(make(size=500), draw)
    spaced = make_tokenizers.gpt2(size=500)
    spaced.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True)
    yield "a space in front", with_random_tokens(spaced, draw)
    for each in (True, False):
        digits = make_tokenizers.gpt2(size=500)
        digits.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(each), make_tokenizers.byte_level(True)])
        digits.normalizer = normalizers.Sequence([normalizers.NFC()])
        yield f"digits, each by itself: {each}", digits
    whole = make_tokenizers.gpt2(size=500)
    whole.pre_tokenizer = make_tokenizers.byte_level(False)
    yield "no pattern", whole
    for scheme in ("always", "first", "never"):
        for each in (True, False):
            yield f"marks {scheme}, split {each}", with_random_tokens(
                make_tokenizers.metaspace(scheme, split=each, size=draw.randrange(300, 900)), draw)
    old = json.loads(make_tokenizers.metaspace("never").to_str())
    del old["pre_tokenizer"]["prepend_scheme"], old["pre_tokenizer"]["split"]
    yield "marks of an older file", tokenizers.Tokenizer.from_str(json.dumps(old))
    old["pre_tokenizer"].update(add_prefix_space=False, prepend_scheme="never")
    old["model"]["merges"] = [" ".join(merge) for merge in old["model"]["merges"]]
    yield "no marks in front, of an older file", tokenizers.Tokenizer.from_str(json.dumps(old))
    for behavior in ("isolated", "merged_with_previous", "merged_with_next", "contiguous"):
        literal = make_tokenizers.gemma(size=500, fuse_unk=draw.random() < 0.5, byte_fallback=draw.random() < 0.5)
        literal.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(draw.choice(["a", make_tokenizers.MARK, "\u0301", "'s"]), behavior),
            pre_tokenizers.Digits(True)])
        yield f"a text between pieces, {behavior}", literal
    mixed = make_tokenizers.gpt2(size=500)
    mixed.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace("a", "bab"), normalizers.Prepend("1")])
    yield "bytes of a changed text", with_random_tokens(mixed, draw)
    some = json.loads(make_tokenizers.llama2().to_str())
    for byte in ("<0x41>", "<0xCC>", "<0xE2>", "<0x20>"):
        some["model"]["vocab"][byte + " "] = some["model"]["vocab"].pop(byte)
    for fuse in (True, False):
        some["model"]["fuse_unk"] = fuse
        yield f"some bytes without a token, fused: {fuse}", tokenizers.Tokenizer.from_str(json.dumps(some))
    whole = json.loads(make_tokenizers.unknown().to_str())
    whole["model"]["ignore_merges"] = True
    whole["model"]["vocab"]["e \u0301"] = len(whole["model"]["vocab"]) + 100
    yield "whole pieces", tokenizers.Tokenizer.from_str(json.dumps(whole))
    for pattern in OTHERS:
        other = make_tokenizers.gpt2(size=500)
        other.pre_tokenizer = make_tokenizers.split(pattern)
        yield "another pattern, " + pattern, other


def read_tokens(path):
    data = path.read_bytes()
    (magic,) = struct.unpack_from("<i", data.ljust(4, b"\0"))
    if magic == 20240801:
        version, count = struct.unpack_from("<2i", data, 4)
        assert version == 7 and len(data) == 1024 + 4 * count
        return struct.unpack_from(f"<{count}I", data, 1024)
    return struct.unpack(f"<{len(data) // 2}H", data)


def tokenize(program, folder, name, data, *options):
    """The token ids of a file with these bytes, and where documents start."""
    source, output = folder / name, folder / "out.bin"
    source.write_bytes(data)
    run = subprocess.run([program, "tokenize", "--model", str(folder), "--data", str(source), "--output", str(output),
                          *options], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"dstrain tokenize failed: {run.stderr}")
    starts = (folder / "out.bin.documents").read_bytes()
    return read_tokens(output), struct.unpack(f"<{len(starts) // 8}Q", starts)


def compare_lines(program, folder, name, tokenizer, texts, end):
    lines = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts).encode()
    tokens, starts = tokenize(program, folder, "texts.jsonl", lines, *([] if end else ["--no_eos"]))
    assert len(starts) == len(texts) + 1 and starts[-1] == len(tokens), "documents"
    tail = [tokenizer.token_to_id("<|endoftext|>")] if end else []
    for number, encoding in enumerate(tokenizer.encode_batch(texts, add_special_tokens=True)):
        found = list(tokens[starts[number]:starts[number + 1]])
        if found != encoding.ids + tail:
            sys.exit(f"{name}: {ascii(texts[number])}: the library has {encoding.ids + tail}, dstrain {found}")


def compare_text(program, folder, name, tokenizer, data):
    tokens, starts = tokenize(program, folder, "text.txt", data)
    expected = tokenizer.encode(data.decode("utf-8", errors="replace"), add_special_tokens=False).ids
    if list(tokens) != expected:
        place = next((i for i, pair in enumerate(zip(tokens, expected)) if pair[0] != pair[1]), len(expected))
        sys.exit(f"{name}: a text of {len(data)} bytes differs at token {place} of {len(expected)}")
    assert starts == (0, len(tokens)), "documents of a text"


def random_bytes(draw, count):
    pool = [b"A", b" ", b"\n", b"\x80", b"\xc2", b"\xe0", b"\xed", b"\xf0", b"\xf4", b"\x9f", b"\xa0", b"\xbf", b"\xff"]
    return b"".join(draw.choice(pool) if draw.random() < 0.9 else bytes([draw.randrange(256)]) for _ in range(count))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dstrain")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--strings", type=int, default=2000)
    parser.add_argument("--every", type=int, default=997)
    arguments = parser.parse_args()
    print(f"tokenizers {tokenizers.__version__}, --seed {arguments.seed}")
    draw = random.Random(arguments.seed)
    texts = strings_of(draw, arguments.strings, arguments.every)
    few = texts[-arguments.strings:]
    prose = make_tokenizers.TEXT.read_text(encoding="utf-8")
    long = "".join(draw.choice(few) + draw.choice([" ", "\n", ""]) for _ in range(20000)) + 8 * prose
    for name, tokenizer in variants(draw):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            tokenizer.save(str(folder / "tokenizer.json"))
            end = tokenizer.token_to_id("<|endoftext|>") is not None
            other = name.startswith("another pattern")
            lines = texts if name.split(" with ")[0] in make_tokenizers.ALL else few
            compare_lines(arguments.dstrain, folder, name, tokenizer, lines, end)
            compare_text(arguments.dstrain, folder, name, tokenizer, (prose if other else long).encode())
            compare_text(arguments.dstrain, folder, name, tokenizer, random_bytes(draw, 5000))
        print(f"{name}: equal")


if __name__ == "__main__":
    main()
