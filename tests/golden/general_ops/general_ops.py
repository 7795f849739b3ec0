#!/usr/bin/env python3
"""Cases of the general ops with what PyTorch computes for them in double precision, results and gradients.

    general_ops.py FILE [--cases N] [--seed S] [--small]

Writes N random cases of each op, one JSON object a line. With --small their values are few and short: so
general_ops.jsonl is made (--cases 8 --small). tests/kernels/parity/ops/general/json_case.h reads them.
"""
import argparse
import json
import math
import random

import torch
import torch.nn.functional as F

TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
ALL = 2**63 - 1
FORMULAS = {  # name: (operands, steps, the same of tensors)
    "copy": (1, [["input", 0]], lambda x: x),
    "affine": (3, [["input", 0], ["input", 1], ["input", 2], ["multiply", 0, 1], ["add", 3, 2]],
               lambda x, y, z: x * y + z),
    "relu": (1, [["input", 0], ["constant", 0], ["maximum", 0, 1]], lambda x: torch.relu(x)),
    "silu": (2, [["input", 0], ["sigmoid", 0], ["multiply", 0, 1], ["input", 1], ["multiply", 2, 3]],
             lambda x, y: F.silu(x) * y),
    "tanh": (2, [["input", 0], ["input", 1], ["tangent", 0], ["subtract", 2, 1]],
             lambda x, y: torch.tanh(x) - y),
    "exp": (2, [["input", 0], ["input", 1], ["subtract", 0, 1], ["exponential", 2]],
            lambda x, y: torch.exp(x - y)),
    "softplus": (1, [["input", 0], ["exponential", 0], ["constant", 1], ["add", 1, 2], ["logarithm", 3]],
                 lambda x: torch.log(1 + torch.exp(x))),
    "norm": (2, [["input", 0], ["input", 1], ["multiply", 1, 1], ["constant", 0.5], ["add", 2, 3],
                 ["square_root", 4], ["divide", 0, 5]], lambda x, y: x / torch.sqrt(y * y + 0.5)),
    "waves": (2, [["input", 0], ["sine", 0], ["input", 1], ["cosine", 2], ["multiply", 1, 3]],
              lambda x, y: torch.sin(x) * torch.cos(y)),
    "larger": (2, [["input", 0], ["input", 1], ["less", 0, 1], ["negate", 0], ["absolute", 1],
                   ["select", 2, 4, 3]], lambda x, y: torch.where(x < y, y.abs(), -x)),
}
SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-30, 60000]


def numbers(tensor):
    """The values as JSON has them: text where they are no numbers. Nine digits are more than f32 has."""
    def one(x):
        if math.isfinite(x):
            return float(f"{x:.9g}") if x != int(x) or abs(x) > 1e15 else int(x)
        return "nan" if math.isnan(x) else "inf" if x > 0 else "-inf"
    return [one(x) for x in tensor.detach().double().flatten().tolist()]


class Maker:
    def __init__(self, seed, small):
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)
        self.small = small

    def draw(self, first, last):
        return self.random.randint(first, last)

    def once_in(self, n):
        return self.draw(1, n) == 1

    def dtype(self):
        return self.random.choice(list(TYPES))

    def shape(self, rank, most):
        shape, left = [], most
        for d in range(rank):
            size = self.draw(1, max(1, min(left, 9 if d + 1 < rank else left)))
            shape.append(size)
            left //= size
        return shape

    def values(self, count, dtype, special=False):
        if self.small:
            x = torch.randint(-48, 49, (count,), generator=self.generator).double() / 16
        else:
            x = torch.randn(count, generator=self.generator, dtype=torch.float64)
        x = x.to(TYPES[dtype]).double()
        if special:
            for i in range(count):
                if self.once_in(4):
                    x[i] = torch.tensor(self.random.choice(SPECIAL)).to(TYPES[dtype]).double()
        return x.requires_grad_()

    def operand(self, space, dtype, bounds=False, repeats=True, special=False):
        """An operand that is stored in another order, with more elements, and read as `space`."""
        order = list(range(len(space)))
        if self.once_in(2):
            self.random.shuffle(order)
        inner = [(self.draw(0, s - 1), self.draw(0, s)) if bounds and self.once_in(3) else (0, s) for s in space]
        inner = [(b, max(b + 1, e)) for b, e in inner]
        same = [repeats and self.once_in(5) for _ in space]
        before = [self.draw(0, 2) if self.once_in(5) else 0 for _ in space]
        after = [self.draw(0, 2) if self.once_in(5) else 0 for _ in space]
        stored = [1 if same[d] else before[d] + inner[d][1] - inner[d][0] + after[d] for d in order]
        leaf = self.values(math.prod(stored), dtype, special)
        x = leaf.view(stored).permute([order.index(d) for d in range(len(space))])
        for d in range(len(space)):
            if not same[d]:
                x = x.narrow(d, before[d], inner[d][1] - inner[d][0])
        x = x.expand([e - b for b, e in inner])
        strides = [0 if s == 1 else stride for s, stride in zip(x.shape, x.stride())]
        offset = x.storage_offset() - sum(b * stride for (b, _), stride in zip(inner, strides))
        view = {"offset": offset, "strides": strides, "begin": [b for b, _ in inner],
                "end": [ALL if e == s else e for (_, e), s in zip(inner, space)]}
        read = F.pad(x, [n for (b, e), s in reversed(list(zip(inner, space))) for n in (b, s - e)])
        return leaf, read, view

    def case(self, op, dtype, leaves, of, reads, attrs, backward=True, terms=None, special=False):
        """`of`: the result of the operands as they are read. `terms`: the root of the sum of the squares of what is
        added, for where terms cancel. `special`: values differ so much that each has a tolerance of its own."""
        result_type = attrs.pop("result", dtype)
        y = of(*reads)
        largest = torch.where(y.to(TYPES[result_type]).isinf(), y.sign() * math.inf, y)
        case = {"op": op, "dtype": dtype, "result": result_type, **attrs,
                "in": [numbers(leaf) for leaf in leaves], "expected": numbers(largest)}
        case["scale"] = min(scale_of(y, terms), 1) if special else scale_of(y, terms)
        case["relative"] = 4e-6 if special else 0
        if not backward:
            return case
        d = self.values(y.numel(), result_type).detach().view(y.shape)
        gradients = torch.autograd.grad(y, list(reads), d, allow_unused=True)
        case["d"] = numbers(d)
        case["gradients"], case["gradient_scales"] = [], []
        for leaf, read, g in zip(leaves, reads, gradients):
            if g is None:
                g = torch.zeros_like(read)
            total, = torch.autograd.grad(read, leaf, g, retain_graph=True)
            squares, = torch.autograd.grad(read, leaf, g * g, retain_graph=True)
            case["gradients"].append(numbers(total))
            case["gradient_scales"].append(scale_of(total, squares.sqrt()))
        return case

    def map(self):
        name = self.random.choice(list(FORMULAS))
        count, steps, f = FORMULAS[name]
        special, dtype = self.once_in(6), self.dtype()
        space = self.shape(self.draw(1, 4), 24 if self.small else 2000)
        operands = [self.operand(space, dtype, self.once_in(2), True, special) for _ in range(count)]
        leaves, reads, views = zip(*operands)
        kink = name in ("relu", "larger")
        if kink and any(bool((a == b).any()) for a in reads for b in [*reads, torch.zeros(1)] if a is not b):
            special = True  # PyTorch divides the gradient at a kink
        return self.case("map", dtype, leaves, f, reads, {"formula": steps, "space": space, "views": views},
                         backward=not special, special=special)

    def reduce(self):
        count, steps, f = FORMULAS[self.random.choice(["copy", "copy", "affine", "exp"])]
        kind, dtype, special = self.random.choice(["sum", "maximum", "minimum"]), self.dtype(), self.once_in(8)
        space = self.shape(self.draw(1, 4), 40 if self.small else self.random.choice([300, 3000, 30000]))
        kept = self.draw(0, len(space))
        dims = list(range(kept, len(space)))
        leaves, reads, views = zip(*[self.operand(space, dtype, self.once_in(4), True, special) for _ in range(count)])

        def of(*operands):
            x = f(*operands)
            if not dims:
                return x
            return x.sum(dims) if kind == "sum" else x.amax(dims) if kind == "maximum" else x.amin(dims)
        squares = f(*reads).detach() ** 2
        terms = (squares.sum(dims) if dims else squares).sqrt() if kind == "sum" else None
        rounded = kind != "sum" and (count > 1 or dtype != "f32")  # values may be equal in f32 alone
        return self.case("reduce", dtype, leaves, of, reads,
                         {"formula": steps, "space": space, "kept": kept, "kind": kind, "views": views},
                         backward=not special and not rounded, terms=terms)

    def contract(self):
        dtype = self.dtype()
        batch = [] if self.once_in(3) else self.shape(self.draw(1, 3), 4 if self.small else 12)
        exact = self.once_in(2)
        summed = self.draw(0, len(batch)) if exact else 0
        most = 4 if self.small else 40
        m, n, k = (self.draw(1, most) for _ in range(3))
        (a, read_a, view_a), (b, read_b, view_b) = (self.operand([*batch, rows, k], dtype) for rows in (m, n))

        def of(x, y):
            z = torch.matmul(x, y.transpose(-1, -2))
            return z.sum(list(range(summed))) if summed else z
        terms = of(read_a.detach() ** 2, read_b.detach() ** 2).sqrt()
        return self.case("contract", dtype, [a, b], of, [read_a, read_b],
                         {"batch": batch, "summed": summed, "sizes": [m, n, k], "views": [view_a, view_b],
                          "result": "f32" if exact else dtype},
                         backward=dtype == "f32" or not exact, terms=terms)

    def indices(self, shape, size):
        """Indices of a dimension, some of them from its end, and rarely one outside."""
        x = torch.randint(-size, size, shape, generator=self.generator)
        if self.once_in(4):
            x.view(-1)[self.draw(0, x.numel() - 1)] = size if self.once_in(2) else -size - 1
        return x

    def take(self, put=False):
        dtype, most = self.dtype(), 5 if self.small else 40
        kind = self.random.choice(["rows", "gather", "pairs"])
        if kind == "rows":  # an embedding
            v, c, count = self.draw(1, most), self.draw(1, most), self.draw(1, most)
            stored, space = [v, c], [count, c]
            ids = [self.indices([count], v)]
            table, views, hows = [0, 1], [[1, 0]], [(c, v)]
        elif kind == "gather":  # along the middle dimension
            a, b, c, count = self.draw(1, 4), self.draw(1, most), self.draw(1, 6), self.draw(1, most)
            stored, space = [a, b, c], [a, count, c]
            ids = [self.indices([a, count, c], b)]
            table, views, hows = [b * c, 0, 1], [[count * c, c, 1]], [(c, b)]
        else:  # x[i, j] of a column and a row of indices
            a, b, rows, columns = (self.draw(1, most) for _ in range(4))
            stored, space = [a, b], [rows, columns]
            ids = [self.indices([rows, 1], a), self.indices([1, columns], b)]
            table, views, hows = [0, 0], [[1, 0], [0, 1]], [(b, a), (1, b)]
        attrs = {"space": space, "table": {"offset": 0, "strides": table}, "elements": math.prod(stored),
                 "indices": [{"offset": 0, "strides": s, "stride": stride, "size": size, "values": i.flatten().tolist()}
                             for s, (stride, size), i in zip(views, hows, ids)]}
        outside = torch.zeros(space, dtype=torch.bool)
        inside = []
        for (_, size), i in zip(hows, ids):
            full = i.view(-1, 1) if kind == "rows" else i
            outside |= ((full < -size) | (full >= size)).expand(space)
            inside.append(torch.where((i < -size) | (i >= size), torch.zeros_like(i), i % size))

        def taken(flat):
            x = flat.view(stored)
            if kind == "rows":
                return x.index_select(0, inside[0])
            return torch.gather(x, 1, inside[0]) if kind == "gather" else x[inside[0], inside[1]]
        if not put:
            leaf = self.values(math.prod(stored), dtype)
            case = self.case("take", dtype, [leaf], lambda x: torch.where(outside, 0.0, taken(x)), [leaf], attrs)
            case["expected"] = ["nan" if o else v for o, v in zip(outside.flatten().tolist(), case["expected"])]
            return case
        leaf = self.values(math.prod(space), dtype)

        def of(values):
            zeros = torch.zeros(math.prod(stored), dtype=torch.float64, requires_grad=True)
            return torch.autograd.grad(torch.where(outside, 0.0, taken(zeros)), zeros, values.view(space),
                                       create_graph=True)[0]
        case = self.case("put", dtype, [leaf], of, [leaf], attrs, terms=of(leaf.detach() ** 2).sqrt())
        if case["gradients"]:  # what an index outside takes
            case["gradients"][0] = ["nan" if o else v for o, v in zip(outside.flatten().tolist(), case["gradients"][0])]
        return case

    def put(self):
        return self.take(put=True)

    def window(self, back=False):
        dtype, planes, used = self.dtype(), self.draw(1, 3), self.draw(1, 3)
        channels = 1 if self.once_in(2) else self.draw(2, 3 if self.small else 9)
        dimensions = [[1, 1, 1, 0, 1, 1] for _ in range(3 - used)]
        for _ in range(used):
            size, kernel, stride = self.draw(1, 5 if self.small else 9), self.draw(1, 3), self.draw(1, 3)
            padding, dilation = self.draw(0, 2), self.draw(1, 2)
            reach = dilation * (kernel - 1) + 1
            size = max(size, reach - 2 * padding)
            dimensions.append([size, kernel, stride, padding, dilation, (size + 2 * padding - reach) // stride + 1])
        outside = 0.0 if back or self.once_in(2) else -3.0
        sizes = [d[0] for d in dimensions]

        def windows(flat):
            x = flat.view(planes, *sizes, channels)
            padding = [p for d in reversed(dimensions) for p in (d[3], d[3])]
            x = F.pad(x, [0, 0, *padding], value=outside)
            for i, (_, kernel, stride, _, dilation, _) in enumerate(dimensions):
                x = x.unfold(1 + i, dilation * (kernel - 1) + 1, stride)[..., ::dilation]
            return x.permute(0, 1, 2, 3, 5, 6, 7, 4)
        attrs = {"planes": planes, "channels": channels, "outside": outside, "dimensions": dimensions}
        if not back:
            leaf = self.values(planes * math.prod(sizes) * channels, dtype)
            return self.case("window", dtype, [leaf], windows, [leaf], attrs)
        shape = windows(torch.zeros(planes * math.prod(sizes) * channels, dtype=torch.float64)).shape
        leaf = self.values(math.prod(shape), dtype)

        def of(values):
            zeros = torch.zeros(planes * math.prod(sizes) * channels, dtype=torch.float64, requires_grad=True)
            return torch.autograd.grad(windows(zeros), zeros, values.view(shape), create_graph=True)[0]
        return self.case("window_grad", dtype, [leaf], of, [leaf], attrs, terms=of(leaf.detach() ** 2).sqrt())

    def window_grad(self):
        return self.window(back=True)

    def lines(self):
        """How many planes of how many elements of a line, and how far these are from each other."""
        planes, apart = self.draw(1, 3), 1 if self.once_in(2) else self.draw(2, 3 if self.small else 20)
        return planes, self.draw(1, 6 if self.small else self.random.choice([10, 100, 1000])), apart

    def scan(self):
        dtype = self.dtype()
        shape = self.lines()
        attrs = {"size": shape[1], "apart": shape[2], "reversed": self.once_in(2), "exclusive": self.once_in(2),
                 "result": "f32" if self.once_in(2) else dtype}

        def of(flat):
            x = flat.view(shape).flip(1) if attrs["reversed"] else flat.view(shape)
            y = x.cumsum(1)
            if attrs["exclusive"]:
                y = F.pad(y[:, :-1], (0, 0, 1, 0))
            return y.flip(1) if attrs["reversed"] else y
        leaf = self.values(math.prod(shape), dtype)
        return self.case("scan", dtype, [leaf], of, [leaf], attrs, terms=of(leaf.detach() ** 2).sqrt())

    def sort(self):
        dtype, special = self.dtype(), self.once_in(3)
        planes, size, apart = self.lines()
        kept, descending = size if self.once_in(2) else self.draw(1, size), self.once_in(2)

        def order(flat):
            return torch.sort(flat.view(planes, size, apart), dim=1, descending=descending, stable=True)[1][:, :kept]
        leaf = self.values(planes * size * apart, dtype, special)
        case = self.case("sort", dtype, [leaf], lambda x: x.view(planes, size, apart).gather(1, order(x.detach())), [leaf],
                         {"size": size, "apart": apart, "kept": kept, "descending": descending}, special=special)
        case["order"] = order(leaf.detach()).flatten().tolist()
        return case


def scale_of(values, terms=None):
    """The largest value; where terms cancel, an eighth of their size counts, too."""
    finite = [x for x in values.detach().flatten().tolist() if math.isfinite(x)]
    scale = max((abs(x) for x in finite), default=0.0)
    if terms is not None:
        scale = max([scale] + [x / 8 for x in terms.flatten().tolist() if math.isfinite(x)])
    return float(f"{scale:.6g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("--cases", type=int, default=500, help="of each op")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    maker = Maker(options.seed, options.small)
    with open(options.file, "w", encoding="utf-8") as file:
        for op in ("map", "reduce", "contract", "take", "put", "window", "window_grad", "scan", "sort"):
            for _ in range(options.cases):
                print(json.dumps(getattr(maker, op)(), separators=(",", ":")), file=file)


if __name__ == "__main__":
    main()
