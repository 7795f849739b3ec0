#!/usr/bin/env python3
"""Writes one_bit_lamb.json: eight updates of 1-bit Lamb (Li et al., 2021) on 1 to 4 ranks by a straightforward numpy
model, of a unit with two parameters, of which the second does not decay: what travels and all state after each, as CRC-32.
Gradients, and products that are added to something, are those of make_zero_one.py. Sums of squares are added in the order
of the kernels.
"""
import json
import pathlib

import numpy as np

import make_signs as signs
from make_zero_one import EPS, F32, LR, REST1, REST2, SCALE, crc, exchange, fma

DECAY = (F32(0.1), F32(0))
LIMITS = F32(0.01), F32(10)
BETA, LOWEST, HIGHEST, THRESHOLD = (float(F32(x)) for x in (0.9, 0.5, 4, 0.1))
FREEZE, STEPS = 3, 8


def tree(chains):
    while len(chains) > 1:
        half = len(chains) // 2
        chains = chains[:half] + chains[half:]
    return float(chains[0])


def chain_sum(x, chains):
    sums = np.zeros(chains)
    for first in range(0, len(x), chains):
        some = x[first:first + chains].astype(np.float64)
        sums[:len(some)] += some * some
    return tree(sums)


def square_sum(x):
    return sum((chain_sum(x[first:first + 4096], 32) for first in range(0, len(x), 4096)), 0.0)


def trust_of(weight, direction):
    if not (weight > 0 and direction > 0):
        return 1.0
    return max(float(LIMITS[0]), min(float(LIMITS[1]), float(np.sqrt(weight) / np.sqrt(direction))))


def factor_of(last, largest, plain, decayed):
    factor, last = float(largest), float(last) if last > 0 else 1.0
    if decayed > 0 and plain < decayed:
        share = float(np.sqrt(plain / decayed))
        factor = factor * share + (1 - share) if share > 0 else 1.0
    factor = max(LOWEST, min(HIGHEST, factor))
    return F32(max(last * (1 - THRESHOLD), min(last * (1 + THRESHOLD), factor)))


class Model:
    def __init__(self, ranks, part, zeros):
        n = ranks * part
        self.ranks, self.n, self.zeros = ranks, n, zeros
        self.bounds = ((0, n // 2), (n // 2, n))
        self.p = signs.values(7, 0, n, False)
        self.m, self.v, self.fresh = (np.zeros(n, F32) for _ in range(3))
        self.average, self.factor, self.scale = (np.zeros(2, F32) for _ in range(3))
        self.worker = [np.zeros(n, F32) for _ in range(ranks)]
        self.server = [np.zeros(part, F32) for _ in range(ranks)]

    def warm_up(self, gradients):
        g = np.zeros(self.n, F32)
        for own in gradients:
            g = (g + own).astype(F32)
        g = (g * SCALE).astype(F32)
        self.m = fma(REST1, g - self.m, self.m)
        self.v = fma(REST2, (g * g).astype(F32) - self.v, self.v)
        for k, (begin, end) in enumerate(self.bounds):
            at = slice(begin, end)
            step = (self.m[at] / (np.sqrt(self.v[at]) + EPS)).astype(F32)
            direction = fma(DECAY[k], self.p[at], step)
            trust = trust_of(square_sum(self.p[at]), square_sum(direction))
            if trust != 1:
                self.average[k] = F32(BETA * float(self.average[k]) + (1 - BETA) * trust)
            self.p[at] = fma(-F32(float(LR) * trust), direction, self.p[at])

    def frozen(self, gradients):
        momenta = [np.zeros(self.n, F32) for _ in range(self.ranks)]
        for k, (begin, end) in enumerate(self.bounds):
            at = slice(begin, end)
            if self.factor[k] == 0:
                squares = chain_sum(self.m[at], 256)
                self.scale[k] = F32(np.sqrt((end - begin) / squares)) if squares > 0 else 1
            for r, own in enumerate(gradients):
                old = (self.m[at] * F32(F32(1) / F32(self.ranks))).astype(F32)
                share = fma(REST1, (own[at] * SCALE).astype(F32) - old, old)
                momenta[r][at] = np.where(self.v[at] > 0, share * self.scale[k], 0)
        total, sent, forward = momenta[0], (), ()
        if self.ranks > 1:
            total, sent, forward = exchange(momenta, F32(1), self.worker, self.server, False)
        for k, (begin, end) in enumerate(self.bounds):
            self.move(k, slice(begin, end), total)
        return sent, forward

    def move(self, k, at, total):
        v, m = self.v[at], self.m[at]
        new = np.where(v > 0, total[at] / self.scale[k], 0).astype(F32)
        g = m + (new - m) / REST1
        fresh = v if self.factor[k] == 0 else self.fresh[at]
        fresh = fma(REST2, (g * g).astype(F32) - fresh, fresh)
        root = np.sqrt(v) + EPS
        ratio = np.where(v > 0, root / (np.sqrt(fresh) + EPS), 1).astype(F32)
        plain = np.where(v > 0, new / root, 0).astype(F32)
        direction = fma(DECAY[k], self.p[at], plain)
        sums = (square_sum(plain), square_sum(direction)) if DECAY[k] > 0 else (0.0, 0.0)
        self.factor[k] = factor_of(self.factor[k], ratio.max(), *sums)
        rate = LR * (self.average[k] * self.factor[k])
        self.p[at] = fma(-rate, direction, self.p[at])
        self.m[at], self.fresh[at] = new, fresh


def run(ranks, part, zeros):
    model, steps = Model(ranks, part, zeros), []
    for step in range(STEPS):
        gradients = [signs.values(r, step, model.n, zeros) for r in range(ranks)]
        if zeros:
            for g in gradients:
                g[:100] = 0
        sent = forward = ()
        if step < FREEZE:
            model.warm_up(gradients)
        else:
            sent, forward = model.frozen(gradients)
        steps.append({"sent": crc(*sent), "forward": crc(*forward), "master": crc(model.p), "m": crc(model.m),
                      "v": crc(model.v), "fresh": crc(model.fresh), "average": crc(model.average),
                      "factor": crc(model.factor), "scale": crc(model.scale), "worker": crc(*model.worker),
                      "server": crc(*model.server)})
    return {"ranks": ranks, "part": part, "zeros": zeros, "steps": steps}


def main():
    np.seterr(divide="ignore", invalid="ignore")
    cases = [run(ranks, part, zeros) for ranks in (1, 2, 4) for part in (14, 4098) for zeros in (False, True)]
    (pathlib.Path(__file__).parent / "one_bit_lamb.json").write_text(json.dumps(cases, indent=0) + "\n")


if __name__ == "__main__":
    main()
