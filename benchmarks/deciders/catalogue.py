"""Who decides, in which environment, with which options."""

from dataclasses import dataclass, field
from typing import Any

from peers.catalogue import PROJECT

TOLERANCES = (0.01, 0.02, 0.05, 0.1)
SOME = 5
OURS, FROZEN, FITTED = "fairlayer, batch", "fairlayer, frozen thresholds", "fairlayer, batch, fitted threshold"


@dataclass(frozen=True)
class Decider:
    """One method."""

    name: str
    adapter: str
    environment: str
    package: str  # the distribution whose version is shown; a repository's name where there is none
    options: dict[str, Any] = field(default_factory=dict)
    tolerances: tuple[float, ...] = TOLERANCES
    splits: int | None = None  # how many, at most, of those with the first seeds
    draws: int = 1  # more than one for methods that draw decisions and do not say with which probability

    @property
    def ours(self) -> bool:
        """Whether it is a way to use this library."""
        return self.package == "fairlayer"


DECIDERS = [
    Decider(OURS, "fairlayer_batch", PROJECT, "fairlayer"),
    Decider(FITTED, "fairlayer_fitted", PROJECT, "fairlayer"),
    Decider(FROZEN, "fairlayer_frozen", PROJECT, "fairlayer"),
    Decider("LinearPost", "linearpost", "linearpost", "rxian/fair-classification"),
    Decider("OxonFair", "oxonfair_thresholds", "oxonfair", "oxonfair"),
    Decider("fairlearn ThresholdOptimizer", "threshold_optimizer", PROJECT, "fairlearn"),
    Decider("error-parity", "relaxed_thresholds", "error-parity", "error-parity", draws=200),
    # These fit for long: fewer splits and tolerances.
    Decider(
        "AIF360 RejectOptionClassification",
        "aif360_reject_option",
        "aif360",
        "aif360",
        {"thresholds": 50, "margins": 25},
        (0.02, 0.1),
        splits=SOME,
    ),
    Decider(
        "fairlearn ExponentiatedGradient",
        "exponentiated_gradient",
        PROJECT,
        "fairlearn",
        {"rounds": 15},
        (0.02,),
        splits=SOME,
    ),
]
