#!/usr/bin/env python3
"""Writes class_runs.cpp and normalization_rows.cpp: what the tokenizers library knows of each code point.

  python3 -m venv .deps/tokenizers && .deps/tokenizers/bin/pip install tokenizers==0.23.3 unicodedata2==16.0.0
  .deps/tokenizers/bin/python runtime/data/tokenizer/unicode/make_tables.py

The library's own tables are those of several versions of Unicode, and this program asks the library where they differ:
  \\p{L}, \\p{N}, \\p{M}, \\s of patterns    16.0; compared with unicodedata2, an error where they differ
  \\w beside added tokens of single words   as Rust's regex has it: asked for each code point
  digits of the pre-tokenizer Digits       as Rust's char has them: asked for each code point
  NFC                                      9.0: of unicodedata2's rows those that the library knows
"""
import pathlib
import sys

import tokenizers
import unicodedata2
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

HERE = pathlib.Path(__file__).resolve().parent
CODES = [code for code in range(0x110000) if not 0xD800 <= code < 0xE000]
LETTER, NUMBER, MARK, SPACE, WORD, DIGIT, CHANGES = (1 << bit for bit in range(7))
NFC = normalizers.NFC()


def matched(pattern):
    """The code points that a pattern of one character matches."""
    remove = normalizers.Replace(Regex(pattern), "")
    found = set()
    for begin in range(0, len(CODES), 4096):
        part = CODES[begin:begin + 4096]
        found |= set(part) - set(map(ord, remove.normalize_str("".join(map(chr, part)))))
    return found


def category(letter):
    return {code for code in CODES if unicodedata2.category(chr(code))[0] == letter}


def words():
    """The code points beside which an added token is not a single word."""
    asked = Tokenizer(tokenizers.models.BPE({"a": 0}, []))
    asked.add_tokens([AddedToken("XX", single_word=True, normalized=False)])
    token = asked.token_to_id("XX")
    found = {code for code in CODES if token not in asked.encode(chr(code) + "XX").ids}
    if found != {code for code in CODES if token not in asked.encode("XX" + chr(code)).ids}:
        sys.exit("a word's characters before and behind a token differ")
    return found


def digits():
    split = pre_tokenizers.Digits(True)
    return {code for code in CODES if len(split.pre_tokenize_str("a" + chr(code))) == 2}


def combining_classes():
    """{code point: canonical combining class} of those that the library orders."""
    classes = {}
    for code in CODES:
        own = unicodedata2.combining(chr(code))
        pair = "\u0301" + chr(code) if own == 1 else chr(code) + "\u0334"
        if own and NFC.normalize_str(pair) != pair:
            classes[code] = own
    return classes


def decompositions():
    """{code point: ((first, second or 0), whether NFC composes it)} of those that the library knows."""
    rows = {}
    nfd = normalizers.NFD()
    for code in CODES:
        text = unicodedata2.decomposition(chr(code))
        if not text or text.startswith("<"):
            continue
        apart = unicodedata2.normalize("NFD", chr(code))
        if nfd.normalize_str(chr(code)) != apart:
            continue
        parts = [int(part, 16) for part in text.split()] + [0]
        rows[code] = ((parts[0], parts[1]), NFC.normalize_str(apart) == chr(code))
    return rows


def changing(classes, rows):
    """The code points that NFC may change, order, or compose with one before them."""
    seconds = {parts[1] for parts, composes in rows.values() if composes}
    hangul = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    return set(classes) | {code for code, (_, composes) in rows.items() if not composes} | seconds | hangul


def class_runs():
    checked = [(LETTER, matched(r"\p{L}"), category("L")), (NUMBER, matched(r"\p{N}"), category("N")),
               (MARK, matched(r"\p{M}"), category("M"))]
    for bit, found, expected in checked:
        if found != expected:
            sys.exit(f"class {bit}: the library and unicodedata2 {unicodedata2.unidata_version} differ")
    classes, rows = combining_classes(), decompositions()
    sets = [(bit, found) for bit, found, _ in checked]
    sets += [(SPACE, matched(r"\s")), (WORD, words()), (DIGIT, digits()), (CHANGES, changing(classes, rows))]
    values = bytearray(0x110000)
    for bit, found in sets:
        for code in found:
            values[code] |= bit
    runs, begin = [], 0
    for code in range(1, 0x110001):
        if code == 0x110000 or values[code] != values[begin]:
            runs.append((code - begin, values[begin]))
            begin = code
    return runs, classes, rows


def wrapped(numbers):
    lines, line = [], ""
    for number in numbers:
        if len(line) + len(number) + 2 > 118:
            lines.append(line.rstrip())
            line = ""
        line += number + ", "
    return "\n".join(lines + [line.rstrip()])


HEAD = """// Made by make_tables.py from tokenizers {} and unicodedata2 {}. {}
#include "runtime/data/tokenizer/unicode/tables.h"

// clang-format off
namespace dstrain::unicode {{

"""
TAIL = "\n}  // namespace dstrain::unicode\n"


def write(name, what, arrays):
    text = HEAD.format(tokenizers.__version__, unicodedata2.unidata_version, what)
    text += "\n".join(f"const {kind} {array}[] = {{\n{wrapped(numbers)}}};\nconst int {array}Count = {count};\n"
                      for kind, array, numbers, count in arrays)
    (HERE / name).write_text(text + TAIL)


def main():
    runs, classes, rows = class_runs()
    write("class_runs.cpp", "Pairs: length of a run of code points, their classes.",
          [("uint32_t", "kClassRuns", [f"{n},{value}" for n, value in runs], len(runs))])
    singles, last = [], 0
    for code, value in sorted(classes.items()):
        singles.append((code - last, value))
        last = code
    parts, last = [], 0
    for code, ((first, second), composes) in sorted(rows.items()):
        parts.append(f"{(code - last) * 2 + composes},{first},{second}")
        last = code
    write("normalization_rows.cpp", "Code points are differences to the row before.",
          [("uint32_t", "kCombiningRows", [f"{d},{value}" for d, value in singles], len(singles)),
           ("uint32_t", "kDecompositionRows", parts, len(parts))])


if __name__ == "__main__":
    main()
