"""The case of an encoder: PyTorch's own layers, with tokens first inside, and layers that compute attention as BERT does."""
import torch
import torch.nn.functional as F
from torch import nn


class WrittenOut(nn.Module):
    """Attention as a softmax of products, and as PyTorch's with a mask that shows all keys."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)

    def forward(self, x, seen):
        b, t, c = x.shape
        q, k, v = (f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = (q @ k.transpose(2, 3) * (c // self.heads) ** -0.5).softmax(-1)
        a = weights @ v + F.scaled_dot_product_attention(k, q, v, attn_mask=seen, scale=0.3)
        return self.norm(x + self.out(a.transpose(1, 2).reshape(b, t, c)))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 24, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.layers = nn.ModuleList(WrittenOut(16, 4) for _ in range(2))
        self.head = nn.Linear(16, 5)

    def forward(self, x, y):
        seen = torch.arange(x.shape[1])[None, None, :, None].expand(x.shape[0], -1, -1, x.shape[1]) >= 0
        x = self.encoder(x)
        for layer in self.layers:
            x = layer(x, seen)
        return F.cross_entropy(self.head(x[:, 0]), y)


def encoder_case(b):
    torch.manual_seed(11)
    return "encoder", Encoder(), {"x": torch.randn(b, 9, 16), "y": torch.randint(0, 5, (b,))}
