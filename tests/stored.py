"""Problems that once went wrong, kept as data in `data/hard_problems.json`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

import fairlayer
from formulas import Problem, plain

HARD: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "data" / "hard_problems.json").read_text())


def stored_problem(name: str) -> tuple[Problem, torch.dtype]:
    """The problem of this name, and the dtype of its outputs."""
    data, dtype = HARD[name], getattr(torch, HARD[name]["dtype"])
    constraints = []
    for one in data["constraints"]:
        regions, over = one["regions"], one["over"]
        if isinstance(regions, dict):
            regions = {feature: [tuple(region) for region in each] for feature, each in regions.items()}
        elif regions is not None:
            regions = [tuple(region) for region in regions]
        given = {} if regions is None else {"regions": regions}
        kind = getattr(fairlayer, one["class"])
        constraints.append(kind(one["tolerance"], tuple(over) if isinstance(over, list) else over, **given))
    bounds = data["bounds"]
    if bounds is not None:
        bounds = tuple(np.array(s, dtype=np.float64) if isinstance(s, list) else s for s in bounds)
    z = plain(torch.tensor(data["z"], dtype=torch.float64).to(dtype))
    groups = {attribute: np.array(column) for attribute, column in data["groups"].items()}
    features = {feature: np.array(column) for feature, column in (data["features"] or {}).items()}
    targets, weights = (None if data[key] is None else np.array(data[key]) for key in ("targets", "weights"))
    return Problem(z, constraints, groups, bounds, targets, features, weights), dtype
