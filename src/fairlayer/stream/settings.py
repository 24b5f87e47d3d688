"""What a stream promises and how it decides: all that a stored stream must agree with to be continued."""

from __future__ import annotations

import json
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch

from fairlayer.constraints import read_constraint
from fairlayer.core.classes import check_class_kind, check_class_rules, check_class_shape, check_probabilities
from fairlayer.core.discrepancies import check_domain, check_interval, find_discrepancy
from fairlayer.errors import InputError
from fairlayer.problem.bounds import read_bounds
from fairlayer.problem.constraint_set import ConstraintSet

POLICIES = ("ledger", "primal-dual")
DISCREPANCIES = ("squared", "entropy", "kl")


class Settings:
    """The settings of a stream, checked; see `Stream` for the meaning of each."""

    def __init__(
        self,
        constraints: Any,
        bounds: Any = None,
        policy: str = "ledger",
        b_tau: Any = 64,
        eta: Any = 0.5,
        each_batch: bool = False,
        discrepancy: str = "squared",
        simplex: bool = False,
        classes: Sequence[Any] | None = None,
    ):
        rules = self.rules = ConstraintSet(constraints)
        self.policy = policy
        self.discrepancy = discrepancy
        self.each_batch, self.simplex = bool(each_batch), bool(simplex)  # simplex: of the probabilities of classes
        self.classes = () if classes is None else tuple(map(str, classes))  # none where they go by their numbers
        if not rules.constraints or rules.matrices:
            raise InputError("constraints of a stream must be fairness constraints, at least one; Affine is not.")
        if policy not in POLICIES:
            raise InputError(f"policy must be one of {list(POLICIES)}; got {policy!r}.")
        if simplex:
            _check_simplex(rules, bounds, policy, discrepancy)
        elif self.classes:
            raise InputError("classes names probabilities of classes: add simplex=True, or leave it out.")
        if each_batch and policy != "ledger":
            raise InputError(f"each_batch needs policy='ledger'; got {policy!r}, which has its own rule for batches.")
        if any(isinstance(tolerance, torch.Tensor) for tolerance in rules.tolerances()):
            raise InputError("a stream's tolerances must be numbers: gradients do not flow through it.")
        if discrepancy not in DISCREPANCIES:
            remedy = " Pass probabilities, 1 / (1 + exp(-logit)), to 'entropy'." if discrepancy == "logits" else ""
            raise InputError(
                f"discrepancy of a stream must be one of {list(DISCREPANCIES)}, which its store can name; got "
                f"{discrepancy!r}.{remedy}"
            )
        if discrepancy != "squared" and policy != "ledger":
            raise InputError(f"discrepancy {discrepancy!r} needs policy='ledger'; Algorithm 1 is of the squared one.")
        box = read_bounds(bounds, 2, np.float64)
        check_interval(box, find_discrepancy(discrepancy))
        if box.per_sample:
            raise InputError("bounds of a stream must be numbers: what was emitted before must lie within them.")
        rules.check_bounds(box.lowest)
        self.bounds = box.lowest, box.highest  # infinite where a side is open
        self.tolerances = rules.allowed()  # the largest gap that each constraint allows
        # At which a score is a yes, where constraints are about decisions; otherwise None.
        self.threshold = _read_threshold(rules, box.lowest, box.highest)
        if self.threshold is not None and (policy != "ledger" or each_batch or discrepancy != "squared"):
            raise InputError(
                "constraints are about decisions, which a stream keeps with policy='ledger' and discrepancy='squared' "
                "alone, over all of them rather than in each batch; got "
                f"policy={policy!r}, discrepancy={discrepancy!r} and each_batch={each_batch!r}."
            )
        if not (isinstance(b_tau, Integral) and int(b_tau) >= 0):
            raise InputError(f"b_tau must be a whole number, at least 0; got {b_tau!r}.")
        self.b_tau = int(b_tau)
        self.eta = read_positive(eta, "eta")

    @property
    def task(self) -> str:
        """What the stream keeps: "decisions", "classes", or "outputs"."""
        return "decisions" if self.threshold is not None else "classes" if self.simplex else "outputs"

    def check_outputs(self, outputs: np.ndarray) -> None:
        """Refuse outputs, of shape (n,) or (n, d), that are not what these settings are for."""
        if self.simplex:
            check_class_shape(outputs)
            if self.classes and outputs.shape[1] != len(self.classes):
                raise InputError(f"z has {outputs.shape[1]} columns, and classes names {len(self.classes)}: name each.")
            check_probabilities(outputs.astype(np.float64), self.discrepancy, float(np.finfo(outputs.dtype).eps) / 2)
        elif self.discrepancy != "squared":
            for column in outputs.T if outputs.ndim == 2 else [outputs]:
                check_domain(column, find_discrepancy(self.discrepancy))

    def check_columns(self, targets: np.ndarray | None) -> None:
        """Refuse several outputs per sample where there can be but one."""
        if self.task == "decisions" or self.policy != "ledger":
            what = "of decisions" if self.task == "decisions" else f"with policy={self.policy!r}"
            raise InputError(
                f"z has several columns, and a stream {what} takes one output per sample: give each column a stream of "
                "its own."
            )
        if self.rules.needs_targets is None:
            return
        if targets is None:
            raise InputError(
                "targets is missing: those of samples with several outputs cannot come later. Pass them with the batch."
            )
        if targets.ndim == 2 and any(c.source == "target" for one in self.rules.conditioned for c in one.conditions):
            raise InputError(
                "targets has a column for every output, and constraints compare samples with the same target: pass one "
                "target per sample, shape (n,)."
            )

    def to_text(self) -> str:
        """JSON, as a store keeps it. What a policy does not look at is left out, and so is what is at its default."""
        data: dict[str, Any] = {
            "constraints": [constraint.to_data() for constraint in self.rules.constraints],
            "bounds": [side if np.isfinite(side) else None for side in self.bounds],
            "policy": self.policy,
        }
        if self.policy == "primal-dual":
            data |= {"b_tau": self.b_tau, "eta": self.eta}
        defaults = {"each_batch": False, "discrepancy": "squared", "simplex": False, "classes": ()}
        return json.dumps(
            data | {name: getattr(self, name) for name in defaults if getattr(self, name) != defaults[name]}
        )

    @classmethod
    def from_text(cls, text: str) -> Settings:
        """What `to_text` gave."""
        data = json.loads(text)
        return cls([read_constraint(one) for one in data.pop("constraints")], **data)

    def describe(self) -> dict[str, str]:
        """The settings in words, by name."""
        low, high = (f"{side:g}" if np.isfinite(side) else "none" for side in self.bounds)
        words = {"constraints": "; ".join(c.words() for c in self.rules.constraints), "policy": self.policy}
        words["bounds"] = "none" if low == high == "none" else f"{low} to {high}"
        if self.policy == "primal-dual":
            words |= {"b_tau": str(self.b_tau), "eta": f"{self.eta:g}"}
        if self.each_batch:
            words["each batch"] = "keeps the constraints too"
        if self.discrepancy != "squared":
            words["discrepancy"] = self.discrepancy
        if self.simplex:
            words["outputs"] = " ".join(["probabilities of classes", ", ".join(self.classes)]).strip()
        return words


def differences(stored: str, asked: str) -> str:
    """The settings in which two texts of `to_text` differ; classes may be named in one of them alone."""
    there, here = json.loads(stored), json.loads(asked)
    if not (there.get("classes") and here.get("classes")):
        there["classes"] = here["classes"] = None
    names = [name for name in {**there, **here} if there.get(name) != here.get(name)]
    return "; ".join(f"{name} {json.dumps(there.get(name))}, not {json.dumps(here.get(name))}" for name in names)


def _check_simplex(rules: ConstraintSet, bounds: Any, policy: str, discrepancy: str) -> None:
    """Refuse what a stream of class probabilities does not keep."""
    check_class_rules(rules)
    check_class_kind(discrepancy)
    conditioned = next((type(c).__name__ for c in rules.constraints if not c.always_feasible), None)  # type: ignore[attr-defined]
    if conditioned is not None:
        raise InputError(
            f"{conditioned} compares groups within parts of a stream, of which it is not known that every class can "
            "keep them: with simplex=True a stream takes MeanParity. Project batches onto it instead."
        )
    if policy != "ledger" or any(side is not None for side in bounds or ()):
        raise InputError(
            "simplex=True knows neither bounds nor another policy than 'ledger': probabilities are within 0 and 1 "
            f"already. Leave both out; got bounds={bounds!r} and policy={policy!r}."
        )


def _read_threshold(rules: ConstraintSet, low: float, high: float) -> float | None:
    """The threshold of these constraints, None where they are about outputs; refuse what a stream cannot keep together.

    low, high: bounds, which must leave room for a yes and for a no.
    """
    if not rules.about_decisions:
        return None
    if any(constraint.quantity != "decision" for constraint in rules.constraints):
        raise InputError(
            "constraints of a stream are about decisions or about means, not both: a score that is moved across the "
            "threshold moves the mean too. Make two streams, or keep one of the constraints."
        )
    waiting = next((constraint for constraint in rules.constraints if constraint.needs_targets), None)
    if waiting is not None:
        raise InputError(
            f"constraints: given={waiting.given!r} compares those with the same target, which a stream does not know "  # type: ignore[attr-defined]
            "when it decides, and a decision is final. Leave `given` out, or use EqualizedOdds, which a stream keeps "
            "on scores; with known targets use `project`."
        )
    threshold, *others = sorted({float(constraint.threshold) for constraint in rules.constraints})  # type: ignore[attr-defined]
    if others:
        raise InputError(f"constraints have several thresholds, {[threshold, *others]}: a stream decides by one.")
    if not low < threshold <= high:
        raise InputError(
            f"threshold is {threshold:g}, and bounds are ({low:g}, {high:g}): a stream of decisions needs room on both "
            "sides of it."
        )
    return threshold


def read_text(value: Any, what: str) -> str:
    """A name as text that every store can keep."""
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{what} has {value!r}, which is not valid text ({error.reason}): use another name."
        ) from error
    return text


def read_positive(value: Any, what: str) -> float:
    """A setting that measures something."""
    if not (isinstance(value, Real) and 0.0 < float(value) < np.inf):
        raise InputError(f"{what} must be a positive number; got {value!r}.")
    return float(value)
