"""Tables for networks: preprocessing that takes a frame as it is, and a network that needs no tuning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairlayer.errors import InputError
from fairlayer.extras import needs

with needs("fairlayer.sklearn", "scikit-learn"):
    from sklearn.compose import ColumnTransformer  # type: ignore[import-untyped]
    from sklearn.impute import SimpleImputer  # type: ignore[import-untyped]
    from sklearn.pipeline import make_pipeline  # type: ignore[import-untyped]
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler  # type: ignore[import-untyped]

MOST_CATEGORIES = 100


def is_frame(X: Any) -> bool:
    """Whether X has named columns with types of their own."""
    return hasattr(X, "columns") and hasattr(X, "dtypes") and hasattr(X, "iloc")


def preprocessing(X: Any) -> ColumnTransformer:
    """A transformer, not yet fitted, for tables like X.

    Numbers: missing ones become the median, with a column that marks them; then mean 0 and standard deviation 1.
    Anything else: one column per category, a missing entry being one; beyond MOST_CATEGORIES the rarest share one,
    which those first seen later go to as well.
    """
    numeric = make_pipeline(
        SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True), StandardScaler()
    )
    if not is_frame(X):
        return ColumnTransformer([("numbers", numeric, list(range(X.shape[1])))])
    kinds = {name: getattr(X[name].dtype, "kind", "O") for name in X.columns}
    numbers = [name for name, kind in kinds.items() if kind in "biuf"]
    categories = [name for name, kind in kinds.items() if kind not in "biuf"]
    encode = make_pipeline(
        FunctionTransformer(as_text, feature_names_out="one-to-one"),
        OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES, sparse_output=False),
    )
    return ColumnTransformer([("numbers", numeric, numbers), ("categories", encode, categories)])


def as_text(frame: Any) -> Any:
    """Categories of any type as text, so that they sort."""
    return frame.astype(object).where(frame.notna(), "missing").map(str).to_numpy(dtype=object)


def columns_of(X: Any) -> Any:
    """A table's columns by name, or by position where they have no names."""
    return X if is_frame(X) else {j: X[:, j] for j in range(X.shape[1])}


def named_groups(sensitive_features: Any) -> dict[Any, Any]:
    """Protected attributes by name: of a frame, a mapping, a series, a list, or an array of one or more columns."""
    if isinstance(sensitive_features, Mapping):
        return dict(sensitive_features)
    if hasattr(sensitive_features, "columns"):
        return {name: sensitive_features[name] for name in sensitive_features.columns}
    name = getattr(sensitive_features, "name", None)
    if name is not None:
        return {name: sensitive_features}
    table = np.asarray(sensitive_features)
    if table.ndim == 1:
        return {"sensitive_feature": table}
    if table.ndim == 2 and table.shape[1] > 0:
        return {f"sensitive_feature_{j}": table[:, j] for j in range(table.shape[1])}
    raise InputError(f"sensitive_features has shape {table.shape}: pass one label, or one row of labels, per sample.")


def are_columns(groups: Mapping[Any, Any], X: Any) -> bool:
    """Whether the frame X holds the attributes under the same names."""
    return is_frame(X) and all(
        name in X.columns and (np.asarray(X[name]) == np.asarray(labels)).all() for name, labels in groups.items()
    )


def network(inputs: int, hidden: Sequence[int], module: Any) -> nn.Module:
    """The default network, a copy of a module, or what a callable makes of the number of inputs."""
    if isinstance(module, nn.Module):
        return deepcopy(module)
    if module is not None:
        if not isinstance(module, Callable):  # type: ignore[arg-type]
            raise InputError(f"module must be a torch module or a callable that makes one; got {module!r}.")
        return module(inputs)
    layers: list[nn.Module] = []
    for width in hidden:
        layers += [nn.Linear(inputs, width), nn.ReLU()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, 1))


class Probability(nn.Module):
    """A network whose one output is read as a logit."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """The probability."""
        return torch.sigmoid(self.inner(x))


class Rescaled(nn.Module):
    """A network whose one output is in standard deviations from the mean of the training targets."""

    mean: Tensor
    scale: Tensor

    def __init__(self, inner: nn.Module, mean: float, scale: float):
        super().__init__()
        self.inner = inner
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("scale", torch.tensor(scale, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """The output in the units of the targets."""
        return self.mean + self.scale * self.inner(x)
