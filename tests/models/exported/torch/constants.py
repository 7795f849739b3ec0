#!/usr/bin/env python3
"""Exports a module that computes with its constants alone, and writes what PyTorch makes of them.

  constants.py FOLDER

FOLDER gets model.pt2, and expected: the elements of all outputs, one after the other. Needs torch.
"""
import itertools
import pathlib
import sys

import torch
from torch.nn import functional

INF, NAN = float("inf"), float("nan")


def constants():
    torch.manual_seed(5)
    return {
        "f32": torch.randn(3, 4) * 2, "f64": torch.randn(3, 4, dtype=torch.float64), "f16": torch.randn(3, 4).half(),
        "bf16": torch.randn(4).bfloat16(), "positive": torch.randn(3, 4).abs() + 0.1, "i64": torch.randint(-9, 9, (3, 4)),
        "counts": torch.randint(1, 5, (3, 4)), "i32": torch.randint(0, 100, (2, 3), dtype=torch.int32),
        "u8": torch.randint(0, 255, (3, 4), dtype=torch.uint8), "i8": torch.randint(-100, 100, (4,), dtype=torch.int8),
        "mask": torch.rand(3, 4) > 0.5, "scalar": torch.tensor(2.5), "whole_scalar": torch.tensor(3),
        "f64_scalar": torch.tensor(1.5, dtype=torch.float64), "f16_scalar": torch.tensor(1.5).half(),
        "blocks": torch.randn(2, 3, 4, 5), "places": torch.tensor([[0, 2], [1, -1]]), "rows": torch.tensor([1, 0])}


class Constants(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, value in constants().items():
            self.register_buffer(name, value, persistent=False)

    def forward(self, x):
        return (*self.unary(), *self.pairs(), *self.quotients(), *self.casts(), *self.created(x), *self.views(),
                *self.joined(), *self.taken(), *self.reduced(), *self.ordered(), *self.products(), *self.chosen())

    def unary(self):
        whole_too = (torch.abs, torch.neg, torch.square, torch.sign, torch.relu, torch.floor, torch.ceil, torch.trunc,
                     torch.round, torch.exp, torch.sin, torch.cos, torch.tanh, torch.sigmoid, torch.erf, torch.expm1,
                     torch.reciprocal, torch.tan, torch.isnan, torch.logical_not)
        tensors = (self.f32, self.f64, self.f16, self.bf16, self.i64, self.i32, self.u8)
        yield from (function(t) for function in whole_too for t in tensors)
        of_positive = (torch.log, torch.sqrt, torch.rsqrt, torch.log2, torch.log1p, torch.log10)
        positive = (self.positive, self.counts, self.positive.half(), self.positive.double())
        yield from (function(t) for function in of_positive for t in positive)
        yield from (~self.mask, ~self.i64, ~self.u8)

    def pairs(self):
        operands = (self.f32, self.f64, self.f16, self.bf16, self.i64, self.i8, self.u8, self.mask, self.scalar,
                    self.whole_scalar, self.f64_scalar, self.f16_scalar, 2, 2.5, True)
        for a, b in itertools.product(operands, operands):
            if not torch.is_tensor(a):
                if torch.is_tensor(b):
                    yield from (a + b, a * b)
                continue
            truths = [t is self.mask or t is True for t in (a, b)]
            yield from (a + b, a * b, a < b, a >= b, a == b, a != b, a > b, a <= b)
            if not any(truths):
                yield a - b
            if not all(truths):
                yield torch.add(a, b, alpha=2)
            if torch.is_tensor(b):
                yield from (torch.logical_and(a, b), torch.logical_or(a, b), torch.logical_xor(a, b), torch.maximum(a, b),
                            torch.minimum(a, b), torch.where(self.mask, a, b))

    def quotients(self):
        for a, b in itertools.product((self.i64, self.i8, self.u8, self.i32), (self.whole_scalar, 3, self.rows[0] + 4)):
            yield from (a // b, a % b, a / b, torch.div(a, b, rounding_mode="trunc"), a & b, a | b, a ^ b)
        for a, b in itertools.product((self.f32, self.f64, self.f16), (self.scalar, 3.5, self.whole_scalar, -2)):
            yield from (a // b, a % b, a / b, torch.div(a, b, rounding_mode="trunc"), torch.div(a, b, rounding_mode="floor"))
        for exponent in (2, 3, 0.5, -1, 0, 1):
            yield from (t ** exponent for t in (self.positive, self.positive.double(), self.positive.half()))
        yield from (self.i64 ** 2, self.i64 ** 3, self.i64 ** 0, 2 ** self.positive, self.positive ** self.positive,
                    self.i64 ** self.counts, 2.0 ** self.counts, 2 ** self.counts, 1 - self.f32, 2 / self.f32, 2.5 - self.i64,
                    torch.rsub(self.f32, self.i64, alpha=2))

    def casts(self):
        types = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.uint8, torch.int16,
                 torch.int32, torch.int64, torch.bool)
        tensors = (self.f32, self.f64, self.f16, self.bf16, self.i64, self.i32, self.i8, self.u8, self.mask)
        # PyTorch leaves open what a negative fraction becomes as an unsigned number.
        yield from (t.to(d) for d in types for t in tensors if not (d == torch.uint8 and t.is_floating_point()))
        yield self.f32.type_as(self.f16)

    def created(self, x):
        return (torch.arange(7), torch.arange(2, 9, 3), torch.arange(0, 1, 0.1), torch.arange(5, dtype=torch.float32),
                torch.arange(9, 1, -2), torch.arange(0.5, 3, dtype=torch.float64), torch.arange(3, dtype=torch.int32),
                torch.arange(0, 2, 0.3, dtype=torch.float16), torch.zeros(2, 3), torch.ones(2, dtype=torch.int64),
                torch.full((2, 2), 7), torch.full((2,), 1.5, dtype=torch.float16), torch.full((2,), True),
                torch.zeros_like(self.f32), torch.full_like(self.i64, 3), torch.ones_like(self.mask), self.f32.new_ones(2),
                x.new_zeros(3), torch.zeros_like(x), torch.eye(3), torch.eye(2, 4, dtype=torch.int64), torch.scalar_tensor(3.0))

    def views(self):
        b, f = self.blocks, self.f32
        return (b.view(6, 20), b.transpose(1, 3).reshape(10, 12), b.flatten(1, 2), b.permute(3, 1, 0, 2), b.unsqueeze(-1),
                b[:, 1], b[..., ::2], b[:, :, 1:-1], b[:, -1:], b[0, :, None].squeeze(1), f.expand(2, 3, 4),
                f[:1].expand(5, -1), f.t(), b.mT, b.unflatten(1, (3, 1)), self.scalar.expand(2, 2),
                f.expand(2, 3, 4).reshape(6, 4), self.scalar.expand(4, 2).reshape(8), *b.split(2, 3), *b.chunk(3, 2),
                *b.split([1, 2], 1), *torch.broadcast_tensors(f, self.bf16))

    def joined(self):
        f, i = self.f32, self.i64
        return (torch.cat([f, self.f16.float()], 0), torch.cat([f, self.f64], 1), torch.cat([i, f], 1),
                torch.stack([f, self.positive], 1), torch.stack([f, self.positive], -1), f.repeat(2, 3), f.repeat(2, 1, 2),
                functional.pad(f, (1, 2)), functional.pad(f, (1, -1, -1, 2), value=3.0),
                functional.pad(i, (0, 1), value=-100), torch.tril(f), torch.triu(self.blocks, 1), torch.tril(i, -1),
                f.flip(0), self.blocks.flip(1, 3), torch.diff(i), torch.diff(f, dim=0), torch.diff(self.mask),
                torch.diff(i, prepend=i[:, :1] - 1, append=i[:, :2]), torch.diff(f, n=2))

    def taken(self):
        f, b, places, rows = self.f32, self.blocks, self.places, self.rows
        return (torch.gather(f, 1, places.abs()), torch.gather(f, 0, places.abs()), f[places], f[:, places], f[places, rows],
                b[places.clamp(max=1), :, rows], b[:, places, rows], b[:, rows, :, rows], torch.index_select(b, 2, rows),
                functional.embedding(places.abs(), f), f[rows[:, None], places])

    def reduced(self):
        for t in (self.f32, self.f64, self.f16, self.i64, self.i32, self.u8, self.mask):
            yield from (t.sum(), t.sum(0), t.sum((0, 1), keepdim=True), t.cumsum(0), t.cumsum(-1), t.any(), t.all(0),
                        t.any(1, keepdim=True))
            if t.dtype != torch.bool:
                yield from (t.max(), t.min(), t.amax(0), t.amin((0, 1)))
            if t.is_floating_point():
                yield from (t.mean(), t.mean(0), t.mean((0, 1), keepdim=True))
        yield from (self.i64.sum(dtype=torch.float32), self.f32.mean(1, dtype=torch.float64),
                    self.i64.cumsum(1, dtype=torch.float32))

    def ordered(self):
        for t in (self.f32, self.f64, self.f16, self.bf16, self.i64, self.u8, self.mask):
            for dim, descending in itertools.product(range(t.dim()), (False, True)):
                yield from (*torch.sort(t, dim=dim, descending=descending, stable=True),
                            torch.argsort(t, dim=dim, descending=descending, stable=True))
        holes = self.f32.masked_fill(self.mask, NAN)
        yield from (*holes.sort(1), *holes.sort(0, descending=True), *self.f32.topk(2), holes.topk(2)[0],
                    *self.f32.topk(2, dim=0, largest=False), self.f64.argsort())

    def products(self):
        f, b, row = self.f32, self.blocks, self.bf16.float()
        return (f @ self.positive.t(), b @ b.mT, row @ f.t(), f @ row, torch.bmm(b[0], b[0].mT),
                torch.mm(f, self.positive.t()), f[0] @ f[0], self.f64 @ self.f64.t())

    def chosen(self):
        f, i, mask = self.f32, self.i64, self.mask
        return (f.clamp(-1, 1), f.clamp(min=0.5), i.clamp(max=2), f.masked_fill(mask, -INF), i.masked_fill(mask, 7),
                torch.where(f > 0, f, 0.0), torch.where(mask, 1, 0), torch.where(mask, i, 1.5),
                f.masked_fill(mask, self.scalar), mask & (f > 0), mask | (f > 0), mask ^ (f > 0))


def main():
    folder = pathlib.Path(sys.argv[1])
    module, x = Constants(), torch.randn(2)
    program = torch.export.export(module, (x,)).run_decompositions({})
    torch.export.save(program, folder / "model.pt2")
    with open(folder / "expected", "wb") as file:
        for value in module(x):
            file.write(value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


if __name__ == "__main__":
    main()
