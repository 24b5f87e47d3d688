"""Training on pictures: data, networks with a method's layer, and the search for the strength of the penalty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from experiments.baselines import Penalty, Projection, StrictPenalty, Unconstrained, penalty_of
from experiments.pictures import generated
from experiments.pictures.arrays import Album, features, pixels
from experiments.pictures.backbones import BACKBONES, Classifier, features_of, head_of
from experiments.pictures.settings import Network, Settings, Study
from experiments.strength import Selection, select_strength
from fairlayer import FairLayer, FairModel, MeanParity
from fairlayer.training import Evaluation, Fitted, batches, evaluate, fit

bce = nn.functional.binary_cross_entropy_with_logits


@dataclass(frozen=True)
class Part:
    """The pictures of one part of the data, or their features, with targets and group of each."""

    x: Tensor
    targets: np.ndarray
    group: np.ndarray  # the intersection of all attributes, as one label

    def loader(self, size: int, shuffle: bool = False, seed: int = 0) -> Any:
        """Batches with the same share of every group."""
        targets = torch.tensor(self.targets, dtype=torch.float32)
        return batches(
            self.x, targets, {"group": self.group}, batch_size=size, shuffle=shuffle, stratify=True, seed=seed
        )


@dataclass(frozen=True)
class Parts:
    """Training, validation and test."""

    train: Part
    validation: Part
    test: Part


def load_parts(study: Study, network: Network, settings: Settings) -> Parts:
    """The data as a network takes them."""
    data = generated.load(study.name, settings.generated, settings.seed) if settings.generated else study.load()
    positions = [part[: settings.rows] for part in study.split(data, settings.seed)]
    order = np.concatenate(positions)
    chosen = data.rows(order)
    album = Album(study.name, chosen.pictures, order, len(positions[0]) if settings.altered else 0, settings.seed)
    name, weights, size = network.name, network.weights, network.size
    if network.frozen:
        x = features(album, size, name, weights, partial(features_of, name, weights, size))
    else:
        x = pixels(album, size)
    columns = [chosen.protected[name].astype(str) for name in study.attributes]
    group = np.array([" & ".join(labels) for labels in zip(*columns, strict=True)])
    targets = chosen.target.to_numpy()
    ends = np.cumsum([len(part) for part in positions])
    slices = [slice(end - len(part), end) for end, part in zip(ends, positions, strict=True)]
    return Parts(*(Part(x[taken], targets[taken], group[taken]) for taken in slices))


def parity(tolerance: float) -> MeanParity:
    """All pairs of groups."""
    return MeanParity(tolerance, over="group")


def layer_of(method: str, tolerance: float, strength: float | None) -> nn.Module:
    """A method's layer; penalties are on squared gaps."""
    constraint = parity(tolerance)
    if method == "F-Layer":
        return FairLayer(constraint)
    if method == "Penalty":
        return Penalty(constraint, strength=strength, form="squared")
    if method == "Strict Penalty":
        return StrictPenalty(constraint, strength=strength, form="squared")
    return Projection(constraint) if method == "Projection" else Unconstrained(constraint)


def rate_groups(classifier: Classifier, network: Network) -> list[dict[str, Any]]:
    """What is trained, and how fast: features and head."""
    rates = ((classifier.features, network.rate), (classifier.head, network.head_rate))
    groups = [{"params": [p for p in part.parameters() if p.requires_grad], "lr": rate} for part, rate in rates]
    return [group for group in groups if group["params"]]


def train(
    method: str,
    parts: Parts,
    network: Network,
    settings: Settings,
    *,
    tolerance: float,
    seed: int,
    strength: float | None = None,
    epochs: int | None = None,
) -> tuple[FairModel, Fitted]:
    """A network trained with a method, at the epoch with the lowest objective on the validation part."""
    torch.manual_seed(seed)
    positive = float(parts.train.targets.mean())
    body = nn.Identity() if network.frozen else features_of(network.name, network.weights, network.size)
    classifier = Classifier(body, head_of(BACKBONES[network.name].width, positive), network.short)
    model = FairModel(classifier, layer_of(method, tolerance, strength))
    optimiser = torch.optim.AdamW(rate_groups(classifier, network), weight_decay=settings.weight_decay)
    fitted = fit(
        model,
        parts.train.loader(settings.batch_size, shuffle=True, seed=seed),
        parts.validation.loader(settings.batch_size),
        loss=bce,
        epochs=network.epochs if epochs is None else epochs,
        penalty=penalty_of(model),
        optimizer=optimiser,
        scheduler=partial(
            ReduceLROnPlateau,
            factor=settings.plateau_factor,
            patience=settings.plateau_patience,
            min_lr=settings.lowest_rate,
        ),
        patience=network.patience,
        clip_norm=settings.clip_norm,
        device="auto",
        seed=seed,
    )
    return model, fitted


def search_strength(parts: Parts, network: Network, settings: Settings, *, tolerance: float, seed: int) -> Selection:
    """From the strongest penalty down, until one fails on the validation part; the last that did not."""

    def attempt(strength: float) -> Evaluation:
        model, _ = train(
            "Penalty",
            parts,
            network,
            settings,
            tolerance=tolerance,
            seed=seed,
            strength=strength,
            epochs=network.search_epochs,
        )
        return evaluate(model, parts.validation.loader(settings.batch_size), loss=bce, device=_device(model))

    slack = settings.allowance * tolerance
    return select_strength(attempt, settings.strengths, rule="descend", fallback="gap", slack=slack)


@torch.no_grad()
def logits(model: FairModel, part: Part, size: int) -> np.ndarray:
    """Raw outputs for every picture of a part, in its order."""
    device = _device(model)
    model.eval()
    return torch.cat([model.raw(x.to(device)).cpu() for x in part.x.split(size)]).numpy()


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device
