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
NAN, HUGE = float("nan"), 10**400
FOUR, HALVES = np.array([0.1, 0.4, 0.6, 0.9]), [0, 1, 0, 1]
MASKED = np.ma.array([0.1, 99.0, 0.3, 0.7], mask=[0, 1, 0, 0])
MASKED_LABELS = np.ma.array(HALVES, mask=[0, 1, 0, 0])
SIGNALLING = [Decimal("sNaN"), Decimal(1), Decimal(0), Decimal(1)]
RESIDUAL, ODDS, AGE = ResidualMean(0.1), EqualizedOdds(0.1), ConditionalParity(0.1, regions={"age": [(0, 1)]})


def call(z=Z, groups=SEX, constraints=None, **options):
    return project(z, groups, MeanParity(0.1) if constraints is None else constraints, **options)


def with_entry(value: float) -> np.ndarray:
    changed = Z.copy()
    changed[3] = value
    return changed


class Unhashable:
    __hash__ = None

    def __eq__(self, other):
        return self is other


BAD_CALLS = [  # of twelve outputs
    (r"z\[3\] is nan.*finite", {"z": with_entry(NAN)}),
    (r"z\[3\] is inf.*finite", {"z": torch.tensor(with_entry(float("inf")))}),
    ("z must hold floats.*int64", {"z": np.arange(N)}),
    ("z must hold floats.*int64", {"z": torch.arange(N)}),
    ("z must hold floats", {"z": ["a"] * N}),
    (r"z has shape \(\)", {"z": torch.tensor(1.0)}),
    ("z has shape", {"z": np.zeros((N, 1, 1))}),
    ("must hold constraints such as MeanParity.*got 3", {"constraints": [3]}),
    ("must hold constraints", {"constraints": "parity"}),
    (r"over names attribute 'age'.*it has \['sex'\]", {"groups": {"sex": SEX}, "constraints": MeanParity(0.1, "age")}),
    ("over names attribute 'age'", {"groups": {"sex": SEX}, "constraints": MeanParity(0.1, over=("sex", "age"))}),
    (r"over is \[\]", {"constraints": MeanParity(0.1, over=[])}),
    ("targets is missing: ResidualMean", {"constraints": RESIDUAL}),
    ("targets is missing: EqualizedOdds", {"constraints": ODDS}),
    ("targets has 11 entries for 12 outputs", {"constraints": RESIDUAL, "targets": Z[1:]}),
    (r"targets\[3\] is not finite", {"constraints": RESIDUAL, "targets": with_entry(NAN)}),
    ("targets must be numbers", {"constraints": RESIDUAL, "targets": ["a"] * N}),
    (
        "60 values, too many to be classes.*regions=",
        {"z": np.zeros(60), "groups": np.arange(60) % 2, "constraints": ODDS, "targets": np.arange(60.0)},
    ),
    (r"targets take 12 values, fractions, such as 0.09\d*, that are.*regions=", {"constraints": ODDS, "targets": Z}),
    (r"targets\[0\] is missing", {"constraints": ODDS, "targets": np.array([None, *range(1, N)], dtype=object)}),
    ("weights has 3 entries for 12 outputs", {"weights": np.ones(3)}),
    ("weights must be finite and at least 0", {"weights": -np.ones(N)}),
    ("weights must be finite", {"weights": with_entry(NAN)}),
    ("weights must be numbers", {"weights": ["a"] * N}),
    ("features is missing.*'age'", {"constraints": AGE}),
    (r"features has no 'age'; it has \['job'\]", {"constraints": AGE, "features": {"job": Z}}),
    (r"features\['age'\] has 11 entries for 12 outputs", {"constraints": AGE, "features": {"age": Z[1:]}}),
    (r"features\['age'\] has missing values", {"constraints": AGE, "features": {"age": with_entry(NAN)}}),
    (r"features\['age'\] has shape \(12, 2\)", {"constraints": AGE, "features": {"age": np.zeros((N, 2))}}),
    ("features must be columns by name", {"constraints": AGE, "features": np.zeros((N, 2))}),
    (
        r"for 3 problems: pass z of shape \(problems, 12\)",
        {"constraints": Affine(np.ones((1, N)), upper=np.ones((3, 1)))},
    ),
    (
        "A holds 3 problems, z holds 2",
        {"z": np.zeros((2, 5)), "constraints": Affine(np.ones((1, 5)), upper=np.ones((3, 1)))},
    ),
    (r"A has shape \(2, 5\).*12 outputs", {"constraints": Affine(np.ones((2, 5)), upper=1)}),
    (
        r"A has shape \(2, 5\).*12 outputs",
        {"constraints": [MeanParity(0.1), Affine(np.ones((2, 5)), upper=1)]},
    ),
    (r"A has shape \(2, 1, 12\)", {"constraints": Affine(np.ones((2, 1, N)), upper=1)}),
    (
        "A holds 2 problems, z holds 3",
        {"z": np.zeros((3, 5)), "constraints": Affine(np.ones((2, 1, 5)), upper=1)},
    ),
    ("weights has zeros", {"constraints": Affine(np.ones((1, N)), upper=1), "weights": np.zeros(N)}),
    ("absent must be one of.*'ignore'", {"absent": "ignore"}),
    ("infeasible must be one of.*'ignore'", {"infeasible": "ignore"}),
    (r"'cubed' is unknown; there are .*'squared'", {"discrepancy": "cubed"}),
    ("discrepancy must be a name.*got 3", {"discrepancy": 3}),
]
ODD = [  # of four
    ("groups", {"groups": {"sex": [["a"], ["b", "c"], ["a"], ["b"]]}}),
    ("groups", {"groups": {"sex": [Unhashable() for _ in FOUR]}}),
    ("groups", {"groups": {"sex": [{}, {}, {}, {}]}}),
    ("groups", {"groups": {"sex": SIGNALLING}}),
    ("missing", {"groups": {"sex": [Decimal("NaN"), Decimal(1), Decimal(0), Decimal(1)]}}),
    ("groups", {"groups": torch.tensor(HALVES).to_sparse()}),
    ("groups", {"groups": torch.tensor(HALVES, device="meta")}),
    ("groups", {"groups": [[1], [1, 2], [3], [4]]}),
    ("groups", {"groups": {"sex": {1, 2, 3, 4}}}),
    ("groups", {"groups": {"sex": [0.0, float("inf"), 0.0, 1.5]}}),
    (r"groups\[0\] has masked entries", {"groups": MASKED_LABELS}),
    ("levels", {"groups": {"sex": HALVES}, "levels": {"sex": [0, 1, 1]}}),
    ("targets", {"constraints": RESIDUAL, "targets": SIGNALLING}),
    ("targets", {"constraints": RESIDUAL, "targets": torch.zeros(4, device="meta")}),
    ("targets", {"constraints": RESIDUAL, "targets": torch.zeros(4).to_sparse()}),
    ("targets", {"constraints": RESIDUAL, "targets": [[1], [1, 2], [3], [4]]}),
    ("targets has a number beyond the range of floats", {"constraints": RESIDUAL, "targets": [1, HUGE, 1, 1]}),
    ("targets has masked entries", {"constraints": RESIDUAL, "targets": MASKED}),
    (r"targets\[0\] is missing", {"constraints": ODDS, "targets": np.array(["NaT", "2020", "2021", "2020"], "M8[D]")}),
    (r"features\['age'\] has missing", {"constraints": AGE, "features": {"age": np.array(["NaT"] * 4, "M8[ns]")}}),
    ("weights", {"weights": [None] * 4}),
    ("weights", {"weights": [Decimal("sNaN")] * 4}),
    ("weights", {"weights": [1e-310] * 4}),
    ("weights", {"weights": [1e-310, 1, 1, 1]}),
    ("weights", {"weights": [1e308] * 4}),
    ("weights", {"weights": np.array([1j, 1, 1, 1])}),
    ("weights", {"weights": torch.ones(4, device="meta")}),
    ("weights has a number", {"weights": [1, HUGE, 1, 1]}),
    ("weights must be numbers", {"weights": np.array([1, HUGE, 1, 1], dtype=object)}),
    ("weights has masked entries", {"weights": MASKED}),
    ("z must hold floats.*float8", {"z": torch.tensor(FOUR).to(torch.float8_e4m3fn)}),
    ("z must hold floats", {"z": torch.tensor(FOUR).to(torch.complex64)}),
    ("z holds complex numbers", {"z": FOUR + 0j}),
    ("z must hold floats", {"z": FOUR.astype(np.longdouble)}),
    ("sparse", {"z": torch.tensor(FOUR).to_sparse()}),
    ("meta", {"z": torch.tensor(FOUR, device="meta")}),
    ("z must have one entry", {"z": [[0.1, 0.2], [0.3]]}),
    ("z has masked entries", {"z": MASKED}),
    ("bounds", {"bounds": (torch.zeros(4, device="meta"), None)}),
    ("bounds", {"bounds": (1j, None)}),
    ("bounds", {"bounds": (0, HUGE)}),
    (r"bounds\[1\] has a number beyond", {"bounds": (0, [1, HUGE, 1, 1])}),
    ("beyond the range of torch.float16", {
        "z": torch.tensor(FOUR).half(), "constraints": [EqualizedResiduals(0.0), MeanParity(0.0)],
        "targets": [0.0, 1e6, 0.0, 1e6], "bounds": (0, None), "infeasible": "relax",
    }),
]  # fmt: skip


@pytest.mark.parametrize(
    ("message", "options"), BAD_CALLS + [(message, {"z": FOUR, "groups": HALVES, **odd}) for message, odd in ODD]
)
def test_bad_calls(message, options):
    with pytest.raises(InputError, match=message):
        call(**options)


BAD_DECLARATIONS = [
    ("tolerance must be.*at least 0; got -0.1", lambda: MeanParity(-0.1)),
    ("tolerance must be", lambda: ResidualMean(NAN)),
    ("tolerance must be", lambda: EqualizedOdds(float("inf"))),
    ("tolerance must be.*'small'", lambda: MeanParity("small")),
    ("tolerance must be", lambda: EqualizedResiduals(None)),
    ("tolerance must be", lambda: MeanParity(torch.zeros(2))),
    ("regions is empty", lambda: ConditionalParity(0.1)),
    ("regions is empty", lambda: ConditionalParity(0.1, regions={"age": []})),
    ("regions is empty", lambda: EqualizedOdds(0.1, regions=[])),
    (r"regions\['age'\]: region 'young' is neither", lambda: ConditionalParity(0.1, regions={"age": ["young"]})),
    ("regions must be .* got 'abc'", lambda: ConditionalParity(0.1, regions="abc")),
    ("regions must be a list", lambda: EqualizedOdds(0.1, regions=5)),
    ("different numbers of problems|upper has shape", lambda: Affine(np.ones((2, 1, 3)), upper=np.ones((4, 1)))),
    (r"A must have shape.*got \(3,\)", lambda: Affine(np.ones(3))),
    ("A has entries that are not finite", lambda: Affine([[1.0, NAN]], upper=1.0)),
    ("A cannot be read", lambda: Affine("A")),
    ("A has a number beyond", lambda: Affine([[1, HUGE]], 0, 1)),
    ("lower has a number beyond", lambda: Affine([[1, 1]], HUGE)),
    ("lower <= upper", lambda: Affine(np.ones((2, 3)), 1.0, 0.0)),
    ("no NaN", lambda: Affine(np.ones((2, 3)), upper=NAN)),
    ("upper must be a number", lambda: Affine(np.ones((2, 3)), upper="a")),
    (r"lower has shape \(3,\).*2 rows", lambda: Affine(np.ones((2, 3)), np.ones(3))),
    ("no output satisfies", lambda: Affine(np.ones((2, 3)), lower=float("inf"))),
    ("constraints must be", lambda: FairLayer(None)),
    ("SoftGroup has a number beyond", lambda: SoftGroup([[HUGE, 0]])),
    ("curvature has a number beyond", lambda: WeightedSquared([HUGE, 1])),
    ("sparse or meta tensor", lambda: Stream([MeanParity(0.1)]).update(FOUR, torch.tensor(HALVES).to_sparse())),
    ("has masked", lambda: Stream([MeanParity(0.1)]).update(FOUR, MASKED_LABELS)),
    ("has masked", lambda: audit(FOUR, MASKED_LABELS, MeanParity(0.1))),
]


@pytest.mark.parametrize(("message", "declare"), BAD_DECLARATIONS)
def test_bad_declarations(message, declare):
    with pytest.raises(InputError, match=message):
        declare()


def test_a_mask_that_hides_nothing_does_no_harm():
    assert project(np.ma.array(FOUR), HALVES, MeanParity(0.1)).satisfied


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
    columns = {"sex": HALVES, "race": ["a", "b", "b", "a"]}
    table = arrow.table(columns)
    solution, expected = (project(FOUR, groups, MeanParity(0.1)) for groups in (table, columns))
    assert solution.rows == expected.rows
    assert np.array_equal(solution.value, expected.value)
    assert str(audit(FOUR, table, MeanParity(0.1))) == str(audit(FOUR, columns, MeanParity(0.1)))


def test_decimals_are_labels_and_targets():
    plain_answer = project(FOUR, {"sex": HALVES}, MeanParity(0.1)).value
    assert np.array_equal(project(FOUR, {"sex": [Decimal(s) for s in HALVES]}, MeanParity(0.1)).value, plain_answer)
    assert project(FOUR, HALVES, ResidualMean(0.01), targets=[Decimal("0.5")] * 4).status is Status.OPTIMAL


def test_tensors_without_values_are_refused_by_streams_and_audits():
    nested = torch.nested.nested_tensor([torch.ones(2), torch.ones(2)])
    for z in (torch.tensor(FOUR).to_sparse(), torch.ones(4, device="meta"), nested):
        for call in (Stream([MeanParity(0.1)]).update, project, audit):
            more = () if call.__name__ == "update" else ([MeanParity(0.1)],)
            with pytest.raises(InputError, match=r"sparse|meta|nested"):
                call(z, HALVES, *more)


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


@pytest.mark.parametrize("constraint", [RESIDUAL, ODDS, EqualizedOdds(0.1, regions=[(0, 1)])])
@pytest.mark.parametrize("missing", [np.array([None] * 4), np.full(4, NAN), np.full(4, NAN, dtype=object)], ids=str)
def test_missing_targets(constraint, missing):
    with pytest.raises(InputError, match=r"targets.*(missing|finite)"):
        project(np.zeros(4), [0, 1, 0, 1], constraint, targets=missing)
