"""Graphs that have many operators each: rarer ones than those of make_exported.py, which writes their golden cases."""

import torch
import torch.nn.functional as F
from torch import nn


class Scatters(nn.Module):
    """What integers name gets sums, other elements or means; bags of rows."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 5))
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.sums = nn.EmbeddingBag(9, 5, mode="sum", padding_idx=2)
        self.means = nn.EmbeddingBag(9, 5, mode="mean")
        self.largest = nn.EmbeddingBag(9, 5, mode="max")
        self.uneven = nn.EmbeddingBag(9, 5, mode="mean", padding_idx=4)

    def forward(self, x, rows, columns, bags, y):
        h = x * self.w                                                # (b, 6, 5)
        b = x.shape[0]
        added = torch.zeros_like(h[0]).index_add(0, rows[:, 0], h[:, 1], alpha=0.5)
        index = columns[:, :4]                                        # (b, 4, 5) below 6
        spread = h.scatter_add(1, index, h[:, 1:5] * self.scale)
        mean = h.scatter_reduce(1, index, h[:, :4], "mean")
        alone = h.scatter_reduce(1, index, h[:, 1:5], "sum", include_self=False)
        top = h.scatter_reduce(1, index, h[:, 2:], "amax")
        low = torch.zeros_like(h).scatter_reduce(1, index, h[:, 2:], "amin", include_self=False)
        order = torch.tensor([2, 0, 3]).expand(b, 5, 3).transpose(1, 2)
        other = h.scatter(1, order, h[:, 3:] * 2) + h.scatter(1, index, 0.25)
        places = [None, torch.tensor([0, 2, 3])[:, None], torch.tensor([1, 4])]
        put = torch.ops.aten.index_put(h, places, h[:, :3, :2] + self.scale)
        more = torch.ops.aten.index_put(h, [None, torch.tensor([1, 1, 4])], h[:, 2:5] * self.scale, True)
        hot = F.one_hot(rows, 6).to(h.dtype) @ h                         # (b, 6, 5)
        value, place = h.max(dim=1)
        least = h.min(dim=2, keepdim=True).values
        chosen = h.gather(1, h.argmax(dim=1, keepdim=True)) + h.gather(1, place.unsqueeze(1))
        offsets = 3 * torch.arange(b) - (rows[:, 0] > 99).long()      # which the graph does not know
        flat = bags.reshape(-1)
        whole = (self.sums(bags) + self.means(bags) + self.largest(bags) + self.uneven(flat, offsets))
        total = (added + spread + mean + alone + top + low + other + put + more + hot).sum(1)
        used = (h > 0.5).any(dim=1) & (h < 3).all(dim=1)
        counts = torch.histc(rows.to(h.dtype), 6, 0, 5)
        return (F.mse_loss(total + value + chosen[:, 0] + whole, y) + (least * used.to(h.dtype).unsqueeze(1)).mean()
                + (counts * self.w[:, 0]).mean())


class Images(nn.Module):
    """Transposed convolutions, one of each channel by itself, other sizes, padding with own elements, and pools whose windows differ or have equal elements."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(1) + 0.5)
        self.one = nn.ConvTranspose1d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.two = nn.ConvTranspose2d(4, 3, 3, stride=2, dilation=2, bias=False)
        self.three = nn.ConvTranspose3d(2, 2, (1, 2, 2), stride=(1, 2, 2))
        self.alone = nn.Conv2d(4, 4, 3, stride=2, padding=1, groups=4)
        self.head = nn.Linear(4, 4)

    def forward(self, x, steps, y):
        h = x * self.scale                                            # (b, 4, 6, 5)
        s = steps * self.scale                                        # few values: many are equal
        up = [self.one(h[:, :, 0]), self.two(h), self.three(h.view(-1, 2, 2, 6, 5)),
              F.interpolate(h, scale_factor=2, mode="nearest"), F.interpolate(h, size=(9, 7), mode="nearest"),
              F.interpolate(h, size=(9, 8), mode="nearest-exact"), F.interpolate(h[:, :, 0], scale_factor=3, mode="linear"),
              F.interpolate(h, scale_factor=(1.5, 2), mode="bilinear"), F.interpolate(h, size=(9, 4), mode="bilinear", align_corners=True),
              F.interpolate(h, size=(8, 9), mode="bicubic"), F.interpolate(h.unsqueeze(2), size=(2, 8, 3), mode="trilinear")]
        around = [F.pad(h, (2, 1, 3, 0), mode="reflect"), F.pad(h, (1, 2, 2, 1), mode="replicate"), F.pad(h, (2, 2, 1, 1), mode="circular")]
        pools = [F.max_pool2d(s, 3, stride=2, padding=1), F.max_pool1d(s[:, :, 0], 2), F.adaptive_max_pool2d(s, (3, 1)),
                 F.avg_pool2d(h, 3, stride=2, padding=1, ceil_mode=True), F.avg_pool2d(h, 3, stride=2, padding=1, count_include_pad=False),
                 F.adaptive_avg_pool2d(h, (4, 3)), self.alone(h).relu(),
                 F.unfold(h, 3, padding=1, stride=2), F.fold(h.flatten(2)[:, :, :6], (4, 4), 2, stride=(1, 2))]
        losses = [(i + 1) * 0.01 * (p.sin() * (p + 1)).mean() for i, p in enumerate(up + around + pools)]
        return F.mse_loss(self.head(h.mean(dim=(2, 3))), y) + sum(losses)


class Functions(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6))
        self.slope = nn.Parameter(torch.rand(5) * 0.3)
        self.level = nn.Parameter(torch.tensor(0.4))

    def forward(self, x, y):
        h = x * self.w                                                # (b, 5, 6)
        positive = h.abs() + 0.4
        parts = [
            F.celu(h, 0.8), F.selu(h), F.relu6(3 * h), F.softshrink(h, 0.3), F.glu(torch.cat([h, x], 2)), F.prelu(h, self.slope),
            torch.clamp(h, min=-self.level.expand(6)), h.clamp_min(-0.4), h.clamp_max(0.6), h.sinh(), h.cosh(), torch.tan(0.3 * h),
            torch.expm1(0.5 * h), torch.log1p(positive), torch.log2(positive), torch.log10(positive), torch.hypot(h, x),
            torch.lerp(h, x, 0.3), torch.lerp(h, x, positive), torch.max(h, x), torch.min(h, x), torch.nan_to_num(h / 0.5),
            torch.where(x > 0, h, 0.25), torch.where(h > 0, 0.5, h), (h.isfinite() & ~h.isnan() & ~h.isinf()) * h,
            torch.logical_xor(h > 0, x > 0) * h, F.normalize(h, dim=2), h.norm(p=1, dim=1, keepdim=True) * x,
            torch.linalg.vector_norm(h, 3, dim=2, keepdim=True) + x, h.prod(dim=1, keepdim=True) + x,
        ]
        total = sum((0.1 + 0.01 * i) * p for i, p in enumerate(parts))
        return (F.mse_loss(total, y) + F.cosine_similarity(h, y, dim=2).mean() + self.level.exp()
                + torch.prod(self.w + 2) * 0.01)


class Rounded(nn.Module):
    """Functions that are rounded, remainders, powers of tensors, and gelu as it is written by erf."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6))
        self.exponent = nn.Parameter(torch.randn(6))
        self.divisor = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x, counts, zeros, y):
        h = x * self.w                                                # (b, 5, 6)
        positive = h.abs() + 0.3
        signed = torch.where(x > 0, positive, -positive).tanh()       # away from 0
        side = torch.where(x > 0, self.divisor, -self.divisor)        # divisors of both signs
        parts = [
            torch.erf(h), 0.5 * h * (1 + torch.erf(h / 2 ** 0.5)), h.floor() * h, h.ceil() * x, (3 * h).round() * h, h.trunc() + h,
            positive ** self.exponent, signed.pow(torch.tensor([0.0, 1, 2, 3, -1, 4])), 2 ** h, signed.pow(9), positive.pow(-1.5), positive.pow(-0.5),
            torch.remainder(4 * h, side), torch.fmod(4 * h, side), 3 * h % 0.7, torch.fmod(3 * h, -0.7), h.div(side, rounding_mode="floor") * h,
            h.div(side, rounding_mode="trunc") * h, h.div(self.divisor, rounding_mode=None), h.detach() // 0.3 * h, (5 * h).long() * h, (counts // 2 * 2 == counts) * h,
            (counts % 3) * x * self.w, torch.fmod(counts - 3, 2) * h,
            # Where the base or the exponent is 0 PyTorch says what the gradient is.
            (zeros * self.w.abs()).pow(2 + zeros * self.exponent), (zeros * self.w).pow(0 * self.divisor.detach()) * h,
        ]
        total = sum((0.1 + 0.01 * i) * p for i, p in enumerate(parts))
        return F.mse_loss(total, y)


class Moved(nn.Module):
    """Elements in other places, parts that are replaced, and Einstein's notation."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 6))
        self.m = nn.Parameter(torch.randn(6, 3))

    def forward(self, x, y):
        b = x.shape[0]
        h = x * self.w                                                # (b, 4, 6)
        g = h.clone()
        g[:, 1:3] = 2 * x[:, :2]
        g[:, :, 4] = h[:, :, 0].sin()
        g[:, 3] = 0.5
        parts = [
            g, h.flip(1, 2), h.roll(2, 2), h.roll((1, -1), (1, 2)), torch.tril(h), torch.triu(h, 1), h.repeat_interleave(2, 1)[:, 2:6],
            h.tile(1, 2)[:, :, 3:9], h.movedim(1, 2).reshape(b, 4, 6), h.swapaxes(1, 2).mT, h.unfold(2, 3, 1).sum(3).repeat(1, 1, 2)[:, :, :6],
            F.pixel_shuffle(h.reshape(b, 4, 2, 3), 2).reshape(b, 4, 6), F.pixel_unshuffle(h.reshape(b, 1, 4, 6), 2).reshape(b, 4, 6),
            h.diagonal(1, 1, 2).unsqueeze(2) * self.w, torch.hstack([h[:, :1], h[:, 1:]]), h.reshape_as(x).view_as(x),
            torch.einsum("bij,jk,bik->bi", h, self.m, h[:, :, :3]).unsqueeze(2) + x,
            torch.einsum("bij,bkj->bik", h, h)[:, :, :1] * 0.2 + x, torch.einsum("...j,kj", h, self.w).sum(2, keepdim=True) + x,
        ]
        total = sum((0.1 + 0.02 * i) * p for i, p in enumerate(parts))
        low, high = torch.tril_indices(4, 4, -1)
        return F.mse_loss(total, y) + (h @ h.transpose(1, 2))[:, low, high].mean() * 0.1


class Classes(nn.Module):
    """Losses of classes beside the program's own, each used beside other things."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 5)
        self.register_buffer("weights", torch.rand(5) + 0.5, persistent=False)
        self.register_buffer("positive", torch.rand(5) + 0.5, persistent=False)

    def forward(self, x, classes, y):
        z = self.a(x)                                                 # (b, 3, 5)
        rows, targets = z.flatten(0, 1), classes.flatten()
        each = F.cross_entropy(rows, targets, reduction="none")
        weighed = F.cross_entropy(z.transpose(1, 2), classes, weight=self.weights, label_smoothing=0.1)
        likely = F.cross_entropy(rows, y.softmax(2).flatten(0, 1), label_smoothing=0.2)
        nll = F.nll_loss(rows.log_softmax(1), targets, weight=self.weights) + F.nll_loss(z.log_softmax(2).transpose(1, 2), classes)
        binary = F.binary_cross_entropy_with_logits(z, y.sigmoid(), pos_weight=self.positive)
        plain = F.cross_entropy(rows, targets, label_smoothing=0.05)
        return (each * rows[:, 0].sigmoid()).sum() * 0.1 + weighed + likely.exp() * 0.1 + nll + binary + plain * plain


class Recurrent(nn.Module):
    """Networks of two directions, and cells one by one."""

    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(6, 2, 1, bidirectional=True, bias=False)
        self.plain = nn.RNN(4, 3, 2, batch_first=True, nonlinearity="relu")
        self.cell, self.other = nn.LSTMCell(4, 3), nn.GRUCell(4, 3)

    def forward(self, x, y):
        h, (last, cells) = self.lstm(x)                               # (b, 5, 6)
        g, end = self.gru(h.transpose(0, 1))                          # (5, b, 4)
        p, _ = self.plain(x)                                          # (b, 5, 3)
        state = (p[:, 0], p[:, 1])
        one = self.other(x[:, 0], p[:, 2])
        for t in range(3):
            state = self.cell(x[:, t], state)
        total = p[:, 4] + state[0] + state[1] + one + last[3] + cells[0] + h[:, 0, :3]
        return F.mse_loss(total, y) + g.square().mean() + end.mean()


class Parameters(nn.Module):
    """Parameters that are read as any values are: by operations that elsewhere read what a layer computes."""

    def __init__(self):
        super().__init__()
        self.q, self.r = nn.Parameter(torch.randn(3, 6)), nn.Parameter(torch.randn(3, 6))
        self.level = nn.Parameter(torch.tensor(0.4))
        self.tokens = nn.Parameter(torch.randn(1, 5, 6))
        self.linear, self.norm, self.rms = nn.Linear(6, 6), nn.LayerNorm(6), nn.RMSNorm(6)

    def forward(self, x, y):
        b = x.shape[0]
        h = self.linear(x)                                            # (b, 5, 6)
        a = F.scaled_dot_product_attention(self.linear(self.q).expand(b, 3, 6), h, h)
        c = F.scaled_dot_product_attention(h + self.tokens, self.tokens.expand(b, 5, 6), h, is_causal=True)
        parts = [self.r.relu(), F.gelu(self.r), F.gelu(self.r, approximate="tanh"), F.silu(self.r) * self.q, 2 * self.r,
                 self.r + self.q, self.norm(self.r), self.rms(self.q), self.linear(self.r), self.r.softmax(1)]
        total = sum((0.3 + 0.1 * i) * p.sin().mean() for i, p in enumerate(parts))
        classes = torch.tensor([1, 2, 3])
        return (F.mse_loss(h + c, y) + a.square().mean() + total + self.level / 2 + 0.1 * F.cross_entropy(self.r, classes)
                + F.cross_entropy(self.linear(self.q), classes))


class Sorts(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(5, 6))
        self.experts = nn.Parameter(torch.randn(6, 6))
        self.table = nn.Parameter(torch.randn(16, 6))

    def forward(self, x, counts, y):
        h = x * self.w                                                # (b, 5, 6)
        high, _ = h.sort(dim=1, descending=True)
        low, low_at = torch.sort(h, dim=2, stable=True)
        worst, _ = h.topk(2, dim=1, largest=False)                    # (b, 2, 6)
        ranks = h.argsort(dim=2).argsort(dim=2, descending=True)      # of indices, which are integers
        score, chosen = h.topk(3, dim=2)                              # (b, 5, 3)
        mixed = (score.softmax(2).unsqueeze(3) * self.experts[chosen]).sum(2)  # (b, 5, 6)
        places = self.table[(counts > 1).cumsum(1)] + self.table[counts.cumsum(1).clamp(max=15)]
        fewest, at = counts.sort(dim=1)
        weights = (fewest + at).unsqueeze(2) * 0.1
        total = (h.cumsum(1) * weights + h.cumsum(2).tanh() + high + 0.1 * low * low_at + mixed * places
                 + h.gather(2, ranks) + 0.1 * counts.cumsum(1, dtype=torch.float32).unsqueeze(2) * h)
        return F.mse_loss(total, y) + worst.square().mean()


class Lines(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(5, 6))

    def forward(self, x, counts, y):
        h = x * self.w                                                # (b, 5, 6)
        zeros = torch.where(x > 0.5, h, 0.0) + 0.0 * h
        third, third_at = h.kthvalue(3, dim=1, keepdim=True)          # (b, 1, 6)
        lowest, _ = h.kthvalue(1)                                     # (b, 5)
        even, even_at = h.median(dim=2)                               # (b, 5), of 6
        odd, _ = h.median(dim=1, keepdim=True)                        # (b, 1, 6), of 5
        numbers = counts.cumprod(1) + counts.median(dim=1, keepdim=True).values
        total = (h.cumprod(1) + h.cumprod(2) + zeros.cumprod(2) + (1 - zeros).cumprod(1) + h.logcumsumexp(2)
                 + (8 * h).logcumsumexp(1) + third * (1 + third_at) + lowest.unsqueeze(2)
                 + (even * (1 + 0.1 * even_at)).unsqueeze(2) + odd + h.median() + 0.01 * numbers.unsqueeze(2) * h)
        return F.mse_loss(total, y)


class Empties(nn.Module):
    """Has tensors without elements, and results of nothing."""

    def __init__(self):
        super().__init__()
        self.w, self.v = nn.Parameter(torch.randn(5, 6)), nn.Parameter(torch.randn(6, 6))
        self.bias = nn.Parameter(torch.randn(6))

    def forward(self, x, y):
        b = x.shape[0]
        h = x * self.w                                                # (b, 5, 6)
        none = h[:, :0]                                               # (b, 0, 6)
        first, rest = h.split([0, 6], dim=2)                          # (b, 5, 0), (b, 5, 6)
        product = none @ self.v                                       # (b, 0, 6)
        total = torch.cat([torch.zeros(0), torch.cat([none, rest, 2 * product], dim=1)], dim=-1)
        total = total + product.sum(dim=1, keepdim=True) + torch.cat([first, h], dim=2).tanh()
        total = total + (first @ first.transpose(1, 2)).sum(2, keepdim=True)
        total = total + torch.addmm(self.bias, first[:, 0], x.new_zeros(0, 6)).unsqueeze(1)
        total = total + F.pad(none, (0, 0, 2, 3), value=0.5) * self.w + torch.stack([none, none], 1).flatten(1).sum(1).view(b, 1, 1)
        total = total + h.index_add(1, torch.zeros(0, dtype=torch.long), none)
        return F.mse_loss(total, y) + torch.nan_to_num(none.mean(), nan=0.25) * self.bias.sum() + h[:0].sum() * self.w.sum()


class PairBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mix = nn.Linear(width, width)

    def forward(self, x, memory, mask, bias):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(x).split(c, dim=2))
        shares = (q @ k.transpose(2, 3) / 2 + bias + mask).softmax(dim=3)
        x = x + self.proj((shares @ v).transpose(1, 2).reshape(b, t, c))
        memory = (memory + self.mix(x)).tanh()
        return x + 0.1 * memory, memory


class Pairs(nn.Module):
    """Blocks that hand on two tensors and read three more: a mask of the batch, a bias that is learned, and the first input."""

    def __init__(self):
        super().__init__()
        self.words, self.start = nn.Embedding(20, 8), nn.Linear(8, 8)
        self.bias = nn.Parameter(torch.randn(2, 6, 6))
        self.blocks = nn.ModuleList(PairBlock(8, 2) for _ in range(6))
        self.head = nn.Linear(8, 20)

    def forward(self, ids, lengths, y):
        mask = torch.where(torch.arange(6) < lengths[:, None], 0.0, -1e4)[:, None, None, :]
        bias = self.bias.tanh()
        first = self.words(ids)                                       # (b, 6, 8)
        x, memory = first, self.start(first)
        for block in self.blocks:
            x, memory = block(x, memory, mask, bias)
        return F.cross_entropy(self.head(x + memory * first).flatten(0, 1), y.flatten())


class Nodes(nn.Module):
    """A network of a graph's nodes and edges: its inputs have different first dimensions."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 6), nn.Linear(6, 3)

    @staticmethod
    def spread(h, edges):
        return torch.zeros_like(h).index_add(0, edges[1], h[edges[0]]) + h

    def forward(self, x, edges, y):
        h = self.spread(self.a(x), edges).relu()
        return F.nll_loss(F.log_softmax(self.spread(self.b(h), edges), 1), y)


def integers(high, *shape):
    return torch.randint(0, high, shape)


def whole_case():
    """Returns a module and its inputs, which are one sample."""
    torch.manual_seed(11)
    return Nodes(), {"x": torch.randn(7, 4), "edges": integers(7, 2, 12), "y": integers(3, 7)}


def operator_cases(b):
    """Yields the name, the module and a batch of each graph. A case does not depend on those before it."""
    def seeded(make):
        torch.manual_seed(11)
        return make()

    yield seeded(lambda: ("scatters", Scatters(), {
        "x": torch.randn(b, 6, 5), "rows": integers(6, b, 6), "columns": integers(6, b, 4, 5), "bags": integers(9, b, 3),
        "y": torch.randn(b, 5)}))
    yield seeded(lambda: ("images", Images(), {
        "x": torch.randn(b, 4, 6, 5), "steps": integers(3, b, 4, 6, 5).float(), "y": torch.randn(b, 4)}))
    yield seeded(lambda: ("functions", Functions(), {"x": torch.randn(b, 5, 6), "y": torch.randn(b, 5, 6)}))
    yield seeded(lambda: ("rounded", Rounded(), {
        "x": torch.randn(b, 5, 6), "counts": integers(9, b, 5, 6), "zeros": integers(2, b, 5, 6).float(), "y": torch.randn(b, 5, 6)}))
    yield seeded(lambda: ("moved", Moved(), {"x": torch.randn(b, 4, 6), "y": torch.randn(b, 4, 6)}))
    yield seeded(lambda: ("classes", Classes(), {
        "x": torch.randn(b, 3, 6), "classes": integers(5, b, 3).index_put((torch.tensor(0), torch.tensor(1)), torch.tensor(-100)),
        "y": torch.randn(b, 3, 5)}))
    yield seeded(lambda: ("lines", Lines(), {
        "x": torch.randn(b, 5, 6), "counts": 1 + integers(2, b, 5), "y": torch.randn(b, 5, 6)}))
    yield seeded(lambda: ("empties", Empties(), {"x": torch.randn(b, 5, 6), "y": torch.randn(b, 5, 6)}))
    yield seeded(lambda: ("pairs", Pairs(), {
        "ids": integers(20, b, 6), "lengths": 2 + integers(5, b), "y": integers(20, b, 6)}))
    yield seeded(lambda: ("recurrent", Recurrent(), {"x": torch.randn(b, 5, 4), "y": torch.randn(b, 3)}))
    yield seeded(lambda: ("parameters", Parameters(), {"x": torch.randn(b, 5, 6), "y": torch.randn(b, 5, 6)}))
