"""The methods that experiments compare, by the names of the paper, and how a network is trained with one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from experiments.baselines import Penalty, Projection, StrictPenalty, Unconstrained, penalty_of
from fairlayer import FairLayer, FairModel
from fairlayer.errors import InputError
from fairlayer.training import Fitted, fit

METHODS = ("F-Layer", "Projection", "Penalty", "Strict Penalty", "Unconstrained")
PROMISING = ("F-Layer", "Projection")  # those whose outputs satisfy the constraints by construction

_LAYERS: dict[str, Any] = {
    "F-Layer": FairLayer,
    "Projection": Projection,
    "Penalty": Penalty,
    "Strict Penalty": StrictPenalty,
    "Unconstrained": Unconstrained,
}


def build(
    method: str, network: nn.Module, constraints: Any, bounds: Any = None, *, strength: float | None = None
) -> FairModel:
    """A network with a method's layer; strength: of the penalties."""
    if method not in _LAYERS:
        raise InputError(f"There is no method {method!r}; there are {', '.join(METHODS)}.")
    options = {} if strength is None else {"strength": strength}
    return FairModel(network, _LAYERS[method](constraints, bounds, **options))


def as_projection(model: FairModel) -> FairModel:
    """The same network with its outputs projected: trained unconstrained, this is the paper's Projection."""
    return FairModel(model.backbone, getattr(model.layer, "projection", model.layer))


@dataclass
class Trained:
    """A model after training, at its best or its last epoch.

    The authors' tabular experiments meant to end with the best epoch and ended with the last, so both are of interest.
    """

    model: FairModel
    fitted: Fitted
    weights: dict[str, dict[str, Any]]  # "best" and "last"

    def at(self, epoch: str) -> FairModel:
        """The model with the weights of its "best" or "last" epoch."""
        self.model.load_state_dict(self.weights[epoch])
        return self.model


def train(model: FairModel, train: Any, validation: Any = None, **options: Any) -> Trained:
    """Train with `fairlayer.training.fit` and keep both the best and the last epoch."""
    weights: dict[str, dict[str, Any]] = {}

    def keep(which: str) -> None:
        weights[which] = {name: value.clone() for name, value in model.state_dict().items()}

    options |= {"penalty": penalty_of(model), "on_epoch": lambda record: keep("last")}
    fitted = fit(model, train, validation, restore="best", **options)
    keep("best")
    return Trained(model, fitted, weights)
