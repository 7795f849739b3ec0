#!/usr/bin/env python3
"""Writes codecs.json: what values are packed to (runtime/ir/quantized.h), and what gradients that travel as int4 add up
to, by a straightforward numpy model.

The values of rank r in step s are v(r, s, i) = (((i + 1) * 7919 + r * 104729 + s * 1299709) % 20011 - 10005)
* 2^-(8 + (i // 64 + r) % 7), exact in f32.
"""
import json
import pathlib

import numpy as np

F32 = np.float32
SMALLEST = np.finfo(F32).tiny


def values(rank, step, n):
    i = np.arange(n, dtype=np.int64)
    whole = ((i + 1) * 7919 + rank * 104729 + step * 1299709) % 20011 - 10005
    return (whole.astype(np.float64) * 0.5 ** (8 + (i // 64 + rank) % 7)).astype(F32)


def specials(name):
    x = values(0, 0, 130)
    if name == "zeros":
        x[:] = 0
    if name == "inf":
        x[70] = np.inf
    if name == "nan":
        x[3] = np.nan
    if name == "denormals":
        x[:64] = F32(1e-40)
        x[64:] *= F32(1e-38)
    return x


def codes_of(block, scale, positive):
    if not positive:
        return np.zeros(len(block), np.int64)
    return np.rint(block * (F32(1) / scale)).astype(np.int64)


def int8(x):
    scales, codes = [], []
    for first in range(0, len(x), 256):
        block = x[first:first + 256]
        largest = np.max(np.abs(block))
        scale = F32(largest / F32(127)) if np.isfinite(largest) else F32(np.nan)
        if scale < SMALLEST:
            scale = F32(0)
        scales.append(scale)
        codes.append(codes_of(block, scale, scale > 0))
    return np.array(scales, "<f4").tobytes() + np.concatenate(codes).astype(np.int8).tobytes()


def int4(x):
    scales, codes = [], []
    for first in range(0, len(x), 64):
        block = x[first:first + 64]
        largest = np.max(np.abs(block))
        bits = 0x7FC0
        if np.isfinite(largest):
            exact = F32(largest / F32(7))
            bits = 0 if exact < SMALLEST else (int(exact.view(np.uint32)) + 0xFFFF) >> 16
        scale = np.array([bits << 16], np.uint32).view(F32)[0]
        scales.append(bits)
        codes.append(codes_of(block, scale, scale > 0))
    codes = np.concatenate(codes) & 15
    if len(codes) % 2:
        codes = np.append(codes, 0)
    return np.array(scales, "<u2").tobytes() + (codes[0::2] | codes[1::2] << 4).astype(np.uint8).tobytes()


def from_int4(packed, n):
    blocks = (n + 63) // 64
    scales = (np.frombuffer(packed[:2 * blocks], "<u2").astype(np.uint32) << 16).view(F32)
    pairs = np.frombuffer(packed[2 * blocks:], np.uint8).astype(np.int64)
    codes = np.stack([pairs & 15, pairs >> 4], 1).reshape(-1)[:n]
    return ((codes ^ 8) - 8).astype(F32) * np.repeat(scales, 64)[:n]


def add(parts):
    total = np.zeros(len(parts[0]), F32)
    for part in parts:
        total = (total + part).astype(F32)
    return total


def sums(ranks, group, part, step):
    """Returns the packed parts that every rank sends first, and the f32 sums of every rank's part."""
    sent = [[int4(values(r, step, ranks * part)[p * part:(p + 1) * part]) for p in range(ranks)] for r in range(ranks)]
    result = []
    for owner in range(ranks):
        if group in (1, ranks):
            result.append(add([from_int4(sent[r][owner], part) for r in range(ranks)]))
            continue
        hops = []
        for host in range(ranks // group):
            of_host = add([from_int4(sent[host * group + i][owner], part) for i in range(group)])
            hops.append(from_int4(int4(of_host), part))
        result.append(add(hops))
    return sent, result


def main():
    np.seterr(all="ignore")
    packed = []
    for name, x in ([(f"{n}", values(0, 0, n)) for n in (1, 7, 64, 257, 1025)] +
                    [(name, specials(name)) for name in ("zeros", "inf", "nan", "denormals")]):
        packed.append({"values": name, "int8": int8(x).hex(), "int4": int4(x).hex()})
    hops = []
    for ranks, group in ((2, 1), (3, 1), (4, 1), (4, 2), (6, 2)):
        for step in range(5):
            part = (1, 16, 65, 70, 33)[step]
            _, result = sums(ranks, group, part, step)
            hops.append({"ranks": ranks, "group": group, "part": part, "step": step,
                         "sums": [x.astype("<f4").tobytes().hex() for x in result]})
    text = json.dumps({"packed": packed, "sums": hops}, indent=0)
    (pathlib.Path(__file__).parent / "codecs.json").write_text(text + "\n")


main()
