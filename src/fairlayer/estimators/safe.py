"""Fitted estimators of other libraries as data, without pickle: skops, with every type that it may make named here.

What cannot be written that way is refused when it is saved, not when it is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fairlayer.errors import InputError
from fairlayer.extras import needs

# Beside what skops itself trusts: scikit-learn's estimators, numpy's arrays, and plain data. All of these hold numbers;
# Booster is read by its own library from its own format.
TRUSTED = frozenset(
    {
        "collections.OrderedDict",
        "collections.defaultdict",
        "fairlayer.estimators.models.TableCodes",
        "fairlayer.estimators.models.TableNumbers",
        "functools.partial",  # of check_array, below, and of nothing else that is trusted
        "lightgbm.basic.Booster",
        "lightgbm.sklearn.LGBMClassifier",
        "lightgbm.sklearn.LGBMRegressor",
        "numpy.dtype",
        "scipy.sparse._csr.csr_matrix",
        "sklearn._loss.loss.HalfTweedieLossIdentity",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.calibration._SigmoidCalibration",
        "sklearn.compose._column_transformer.make_column_selector",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.feature_selection._univariate_selection.f_classif",
        "sklearn.feature_selection._univariate_selection.f_regression",
        "sklearn.frozen._frozen.FrozenEstimator",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.tree._tree.Tree",
        "sklearn.utils._bunch.Bunch",
        "sklearn.utils.validation.check_array",
        "xgboost.core.Booster",
        "xgboost.sklearn.XGBClassifier",
        "xgboost.sklearn.XGBRegressor",
    }
)


def pack(estimator: Any) -> bytes:
    """A fitted estimator as data; refused where it holds anything whose type is not trusted."""
    io = _skops()
    name = type(estimator).__name__
    try:
        packed: bytes = io.dumps(estimator)
    except Exception as error:  # skops raises whatever its parts do
        raise InputError(f"{name} cannot be written without pickle ({error}): {REMEDY}") from error
    strange = sorted(set(io.get_untrusted_types(data=packed)) - TRUSTED)
    if strange:
        raise InputError(f"{name} holds {', '.join(strange[:5])}, which no model folder may hold: {REMEDY}")
    return packed


REMEDY = (
    "a folder holds no code. It can hold scikit-learn's own estimators and pipelines, LightGBM's and XGBoost's; keep "
    "others in your own way, and fit FairClassifier or FairRegressor around them with FrozenEstimator."
)


def unpack(packed: bytes) -> Any:
    """What `pack` was given. Nothing is made whose type is not trusted, and trees lead nowhere outside themselves."""
    io = _skops()
    estimator = io.loads(packed, trusted=sorted(TRUSTED & set(io.get_untrusted_types(data=packed))))
    for tree in _trees(estimator):
        _check_tree(tree)
    return estimator


def _trees(value: Any, seen: set[int] | None = None) -> Iterator[Any]:
    """All trees of scikit-learn within an estimator."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, str | bytes | int | float | type(None)):
        return
    seen.add(id(value))
    if hasattr(value, "children_left") or type(value).__name__ == "TreePredictor":
        yield value
        return
    parts: Any = ()
    if isinstance(value, dict):
        parts = value.values()
    elif isinstance(value, list | tuple | set) or (isinstance(value, np.ndarray) and value.dtype == object):
        parts = value.reshape(-1).tolist() if isinstance(value, np.ndarray) else value
    elif hasattr(value, "__dict__"):
        parts = vars(value).values()
    for part in parts:
        yield from _trees(part, seen)


def _check_tree(tree: Any) -> None:
    """Refuse a tree whose branches lead back, or beyond its end: scikit-learn follows them unchecked."""
    if hasattr(tree, "children_left"):
        left, right, inner = tree.children_left, tree.children_right, tree.children_left != -1
        features, width = tree.feature, tree.n_features
        bitsets: Any = np.zeros(len(left), dtype=np.int64)
        most = 1
    else:
        nodes = tree.nodes
        left, right, inner = nodes["left"].astype(np.int64), nodes["right"].astype(np.int64), nodes["is_leaf"] == 0
        features, width = nodes["feature_idx"].astype(np.int64), np.iinfo(np.int32).max
        bitsets = np.where(nodes["is_categorical"] == 1, nodes["bitset_idx"].astype(np.int64), 0)
        most = max(1, len(tree.raw_left_cat_bitsets))
    here = np.arange(len(left))
    for child in (left, right):
        if not ((child[inner] > here[inner]) & (child[inner] < len(left))).all():
            raise ValueError("a tree has branches that lead nowhere")
    if not ((features[inner] >= 0) & (features[inner] < width) & (bitsets[inner] >= 0) & (bitsets[inner] < most)).all():
        raise ValueError("a tree asks for features or categories that it does not have")


def _skops() -> Any:
    with needs("A model folder of an estimator", "skops"):
        import skops.io  # type: ignore[import-untyped]
    return skops.io
