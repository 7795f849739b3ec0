#!/usr/bin/env python3
"""Writes signs.json: five steps of values that are added as signs in two hops (runtime/ir/quantized.h), with the
errors of both, by a straightforward numpy model. Bytes are given as CRC-32.

The values of rank r in step s are those of ../make_codecs.py; every third one is 0 in the case "zeros".
"""
import json
import pathlib
import zlib

import numpy as np

F32 = np.float32
BLOCK = 512


def values(rank, step, n, zeros):
    i = np.arange(n, dtype=np.int64)
    whole = ((i + 1) * 7919 + rank * 104729 + step * 1299709) % 20011 - 10005
    x = (whole.astype(np.float64) * 0.5 ** (8 + (i // 64 + rank) % 7)).astype(F32)
    if zeros:
        x[::3] = 0
    return x


def mean_magnitude(block):
    sums = np.zeros(32, F32)
    for first in range(0, len(block), 32):
        some = np.abs(block[first:first + 32])
        sums[:len(some)] += some
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    return F32(sums[0] / F32(len(block)))


def pack(x):
    """Returns the bytes of x, and the values that they stand for."""
    scales = [mean_magnitude(x[first:first + BLOCK]) for first in range(0, len(x), BLOCK)]
    below = x < 0
    back = np.repeat(np.array(scales, F32), BLOCK)[:len(x)]
    packed = np.array(scales, "<f4").tobytes() + np.packbits(below, bitorder="little").tobytes()
    return packed, np.where(below, -back, back).astype(F32)


def compress(x, error):
    """Packs x + error, and keeps what is lost in `error`."""
    total = (x + error).astype(F32)
    packed, back = pack(total)
    error[:] = total - back
    return packed, back


def crc(data):
    return zlib.crc32(data)


def run(ranks, part, zeros):
    worker = [np.zeros(ranks * part, F32) for _ in range(ranks)]
    server = [np.zeros(part, F32) for _ in range(ranks)]
    steps = []
    for step in range(5):
        sent, back = [], []
        for r in range(ranks):
            x = values(r, step, ranks * part, zeros)
            hops = [compress(x[p * part:(p + 1) * part], worker[r][p * part:(p + 1) * part]) for p in range(ranks)]
            sent.append(b"".join(packed for packed, _ in hops))
            back.append([values for _, values in hops])
        forward, result = [], []
        for owner in range(ranks):
            total = np.zeros(part, F32)
            for r in range(ranks):
                total = (total + back[r][owner]).astype(F32)
            packed, back_of_sum = compress(total, server[owner])
            forward.append(packed)
            result.append(back_of_sum)
        steps.append({"sent": [crc(b) for b in sent], "worker": [crc(e.tobytes()) for e in worker],
                      "forward": [crc(b) for b in forward], "server": [crc(e.tobytes()) for e in server],
                      "sum": crc(np.concatenate(result).tobytes())})
    return {"ranks": ranks, "part": part, "zeros": zeros, "steps": steps}


def main():
    cases = [run(ranks, part, zeros) for ranks in (1, 2, 3, 4) for part in (1, 7, 512, 4097) for zeros in (False, True)]
    (pathlib.Path(__file__).parent / "signs.json").write_text(json.dumps(cases, indent=0) + "\n")


if __name__ == "__main__":
    main()
