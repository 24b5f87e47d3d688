"""What cannot be done is refused before anything is done, by a message that says what to change."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
import torch

from fairlayer import (
    AbsentGroupError,
    Affine,
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    FairLayer,
    FairlayerError,
    InfeasibleError,
    InputError,
    MeanParity,
    ResidualMean,
    SoftGroup,
    Status,
    Stream,
    WeightedSquared,
    audit,
    project,
)

N = 12
Z = np.linspace(0.0, 1.0, N)
SEX = np.arange(N) % 2
NAN = float("nan")


def call(z=Z, groups=SEX, constraints=None, **options):
    return project(z, groups, MeanParity(0.1) if constraints is None else constraints, **options)


def with_entry(value: float) -> np.ndarray:
    changed = Z.copy()
    changed[3] = value
    return changed


BAD_CALLS = {
    "NaN in z": ({"z": with_entry(NAN)}, r"z\[3\] is nan.*finite"),
    "infinity in z": ({"z": torch.tensor(with_entry(float("inf")))}, r"z\[3\] is inf.*finite"),
    "integers as z": ({"z": np.arange(N)}, "z must hold floats.*int64"),
    "integer tensor as z": ({"z": torch.arange(N)}, "z must hold floats.*int64"),
    "words as z": ({"z": ["a"] * N}, "z must hold floats"),
    "one number as z": ({"z": torch.tensor(1.0)}, r"z has shape \(\)"),
    "cube as z": ({"z": np.zeros((N, 1, 1))}, "z has shape"),
    "no constraint": ({"constraints": [3]}, "must hold constraints such as MeanParity.*got 3"),
    "constraints missing": ({"constraints": "parity"}, "must hold constraints"),
    "unknown attribute": (
        {"groups": {"sex": SEX}, "constraints": MeanParity(0.1, over="age")},
        r"over names attribute 'age'.*it has \['sex'\]",
    ),
    "unknown attribute in an intersection": (
        {"groups": {"sex": SEX}, "constraints": MeanParity(0.1, over=("sex", "age"))},
        "over names attribute 'age'",
    ),
    "nothing compared": ({"constraints": MeanParity(0.1, over=[])}, r"over is \[\]"),
    "targets missing": ({"constraints": ResidualMean(0.1)}, "targets is missing: ResidualMean"),
    "targets missing for odds": ({"constraints": EqualizedOdds(0.1)}, "targets is missing: EqualizedOdds"),
    "targets too short": (
        {"constraints": ResidualMean(0.1), "targets": Z[1:]},
        "targets has 11 entries for 12 outputs",
    ),
    "NaN in targets": ({"constraints": ResidualMean(0.1), "targets": with_entry(NAN)}, r"targets\[3\] is not finite"),
    "words as targets": ({"constraints": ResidualMean(0.1), "targets": ["a"] * N}, "targets must be numbers"),
    "targets of too many values": (
        {"z": np.zeros(60), "groups": np.arange(60) % 2, "constraints": EqualizedOdds(0.1), "targets": np.arange(60.0)},
        "60 values, too many to be classes.*regions=",
    ),
    "weights too short": ({"weights": np.ones(3)}, "weights has 3 entries for 12 outputs"),
    "negative weight": ({"weights": -np.ones(N)}, "weights must be finite and at least 0"),
    "NaN weight": ({"weights": with_entry(NAN)}, "weights must be finite"),
    "words as weights": ({"weights": ["a"] * N}, "weights must be numbers"),
    "features missing": (
        {"constraints": ConditionalParity(0.1, regions={"age": [(0, 1)]})},
        "features is missing.*'age'",
    ),
    "unknown feature": (
        {"constraints": ConditionalParity(0.1, regions={"age": [(0, 1)]}), "features": {"job": Z}},
        r"features has no 'age'; it has \['job'\]",
    ),
    "feature too short": (
        {"constraints": ConditionalParity(0.1, regions={"age": [(0, 1)]}), "features": {"age": Z[1:]}},
        r"features\['age'\] has 11 entries for 12 outputs",
    ),
    "NaN in a feature": (
        {"constraints": ConditionalParity(0.1, regions={"age": [(0, 1)]}), "features": {"age": with_entry(NAN)}},
        r"features\['age'\] has missing values",
    ),
    "features without names": (
        {"constraints": ConditionalParity(0.1, regions={0: [(0, 1)]}), "features": np.zeros((N, 2))},
        "features must be columns by name",
    ),
    "fractions as classes": (
        {"constraints": EqualizedOdds(0.1), "targets": Z},
        r"targets take 12 values, fractions, such as 0.09\d*, that are no classes.*regions=",
    ),
    "missing among classes": (
        {"constraints": EqualizedOdds(0.1), "targets": np.array([None, *range(1, N)], dtype=object)},
        r"targets\[0\] is missing",
    ),
    "wide feature": (
        {
            "constraints": ConditionalParity(0.1, regions={"age": [(0, 1)]}),
            "features": {"age": np.zeros((N, 2))},
        },
        r"features\['age'\] has shape \(12, 2\)",
    ),
    "row limits of a batch for one problem": (
        {"constraints": Affine(np.ones((1, N)), upper=np.ones((3, 1)))},
        r"for 3 problems: pass z of shape \(problems, 12\)",
    ),
    "more row limits than problems": (
        {"z": np.zeros((2, 5)), "constraints": Affine(np.ones((1, 5)), upper=np.ones((3, 1)))},
        "A holds 3 problems, z holds 2",
    ),
    "matrix too narrow": ({"constraints": Affine(np.ones((2, 5)), upper=1)}, r"A has shape \(2, 5\).*12 outputs"),
    "matrix too narrow beside groups": (
        {"constraints": [MeanParity(0.1), Affine(np.ones((2, 5)), upper=1)]},
        r"A has shape \(2, 5\).*12 outputs",
    ),
    "batch of matrices for one problem": (
        {"constraints": Affine(np.ones((2, 1, N)), upper=1)},
        r"A has shape \(2, 1, 12\)",
    ),
    "more matrices than problems": (
        {"z": np.zeros((3, 5)), "constraints": Affine(np.ones((2, 1, 5)), upper=1)},
        "A holds 2 problems, z holds 3",
    ),
    "weightless samples under a matrix": (
        {"constraints": Affine(np.ones((1, N)), upper=1), "weights": np.zeros(N)},
        "weights has zeros",
    ),
    "unknown policy for absent groups": ({"absent": "ignore"}, "absent must be one of.*'ignore'"),
    "unknown policy for conflicts": ({"infeasible": "ignore"}, "infeasible must be one of.*'ignore'"),
    "unknown discrepancy": ({"discrepancy": "cubed"}, r"'cubed' is unknown; there are .*'squared'"),
    "no discrepancy": ({"discrepancy": 3}, "discrepancy must be a name.*got 3"),
}


@pytest.mark.parametrize("kind", BAD_CALLS)
def test_bad_calls(kind):
    options, message = BAD_CALLS[kind]
    with pytest.raises(InputError, match=message):
        call(**options)


BAD_DECLARATIONS = {
    "negative tolerance": (lambda: MeanParity(-0.1), "tolerance must be.*at least 0; got -0.1"),
    "NaN tolerance": (lambda: ResidualMean(NAN), "tolerance must be"),
    "infinite tolerance": (lambda: EqualizedOdds(float("inf")), "tolerance must be"),
    "word as tolerance": (lambda: MeanParity("small"), "tolerance must be.*'small'"),
    "no tolerance": (lambda: EqualizedResiduals(None), "tolerance must be"),
    "two tolerances": (lambda: MeanParity(torch.zeros(2)), "tolerance must be"),
    "no regions": (lambda: ConditionalParity(0.1), "regions is empty"),
    "region of words": (
        lambda: ConditionalParity(0.1, regions={"age": ["young"]}),
        r"regions\['age'\]: region 'young' is neither",
    ),
    "feature without regions": (lambda: ConditionalParity(0.1, regions={"age": []}), "regions is empty"),
    "no regions of the target": (lambda: EqualizedOdds(0.1, regions=[]), "regions is empty"),
    "different numbers of problems": (
        lambda: Affine(np.ones((2, 1, 3)), upper=np.ones((4, 1))),
        "different numbers of problems|upper has shape",
    ),
    "vector as matrix": (lambda: Affine(np.ones(3)), r"A must have shape.*got \(3,\)"),
    "NaN in a matrix": (lambda: Affine([[1.0, NAN]], upper=1.0), "A has entries that are not finite"),
    "word as matrix": (lambda: Affine("A"), "A cannot be read"),
    "crossed rows": (lambda: Affine(np.ones((2, 3)), 1.0, 0.0), "lower <= upper"),
    "NaN in a row bound": (lambda: Affine(np.ones((2, 3)), upper=NAN), "no NaN"),
    "word as row bound": (lambda: Affine(np.ones((2, 3)), upper="a"), "upper must be a number"),
    "row bounds of wrong shape": (lambda: Affine(np.ones((2, 3)), np.ones(3)), r"lower has shape \(3,\).*2 rows"),
    "impossible row": (lambda: Affine(np.ones((2, 3)), lower=float("inf")), "no output satisfies"),
    "layer of nothing": (lambda: FairLayer(None), "constraints must be"),
}


@pytest.mark.parametrize("kind", BAD_DECLARATIONS)
def test_bad_declarations(kind):
    declare, message = BAD_DECLARATIONS[kind]
    with pytest.raises(InputError, match=message):
        declare()


def test_errors_are_value_errors():
    for error in (AbsentGroupError, InfeasibleError, InputError):
        assert issubclass(error, FairlayerError)
        assert issubclass(error, ValueError)


def test_inputs_are_never_changed():
    """Neither by a call that succeeds nor by one that is refused."""
    z, weights, targets = torch.tensor(Z), np.ones(N), Z[::-1].copy()
    groups = {"sex": SEX.copy()}
    copies = z.clone(), weights.copy(), targets.copy()
    call(z, groups, ResidualMean(0.1), weights=weights, targets=targets, bounds=(0, 1))
    with pytest.raises(InfeasibleError):
        call(z, groups, ResidualMean(0.1), weights=weights, targets=targets + 5, bounds=(0, 1))
    assert torch.equal(z, copies[0])
    assert np.array_equal(weights, copies[1])
    assert np.array_equal(targets, copies[2])
    assert np.array_equal(groups["sex"], SEX)


def test_a_layer_keeps_its_last_solution_when_a_call_fails():
    layer = FairLayer(MeanParity(0.1))
    layer(torch.tensor(Z), torch.tensor(SEX))
    before = layer.solution
    with pytest.raises(InputError):
        layer(torch.tensor(with_entry(NAN)), torch.tensor(SEX))
    assert layer.solution is before


EMPTY = {
    "mean parity": {"constraints": MeanParity(0.1), "groups": {"sex": []}},
    "table": {"constraints": MeanParity(0.1), "groups": torch.zeros(0, 2, dtype=torch.long)},
    "residual mean": {"constraints": ResidualMean(0.1), "groups": {"sex": []}, "targets": []},
    "odds": {"constraints": EqualizedOdds(0.1), "groups": {"sex": []}, "targets": np.zeros(0)},
    "conditional": {
        "constraints": ConditionalParity(0.1, regions={"x": [(0, 1)]}),
        "groups": {"sex": []},
        "features": {"x": np.zeros(0)},
    },
    "affine": {"constraints": Affine(np.zeros((1, 0)), upper=1.0)},
    "per-sample bounds": {"constraints": MeanParity(0.1), "groups": {"sex": []}, "bounds": (np.zeros(0), 1.0)},
    "weights": {"constraints": MeanParity(0.1), "groups": {"sex": []}, "weights": []},
}


@pytest.mark.parametrize("kind", EMPTY)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_empty_batch_gives_an_empty_result(kind, dtype):
    z = torch.zeros(0, dtype=dtype, requires_grad=True)
    solution = project(z, **EMPTY[kind])
    assert solution.value.shape == (0,)
    assert solution.value.dtype == dtype
    solution.value.sum().backward()
    assert z.grad.shape == (0,)


def test_an_empty_batch_of_problems():
    assert project(torch.zeros(0, 5), None, Affine(np.ones((1, 5)), upper=1.0)).value.shape == (0, 5)


def test_no_constraints_leave_the_bounds():
    y = project(Z * 3, None, [], bounds=(0.5, 1.0)).value
    assert np.array_equal(y, (Z * 3).clip(0.5, 1.0))


@pytest.mark.parametrize("groups", [np.zeros(N, dtype=int), np.zeros((N, 1), dtype=int)])
def test_absent_groups_can_be_refused(groups):
    with pytest.raises(AbsentGroupError, match=r'only 0 is present.*absent="vacuous"'):
        call(groups=groups, absent="raise")


def test_absent_groups_are_named_when_refused():
    with pytest.raises(AbsentGroupError, match="sex: 2 is absent"):
        call(groups={"sex": SEX}, levels={"sex": [0, 1, 2]}, absent="raise")


@pytest.mark.parametrize("table", [False, True])
def test_sums_that_overflow(table):
    labels = torch.tensor([[0], [1], [0], [1]])
    layer = FairLayer(MeanParity(0.1))
    layer(torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64), labels)
    z = torch.tensor([1e308, -1e308, 1e308, -1e308], dtype=torch.float64)
    with pytest.raises(InputError, match=r"z is too large: .* up to 1e\+308"):
        layer(z, labels if table else labels[:, 0].tolist())
    with pytest.raises(InputError, match="z is too large"):
        project(0.1 * z, None, Affine(np.full((1, 4), 1e10), upper=1.0))
    with pytest.raises(InputError, match="targets are too large"):
        project(0.0 * z, labels, ResidualMean(0.1), targets=z.abs())
    assert project(1e-20 * z, labels, MeanParity(0.1), bounds=(-1e308, 1e308)).satisfied


HUGE, FOUR, HALVES = 10**400, np.array([0.1, 0.4, 0.6, 0.9]), [0, 1, 0, 1]
MASKED = np.ma.array([0.1, 99.0, 0.3, 0.7], mask=[0, 1, 0, 0])
MASKED_LABELS = np.ma.array(HALVES, mask=[0, 1, 0, 0])


@pytest.mark.parametrize(
    ("make", "says"),
    {
        "ragged z": (lambda: project([[0.1, 0.2], [0.3]], HALVES, MeanParity(0.1)), "z must have one entry"),
        "huge weights": (
            lambda: project(FOUR, HALVES, MeanParity(0.1), weights=[1, HUGE, 1, 1]),
            "weights has a number",
        ),
        "huge objects": (
            lambda: project(FOUR, HALVES, MeanParity(0.1), weights=np.array([1, HUGE, 1, 1], dtype=object)),
            "weights must be numbers",
        ),
        "huge targets": (
            lambda: project(FOUR, HALVES, EqualizedResiduals(0.1), targets=[1, HUGE, 1, 1]),
            "targets has a number beyond the range of floats",
        ),
        "huge bounds": (
            lambda: project(FOUR, HALVES, MeanParity(0.1), bounds=(0, [1, HUGE, 1, 1])),
            r"bounds\[1\] has a number beyond",
        ),
        "huge matrix": (lambda: Affine([[1, HUGE]], 0, 1), "A has a number beyond"),
        "huge side": (lambda: Affine([[1, 1]], HUGE), "lower has a number beyond"),
        "huge probability": (lambda: SoftGroup([[HUGE, 0]]), "SoftGroup has a number beyond"),
        "huge curvature": (lambda: WeightedSquared([HUGE, 1]), "curvature has a number beyond"),
        "regions of words": (lambda: ConditionalParity(0.1, regions="abc"), "regions must be .* got 'abc'"),
        "no list of regions": (lambda: EqualizedOdds(0.1, regions=5), "regions must be a list"),
        "sparse labels": (
            lambda: Stream([MeanParity(0.1)]).update(FOUR, torch.tensor(HALVES).to_sparse()),
            "groups is a sparse or meta tensor",
        ),
        "masked z": (lambda: project(MASKED, HALVES, MeanParity(0.1)), "z has masked entries"),
        "masked labels": (lambda: project(FOUR, MASKED_LABELS, MeanParity(0.1)), r"groups\[0\] has masked entries"),
        "masked weights": (
            lambda: project(FOUR, HALVES, MeanParity(0.1), weights=MASKED),
            "weights has masked entries",
        ),
        "masked targets": (
            lambda: project(FOUR, HALVES, EqualizedResiduals(0.1), targets=MASKED),
            "targets has masked entries",
        ),
        "masked in a stream": (lambda: Stream([MeanParity(0.1)]).update(FOUR, MASKED_LABELS), "has masked"),
        "masked in an audit": (lambda: audit(FOUR, MASKED_LABELS, MeanParity(0.1)), "has masked"),
    }.values(),
)
def test_what_an_array_would_hide_is_refused(make, says):
    with pytest.raises(InputError, match=says):
        make()
    assert project(np.ma.array(FOUR), HALVES, MeanParity(0.1)).satisfied  # a mask that hides nothing does no harm


class Unhashable:
    __hash__ = None

    def __eq__(self, other):
        return self is other


ODD = {
    "unhashable labels": ({"groups": {"sex": [["a"], ["b", "c"], ["a"], ["b"]]}}, "groups"),
    "unhashable objects": ({"groups": {"sex": [Unhashable() for _ in FOUR]}}, "groups"),
    "unhashable dicts": ({"groups": {"sex": [{}, {}, {}, {}]}}, "groups"),
    "signalling decimals": ({"groups": {"sex": [Decimal("sNaN"), Decimal(1), Decimal(0), Decimal(1)]}}, "groups"),
    "quiet decimals": ({"groups": {"sex": [Decimal("NaN"), Decimal(1), Decimal(0), Decimal(1)]}}, "missing"),
    "signalling targets": (
        {"constraints": ResidualMean(0.1), "targets": [Decimal("sNaN"), Decimal(1), Decimal(0), Decimal(1)]},
        "targets",
    ),
    "targets of None": ({"constraints": ResidualMean(0.1), "targets": [None] * 4}, "targets.*missing"),
    "weights of None": ({"weights": [None] * 4}, "weights"),
    "weights of decimals": ({"weights": [Decimal("sNaN")] * 4}, "weights"),
    "tiny weights": ({"weights": [1e-310] * 4}, "weights"),
    "one tiny weight": ({"weights": [1e-310, 1, 1, 1]}, "weights"),
    "huge weights": ({"weights": [1e308] * 4}, "weights"),
    "complex weights": ({"weights": np.array([1j, 1, 1, 1])}, "weights"),
    "float8": ({"z": torch.tensor(FOUR).to(torch.float8_e4m3fn)}, "z must hold floats.*float8"),
    "complex outputs": ({"z": torch.tensor(FOUR).to(torch.complex64)}, "z must hold floats"),
    "complex array": ({"z": FOUR + 0j}, "z holds complex numbers"),
    "long doubles": ({"z": FOUR.astype(np.longdouble)}, "z must hold floats"),
    "sparse outputs": ({"z": torch.tensor(FOUR).to_sparse()}, "sparse"),
    "meta outputs": ({"z": torch.tensor(FOUR, device="meta")}, "meta"),
    "sparse groups": ({"groups": torch.tensor(HALVES).to_sparse()}, "groups"),
    "meta groups": ({"groups": torch.tensor(HALVES, device="meta")}, "groups"),
    "meta targets": ({"constraints": ResidualMean(0.1), "targets": torch.zeros(4, device="meta")}, "targets"),
    "sparse targets": ({"constraints": ResidualMean(0.1), "targets": torch.zeros(4).to_sparse()}, "targets"),
    "meta weights": ({"weights": torch.ones(4, device="meta")}, "weights"),
    "meta bounds": ({"bounds": (torch.zeros(4, device="meta"), None)}, "bounds"),
    "complex bounds": ({"bounds": (1j, None)}, "bounds"),
    "bounds past all floats": ({"bounds": (0, 10**400)}, "bounds"),
    "ragged groups": ({"groups": [[1], [1, 2], [3], [4]]}, "groups"),
    "ragged targets": ({"constraints": ResidualMean(0.1), "targets": [[1], [1, 2], [3], [4]]}, "targets"),
    "a set of groups": ({"groups": {"sex": {1, 2, 3, 4}}}, "groups"),
    "infinite labels": ({"groups": {"sex": [0.0, float("inf"), 0.0, 1.5]}}, "groups"),
    "levels of one label twice": ({"groups": {"sex": HALVES}, "levels": {"sex": [0, 1, 1]}}, "levels"),
}


@pytest.mark.parametrize("kind", ODD)
def test_odd_inputs_are_refused_by_name(kind):
    call, message = ODD[kind]
    with pytest.raises(InputError, match=message):
        project(**{"z": FOUR, "groups": HALVES, "constraints": MeanParity(0.1), **call})


@pytest.mark.parametrize(
    "tolerance", [10**400, -(10**400), 1j, "0.1", [0.1], Decimal("sNaN"), Decimal("NaN"), b"1", {}]
)
def test_odd_tolerances(tolerance):
    with pytest.raises(InputError, match="tolerance"):
        MeanParity(tolerance)


@pytest.mark.parametrize(
    "probabilities",
    [[["a", "b"]] * 4, [[None, 0.5]] * 4, [[0.5], [0.5, 0.5]], np.array([[1j, 0]] * 4), "ab", None, 0.5],
    ids=["words", "None", "ragged", "complex", "a word", "nothing", "a number"],
)
def test_odd_soft_groups(probabilities):
    with pytest.raises(InputError, match="SoftGroup"):
        SoftGroup(probabilities)


def test_tables_as_arrow_has_them():
    arrow = pytest.importorskip("pyarrow")
    groups = arrow.table({"sex": HALVES, "race": ["a", "b", "b", "a"]})
    expected = project(FOUR, {"sex": HALVES, "race": ["a", "b", "b", "a"]}, MeanParity(0.1))
    solution = project(FOUR, groups, MeanParity(0.1))
    assert solution.rows == expected.rows
    assert np.array_equal(solution.value, expected.value)


def test_decimals_and_words_are_labels():
    plain_answer = project(FOUR, {"sex": HALVES}, MeanParity(0.1)).value
    assert np.array_equal(project(FOUR, {"sex": [Decimal(s) for s in HALVES]}, MeanParity(0.1)).value, plain_answer)


def test_targets_as_decimals():
    targets = [Decimal("0.5")] * 4
    assert project(FOUR, HALVES, ResidualMean(0.01), targets=targets).status is Status.OPTIMAL


def test_tensors_without_values_are_refused_by_streams_and_audits():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(2)])
    for z in (torch.tensor(FOUR).to_sparse(), torch.ones(4, device="meta"), nested):
        for call in (Stream([MeanParity(0.1)]).update, project, audit):
            more = () if call.__name__ == "update" else ([MeanParity(0.1)],)
            with pytest.raises(InputError, match=r"sparse|meta|nested"):
                call(z, HALVES, *more)


def test_audits_read_tables_as_arrow_has_them():
    arrow = pytest.importorskip("pyarrow")
    groups = arrow.table({"sex": HALVES, "race": ["a", "b", "b", "a"]})
    expected = audit(FOUR, {"sex": HALVES, "race": ["a", "b", "b", "a"]}, MeanParity(0.1))
    assert str(audit(FOUR, groups, MeanParity(0.1))) == str(expected)


def test_what_else_has_a_tangent_is_refused_in_forward_mode():
    def half(value):
        return torch.autograd.forward_ad.make_dual(torch.as_tensor(value), torch.ones_like(torch.as_tensor(value)))

    z, targets = torch.tensor(FOUR), [0.0, 1.0, 1.0, 0.0]
    with torch.autograd.forward_ad.dual_level():
        with pytest.raises(InputError, match="targets carries a forward-mode tangent"):
            project(z, HALVES, EqualizedResiduals(0.1), targets=half(targets))
        with pytest.raises(InputError, match="bounds carries"):
            project(z, HALVES, MeanParity(0.1), bounds=(half(0.0), 1.0))
        with pytest.raises(InputError, match="constraints carries"):
            project(z, HALVES, MeanParity(half(0.1)))
        assert project(z, HALVES, EqualizedResiduals(0.1), targets=targets).satisfied


def test_forward_mode_is_refused():
    def function(z):
        return project(z, torch.tensor(HALVES), MeanParity(0.1)).value

    z = torch.tensor(FOUR)
    with pytest.raises(InputError, match="forward"):
        torch.func.jvp(function, (z,), (torch.ones_like(z),))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(z, torch.ones_like(z))
        with pytest.raises(InputError, match="forward"):
            function(dual)


@pytest.mark.parametrize("region", [(1.0, 0.0), (0.5, 0.5), (float("nan"), 1.0), (0.0, float("nan")), set()])
def test_regions_that_match_nothing(region):
    with pytest.raises(InputError, match="no value lies"):
        ConditionalParity(0.1, regions={"age": [region]})
    with pytest.raises(InputError, match="no value lies"):
        EqualizedOdds(0.1, regions=[region])


@pytest.mark.parametrize("constraint", [ResidualMean(0.1), EqualizedOdds(0.1), EqualizedOdds(0.1, regions=[(0, 1)])])
@pytest.mark.parametrize("missing", [None, float("nan")])
@pytest.mark.parametrize("as_objects", [True, False])
def test_missing_targets(constraint, missing, as_objects):
    targets = np.array([missing] * 4, dtype=object if as_objects or missing is None else float)
    with pytest.raises(InputError, match=r"targets.*(missing|finite)"):
        project(np.zeros(4), [0, 1, 0, 1], constraint, targets=targets)
