"""Models that compare_exported.py exports, each with its loss, and a batch of its inputs."""
import torch
import torch.nn as nn
import torch.nn.functional as F


class WithLoss(nn.Module):
    """A classifier of samples, or of all tokens."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x, y):
        logits = self.model(x)
        return F.cross_entropy(logits.flatten(0, -2), y.flatten())


class GptBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = (
            part.view(batch, tokens, self.heads, -1).transpose(1, 2)
            for part in self.attn(self.ln_1(x)).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(batch, tokens, width))
        return x + self.down(F.gelu(self.up(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """The shape of GPT-2, with the embedding as its head."""

    def __init__(self, layers, width, heads, vocabulary, tokens):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(tokens, width)
        self.h = nn.ModuleList(GptBlock(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return self.head(self.ln_f(x))


class Llama(nn.Module):
    """transformers' own, without dropout."""

    def __init__(self, settings):
        super().__init__()
        from transformers import AutoConfig, AutoModelForCausalLM

        config = AutoConfig.for_model("llama", **settings, use_cache=False)
        self.model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")

    def forward(self, ids):
        return self.model(input_ids=ids).logits


class Bert(nn.Module):
    """transformers' BERT base, without dropout, that classifies samples of 128 tokens."""

    def __init__(self):
        super().__init__()
        from transformers import BertConfig, BertForSequenceClassification

        config = BertConfig(
            hidden_dropout_prob=0, attention_probs_dropout_prob=0, num_labels=3, attn_implementation="sdpa"
        )
        self.model = BertForSequenceClassification(config)

    def forward(self, ids):
        return self.model(input_ids=ids).logits


class BasicBlock(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or channels != width:
            self.downsample = nn.Sequential(
                nn.Conv2d(channels, width, 1, stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = (64, 64, 128, 256, 512)
        self.layers = nn.Sequential(*(
            nn.Sequential(BasicBlock(a, b, 1 if a == b else 2), BasicBlock(b, b, 1))
            for a, b in zip(widths, widths[1:])
        ))  # fmt: skip
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        return self.fc(self.layers(x).mean((2, 3)))


class VitSmall(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.patch = nn.Conv2d(3, 384, 16, 16)
        self.cls = nn.Parameter(torch.zeros(1, 1, 384))
        self.position = nn.Parameter(torch.randn(1, 197, 384) * 0.02)
        layer = nn.TransformerEncoderLayer(384, 6, 1536, 0.0, "gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(384), nn.Linear(384, classes)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), 1) + self.position
        return self.head(self.norm(self.encoder(x)[:, 0]))


LLAMA = {
    "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "num_key_value_heads": 4,
    "intermediate_size": 3072, "vocab_size": 32000, "max_position_embeddings": 2048,
}  # fmt: skip
GPT2 = {"n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 256, "vocab_size": 8192}


def tokens(vocabulary, batch, length):
    return torch.randint(vocabulary, (batch, length)), torch.randint(vocabulary, (batch, length))


def images(batch, side, classes):
    return torch.randn(batch, 3, side, side), torch.randint(classes, (batch,))


# Name -> a function that returns the model and its batch.
MODELS = {
    "nanogpt": lambda: (Gpt(12, 768, 12, 8192, 256), tokens(8192, 8, 256)),
    "llama": lambda: (Llama(LLAMA), tokens(32000, 4, 512)),
    "resnet18": lambda: (ResNet18(10), images(128, 32, 10)),
    "vit-s": lambda: (VitSmall(100), images(8, 224, 100)),
    "bert-base": lambda: (Bert(), (torch.randint(30000, (8, 128)), torch.randint(3, (8,)))),
}
# Settings of the built-in family that has the same operations, where there is one.
BUILT_IN = {
    "nanogpt": {"model_type": "gpt2", **GPT2, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0},
    "llama": {"model_type": "llama", **LLAMA},
}
LENGTHS = {"nanogpt": 256, "llama": 512}


def build(name):
    """Returns the model with its loss, and its batch."""
    torch.manual_seed(1337)
    model, batch = MODELS[name]()
    return WithLoss(model).train(), batch
