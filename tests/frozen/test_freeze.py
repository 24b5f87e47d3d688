"""The frozen layer is the projection it was made from, sample by sample; and its certificate keeps its promise."""

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fairlayer import (
    Affine,
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    FairLayer,
    InputError,
    MeanParity,
    ResidualMean,
    SoftGroup,
    code_groups,
    freeze,
    project,
)
from fairlayer.frozen.frozen import Frozen
from fairlayer.layer import FairModel


def people(n: int, seed: int = 0) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Scores that differ by sex and race, some outside [0, 1]."""
    random = np.random.default_rng(seed)
    sex = random.choice(["female", "male"], n, p=[0.3, 0.7])
    race = random.choice(["a", "b", "c"], n, p=[0.6, 0.3, 0.1])
    z = random.normal(0.3 + 0.2 * (sex == "male") - 0.15 * (race == "b"), 0.25)
    return z, {"sex": sex, "race": race}


CONSTRAINTS = {
    "marginal": [MeanParity(0.02)],
    "one attribute": [MeanParity(0.02, over="race")],
    "intersection": [MeanParity(0.02, over=("sex", "race"))],
    "overlapping": [MeanParity(0.05), MeanParity(0.02, over=("race", "sex"))],
    "conditional": [ConditionalParity(0.02, regions={"age": [(None, 40), (30, None)]}), MeanParity(0.01, over="sex")],
    "residuals": [EqualizedResiduals(0.001), ResidualMean(0.002, over="sex")],
}


@pytest.mark.parametrize("kind", CONSTRAINTS)
@pytest.mark.parametrize(("bounds", "weighted"), [((0.0, 1.0), False), ((0.0, 1.0), True), (None, True)])
def test_frozen_equals_the_projection_of_its_calibration_sample(kind: str, bounds: Any, weighted: bool) -> None:
    z, groups = people(2000)
    random = np.random.default_rng(1)
    features = {"age": random.uniform(20, 60, len(z))}
    targets = np.clip(z + random.normal(0, 0.2, len(z)), 0, 1)
    weights = random.uniform(0.5, 2.0, len(z)) if weighted else None
    constraints = CONSTRAINTS[kind]
    frozen = freeze(
        FairLayer(constraints, bounds),
        z,
        groups,
        targets=targets,
        features=features,
        weights=weights,
        confidence=None,
    )
    expected = project(z, groups, constraints, bounds, targets, features, weights)
    np.testing.assert_allclose(frozen.predict(z, groups, features), expected.value, atol=1e-12)
    assert np.abs(expected.value - np.clip(z, *(bounds or (-9, 9)))).max() > 1e-3  # the constraints bind


def test_an_output_depends_on_its_own_sample_only() -> None:
    z, groups = people(1000)
    frozen = freeze(FairLayer([MeanParity(0.02)], (0.0, 1.0)), z, groups)
    together = frozen.predict(z, groups)
    alone = [frozen.predict(z[i : i + 1], {k: v[i : i + 1] for k, v in groups.items()})[0] for i in range(20)]
    assert together[:20].tolist() == alone
    code = frozen.encode(groups)
    assert frozen(torch.tensor(z[0]), code[0]).item() == alone[0]


def test_unseen_combinations_add_up_and_unseen_labels_are_refused() -> None:
    z, groups = people(3000)
    seen = ~((groups["sex"] == "female") & (groups["race"] == "c"))
    frozen = freeze(
        FairLayer([MeanParity(0.02)], (0.0, 1.0)), z[seen], {k: v[seen] for k, v in groups.items()}, confidence=None
    )
    shift = dict(zip(frozen.group_names(), frozen.shifts.tolist(), strict=True))
    out = frozen.predict(np.array([0.5]), {"sex": ["female"], "race": ["c"]})
    assert out[0] == pytest.approx(0.5 - shift["sex female"] - shift["race c"])
    with pytest.raises(InputError, match=r"holds \['d'\], which the calibration sample did not have"):
        frozen.predict(np.array([0.5]), {"sex": ["male"], "race": ["d"]})
    left = frozen.predict(np.array([0.5]), {"sex": ["male"], "race": ["d"]}, unseen="unshifted")
    assert left[0] == pytest.approx(0.5 - shift["sex male"])
    with pytest.raises(InputError, match="pass every attribute"):
        frozen.predict(np.array([0.5]), {"sex": ["male"]})


def test_labels_that_only_might_occur_and_intersections_without_samples_are_refused() -> None:
    z, groups = people(2000)
    levels = {"sex": ["female", "male", "other"], "race": ["a", "b", "c"]}
    frozen = freeze(FairLayer([MeanParity(0.02)], (0.0, 1.0), levels=levels), z, groups, confidence=None)
    assert frozen.labels["sex"] == ("female", "male")
    with pytest.raises(InputError, match=r"holds \['other'\]"):
        frozen.predict(z[:1], {"sex": ["other"], "race": ["a"]})
    seen = ~((groups["sex"] == "female") & (groups["race"] == "c"))
    layer = FairLayer([MeanParity(0.02, over=("sex", "race"))], (0.0, 1.0))
    frozen = freeze(layer, z[seen], {k: v[seen] for k, v in groups.items()}, confidence=None)
    with pytest.raises(InputError, match=r"samples of \['sex female & race c'\]"):
        frozen.predict(z, groups)
    left = frozen.predict(z, groups, unseen="unshifted")
    assert (left[~seen] == np.clip(z[~seen], 0, 1)).all()
    assert not (left[seen] == np.clip(z[seen], 0, 1)).any(where=(z[seen] > 0.2) & (z[seen] < 0.8))


def test_soft_groups_get_the_expected_shift_which_is_the_projection() -> None:
    z, groups = people(1500)
    random = np.random.default_rng(2)
    guess = np.clip(random.normal(0.7, 0.2, len(z)), 0, 1)
    male = np.where(groups["sex"] == "male", guess, 1 - guess)
    soft = {"sex": SoftGroup(np.stack([1 - male, male], axis=1), ["female", "male"]), "race": groups["race"]}
    constraints = [MeanParity(0.02)]
    frozen = freeze(FairLayer(constraints, (0.0, 1.0)), z, soft, confidence=None)
    expected = project(z, soft, constraints, (0.0, 1.0)).value
    np.testing.assert_allclose(frozen.predict(z, soft), expected, atol=1e-12)
    certain = frozen.predict(z, groups)  # known labels are probabilities of 0 and 1
    sure = {"sex": SoftGroup((groups["sex"][:, None] == ["female", "male"]).astype(float), ["female", "male"])}
    np.testing.assert_allclose(frozen.predict(z, sure | {"race": groups["race"]}), certain, atol=1e-12)
    stated = freeze(FairLayer([MeanParity(0.02, over="sex")], (0.0, 1.0)), z, soft).certificate
    assert stated is not None
    assert 0.02 < stated.gap < 0.5


@pytest.mark.parametrize("soft", [False, True], ids=["codes", "soft"])
def test_exports_agree_with_the_module(soft: bool, tmp_path: Path) -> None:
    torch.manual_seed(0)
    _, groups = people(600)
    x = torch.randn(600, 4)
    backbone = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    frozen = freeze(FairModel(backbone, FairLayer([MeanParity(0.01)], (0.0, 1.0)), hide=[1]), x, groups)
    codes = torch.rand(600, 5, dtype=torch.float64) if soft else frozen.encode(groups)
    expected = frozen(x, codes).detach()
    program = frozen.export(x[:2], soft=soft)
    torch.testing.assert_close(program.module()(x, codes), expected, atol=1e-6, rtol=0)
    session = onnx_session(frozen, x, tmp_path / "frozen.onnx", soft=soft)
    for rows in (slice(0, 600), slice(5, 6)):
        (found,) = session.run(None, {"x": x[rows].numpy(), "groups": codes[rows].numpy()})
        np.testing.assert_allclose(found, expected[rows].numpy(), atol=1e-6)


def onnx_session(frozen: Frozen, x: torch.Tensor, path: Path, **options: Any) -> Any:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is absent")
    pytest.importorskip("onnxscript", reason="onnxscript is absent")
    frozen.to_onnx(path, x[:2], **options)
    return runtime.InferenceSession(str(path))


def test_an_onnx_file_says_what_its_codes_mean_and_refuses_unknown_ones(tmp_path: Path) -> None:
    z, groups = people(600)
    absent = (groups["sex"] == "female") & (groups["race"] == "c")
    known = {name: column[~absent] for name, column in groups.items()}
    layer = FairLayer([MeanParity(0.05, over=("sex", "race"))], (0.0, 1.0))
    frozen, raw = freeze(layer, z[~absent], known), torch.from_numpy(z[~absent])
    session, program = onnx_session(frozen, raw, tmp_path / "frozen.onnx"), frozen.export(raw[:2])
    kept = session.get_modelmeta().custom_metadata_map
    assert kept["fairlayer.form"] == "codes"
    columns = json.loads(kept["fairlayer.groups"])
    codes = np.stack([[column["labels"].index(v) for v in known[column["attribute"]]] for column in columns], axis=1)
    (found,) = session.run(None, {"x": z[~absent], "groups": codes})
    assert (found == frozen.predict(z[~absent], known)).all()
    combination = [column["labels"].index(label) for column, label in zip(columns, ("female", "c"), strict=True)]
    for wrong in ([-1, 0], [2, 0], [3, 1], [0, 10**9], combination):
        codes[7] = wrong
        with pytest.raises(InputError, match="stand for no label"):
            frozen(raw, torch.from_numpy(codes))
        with pytest.raises((IndexError, RuntimeError)):
            program.module()(raw, torch.from_numpy(codes))
        with pytest.raises(Exception, match="out of data bounds"):
            session.run(None, {"x": z[~absent], "groups": codes})


def test_state_is_in_buffers_and_survives() -> None:
    z, groups = people(1000)
    layer = FairLayer([MeanParity(0.02)], (0.1, 0.9))
    frozen = freeze(layer, z, groups)
    expected = frozen.predict(z, groups)
    fresh = Frozen(layer, frozen.labels)
    assert not np.allclose(fresh.predict(z, groups), expected)
    fresh.load_state_dict(frozen.state_dict())
    assert (fresh.predict(z, groups) == expected).all()
    again = pickle.loads(pickle.dumps(frozen))
    assert (again.predict(z, groups) == expected).all()
    assert again.certificate == frozen.certificate
    single = frozen.predict(z.astype(np.float32), groups)
    assert single.dtype == np.float32
    assert (single.astype(np.float64) >= 0.1).all()
    assert (single.astype(np.float64) <= 0.9).all()


def test_what_cannot_be_frozen_or_stated_says_so() -> None:
    z, groups = people(200)
    targets, box = (z > 0.3).astype(float), (0.0, 1.0)
    weights = {"weights": np.ones(200)}
    for constraint, bounds, options, why in (
        (EqualizedOdds(0.1), box, {"targets": targets}, "EqualizedOdds shifts samples by their targets"),
        (Affine(np.ones((1, 200)), 0.0, 1.0), None, {}, "cannot be frozen"),
        (MeanParity(0.1), None, {}, "unbounded"),
        (MeanParity(0.1), box, weights, "weighted"),
        (MeanParity(0.1), box, {"confidence": 1.0}, "between 0 and 1"),
        (ResidualMean(0.1), box, {"targets": targets}, "targets_within"),
        (ResidualMean(0.1), box, {"targets": targets, "targets_within": (0.0, 0.5)}, "outside targets_within"),
    ):
        with pytest.raises(InputError, match=why):
            freeze(FairLayer([constraint], bounds), z, groups, **options)
    crowd = {name: np.arange(200) for name in "abc"}
    with pytest.raises(InputError, match="compare 8,000,000 combinations of labels"):
        freeze(FairLayer([MeanParity(0.1, over=("a", "b", "c"))], box), z, crowd)
    with pytest.raises(InputError, match="FairLayer or a FairModel"):
        freeze(torch.nn.Linear(1, 1), z, groups)


def true_gaps(frozen: Frozen, z: np.ndarray, groups: dict[str, np.ndarray]) -> float:
    y = frozen.predict(z, groups)
    spread = [[y[labels == label].mean() for label in np.unique(labels)] for labels in groups.values()]
    return max(max(means) - min(means) for means in spread)


@pytest.mark.parametrize("tighten", [False, True])
def test_the_statement_holds_over_resamplings(tighten: bool) -> None:
    z, groups = people(8_000)
    layer = FairLayer([MeanParity(0.14 if tighten else 0.02)], (0.0, 1.0))
    random = np.random.default_rng(5)
    wrong, bounds, shifts = 0, [], set()
    for seed in range(24):
        rows = random.integers(0, len(z), 4000)
        frozen = freeze(layer, z[rows], {k: v[rows] for k, v in groups.items()}, tighten=tighten, seed=seed)
        assert frozen.certificate is not None
        wrong += true_gaps(frozen, z, groups) > frozen.certificate.gap
        bounds.append(frozen.certificate.gap)
        shifts.add(tuple(frozen.shifts.tolist()))
    assert wrong <= 2  # of 24, at 95 %
    assert len(shifts) > 8  # a tightened fit may end where the constraint no longer binds
    assert max(bounds) <= 0.14
    assert np.mean(bounds) > 0.06


def test_tightening_keeps_the_tolerance_or_names_the_sample_size() -> None:
    z, groups = people(600)
    with pytest.raises(InputError, match=r"sample of 600 is too small.*about (\d+) samples are needed") as caught:
        freeze(FairLayer([MeanParity(0.1)], (0.0, 1.0)), z, groups, tighten=True)
    needed = int(str(caught.value).split("about ")[1].split()[0])
    more_z, more_groups = people(needed, seed=3)
    frozen = freeze(FairLayer([MeanParity(0.1)], (0.0, 1.0)), more_z, more_groups, tighten=True)
    assert frozen.certificate is not None
    assert frozen.certificate.satisfied
    assert frozen.certificate.gap == 0.1
    assert frozen.certificate.aimed_at < 1.0
    assert true_gaps(frozen, *people(50_000, seed=4)) <= 0.1
    with pytest.raises(InputError, match="raise the tolerance"):
        freeze(FairLayer([MeanParity(0.0)], (0.0, 1.0)), z, groups, tighten=True)


def test_certificates_of_residuals_and_conditions() -> None:
    z, groups = people(4000)
    random = np.random.default_rng(6)
    targets = np.clip(z + random.normal(0.1, 0.1, len(z)), 0, 1)
    frozen = freeze(FairLayer([ResidualMean(0.01)], (0.0, 1.0)), z, groups, targets=targets, targets_within=(0.0, 1.0))
    assert frozen.certificate is not None
    assert len(frozen.certificate.rows) == 5
    y = frozen.predict(z, groups)
    assert all(abs((y - targets)[groups["sex"] == s].mean()) < frozen.certificate.gap for s in ("male", "female"))
    features = {"age": random.uniform(20, 60, len(z))}
    constraint = ConditionalParity(0.02, over="sex", regions={"age": [(None, 40), (40, None)]})
    frozen = freeze(FairLayer([constraint], (0.0, 1.0)), z, groups, features=features)
    assert frozen.certificate is not None
    assert [row.row for row in frozen.certificate.rows] == [
        "conditional parity, sex within age in [-inf, 40): female - male",
        "conditional parity, sex within age in [40, inf): female - male",
    ]
    assert "With 95 % confidence, all 2 gaps are at most" in str(frozen.certificate)


def test_columns_without_names_are_those_of_the_calibration_sample():
    """A constraint on one column of a table: the table itself, that column alone, and by name are the same."""
    random = np.random.default_rng(5)
    table = random.integers(0, 2, (600, 3))
    z = random.random(600) + 0.3 * table[:, 2]
    frozen = freeze(FairLayer([MeanParity(0.01, over=[2])]), z, table, confidence=None)
    expected = frozen.predict(z, {2: table[:, 2]})
    assert abs(expected[table[:, 2] == 0].mean() - expected[table[:, 2] == 1].mean()) <= 0.0101
    for groups in (table, torch.from_numpy(table), table[:, 2], table[:, [2]]):
        assert np.array_equal(frozen.predict(z, groups), expected)
    named = freeze(FairLayer([MeanParity(0.01)]), z, {"sex": table[:, 0], "race": table[:, 1]}, confidence=None)
    both = named.predict(z, {"sex": table[:, 0], "race": table[:, 1]})
    assert np.array_equal(named.predict(z, table[:, :2]), both)
    with pytest.raises(InputError, match=r"groups has 3 without names.*\['sex', 'race'\].*by name"):
        named.predict(z, table)


def test_what_cannot_be_predicted_is_refused_by_name():
    z, groups = people(50)
    frozen = freeze(FairLayer([MeanParity(0.05)], bounds=(0.0, 1.0)), z, groups)
    expected = frozen.predict(z, groups)
    assert np.array_equal(frozen.predict(z, code_groups(groups)), expected)
    assert np.array_equal(frozen.predict(z.tolist(), groups), expected)
    for given, labels, why in (
        (z, {name: column[:1] for name, column in groups.items()}, "groups has 1 row for 50"),
        (z[:1], groups, "groups has 50 rows for 1"),
        (z, {**groups, "race": groups["race"][:3]}, "'race'. has 3 entries for 50 outputs"),
        (np.ones(50, dtype=int), groups, "pass floats"),
        (np.append(z[:49], np.nan), groups, r"x\[49\] leads to an output that is not finite"),
    ):
        with pytest.raises(InputError, match=why):
            frozen.predict(given, labels)
    assert frozen.predict(z[:0], {name: column[:0] for name, column in groups.items()}).shape == (0,)
    with pytest.raises(InputError, match="unseen must be"):
        frozen.predict(z, groups, unseen="skip")


class TwoInputs(torch.nn.Module):
    """A backbone that takes a dictionary."""

    def forward(self, x):
        return x["score"] + x["bonus"]


def test_a_backbone_takes_what_it_takes():
    z, groups = people(50)
    x = {"score": torch.tensor(z), "bonus": torch.zeros(50, dtype=torch.float64)}
    frozen = Frozen(FairLayer([MeanParity(0.05)]), {name: sorted(set(column)) for name, column in groups.items()})
    frozen.backbone, frozen.seen[:] = TwoInputs(), True
    assert torch.equal(frozen.predict(x, groups), torch.tensor(z))
