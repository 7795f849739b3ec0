#!/usr/bin/env python3
"""Writes zero_one.json: twelve updates of 0/1 Adam (Lu et al., 2022) on 1 to 4 ranks by a straightforward numpy model:
what travels and all state after each, as CRC-32. What travels as signs is that of make_signs.py.

The gradient of rank r in step s is that of make_signs.py's values(); with "zeros" the first 100 and every third element
of it are 0. Products that are added to something are rounded once with it, as the kernels do (80-bit floats here).
"""
import json
import pathlib
import zlib

import numpy as np

import make_signs as signs

F32 = np.float32
LR, REST1, REST2, EPS, DECAY, SCALE = F32(0.01), F32(1 - 0.9), F32(1 - 0.95), F32(1e-5), F32(0.1), F32(0.5)
FREEZE, VARIANCE, DOUBLES, LONGEST = 5, 2, 2, 3
STEPS = 12


def fma(a, b, c):
    return (np.longdouble(a) * np.longdouble(b) + np.longdouble(c)).astype(F32)


def kinds():
    """What each step does, with DeepSpeed's counters."""
    interval, updates, waited = 1, 0, 0
    for _ in range(FREEZE):
        waited += 1
        if waited < interval:
            yield "gradient signs"
            continue
        yield "whole gradients"
        waited, updates = 0, updates + 1
        if updates == VARIANCE:
            interval, updates = 2 * interval, 0
    interval, steps = 1, 0
    for step in range(1, STEPS - FREEZE + 1):
        yield "synchronise" if step % interval == 0 else "local"
        steps += 1
        if steps == DOUBLES:
            interval, steps = min(LONGEST, 2 * interval), 0


def exchange(values, factor, worker, server, drop):
    """Returns the sum of the ranks' values, and what is packed in both hops."""
    ranks, part = len(values), len(server[0])
    sent, back, forward, result = [], [], [], []
    for r, x in enumerate(values):
        if drop:
            worker[r][:] = 0
            server[r][:] = 0
        total = fma(factor, x, worker[r])
        hops = [signs.pack(total[p * part:(p + 1) * part]) for p in range(ranks)]
        back.append(np.concatenate([b for _, b in hops]))
        worker[r][:] = total - back[r]
        sent.append(b"".join(packed for packed, _ in hops))
    for owner in range(ranks):
        total = np.zeros(part, F32)
        for r in range(ranks):
            total = (total + back[r][owner * part:(owner + 1) * part]).astype(F32)
        total = (total + server[owner]).astype(F32)
        packed, left = signs.pack(total)
        server[owner][:] = total - left
        forward.append(packed)
        result.append(left)
    return np.concatenate(result), sent, forward


def moved(p, v, total, rates):
    step = np.where(v > 0, total / (np.sqrt(v) + EPS), 0).astype(F32)
    return fma(-(rates * DECAY), p, p - step)


def adam(p, m, v):
    step = np.where(v > 0, m / (np.sqrt(v) + EPS), 0).astype(F32)
    return fma(-LR, fma(DECAY, p, step), p)


def crc(*arrays):
    return zlib.crc32(b"".join(a if isinstance(a, bytes) else a.astype("<f4").tobytes() for a in arrays))


def run(ranks, part, zeros):
    n = ranks * part
    p = signs.values(7, 0, n, False)
    v = np.zeros(n, F32)
    m, total = ([np.zeros(n, F32) for _ in range(ranks)] for _ in range(2))
    worker, server = [np.zeros(n, F32) for _ in range(ranks)], [np.zeros(part, F32) for _ in range(ranks)]
    steps, rates, frozen = [], 0.0, False
    for step, kind in enumerate(kinds()):
        gradients = [signs.values(r, step, n, zeros) for r in range(ranks)]
        sent = forward = ()
        weights = [moved(p, v, t, F32(rates)) for t in total]
        if zeros:
            for g in gradients:
                g[:100] = 0
        if kind in ("whole gradients", "gradient signs"):
            if kind == "whole gradients" or ranks == 1:
                g = np.zeros(n, F32)
                for own in gradients:
                    g = (g + own).astype(F32)
                g = (g * SCALE).astype(F32)
            else:
                g, sent, forward = exchange(gradients, SCALE, worker, server, False)
            new = fma(REST1, g - m[0], m[0])
            if kind == "whole gradients":
                v = fma(REST2, (g * g).astype(F32) - v, v)
            else:
                new = np.where(v > 0, new, 0).astype(F32)
            m = [new.copy() for _ in range(ranks)]
            p = adam(p, new, v)
        else:
            for r, own in enumerate(gradients):
                g = (own * F32(SCALE * F32(ranks))).astype(F32)
                m[r] = np.where(v > 0, fma(REST1, g - m[r], m[r]), 0).astype(F32)
                total[r] = fma(LR, m[r], total[r])
            rates += float(LR)
            if kind == "synchronise":
                mean = total[0]
                if ranks > 1:
                    mean, sent, forward = exchange(total, F32(1) / F32(ranks), worker, server, not frozen)
                p = moved(p, v, mean, F32(rates))
                m = [np.where(v > 0, mean / F32(rates), 0).astype(F32) for _ in range(ranks)]
                total = [np.zeros(n, F32) for _ in range(ranks)]
                rates = 0.0
            frozen = True
        steps.append({"kind": kind, "sent": crc(*sent), "forward": crc(*forward), "weights": crc(*weights),
                      "master": crc(p), "v": crc(v), "m": crc(*m), "sum": crc(*total), "worker": crc(*worker),
                      "server": crc(*server)})
    return {"ranks": ranks, "part": part, "zeros": zeros, "steps": steps}


def main():
    np.seterr(divide="ignore", invalid="ignore")
    cases = [run(ranks, part, zeros) for ranks in (1, 2, 3, 4) for part in (1, 7, 4097) for zeros in (False, True)]
    (pathlib.Path(__file__).parent / "zero_one.json").write_text(json.dumps(cases, indent=0) + "\n")


if __name__ == "__main__":
    main()
