"""Fitted estimators of other libraries as data, without pickle: skops, with every type that it may make named here.

What cannot be written that way is refused when it is saved, not when it is loaded.
"""

from __future__ import annotations

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


def pack(learned: Any) -> bytes:
    """Fitted estimators as data; refused where they hold anything whose type is not trusted."""
    io = _skops()
    try:
        packed: bytes = io.dumps(learned)
    except Exception as error:  # skops raises whatever its parts do
        raise InputError(f"The model cannot be written without pickle ({error}): {REMEDY}") from error
    strange = sorted(set(io.get_untrusted_types(data=packed)) - TRUSTED)
    if strange:
        raise InputError(f"The model holds {', '.join(strange[:5])}, which no model folder may hold: {REMEDY}")
    return packed


REMEDY = (
    "a folder holds no code. It can hold scikit-learn's own estimators and pipelines, LightGBM's and XGBoost's; keep "
    "others in your own way, and fit FairClassifier or FairRegressor around them with FrozenEstimator."
)


def unpack(packed: bytes) -> Any:
    """What `pack` was given. Nothing is made whose type is not trusted, and trees lead nowhere outside themselves."""
    io = _skops()
    learned = io.loads(packed, trusted=sorted(TRUSTED & set(io.get_untrusted_types(data=packed))))
    _check_trees(learned, set())
    return learned


def _check_trees(value: Any, seen: set[int]) -> None:
    """Check all trees of scikit-learn within a value."""
    if id(value) in seen or isinstance(value, str | bytes | int | float | type(None)):
        return
    seen.add(id(value))
    if hasattr(value, "children_left"):
        inner = value.children_left != -1
        _check_tree(
            value.children_left[inner], value.children_right[inner], inner, value.feature[inner], value.n_features
        )
    elif type(value).__name__ == "TreePredictor":
        inner = value.nodes["is_leaf"] == 0
        nodes, bitsets = value.nodes[inner], max(1, len(value.raw_left_cat_bitsets))
        _check_tree(nodes["left"], nodes["right"], inner, nodes["feature_idx"], np.iinfo(np.int32).max)
        if not (nodes["bitset_idx"][nodes["is_categorical"] != 0].astype(np.int64) < bitsets).all():
            raise ValueError("a tree asks for categories that it does not have")
    else:
        parts: Any = ()
        if isinstance(value, dict):
            parts = value.values()
        elif isinstance(value, list | tuple | set):
            parts = value
        elif isinstance(value, np.ndarray):
            parts = value.reshape(-1).tolist() if value.dtype == object else ()
        elif hasattr(value, "__dict__"):
            parts = vars(value).values()
        for part in parts:
            _check_trees(part, seen)


def _check_tree(left: np.ndarray, right: np.ndarray, inner: np.ndarray, features: np.ndarray, width: int) -> None:
    """Refuse a tree whose branches lead back, or beyond its end: scikit-learn follows them unchecked.

    inner: (nodes,) those that branch; left, right, features: (of these,)
    """
    here = np.flatnonzero(inner)
    for child in (left.astype(np.int64), right.astype(np.int64)):
        if not ((child > here) & (child < len(inner))).all():
            raise ValueError("a tree has branches that lead nowhere")
    if not ((features.astype(np.int64) >= 0) & (features < width)).all():
        raise ValueError("a tree asks for features that it does not have")


def _skops() -> Any:
    with needs("A model folder", "skops"):
        import skops.io  # type: ignore[import-untyped]
    return skops.io
