"""Writes the golden cases of exported graphs: archives of torch.export, their data, and what PyTorch computes in fp64.

Needs torch and safetensors:  python3 tests/golden/exported/make_exported.py
For each model it writes, to the folder of its name, model.pt2, data.safetensors (a batch, by the names of the graph's inputs)
and gradients.safetensors (of the first step), and to cases.json the losses of three AdamW steps on that batch. Names of cases write these alone.
"""

import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

from encoder_case import encoder_case
from operator_cases import Sorts, operator_cases, whole_case
from residual_case import residual_case

FOLDER, BATCH = pathlib.Path(__file__).parent, 4


class Pointwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(6))
        self.b = nn.Parameter(torch.randn(5, 1))
        self.c = nn.Parameter(torch.rand(6) + 0.5)

    def forward(self, x, y):
        h = x * self.a + self.b
        positive = h.abs() + 0.3 + self.c
        parts = [
            h.relu(), F.gelu(h), F.gelu(h, approximate="tanh"), F.silu(h), h.sigmoid(), h.tanh(),
            (0.3 * h).exp(), positive.log(), positive.sqrt(), positive.rsqrt(), h.sin(), h.cos(),
            1 / positive, h.square(), h.pow(3), positive.pow(1.5), F.softplus(h), F.elu(h),
            F.leaky_relu(h, 0.1), F.hardswish(h), F.hardsigmoid(h), F.logsigmoid(h), F.mish(h),
            h.clamp(-0.5, 0.7), torch.where(x > 0.1, h, -h), h.masked_fill(x < 0, 0.25),
            torch.maximum(h, x), torch.minimum(h, x), (h - 2 * x) / positive,
            torch.addcmul(h, x, x, value=0.5), h.detach() * h, torch.rsub(h, 1.5),
            h * ((x >= 0) & (x != 1)).float(),
        ]
        total = sum((0.1 + 0.01 * i) * p for i, p in enumerate(parts))
        return F.mse_loss(total, y)


class Views(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 8))
        self.v = nn.Parameter(torch.randn(2, 4, 6))

    def forward(self, x, y):
        b = x.shape[0]
        h = x.unsqueeze(1) * self.w                                   # (b, 3, 8)
        t = h.transpose(1, 2).reshape(b, 4, 6)                        # (b, 4, 6)
        p = (t.unsqueeze(1) * self.v).permute(0, 2, 3, 1)             # (b, 4, 6, 2)
        left, right = p[:, :, 1:, 0], p[:, :, :-1, 1]                 # (b, 4, 5)
        c = torch.cat([left, right, p[:, :, ::2, 0]], dim=2)          # (b, 4, 13)
        one, two = c[:, :, :12].chunk(2, dim=2)                       # (b, 4, 6)
        s = torch.stack([one, two, t], dim=1).flatten(2)              # (b, 3, 24)
        rows = s.unbind(1)
        q = F.pad(rows[0], (2, 1)) + F.pad(rows[1], (1, 2), value=0.5)  # (b, 27)
        r = rows[2].view(b, 2, 12).repeat(1, 2, 1)                    # (b, 4, 12)
        e = self.v[:, :1, :].expand(2, 4, 6).reshape(1, 48)
        a, m, z = q.split([9, 9, 9], dim=1)
        return (F.mse_loss(a * m + z, y[:, :9]) + r.select(1, 3).mean() * e.sum()
                + F.l1_loss(r[:, 0].squeeze(), y))


class Reductions(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(5, 7))

    def forward(self, x, y):
        h = x * self.w                                                # (b, 5, 7)
        total = (h.sum(dim=(1, 2)) + h.mean(dim=1).amax(dim=1) + h.amin(dim=(1, 2)) + h.var(dim=2).sum(1)
                 + h.std(dim=1, correction=0).mean(1) + h.softmax(dim=1)[:, 0, 0]
                 + h.log_softmax(dim=2)[:, 1, 2] + h.logsumexp(dim=2).sum(1))
        return F.smooth_l1_loss(total, y) + 0.1 * h.sum(dim=1, keepdim=True).pow(2).mean()


class Products(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 5, bias=False)
        self.b = nn.Linear(5, 8)
        self.c = nn.Parameter(torch.randn(8, 3))
        self.d = nn.Parameter(torch.randn(2, 3, 4))
        self.e = nn.Parameter(torch.randn(4))

    def forward(self, x, y):
        h = self.b(self.a(x))                                         # (b, 7, 8)
        h = h @ self.c                                                # (b, 7, 3)
        h = torch.matmul(h.unsqueeze(1), self.d)                      # (b, 2, 7, 4)
        g = torch.bmm(h[:, 0], h[:, 1].transpose(1, 2))               # (b, 7, 7)
        k = F.linear(h[:, 0], self.d[0] * 2, self.c[0, :])            # weights that are computed
        v = h[:, 1] @ self.e                                          # (b, 7)
        m = torch.addmm(self.e, v, self.d.reshape(2, 12)[:, :4].repeat(4, 1)[:7], beta=0.5)
        n = torch.baddbmm(g, h[:, 1], h[:, 0].transpose(1, 2), alpha=0.25)
        return F.mse_loss(n.sum(2), y) + m.square().mean() + k.square().mean()


class Norms(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 4, 4))
        self.layer = nn.LayerNorm(4)
        self.plain = nn.LayerNorm(4, elementwise_affine=False)
        self.both = nn.LayerNorm([4, 4])
        self.group = nn.GroupNorm(3, 6)
        self.rms = nn.RMSNorm(4, eps=1e-5)
        for p in self.parameters():
            if p.dim() == 1:
                nn.init.normal_(p, 1.0, 0.3)

    def forward(self, x, y):
        h = x * self.w                                                # (b, 6, 4, 4)
        total = (self.layer(h) + self.plain(h) * self.w + self.both(h) + self.group(h) + self.rms(h))
        return F.mse_loss(total.mean(dim=(2, 3)), y)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.kv = nn.Linear(16, 16)
        self.bias = nn.Parameter(torch.randn(4, 7, 7))
        self.register_buffer("triangle", torch.ones(7, 7).tril().bool(), persistent=False)

    def forward(self, x, lengths, y):
        b, t, _ = x.shape
        q, k, v = (p.view(b, t, 4, 4).transpose(1, 2) for p in self.qkv(x).split(16, dim=2))
        k2, v2 = (p.view(b, t, 2, 4).transpose(1, 2) for p in self.kv(x).chunk(2, dim=2))
        seen = torch.arange(t)[None, :] < lengths[:, None]
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        a = a + F.scaled_dot_product_attention(q, k, v, attn_mask=self.triangle, scale=0.3)
        a = a + F.scaled_dot_product_attention(q, k, v)
        a = a + F.scaled_dot_product_attention(q, k, v, attn_mask=seen[:, None, None, :])
        a = a + F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias)
        a = a + F.scaled_dot_product_attention(q, k2, v2, attn_mask=seen[:, None, None, :], enable_gqa=True)
        a = a + F.scaled_dot_product_attention(q, k2, v2, is_causal=True, enable_gqa=True)
        return F.mse_loss(a.transpose(1, 2).flatten(2), y)


class Lookups(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(11, 6, padding_idx=0)
        self.places = nn.Embedding(5, 6)
        self.table = nn.Parameter(torch.randn(4, 3, 6))

    def forward(self, ids, rows, y):
        h = self.words(ids) + self.places(torch.arange(5))            # (b, 5, 6)
        g = self.table[rows, rows - 3]                                # (b, 6)
        k = self.table[:, rows].transpose(0, 1)                       # (b, 4, 6)
        s = self.table.index_select(0, torch.tensor([3, 1, 1])).sum(0)  # (3, 6)
        z = h.gather(2, ids.clamp(max=5)[:, :, None])  # (b, 5, 1)
        return F.mse_loss(h.sum(1) * g + k.sum(1) + s[0], y) + z.square().mean()


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.b = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=4, bias=False)
        self.c = nn.Conv1d(8, 6, 4, padding=1)
        self.d = nn.Conv2d(8, 5, 1)
        self.e = nn.Conv3d(1, 2, (2, 3, 3), padding=(0, 1, 1))

    def forward(self, x, y):
        h = self.a(x)                                                 # (b, 8, 6, 6)
        h = h + self.b(h).tanh()
        one = self.c(h.flatten(2)).relu().mean(2)                     # (b, 6)
        two = F.max_pool2d(self.d(h), 3, stride=2, padding=1)         # (b, 5, 3, 3)
        three = F.avg_pool2d(h, 2).sum(dim=(2, 3))                    # (b, 8)
        four = F.adaptive_avg_pool2d(h, (2, 3)).flatten(1)            # (b, 48)
        five = self.e(h[:, :3].unsqueeze(1)).square().mean(dim=(1, 2, 3, 4))
        total = torch.cat([one, two.flatten(1), three, four], dim=1)
        return F.mse_loss(total, y) + five.mean()


class Losses(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 9)
        self.b = nn.Linear(6, 3)

    def forward(self, x, classes, y):
        logits, values = self.a(x), self.b(x)                         # (b, 5, 9), (b, 5, 3)
        loss = F.cross_entropy(logits.flatten(0, 1), classes.flatten(), label_smoothing=0.1)
        loss = loss + 0.5 * F.cross_entropy(logits.transpose(1, 2), classes.clamp(min=0), ignore_index=3)
        loss = loss - F.huber_loss(values, y, delta=0.7) / 8
        loss = loss + 0.3 * F.binary_cross_entropy_with_logits(values, y.sigmoid())
        extra = F.binary_cross_entropy(values.sigmoid(), y.sigmoid(), reduction="sum")
        return loss + 0.01 * (extra + F.kl_div(values.log_softmax(2), y.softmax(2), reduction="sum"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (p.view(b, t, self.heads, -1).transpose(1, 2) for p in self.qkv(self.norm1(x)).split(c, dim=2))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Tokens(nn.Module):
    """A decoder with its embedding as its head."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(40, 16), nn.Embedding(8, 16)
        self.blocks = nn.ModuleList(Block(16, 2) for _ in range(3))
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 40, bias=False)
        self.head.weight = self.words.weight

    def forward(self, idx, targets):
        x = self.words(idx) + self.places(torch.arange(idx.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, 40), targets.view(-1), ignore_index=-100)


class GatedBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.Parameter(torch.ones(width)), nn.Parameter(torch.ones(width))
        self.q, self.k, self.v = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 24, bias=False), nn.Linear(width, 24, bias=False)
        self.down = nn.Linear(24, width, bias=False)

    @staticmethod
    def norm(x, weight):
        return weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))

    @staticmethod
    def rotate(x, cos, sin):
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * cos + turned * sin

    def forward(self, x, cos, sin):
        b, t, c = x.shape
        h = self.norm(x, self.norm1)
        q, k, v = (f(h).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(self.rotate(q, cos, sin), self.rotate(k, cos, sin), v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, c))
        h = self.norm(x, self.norm2)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Gated(nn.Module):
    """A decoder with rotary positions, root mean squares and gates, whose labels are the tokens, as transformers has them."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(40, 16)
        self.layers = nn.ModuleList(GatedBlock(16, 2) for _ in range(2))
        self.norm = nn.Parameter(torch.ones(16))
        self.head = nn.Linear(16, 40, bias=False)
        inverse = 1 / 100 ** (torch.arange(0, 8, 2).float() / 8)
        self.register_buffer("inverse", inverse, persistent=False)

    def forward(self, input_ids, labels):
        angles = torch.arange(input_ids.shape[1])[:, None] * self.inverse
        angles = torch.cat((angles, angles), dim=-1)
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x, angles.cos(), angles.sin())
        logits = self.head(GatedBlock.norm(x, self.norm))
        shifted = F.pad(labels, (0, 1), value=-100)[:, 1:]
        return F.cross_entropy(logits.reshape(-1, 40), shifted.reshape(-1))


class Unknown(nn.Module):
    """Has operators that are unknown."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.w = nn.Parameter(torch.rand(3))

    def forward(self, x):
        return (x * self.inner.w).erfinv().mean() + torch.special.i0(self.inner.w).sum()


def integers(high, *shape):
    return torch.randint(0, high, shape)


def ignored(labels, share):
    labels = labels.clone()
    labels[torch.rand(labels.shape) < share] = -100
    return labels


def cases():
    b = BATCH
    yield "pointwise", Pointwise(), {"x": torch.randn(b, 5, 6), "y": torch.randn(b, 5, 6)}
    yield "views", Views(), {"x": torch.randn(b, 8), "y": torch.randn(b, 12)}
    yield "reductions", Reductions(), {"x": torch.randn(b, 5, 7), "y": torch.randn(b)}
    yield "products", Products(), {"x": torch.randn(b, 7, 6), "y": torch.randn(b, 7)}
    yield "norms", Norms(), {"x": torch.randn(b, 6, 4, 4), "y": torch.randn(b, 6)}
    yield "attention", Attention(), {"x": torch.randn(b, 7, 16), "lengths": 1 + integers(7, b), "y": torch.randn(b, 7, 16)}
    yield "lookups", Lookups(), {"ids": integers(11, b, 5), "rows": integers(3, b), "y": torch.randn(b, 6)}
    yield "convolutions", Convolutions(), {"x": torch.randn(b, 3, 12, 12), "y": torch.randn(b, 107)}
    yield "losses", Losses(), {"x": torch.randn(b, 5, 6), "classes": ignored(integers(9, b, 5), 0.2), "y": torch.randn(b, 5, 3)}
    yield "tokens", Tokens(), {"idx": integers(40, b, 8), "targets": ignored(integers(40, b, 8), 0.1)}
    ids = integers(40, b, 8)
    yield "gated", Gated(), {"input_ids": ids, "labels": ids.clone()}
    yield "sorts", Sorts(), {"x": torch.randn(b, 5, 6), "counts": integers(6, b, 5), "y": torch.randn(b, 5, 6)}
    yield from operator_cases(b)
    yield residual_case(b)
    yield encoder_case(b)


def doubles(inputs):
    return [v.double() if v.is_floating_point() else v for v in inputs.values()]


def train(model, inputs, steps):
    """Returns the losses of AdamW steps, and the gradients of the first one."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1)
    losses, gradients = [], {}
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(*doubles(inputs))
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            gradients = {n: p.grad.float().clone() for n, p in model.named_parameters() if p.grad is not None}
        optimizer.step()
    return losses, gradients


def refused():
    """Writes a graph of an unknown operator, with the lines of a program, of a batch of 4 alone."""
    program = torch.export.export(Unknown(), (torch.rand(BATCH, 3) / 2,)).run_decompositions({})
    for node in program.graph.nodes:
        node.meta["stack_trace"] = 'File "/home/me/model.py", line 12, in forward\n    y = (x * w).erfinv()'
    (FOLDER / "unknown").mkdir(exist_ok=True)
    torch.export.save(program, FOLDER / "unknown" / "model.pt2")
    save_file({"x": torch.rand(BATCH, 3) / 2}, FOLDER / "unknown" / "data.safetensors")


def whole():
    """Writes the graph whose inputs are one sample. Returns the losses of three steps."""
    model, inputs = whole_case()
    program = torch.export.export(model, tuple(inputs.values())).run_decompositions({})
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    (FOLDER / "nodes").mkdir(exist_ok=True)
    torch.export.save(program, FOLDER / "nodes" / "model.pt2")
    save_file(inputs, FOLDER / "nodes" / "data.safetensors")
    return train(model.double(), inputs, 3)[0]


def main():
    chosen = sys.argv[1:]
    golden = json.loads((FOLDER / "cases.json").read_text())["cases"] if chosen else {}
    torch.manual_seed(7)
    if not chosen:
        refused()
    torch.manual_seed(7)
    for name, model, inputs in cases():
        if chosen and name not in chosen:
            continue
        model = model.train()
        batch = torch.export.Dim("batch", min=1, max=64)
        shapes = tuple({0: batch} for _ in inputs)
        program = torch.export.export(model, tuple(inputs.values()), dynamic_shapes=shapes).run_decompositions({})
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)  # paths of this machine
        folder = FOLDER / name
        folder.mkdir(exist_ok=True)
        torch.export.save(program, folder / "model.pt2")
        save_file({k: v.contiguous() for k, v in inputs.items()}, folder / "data.safetensors")
        losses, gradients = train(model.double(), inputs, 3)
        save_file({k: v.contiguous() for k, v in gradients.items()}, folder / "gradients.safetensors")
        golden[name] = {"losses": losses}
        print(name, losses)
    (FOLDER / "cases.json").write_text(json.dumps({"batch": BATCH, "cases": golden, "whole": whole()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
