"""The benchmark model's samples by their definition, with Philox4x32-10 written in Python."""
import math

import numpy as np

MASK = 0xFFFFFFFF


def philox4x32_10(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & MASK, (p0 >> 32) ^ c[3] ^ k[1], p0 & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


# Known answers of the generator's authors (Random123, kat_vectors).
assert philox4x32_10([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
assert philox4x32_10([MASK] * 4, [MASK] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def sample(i, in_size, out_size, seed):
    """Returns x (float32, in_size) and the label of sample i."""
    key = (seed & MASK, seed >> 32)
    words = []
    for block in range(-(-in_size // 4)):
        words += philox4x32_10((i & MASK, i >> 32, block, 0), key)
    x = np.array([-10 + 20 * u / 2**32 for u in words[:in_size]]).astype(np.float32)
    squares = 0.0
    for value in x.tolist():
        squares += value * value
    return x, math.floor(squares) % out_size


def reference():
    """Returns a few samples for the data test: x and the label if x is short, else the label alone."""
    cases = []
    for seed, in_size, out_size, indices in (
        (20250607, 10, 7, [0, 1, 2, 137, 2**32 + 5, 2**40, 2**40 + 3]),
        (2**63 + 11, 5, 3, [0, 1]),
        (1337, 8192, 1000, list(range(24))),
    ):
        samples = [(i, *sample(i, in_size, out_size, seed)) for i in indices]
        cases.append({
            "seed": seed, "in_size": in_size, "out_size": out_size,
            "samples": [
                {"index": i, "label": label} | ({"x": x.tolist()} if in_size < 100 else {})
                for i, x, label in samples
            ],
        })  # fmt: skip
    return cases
