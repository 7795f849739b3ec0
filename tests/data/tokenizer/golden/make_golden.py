#!/usr/bin/env python3
"""Writes the tokenizers of the tests and expected.json: checksums of the ids that the tokenizers library gives.

  python3 -m venv .deps/tokenizers && .deps/tokenizers/bin/pip install tokenizers==0.23.3
  .deps/tokenizers/bin/python tests/data/tokenizer/golden/make_golden.py

A checksum is zlib's crc32 of ids as little-endian uint32, those of each text followed by 0xffffffff.
  blocks   of 4096 code points each: every code point alone, and then beside letters, digits and spaces (texts_of);
           of the planes that have no letters, each 64th (compare_library.py --every 1 tries all)
  random   of 1000 strings each: 100,000 strings of random_strings(), which golden_test.cpp makes, too
  scripts  of each line of scripts.txt, and of the whole
  decoded  of the bytes, as uint32, of texts that random ids are decoded to, without special tokens, 1000 texts each
"""
import json
import pathlib
import struct
import zlib

import make_tokenizers
import tokenizers

HERE = pathlib.Path(__file__).resolve().parent
BLOCK = 4096
STRINGS, STRINGS_EACH, SEED = 100_000, 1000, 34
DECODED = 10_000
MASK = (1 << 64) - 1
POOL = [" ", "  ", "\n", "\r\n", "\t", "'", "'s", "'LL", "'\u017f", "!", "?!", "A", "b", "12", "\u00e9", "e\u0301",
        "\u00a0", "\u3000", "\u0085", "\u180e", "\u0301", "\u0323", "\u0345", "\ud55c", "\u1112\u1161\u11ab",
        "\u65e5\u672c", "\U0001f600", "\u200d", "\ufeff", "\u212b", "\u0663", "\u00bd", "unmergeable",
        " unmergeable", "123", "   ", "<|endoftext|>", "<|end_of_text|>", "<think>", "<mask>", "<sep>", "solo",
        "caf\u00e9", "cafe\u0301"]


def texts_of(code):
    c = chr(code)
    return [c, c + "a" + c + "1" + c + " " + c]


def tried(code):
    return not 0xD800 <= code < 0xE000 and (code < 0x34000 or code >> 12 == 0xE0 or code % 64 == 0)


class Words:
    """splitmix64."""

    def __init__(self, seed):
        self.state = seed

    def below(self, end):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
        z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
        return (z ^ z >> 31) % end


def random_strings():
    words = Words(SEED)
    for _ in range(STRINGS):
        text = ""
        for _ in range(words.below(24)):
            kind = words.below(16)
            if kind < 7:
                text += POOL[words.below(len(POOL))]
                continue
            code = 0x20 + words.below(95) if kind < 10 else words.below((0x3400, 0x20000, 0x110000)[(kind - 10) // 2])
            text += "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
        yield text


def crc_of(lists):
    crc = 0
    for numbers in lists:
        crc = zlib.crc32(struct.pack("<%dI" % (len(numbers) + 1), *numbers, 0xFFFFFFFF), crc)
    return "%08x" % crc


def checksum(tokenizer, texts):
    return crc_of(encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False))


def decoded(tokenizer):
    words = Words(SEED)
    end = max(tokenizer.get_vocab(with_added_tokens=True).values()) + 1
    texts = [tokenizer.decode([words.below(end) for _ in range(words.below(24))], skip_special_tokens=True)
             for _ in range(DECODED)]
    return [crc_of(text.encode() for text in texts[begin:begin + STRINGS_EACH])
            for begin in range(0, DECODED, STRINGS_EACH)]


def expected_of(tokenizer):
    codes = [list(filter(tried, range(begin, begin + BLOCK))) for begin in range(0, 0x110000, BLOCK)]
    strings = list(random_strings())
    text = make_tokenizers.TEXT.read_text(encoding="utf-8")
    return {
        "blocks": [checksum(tokenizer, [text for code in block for text in texts_of(code)]) for block in codes],
        "random": [checksum(tokenizer, strings[begin:begin + STRINGS_EACH])
                   for begin in range(0, STRINGS, STRINGS_EACH)],
        "scripts": [checksum(tokenizer, [line]) for line in text.splitlines(keepends=True) + [text]],
        "decoded": decoded(tokenizer),
    }


def main():
    expected = {"tokenizers": tokenizers.__version__, "pool": POOL, "ids": {}}
    for name, make in make_tokenizers.ALL.items():
        tokenizer = make(size=600)
        (HERE / f"{name}.json").write_text(tokenizer.to_str(pretty=False) + "\n", encoding="utf-8")
        expected["ids"][name] = expected_of(tokenizer)
    (HERE / "expected.json").write_text(json.dumps(expected, indent=1).replace('",\n    "', '", "') + "\n")


if __name__ == "__main__":
    main()
