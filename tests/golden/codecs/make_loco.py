#!/usr/bin/env python3
"""Writes loco.json: five steps of gradients that are added as int4 with error feedback (LoCo:
runtime/ir/ops/boundary.h), with the errors of both hops, by a straightforward numpy model. Bytes are given as
CRC-32.

The values of rank r in step s are those of make_codecs.py; of them every third one is 0 in the case "zeros",
all are below 2^-120 in "small", and in "inf" one of rank 0 is inf in step 2. The loss scale is 4, and in some
cases 1; the error begins at 0 again in step 3.
"""
import json
import pathlib
import zlib

import numpy as np

import make_codecs as codecs

F32 = np.float32
BETA, STEPS = F32(0.8), 3


def values(rank, step, n, kind):
    x = codecs.values(rank, step, n)
    if kind == "zeros":
        x[::3] = 0
    if kind == "small":
        x *= F32(2.0**-125)
    if kind == "inf" and step == 2 and rank == 0:
        x[n // 2] = np.inf
    return x


def from_int8(packed, n):
    blocks = (n + 255) // 256
    scales = np.frombuffer(packed[:4 * blocks], "<f4")
    return np.frombuffer(packed[4 * blocks:], np.int8).astype(F32) * np.repeat(scales, 256)[:n]


def compress(x, errors, at, step, loss_scale):
    """Packs x with the error at `at`, which becomes the next one."""
    n = len(x)
    error = from_int8(errors[at], n) if errors[at] is not None and step % STEPS else np.zeros(n, F32)
    total = x + error * loss_scale
    packed = codecs.int4(total)
    back = codecs.from_int4(packed, n)
    lost = (total - back) * (F32(1) / loss_scale)
    error = np.where(np.isnan(back), error, error * BETA + lost * (F32(1) - BETA)).astype(F32)
    errors[at] = codecs.int8(error)
    return packed


def crc(parts):
    return zlib.crc32(b"".join(parts))


def run(ranks, group, part, kind, loss_scale):
    hosts = ranks // group
    sending = [[None] * ranks for _ in range(ranks)]
    summing = [[None] * hosts for _ in range(ranks)]  # of the rank that adds for its group, by the owner's group
    steps = []
    for step in range(5):
        x = [values(r, step, ranks * part, kind) for r in range(ranks)]
        sent = [[compress(x[r][p * part:(p + 1) * part], sending[r], p, step, loss_scale)
                 for p in range(ranks)] for r in range(ranks)]
        result, forward = [], [[] for _ in range(ranks)]
        for owner in range(ranks):
            if group == 1:
                result.append(codecs.add([codecs.from_int4(sent[r][owner], part) for r in range(ranks)]))
                continue
            hops = []
            for host in range(hosts):
                of_host = codecs.add([codecs.from_int4(sent[host * group + i][owner], part) for i in range(group)])
                adder = host * group + owner % group
                forward[adder].append(compress(of_host, summing[adder], owner // group, step, loss_scale))
                hops.append(codecs.from_int4(forward[adder][-1], part))
            result.append(codecs.add(hops))
        expected = {"sent": [crc(parts) for parts in sent], "send_error": [crc(parts) for parts in sending]}
        if group > 1:
            expected.update(forward=[crc(parts) for parts in forward], sum_error=[crc(parts) for parts in summing])
        if kind != "inf":  # a NaN has many bits
            expected["sums"] = [crc([r.astype("<f4").tobytes()]) for r in result]
        steps.append(expected)
    return {"ranks": ranks, "group": group, "part": part, "kind": kind, "loss_scale": float(loss_scale), "steps": steps}


def main():
    np.seterr(all="ignore")
    kinds = [(kind, F32(4)) for kind in ("plain", "zeros", "small", "inf")] + [("plain", F32(1)), ("inf", F32(1))]
    cases = [run(ranks, group, part, kind, loss_scale) for ranks, group in ((2, 1), (3, 1), (4, 1), (4, 2))
             for part in (1, 7, 4097) for kind, loss_scale in kinds]
    (pathlib.Path(__file__).parent / "loco.json").write_text(json.dumps(cases, indent=0) + "\n")


main()
