#!/usr/bin/env python3
"""Writes codecs.json: what values are packed to (runtime/ir/quantized.h), and what gradients that travel as int4 add up
to, by a straightforward numpy model; and sums of gradients that travel as low-rank factors (PowerSGD).

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
    x = values(0, 0, 260)
    if name == "zeros":
        x[:] = 0
    if name == "inf":
        x[170] = np.inf
    if name == "nan":
        x[3] = np.nan
    if name == "denormals":
        x[:128] = F32(1e-40)
        x[128:] *= F32(1e-38)
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


def int4_word(block):
    if not np.all(np.isfinite(block)):
        return 255
    quarters = [block[first:first + 32] for first in range(0, len(block), 32)]
    wanted = [F32(np.max(np.abs(q)) / F32(8.4375)) for q in quarters]
    exponent = (int(max(wanted).view(np.uint32)) >> 23) - 4
    if exponent < 1:
        return 0
    word = exponent
    for i, (quarter, scale) in enumerate(zip(quarters, wanted)):
        multiple = max(1, int(np.ceil(np.float64(scale) * 2.0 ** (127 - exponent))))
        # The other sign than that of the largest value; of two that are as large the negative one counts.
        negative = np.max(quarter) > -np.min(quarter)
        word |= (multiple - 1 + 32 * int(negative)) << (8 + 6 * i)
    return word


def int4_scales(words, n):
    """Returns the scale of each of n values."""
    words = np.repeat(np.asarray(words, np.uint64), 4)
    fields = words >> np.tile(np.array([8, 14, 20, 26], np.uint64), len(words) // 4) & np.uint64(63)
    unit = ((words & np.uint64(255)) << np.uint64(23)).astype(np.uint32).view(F32)
    scales = np.where(fields < 32, F32(1), F32(-1)) * (fields % 32 + 1).astype(F32) * unit
    return np.repeat(scales.astype(F32), 32)[:n]


def int4(x):
    words = [int4_word(x[first:first + 128]) for first in range(0, len(x), 128)]
    some = np.repeat([word not in (0, 255) for word in words], 128)[:len(x)]
    scales = np.where(some, int4_scales(words, len(x)), F32(1))
    codes = np.where(some, np.minimum(np.rint(x * (F32(1) / scales)), 7), 0).astype(np.int64) & 15
    if len(codes) % 2:
        codes = np.append(codes, 0)
    return np.array(words, "<u4").tobytes() + (codes[0::2] | codes[1::2] << 4).astype(np.uint8).tobytes()


def from_int4(packed, n):
    blocks = (n + 127) // 128
    pairs = np.frombuffer(packed[4 * blocks:], np.uint8).astype(np.int64)
    codes = np.stack([pairs & 15, pairs >> 4], 1).reshape(-1)[:n]
    return ((codes ^ 8) - 8).astype(F32) * int4_scales(np.frombuffer(packed[:4 * blocks], "<u4"), n)


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


def power_sgd(ranks, rows, columns, rank, zeros):
    """Returns five steps of PowerSGD with error feedback and warm start, as PyTorch's hook has it, in f64: of each step
    the length of the sum and some of its elements, and the lengths of all ranks' errors."""
    n = rows * columns
    q = values(9, 0, rank * columns).astype(np.float64).reshape(rank, columns).T
    errors = [np.zeros((rows, columns)) for _ in range(ranks)]
    steps = []
    for step in range(5):
        matrices = [(0 if zeros else values(r, step, n).astype(np.float64).reshape(rows, columns)) + errors[r]
                    for r in range(ranks)]
        q, _ = np.linalg.qr(q)
        p, _ = np.linalg.qr(sum(m @ q for m in matrices))
        q = sum(m.T @ p for m in matrices)
        whole = p @ q.T
        errors = [m - whole / ranks for m in matrices]
        steps.append({"sum": float(np.linalg.norm(whole)), "errors": [float(np.linalg.norm(e)) for e in errors],
                      "elements": [float(x) for x in whole.reshape(-1)[::max(1, n // 5)][:5]]})
    return {"ranks": ranks, "rows": rows, "columns": columns, "rank": rank, "zeros": zeros, "steps": steps}


def main():
    np.seterr(all="ignore")
    packed = []
    for name, x in ([(f"{n}", values(0, 0, n)) for n in (1, 7, 64, 257, 1025)] +
                    [(name, specials(name)) for name in ("zeros", "inf", "nan", "denormals")]):
        packed.append({"values": name, "int8": int8(x).hex(), "int4": int4(x).hex()})
    hops = []
    for ranks, group in ((2, 1), (3, 1), (4, 1), (4, 2), (6, 2)):
        for step in range(5):
            part = (1, 32, 129, 140, 65)[step]
            _, result = sums(ranks, group, part, step)
            hops.append({"ranks": ranks, "group": group, "part": part, "step": step,
                         "sums": [x.astype("<f4").tobytes().hex() for x in result]})
    factors = [power_sgd(ranks, rows, columns, rank, False) for ranks in (2, 3, 4)
               for rows, columns, rank in ((1, 1, 1), (7, 1, 1), (1, 7, 1), (17, 241, 1), (17, 241, 2), (64, 31, 4))]
    factors.append(power_sgd(2, 7, 5, 2, True))
    text = json.dumps({"packed": packed, "sums": hops, "power_sgd": factors}, indent=0)
    (pathlib.Path(__file__).parent / "codecs.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
