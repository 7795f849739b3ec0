"""Writes the golden cases of the ResNet family: weights, images, and what PyTorch computes of them in fp64.

Needs torch and safetensors:  python3 tests/golden/resnet/make_resnet.py
Modules and names are torchvision's; torchvision itself is not needed. For each case it writes, to the folder of its name,
init.safetensors, data.safetensors, gradients.safetensors (of the first step) and expected.json: losses and accuracies of three
SGD steps, the loss of the batch with the running statistics after them, and the sum and the largest value of each of these.
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

FOLDER = pathlib.Path(__file__).parent
BATCH = 6


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Basic(nn.Module):
    grows = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3), nn.BatchNorm2d(width)
        if stride != 1 or inputs != width:
            self.downsample = nn.Sequential(conv(inputs, width, 1, stride), nn.BatchNorm2d(width))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
        return (y + (self.downsample(x) if hasattr(self, "downsample") else x)).relu()


class Bottleneck(nn.Module):
    grows = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = conv(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = conv(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        if stride != 1 or inputs != 4 * width:
            self.downsample = nn.Sequential(conv(inputs, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()
        y = self.bn3(self.conv3(y))
        return (y + (self.downsample(x) if hasattr(self, "downsample") else x)).relu()


class ResNet(nn.Module):
    def __init__(self, block, blocks, cifar, width, classes, channels=3):
        super().__init__()
        self.cifar = cifar
        self.conv1 = conv(channels, width, 3) if cifar else conv(channels, width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        inputs = width
        for stage, count in enumerate(blocks):
            layer = []
            for i in range(count):
                layer.append(block(inputs, width << stage, 2 if stage > 0 and i == 0 else 1))
                inputs = block.grows * width << stage
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = self.bn1(self.conv1(x)).relu()
        if not self.cifar:
            x = F.max_pool2d(x, 3, 2, 1)
        for stage in range(1, 5):
            x = getattr(self, f"layer{stage}")(x)
        return self.fc(x.mean((2, 3)))


CASES = {
    "cifar18": (lambda: ResNet(Basic, [2, 2, 2, 2], True, 2, 5), 16,
                {"depth": 18, "stem": "cifar", "width": 2, "num_classes": 5, "image_size": 16}),
    "imagenet50": (lambda: ResNet(Bottleneck, [3, 4, 6, 3], False, 2, 7), 48,
                   {"depth": 50, "width": 2, "num_classes": 7, "image_size": 48}),
}


def write(name, make, size, keys):
    torch.manual_seed(11)
    model = make()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "bn" in key or "downsample.1" in key:  # norms that are not all alike
                parameter.add_(0.1 * torch.randn_like(parameter))
            if key.endswith("bn3.weight"):  # a fresh one of 50 layers is so steep that fp32 loses its digits
                parameter.mul_(0.25)
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    state = {k: v for k, v in model.state_dict().items()}
    save_file(state, folder / "init.safetensors")
    images = torch.randn(BATCH, 3, size, size).mul(16).round().div(16)
    labels = torch.randint(0, keys["num_classes"], (BATCH,))
    save_file({"images": images.to(torch.float16), "labels": labels}, folder / "data.safetensors")
    model = model.double()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9, weight_decay=5e-4)
    losses, accuracies = [], []
    for step in range(3):
        optimizer.zero_grad()
        logits = model(images.double())
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        if step == 0:
            save_file({k: p.grad.float() for k, p in model.named_parameters()},
                      folder / "gradients.safetensors")
        losses.append(loss.item())
        accuracies.append((logits.argmax(1) == labels).double().mean().item())
        optimizer.step()
    model.eval()
    with torch.no_grad():
        validation = F.cross_entropy(model(images.double()), labels).item()
    statistics = {k: [v.sum().item(), v.abs().max().item()]
                  for k, v in model.state_dict().items() if "running" in k}
    (folder / "expected.json").write_text(json.dumps(
        {"torch": torch.__version__, "model": {"type": "resnet", **keys}, "losses": losses,
         "accuracies": accuracies, "validation": validation, "statistics": statistics}, indent=1) + "\n")


if __name__ == "__main__":
    for case, (make, size, keys) in CASES.items():
        write(case, make, size, keys)
