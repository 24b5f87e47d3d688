"""The picture experiments: which networks are trained with which method, and what is kept of each."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.pictures.inference import (
    EQUAL,
    HARD,
    LEDGER,
    ONCE,
    PROJECTED,
    RAW,
    SOFT,
    TOGETHER,
    arrivals,
    emit,
    judge,
    renumbered,
)
from experiments.pictures.settings import Network, Settings, Study
from experiments.pictures.training import Part, load_parts, logits, search_strength, train
from experiments.runner import Result, Unit


def units(settings: Settings) -> list[Unit]:
    """One training each; a search for the strength of a penalty belongs to the training that uses it."""
    return [
        Unit(
            f"{network.name}/{settings.seed + repeat}/{method} {tolerance:g}",
            {"network": network.name, "seed": settings.seed + repeat, "method": method, "tolerance": tolerance},
        )
        for network in settings.networks
        for repeat in range(network.repeats)
        for method, tolerance in trainings(network, settings)
    ]


def trainings(network: Network, settings: Settings) -> list[tuple[str, float]]:
    """Methods and tolerances to train with.

    Where Projection's epoch is chosen by its raw outputs, its training is the unconstrained one, whatever the
    tolerance; and a strict penalty takes no notice of the tolerance.
    """
    tolerances = (settings.tolerance, *network.wider)
    several = ["F-Layer", "Penalty", *(["Projection"] if settings.projected_choice else [])]
    return [
        ("Unconstrained", settings.tolerance),
        *((method, tolerance) for method in several for tolerance in tolerances),
        ("Strict Penalty", settings.tolerance),
    ]


def run(study: Study, unit: Unit, settings: Settings) -> Result:
    """Train once, and judge the outputs for the test pictures."""
    name, seed, method, tolerance = (unit.arguments[key] for key in ("network", "seed", "method", "tolerance"))
    network = next(network for network in settings.networks if network.name == name)
    parts = load_parts(study, network, settings)
    trials, strength = [], settings.strict if method == "Strict Penalty" else None
    if method == "Penalty":
        selection = search_strength(parts, network, settings, tolerance=tolerance, seed=seed)
        strength = selection.strength
        trials = [vars(trial) for trial in selection.trials]
    model, fitted = train(method, parts, network, settings, tolerance=tolerance, seed=seed, strength=strength)
    raw = logits(model, parts.test, settings.batch_size)
    return {
        **unit.arguments,
        "strength": strength,
        "trials": trials,
        "epochs": fitted.epochs,
        "best_epoch": fitted.best_epoch,
        "history": {name: fitted.history[name] for name in ("train_loss", "validation_loss", "validation_gap")},
        "counts": {name: len(part.targets) for name, part in vars(parts).items()},
        "constant_accuracy": float(max(parts.test.targets.mean(), 1 - parts.test.targets.mean())),
        "rows": _outputs(method, raw, parts.test, tolerance, network, settings),
        "served": _served(method, raw, parts.test, tolerance, settings),
    }


def _outputs(
    method: str, raw: np.ndarray, test: Part, tolerance: float, network: Network, settings: Settings
) -> list[dict[str, Any]]:
    """What the network gives in batches as large as in training, in all ways that its method allows."""
    promising = (PROJECTED, TOGETHER, LEDGER)
    ways = [(method, tolerance, how) for how in (promising if method in ("F-Layer", "Projection") else (RAW,))]
    if method == "Unconstrained" and not settings.projected_choice:
        ways += [("Projection", wide, how) for wide in (tolerance, *network.wider) for how in promising]
    rows = arrivals(test.group, settings.batch_size)
    found = []
    for label, wide, how in ways:
        emitted = emit(raw, test.group, rows, how, wide, settings)
        judged = judge(emitted, test.targets, test.group, rows if how != TOGETHER else [np.arange(len(raw))], wide)
        found.append({"method": label, "tolerance": wide, "inference": how, **judged})
    return found


def _served(method: str, raw: np.ndarray, test: Part, tolerance: float, settings: Settings) -> list[dict[str, Any]]:
    """The same in batches of many sizes, for the paper's tolerance."""
    label = "Projection" if method == "Unconstrained" and not settings.projected_choice else method
    if label not in ("F-Layer", "Projection") or tolerance != settings.tolerance:
        return []
    found = []
    for size in settings.served:
        for arrival in (ONCE, EQUAL):
            rows = arrivals(test.group, size, arrival)
            if not rows:
                continue
            order, batches = renumbered(rows)
            group, targets = test.group[order], test.targets[order]
            for how in (HARD, SOFT, LEDGER):
                emitted = emit(raw[order], group, batches, how, tolerance, settings)
                judged = judge(emitted, targets, group, batches, tolerance)
                found.append({"method": label, "inference": how, "arrival": arrival, "batch_size": size, **judged})
    return found
