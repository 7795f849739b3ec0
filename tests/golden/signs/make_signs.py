#!/usr/bin/env python3
"""Writes signs.json: steps of values that are added as signs in two hops (runtime/ir/quantized.h), of 0/1 Adam (Lu et
al., 2022) and of 1-bit Lamb (Li et al., 2021), on 1 to 4 ranks, by straightforward numpy models: what travels and all
state after each step, as CRC-32.

The gradient of rank r in step s is values(); with "zeros" the first 100 and every third element of it are 0. Products
that are added to something are rounded once with it, as the kernels do (80-bit floats here); sums of squares are added
in the order of the kernels. 1-bit Lamb's unit has two parameters, of which the second does not decay.
"""
import json
import pathlib
import zlib

import numpy as np

F32 = np.float32
BLOCK = 512
LR, REST1, REST2, EPS, DECAY, SCALE = F32(0.01), F32(1 - 0.9), F32(1 - 0.95), F32(1e-5), F32(0.1), F32(0.5)


def values(rank, step, n, zeros):
    i = np.arange(n, dtype=np.int64)
    whole = ((i + 1) * 7919 + rank * 104729 + step * 1299709) % 20011 - 10005
    x = (whole.astype(np.float64) * 0.5 ** (8 + (i // 64 + rank) % 7)).astype(F32)
    if zeros:
        x[::3] = 0
        x[:100] = 0
    return x


def tree(sums):
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    return sums[0]


def chains(x, count, dtype, of):
    """Returns the sum of of(x) by `count` chains of additions, whose sums are added as a tree."""
    sums = np.zeros(count, dtype)
    for first in range(0, len(x), count):
        some = of(x[first:first + count].astype(dtype))
        sums[:len(some)] += some
    return tree(sums)


def pack(x):
    """Returns the bytes of x, and the values that they stand for."""
    blocks = [x[first:first + BLOCK] for first in range(0, len(x), BLOCK)]
    scales = np.array([F32(chains(b, 32, F32, np.abs) / F32(len(b))) for b in blocks], F32)
    below = x < 0
    back = np.repeat(scales, BLOCK)[:len(x)]
    packed = scales.astype("<f4").tobytes() + np.packbits(below, bitorder="little").tobytes()
    return packed, np.where(below, -back, back).astype(F32)


def fma(a, b, c):
    return (np.longdouble(a) * np.longdouble(b) + np.longdouble(c)).astype(F32)


def added(arrays):
    total = np.zeros(len(arrays[0]), F32)
    for x in arrays:
        total = (total + x).astype(F32)
    return total


class Signs:
    """Values that are added as signs, and the errors of both hops."""
    steps = 5

    def __init__(self, ranks, part):
        self.ranks, self.n = ranks, ranks * part
        self.worker = [np.zeros(self.n, F32) for _ in range(ranks)]
        self.server = [np.zeros(part, F32) for _ in range(ranks)]
        self.sum = np.zeros(0, F32)

    def exchange(self, all_values, factor=F32(1), drop=False):
        """Returns the sum of the ranks' values."""
        part, back, result = len(self.server[0]), [], []
        for x, error in zip(all_values, self.worker):
            total = fma(factor, x, 0 if drop else error)
            hops = [pack(total[first:first + part]) for first in range(0, self.n, part)]
            back.append(np.concatenate([values for _, values in hops]))
            error[:] = total - back[-1]
            self.sent += [packed for packed, _ in hops]
        for owner, error in enumerate(self.server):
            total = added([x[owner * part:(owner + 1) * part] for x in back])
            total = (total + (0 if drop else error)).astype(F32)
            packed, left = pack(total)
            error[:] = total - left
            self.forward.append(packed)
            result.append(left)
        return np.concatenate(result)

    def step(self, number, gradients):
        self.sum = self.exchange(gradients)

    def state(self):
        return {"sum": [self.sum]}


class ZeroOneAdam(Signs):
    steps = 12
    FREEZE, VARIANCE, DOUBLES, LONGEST = 5, 2, 2, 3

    def __init__(self, ranks, part):
        super().__init__(ranks, part)
        self.p, self.v = values(7, 0, self.n, False), np.zeros(self.n, F32)
        self.m, self.total = ([np.zeros(self.n, F32) for _ in range(ranks)] for _ in range(2))
        self.rates, self.frozen, self.kinds = 0.0, False, list(self.all_kinds())

    def all_kinds(self):
        """What each step does, with DeepSpeed's counters."""
        interval, updates, waited = 1, 0, 0
        for _ in range(self.FREEZE):
            waited += 1
            if waited < interval:
                yield "gradient signs"
                continue
            yield "whole gradients"
            waited, updates = 0, updates + 1
            if updates == self.VARIANCE:
                interval, updates = 2 * interval, 0
        interval, steps = 1, 0
        for step in range(1, self.steps - self.FREEZE + 1):
            yield "synchronise" if step % interval == 0 else "local"
            steps += 1
            if steps == self.DOUBLES:
                interval, steps = min(self.LONGEST, 2 * interval), 0

    def moved(self, total):
        step = np.where(self.v > 0, total / (np.sqrt(self.v) + EPS), 0).astype(F32)
        return fma(-(F32(self.rates) * DECAY), self.p, self.p - step)

    def together(self, gradients):
        if self.kind == "whole gradients" or self.ranks == 1:
            g = (added(gradients) * SCALE).astype(F32)
        else:
            g = self.exchange(gradients, SCALE)
        m = fma(REST1, g - self.m[0], self.m[0])
        if self.kind == "whole gradients":
            self.v = fma(REST2, (g * g).astype(F32) - self.v, self.v)
        else:
            m = np.where(self.v > 0, m, 0).astype(F32)
        self.m = [m.copy() for _ in self.m]
        step = np.where(self.v > 0, m / (np.sqrt(self.v) + EPS), 0).astype(F32)
        self.p = fma(-LR, fma(DECAY, self.p, step), self.p)

    def locally(self, gradients):
        for r, own in enumerate(gradients):
            g = (own * F32(SCALE * F32(self.ranks))).astype(F32)
            self.m[r] = np.where(self.v > 0, fma(REST1, g - self.m[r], self.m[r]), 0).astype(F32)
            self.total[r] = fma(LR, self.m[r], self.total[r])
        self.rates += float(LR)

    def synchronise(self):
        mean = self.total[0]
        if self.ranks > 1:
            mean = self.exchange(self.total, F32(1) / F32(self.ranks), not self.frozen)
        self.p = self.moved(mean)
        self.m = [np.where(self.v > 0, mean / F32(self.rates), 0).astype(F32) for _ in self.m]
        self.total = [np.zeros(self.n, F32) for _ in self.total]
        self.rates = 0.0

    def step(self, number, gradients):
        self.kind = self.kinds[number]
        self.weights = [self.moved(total) for total in self.total]
        if self.kind in ("whole gradients", "gradient signs"):
            return self.together(gradients)
        self.locally(gradients)
        if self.kind == "synchronise":
            self.synchronise()
        self.frozen = True

    def state(self):
        return {"weights": self.weights, "master": [self.p], "v": [self.v], "m": self.m, "sum": self.total}


class OneBitLamb(Signs):
    steps = 8
    FREEZE, DECAYS, LIMITS = 3, (DECAY, F32(0)), (float(F32(0.01)), 10.0)
    BETA, LOWEST, HIGHEST, THRESHOLD = (float(F32(x)) for x in (0.9, 0.5, 4, 0.1))

    def __init__(self, ranks, part):
        super().__init__(ranks, part)
        half = self.n // 2
        self.parameters = ((0, slice(0, half), self.DECAYS[0]), (1, slice(half, self.n), self.DECAYS[1]))
        self.p = values(7, 0, self.n, False)
        self.m, self.v, self.fresh = (np.zeros(self.n, F32) for _ in range(3))
        self.average, self.factor, self.scale = (np.zeros(2, F32) for _ in range(3))

    @staticmethod
    def square_sum(x, blocks=4096, count=32):
        return sum((float(chains(x[first:first + blocks], count, np.float64, np.square))
                    for first in range(0, len(x), blocks)), 0.0)

    def warm_up(self, gradients):
        g = (added(gradients) * SCALE).astype(F32)
        self.m = fma(REST1, g - self.m, self.m)
        self.v = fma(REST2, (g * g).astype(F32) - self.v, self.v)
        for k, at, decay in self.parameters:
            direction = fma(decay, self.p[at], (self.m[at] / (np.sqrt(self.v[at]) + EPS)).astype(F32))
            weight, moved = self.square_sum(self.p[at]), self.square_sum(direction)
            trust = 1.0
            if weight > 0 and moved > 0:
                trust = max(self.LIMITS[0], min(self.LIMITS[1], float(np.sqrt(weight) / np.sqrt(moved))))
            if trust != 1:
                self.average[k] = F32(self.BETA * float(self.average[k]) + (1 - self.BETA) * trust)
            self.p[at] = fma(-F32(float(LR) * trust), direction, self.p[at])

    def frozen(self, gradients):
        momenta = [np.zeros(self.n, F32) for _ in gradients]
        for k, at, _ in self.parameters:
            if self.factor[k] == 0:
                squares = self.square_sum(self.m[at], self.n, 256)
                self.scale[k] = F32(np.sqrt(len(self.m[at]) / squares)) if squares > 0 else 1
            for momentum, own in zip(momenta, gradients):
                old = (self.m[at] * F32(F32(1) / F32(self.ranks))).astype(F32)
                share = fma(REST1, (own[at] * SCALE).astype(F32) - old, old)
                momentum[at] = np.where(self.v[at] > 0, share * self.scale[k], 0)
        total = self.exchange(momenta) if self.ranks > 1 else momenta[0]
        for k, at, decay in self.parameters:
            self.move(k, at, decay, total[at])

    def factor_of(self, last, largest, plain, decayed):
        factor, last = float(largest), float(last) if last > 0 else 1.0
        if decayed > 0 and plain < decayed:
            share = float(np.sqrt(plain / decayed))
            factor = factor * share + (1 - share) if share > 0 else 1.0
        factor = max(self.LOWEST, min(self.HIGHEST, factor))
        return F32(max(last * (1 - self.THRESHOLD), min(last * (1 + self.THRESHOLD), factor)))

    def move(self, k, at, decay, total):
        v, m = self.v[at], self.m[at]
        new = np.where(v > 0, total / self.scale[k], 0).astype(F32)
        g = m + (new - m) / REST1
        fresh = v if self.factor[k] == 0 else self.fresh[at]
        fresh = fma(REST2, (g * g).astype(F32) - fresh, fresh)
        root = np.sqrt(v) + EPS
        ratio = np.where(v > 0, root / (np.sqrt(fresh) + EPS), 1).astype(F32)
        plain = np.where(v > 0, new / root, 0).astype(F32)
        direction = fma(decay, self.p[at], plain)
        sums = (self.square_sum(plain), self.square_sum(direction)) if decay > 0 else (0.0, 0.0)
        self.factor[k] = self.factor_of(self.factor[k], ratio.max(), *sums)
        self.p[at] = fma(-(LR * (self.average[k] * self.factor[k])), direction, self.p[at])
        self.m[at], self.fresh[at] = new, fresh

    def step(self, number, gradients):
        (self.warm_up if number < self.FREEZE else self.frozen)(gradients)

    def state(self):
        return {"master": [self.p], "m": [self.m], "v": [self.v], "fresh": [self.fresh], "average": [self.average],
                "factor": [self.factor], "scale": [self.scale]}


def crc(arrays):
    return zlib.crc32(b"".join(a if isinstance(a, bytes) else a.astype("<f4").tobytes() for a in arrays))


def run(kind, ranks, part, zeros):
    model, steps = kind(ranks, part), []
    for step in range(kind.steps):
        model.sent, model.forward = [], []
        model.step(step, [values(r, step, model.n, zeros) for r in range(ranks)])
        state = {"sent": model.sent, "forward": model.forward, "worker": model.worker, "server": model.server}
        steps.append({name: crc(arrays) for name, arrays in {**state, **model.state()}.items()})
    return {"ranks": ranks, "part": part, "zeros": zeros, "steps": steps}


def main():
    np.seterr(divide="ignore", invalid="ignore")
    kinds = ((Signs, (1, 2, 3, 4), (1, 7, 512, 4097)), (ZeroOneAdam, (1, 2, 3, 4), (1, 7, 4097)),
             (OneBitLamb, (1, 2, 4), (14, 4098)))
    cases = {kind.__name__: [run(kind, ranks, part, zeros) for ranks in all_ranks for part in parts
                             for zeros in (False, True)] for kind, all_ranks, parts in kinds}
    (pathlib.Path(__file__).parent / "signs.json").write_text(json.dumps(cases, indent=0) + "\n")


if __name__ == "__main__":
    main()
