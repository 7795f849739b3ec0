"""Writes the graphs that draw numbers, `autoencoder` and `draws`, and their data: random_test.cpp says what holds of them.

Needs torch and safetensors:  python3 tests/golden/exported/random_case.py
PyTorch draws other numbers, so there is nothing to compare with but distributions.
"""

import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

FOLDER = pathlib.Path(__file__).parent
BATCH = 8


class Noisy(nn.Module):
    """A layer whose input has noise, and whose result has rows that are left out."""

    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.full((width,), 0.1))
        self.product = nn.Linear(width, width)

    def forward(self, x):
        x = x + self.scale * torch.randn_like(x)
        return x + self.product(x).tanh() * torch.bernoulli(torch.full((x.shape[0], 1), 0.75))


class Autoencoder(nn.Module):
    """A variational autoencoder: the code is drawn from what the encoder says of it."""

    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(6, 16)
        self.layers = nn.ModuleList(Noisy(16) for _ in range(3))
        self.middle, self.decode = nn.Linear(16, 8), nn.Linear(4, 6)

    def forward(self, x, y):
        h = self.encode(x)
        for layer in self.layers:
            h = layer(h)
        mean, logarithm = self.middle(h).chunk(2, dim=1)
        code = mean + (0.5 * logarithm).exp() * torch.randn_like(mean)
        distance = 0.5 * (mean.square() + logarithm.exp() - logarithm - 1).sum(dim=1).mean()
        steps = torch.randint(0, 1000, (x.shape[0],))
        return F.mse_loss(self.decode(code), y) + 0.1 * distance + (self.scale_of(steps) * code.square().sum(1)).mean()

    @staticmethod
    def scale_of(steps):
        return 0.01 * torch.cos(steps / 1000 * torch.pi / 2)


class Draws(nn.Module):
    """Its outputs are statistics of what it draws."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x):
        like = x[:, :1].expand(x.shape[0], 65536)
        u, v = torch.rand_like(like), torch.empty_like(like).uniform_(-1, 3)
        n = torch.randn(x.shape[0], 65536)
        m = torch.normal(like, 0.5) - like
        i = torch.randint_like(like, -2, 8)
        p = like.sigmoid()
        places = torch.randperm(1000)
        return {
            "loss": (self.w * u).mean(),
            "mean": u.mean(),
            "square": u.square().mean(),
            "neighbours": (u[:, 1:] * u[:, :-1]).mean(),
            "others": (u * (v + 1)).mean() / 4,
            "normal_mean": n.mean(),
            "normal_variance": n.var(),
            "normal_fourth": n.pow(4).mean(),
            "normal_within": (n.abs() < 1).float().mean(),
            "deviation": m.square().mean(),
            "integers": i.mean(),
            "extremes": i.amax() - i.amin(),
            "truths": (torch.bernoulli(p) - p).mean(),
            "truths_of_number": torch.empty_like(like).bernoulli_(0.3).mean(),
            "exponential": torch.empty_like(like).exponential_(2.0).mean(),
            "order": (places.sort().values == torch.arange(1000)).float().mean(),
            "moved": (places - torch.arange(1000)).abs().float().mean(),
        }


def write(name, model, inputs):
    batch = torch.export.Dim("batch", min=1, max=64)
    program = torch.export.export(model.train(), tuple(inputs.values()),
                                  dynamic_shapes=tuple({0: batch} for _ in inputs)).run_decompositions({})
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # paths of this machine
    (FOLDER / name).mkdir(exist_ok=True)
    torch.export.save(program, FOLDER / name / "model.pt2")
    save_file(inputs, FOLDER / name / "data.safetensors")


def main():
    torch.manual_seed(11)
    write("autoencoder", Autoencoder(), {"x": torch.randn(BATCH, 6), "y": torch.randn(BATCH, 6)})
    write("draws", Draws(), {"x": torch.randn(BATCH, 3)})


if __name__ == "__main__":
    main()
