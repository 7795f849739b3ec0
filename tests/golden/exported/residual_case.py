"""A small residual network, whose convolutions, batch norms and pool are operations of the program."""

import torch
import torch.nn.functional as F
from torch import nn


class ResidualBlock(nn.Module):
    def __init__(self, channels, outputs, stride):
        super().__init__()
        self.a = nn.Conv2d(channels, outputs, 3, stride, 1, bias=False)
        self.norm_a = nn.BatchNorm2d(outputs)
        self.b = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.norm_b = nn.BatchNorm2d(outputs)
        self.shortcut = None
        if stride > 1 or channels != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(channels, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.norm_b(self.b(self.norm_a(self.a(x)).relu()))
        return (y + (x if self.shortcut is None else self.shortcut(x))).relu()


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.blocks = nn.Sequential(ResidualBlock(16, 16, 1), ResidualBlock(16, 18, 2))
        self.head = nn.Linear(18, 9)

    def forward(self, x, y):
        h = F.max_pool2d(self.norm(self.stem(x)).relu(), 3, 2, 1)
        return F.cross_entropy(self.head(self.blocks(h).mean((2, 3))), y, label_smoothing=0.5)


def residual_case(b):
    """Returns the name, the module and a batch of the graph."""
    torch.manual_seed(13)
    return "residual", Residual(), {"x": torch.randn(b, 3, 9, 9), "y": torch.randint(0, 9, (b,))}
