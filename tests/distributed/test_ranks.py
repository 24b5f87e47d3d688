"""The layer over several processes: one batch, the same answer to the bit however it is split."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from conformance import CASES, assert_holds, make_problem
from duality import distance, least_distance, rounding_norm
from fairlayer import (
    Affine,
    ConditionalParity,
    EqualizedResiduals,
    MeanParity,
    RateParity,
    ResidualMean,
    SoftGroup,
    Status,
    WeightedSquared,
    code_groups,
    project,
)
from formulas import Problem, exact_violations, plain
from stored import stored_problem

UNSUPPORTED = {"affine", "with a matrix"}
SPREAD = [name for name in CASES if name not in UNSUPPORTED]
DTYPES = (torch.float64, torch.float32)
OPTIONS = [("no bounds", "unweighted"), ("box", "weighted"), ("per sample", "unweighted"), ("per sample", "weighted")]


def take(values: Any, rows: np.ndarray) -> Any:
    """Rows of whatever an argument is."""
    if isinstance(values, dict):
        return {name: take(column, rows) for name, column in values.items()}
    if isinstance(values, tuple):  # bounds
        return tuple(take(side, rows) for side in values)
    if isinstance(values, SoftGroup):
        return SoftGroup(values.probabilities[rows], values.labels)
    if values is None or np.ndim(values.detach() if isinstance(values, torch.Tensor) else values) == 0:
        return values
    return values[rows] if not isinstance(values, list) else [values[row] for row in rows]


def share(arguments: dict[str, Any], rows: np.ndarray) -> dict[str, Any]:
    """The arguments of one rank."""
    whole = ("constraints", "absent", "infeasible", "levels", "discrepancy", "simplex", "surrogate")
    return {name: value if name in whole else take(value, rows) for name, value in arguments.items()}


def splits(n: int, rng: np.random.Generator) -> list[list[np.ndarray]]:
    """The rows of each rank: whole, in stretches of any length, in any order, with nothing for somebody."""
    order = rng.permutation(n)
    cuts = np.sort(rng.integers(0, n + 1, 2))
    return [
        [np.arange(n)],
        [order[: n // 3], order[n // 3 :]],
        np.split(np.arange(n), cuts),
        [order[:1], order[1:1], *np.split(order[1:], [n // 4])],
    ]


def arguments_of(problem: Problem, dtype: torch.dtype, rng: np.random.Generator) -> dict[str, Any]:
    z = torch.tensor(problem.z, dtype=dtype)
    return {"z": z, "upstream": torch.tensor(rng.normal(size=len(z)), dtype=dtype), **problem.arguments()}


def joined(results: list[dict[str, Any]], rows: list[np.ndarray], name: str) -> torch.Tensor:
    """What ranks hold, in the order of the batch."""
    parts = torch.cat([result[name] for result in results])
    found = torch.empty_like(parts)
    found[torch.from_numpy(np.concatenate(rows))] = parts
    return found


def run_splits(pool: Any, listed: list[dict[str, Any]], rng: np.random.Generator) -> list[list[dict[str, Any]]]:
    """Every batch over one to four ranks: of each batch, of each number of ranks, outputs and gradients joined.

    Then all of it again: what ranks know of the first time, and therefore send in other ways, must not show.
    """
    split = [splits(len(one["z"]), rng) for one in listed]
    both: list[list[list[dict[str, Any]]]] = [[[] for _ in listed] for _ in range(2)]
    for k in range(4):
        given = [[share(one, s[k][r]) for one, s in zip(listed, split, strict=True)] * 2 for r in range(k + 1)]
        ranks = pool.run("jobs:project_many", given)
        for at in range(2 * len(listed)):
            time, b = divmod(at, len(listed))
            results = [rank[at] for rank in ranks]
            if isinstance(results[0], tuple):
                both[time][b].append({"error": results})
                continue
            whole = {name: joined(results, split[b][k], name) for name in ("value", "gradient") if name in results[0]}
            both[time][b].append({**results[0], **whole, "ranks": results})
    return [first + second for first, second in zip(*both, strict=True)]


def assert_same(results: list[dict[str, Any]]) -> None:
    """All numbers of ranks and all ranks give the same, to the bit."""
    first = results[0]
    for result in results[1:]:
        assert torch.equal(result["value"], first["value"])
        if "gradient" in first:
            assert torch.equal(result["gradient"], first["gradient"])
        for rank in result["ranks"]:
            for name in ("rows", "status", "vacuous", "excess"):
                assert rank[name] == first[name]
            assert torch.equal(rank["gaps"], first["gaps"])
            assert torch.equal(rank["multipliers"], first["multipliers"])


def as_solution(result: dict[str, Any]) -> Any:
    status = Status[result["status"]]
    satisfied = status in (Status.OPTIMAL, Status.VACUOUS, Status.BOUNDED)
    return SimpleNamespace(value=result["value"], status=status, satisfied=satisfied)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize(("bounds", "weights"), OPTIONS)
def test_every_constraint_and_any_split(pool, dtype, bounds, weights):
    """Rows hold in rational arithmetic; a single process by itself agrees up to the rounding of its sums."""
    rng = np.random.default_rng(1)
    problems = [make_problem(case, bounds, weights, dtype) for case in SPREAD]
    listed = [arguments_of(problem, dtype, rng) for problem in problems]
    near = 1e-12 if dtype == torch.float64 else 1e-6
    for problem, arguments, results in zip(problems, listed, run_splits(pool, listed, rng), strict=True):
        assert_same(results)
        assert_holds(problem, as_solution(results[0]))
        z = arguments["z"].clone().requires_grad_()
        alone = project(z, **{name: value for name, value in arguments.items() if name not in ("z", "upstream")})
        alone.value.backward(arguments["upstream"])
        assert results[0]["status"] == alone.status.name
        assert results[0]["rows"] == alone.rows
        torch.testing.assert_close(results[0]["value"], alone.value.detach(), rtol=near, atol=near)
        torch.testing.assert_close(results[0]["gradient"], z.grad, rtol=near, atol=near)


def test_half_precision_and_any_split(pool):
    rng = np.random.default_rng(2)
    dtypes = (torch.float16, torch.bfloat16)
    problems = [make_problem("mean parity", "box", "unweighted", dtype, n=400) for dtype in dtypes]
    listed = [arguments_of(problem, dtype, rng) for problem, dtype in zip(problems, dtypes, strict=True)]
    for problem, batch in zip(problems, run_splits(pool, listed, rng), strict=True):
        assert_same(batch)
        assert_holds(problem, as_solution(batch[0]))


@pytest.mark.parametrize("name", ["a coarse light group among heavy ones", "coarse light samples in four attributes"])
def test_outputs_that_are_not_the_nearest(pool, name):
    """Aiming inside for the sake of light groups moves heavy ones: then ranks look for a nearer output too."""
    rng = np.random.default_rng(13)
    problem, dtype = stored_problem(name)
    arguments = arguments_of(problem, dtype, rng)
    (results,) = run_splits(pool, [arguments], rng)
    assert_same(results)
    alone = project(arguments["z"], **problem.arguments())
    assert results[0]["status"] == alone.status.name
    y, optimum = plain(results[0]["value"]).astype(np.float64), least_distance(problem, alone.multipliers)
    allowed = max((1 + 1e-6) * optimum, (optimum**2 + alone.optimality_gap) ** 0.5)
    assert distance(problem, y) <= allowed + rounding_norm(problem, y, dtype)


@pytest.mark.parametrize("discrepancy", ["entropy", "logits", "kl"])
def test_every_discrepancy_and_any_split(pool, discrepancy):
    """With weights and bounds of each sample; extreme outputs among the others."""
    rng = np.random.default_rng(12)
    n, listed = 90, []
    groups = {"a": rng.integers(0, 2, n), "b": rng.integers(0, 3, n)}
    logit = rng.normal(size=n) * 2.0 + groups["a"]
    logit[:3] = 20.0, -20.0, 35.0
    z = {"entropy": np.clip(1.0 / (1.0 + np.exp(-logit)), 1e-9, 1.0 - 1e-7), "logits": logit, "kl": np.exp(logit / 3)}
    boxes = [None, (0.05, 0.9), (rng.uniform(0.0, 0.1, n), rng.uniform(0.8, 0.95, n))]
    for dtype, bounds, weights in product(DTYPES, boxes, (None, rng.uniform(0.5, 2.0, n))):
        listed.append(
            {
                "z": torch.tensor(z[discrepancy], dtype=dtype),
                "upstream": torch.tensor(rng.normal(size=n), dtype=dtype),
                "groups": groups,
                "constraints": [MeanParity(0.03)],
                "bounds": bounds,
                "weights": weights,
                "discrepancy": discrepancy,
            }
        )
    for arguments, results in zip(listed, run_splits(pool, listed, rng), strict=True):
        assert_same(results)
        near = 1e-9 if arguments["z"].dtype == torch.float64 else 1e-5
        problem = Problem(results[0]["value"].double().numpy(), arguments["constraints"], groups, arguments["bounds"])
        assert_holds(replace(problem, weights=arguments["weights"]), as_solution(results[0]))
        raw = arguments["z"].clone().requires_grad_()
        alone = project(raw, **{name: value for name, value in arguments.items() if name not in ("z", "upstream")})
        alone.value.backward(arguments["upstream"])
        assert results[0]["status"] == alone.status.name
        torch.testing.assert_close(results[0]["value"], alone.value.detach(), rtol=near, atol=near)
        torch.testing.assert_close(results[0]["gradient"], raw.grad, rtol=100 * near, atol=near)


def gathered_cases() -> dict[str, dict[str, Any]]:
    """Constraints that cell sums are not enough for."""
    rng = np.random.default_rng(14)
    n = 80
    groups = {"a": np.array(["f", "m"])[rng.integers(0, 2, n)], "b": rng.integers(0, 3, n)}
    p = 1.0 / (1.0 + np.exp(-rng.normal(size=n) - (groups["a"] == "m")))
    soft = rng.dirichlet(np.ones(3), n)
    classes = np.exp(rng.normal(size=(n, 3)) + np.outer(groups["a"] == "m", [0.5, 0.0, 0.0]))
    classes /= classes.sum(axis=1, keepdims=True)
    one = {"z": torch.tensor(p), "groups": groups, "upstream": torch.tensor(rng.normal(size=n)), "bounds": (0.0, 1.0)}
    only = {"groups": {"a": groups["a"]}}
    mixed = {"groups": {"a": SoftGroup(soft), "b": groups["b"]}}
    of_classes = {"z": torch.tensor(classes), "upstream": torch.tensor(rng.normal(size=(n, 3))), "bounds": None}
    rates = {"constraints": [RateParity(0.04)]}
    return {
        "one attribute": one | only | rates,
        "two attributes": one | {"constraints": [RateParity(0.2)]},
        "weighted": one | only | rates | {"weights": rng.integers(1, 4, n).astype(float)},
        "given the target": one | only | {"constraints": [RateParity(0.1, given="each")], "targets": p > 0.4},
        "surrogate": one | only | rates | {"surrogate": "sigmoid"},
        "no gradient": one | only | rates | {"upstream": None},
        "soft": one | {"groups": {"a": SoftGroup(soft)}, "constraints": [MeanParity(0.01)]},
        "soft and firm": one | mixed | {"constraints": [MeanParity(0.02)], "bounds": (np.zeros(n), 0.9)},
        "soft residuals": one | mixed | {"constraints": [EqualizedResiduals(0.1)], "targets": p * 1.1},
        "classes": one | of_classes | {"constraints": [MeanParity(0.02)], "simplex": True},
        "classes, entropy": one
        | of_classes
        | {"constraints": [MeanParity(0.02)], "simplex": True, "discrepancy": "entropy"},
    }


def test_decisions_classes_and_soft_groups(pool):
    """The answer is that of a single process on the whole batch."""
    rng = np.random.default_rng(15)
    cases = gathered_cases()
    for (name, arguments), results in zip(cases.items(), run_splits(pool, [*cases.values()], rng), strict=True):
        assert "error" not in results[0], (name, results[0])
        assert_same(results)
        z = arguments["z"].clone().requires_grad_(arguments["upstream"] is not None)
        alone = project(z, **{key: value for key, value in arguments.items() if key not in ("z", "upstream")})
        assert results[0]["status"] == alone.status.name, name
        assert results[0]["rows"] == alone.rows
        torch.testing.assert_close(results[0]["value"], alone.value.detach(), rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(results[0]["gaps"], alone.gaps, rtol=1e-9, atol=1e-9)
        assert results[2]["forward"] <= 3
        if arguments["upstream"] is not None:
            alone.value.backward(arguments["upstream"])
            torch.testing.assert_close(results[0]["gradient"], z.grad, rtol=1e-7, atol=1e-9)
            assert results[2]["backward"] == 1


def test_gradients_reach_tolerances_targets_and_bounds(pool):
    """Over all ranks they add up to those of a single process."""
    rng = np.random.default_rng(3)
    n, double = 60, torch.float64

    def arguments(**options: Any) -> dict[str, Any]:
        groups = np.arange(n) % 2
        return {"z": torch.tensor(rng.normal(size=n) + groups), "groups": groups, "bounds": None, **options}

    def leaf(values: Any) -> torch.Tensor:
        return torch.tensor(values, dtype=double, requires_grad=True)

    targets = leaf(rng.normal(size=n))
    listed = [
        arguments(constraints=[MeanParity(leaf(0.05))]),
        arguments(constraints=[ResidualMean(0.02)], targets=targets),
        arguments(constraints=[MeanParity(0.05)], bounds=(leaf(-0.5), 1.5)),
        arguments(constraints=[MeanParity(0.05)], bounds=(leaf(rng.uniform(-1, 0, n)), None)),
    ]
    names = ["tolerance 0", "targets", "bound 0", "bound 0"]
    upstream = torch.tensor(rng.normal(size=n))
    rows = [np.arange(0, n, 3), np.setdiff1d(np.arange(n), np.arange(0, n, 3))]
    for arguments_, name in zip(listed, names, strict=True):
        given = []
        for own in rows:
            one = share({**arguments_, "upstream": upstream}, own)
            if "targets" in one:
                one["targets"] = one["targets"].detach().requires_grad_()
            if isinstance((one["bounds"] or (None,))[0], torch.Tensor):
                one["bounds"] = (one["bounds"][0].detach().requires_grad_(), one["bounds"][1])
            given.append(one)
        results = pool.run("jobs:project_share", given)
        leaf_tensor = {
            "tolerance 0": arguments_["constraints"][0].tolerance,
            "targets": arguments_.get("targets"),
            "bound 0": (arguments_["bounds"] or (None,))[0],
        }[name]
        leaf_tensor.grad = None
        z = arguments_["z"].clone().requires_grad_()
        others = {key: value for key, value in arguments_.items() if key != "z"}
        project(z, **others).value.backward(upstream)
        found = joined(results, rows, name) if leaf_tensor.grad.ndim else sum(result[name] for result in results)
        torch.testing.assert_close(found, leaf_tensor.grad, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(joined(results, rows, "gradient"), z.grad, rtol=1e-12, atol=1e-12)


def test_labels_that_only_one_rank_has_met(pool):
    """Words, integers with gaps, labels coded beforehand, a rank without a group, an empty rank."""
    rng = np.random.default_rng(4)
    n = 40
    words = np.array(["north", "south", "east"])[np.arange(n) * 3 // n]
    numbers = np.where(np.arange(n) < 5, 7, np.where(np.arange(n) < 20, -3, 2))
    z = rng.normal(size=n) + (words == "south")
    columns = [{"a": words}, {"b": numbers}, {"a": words, "b": numbers}, {"b": torch.tensor(numbers)}]
    listed = [{"z": torch.tensor(z), "groups": groups, "constraints": [MeanParity(0.1)]} for groups in columns]
    listed.append({**listed[0], "groups": {"a": words.tolist()}})
    for batch, arguments in zip(run_splits(pool, listed, rng), listed, strict=True):
        assert_same(batch)
        alone = project(**arguments)
        assert batch[0]["rows"] == alone.rows
        torch.testing.assert_close(batch[0]["value"], alone.value, rtol=1e-12, atol=1e-12)
        assert_holds(Problem(z, **{k: v for k, v in arguments.items() if k != "z"}), as_solution(batch[0]))
    coded = code_groups({"a": words})
    halves = [np.arange(20), np.arange(20, 40)]
    results = pool.run(
        "jobs:project_share",
        [{"z": listed[0]["z"][rows], "groups": coded[rows], "constraints": [MeanParity(0.1)]} for rows in halves],
    )
    torch.testing.assert_close(joined(results, halves, "value"), project(**listed[0]).value, rtol=1e-12, atol=1e-12)


def test_more_combinations_than_are_numbered_directly(pool):
    rng = np.random.default_rng(5)
    n = 300
    groups = {"a": rng.integers(0, 40, n), "b": rng.integers(0, 45, n) * 3}
    arguments = {"z": torch.tensor(rng.normal(size=n)), "groups": groups, "constraints": [MeanParity(0.4)]}
    batch = run_splits(pool, [arguments, arguments], rng)[1]
    assert_same(batch)
    alone = project(**arguments)
    assert batch[0]["rows"] == alone.rows
    torch.testing.assert_close(batch[0]["value"], alone.value, rtol=1e-11, atol=1e-11)


def test_an_empty_batch(pool):
    arguments = {"z": torch.zeros(0), "groups": np.zeros(0, dtype=int), "constraints": [MeanParity(0.1)]}
    soft = {"groups": {"a": SoftGroup(np.zeros((0, 2)))}, "bounds": (np.zeros(0), 1.0)}
    for one in (arguments, arguments | {"constraints": [RateParity(0.1)]}, arguments | soft):
        results = pool.run("jobs:project_share", [one] * 3)
        assert [len(result["value"]) for result in results] == [0, 0, 0]


@pytest.mark.parametrize("scale", [1e-200, 1e-30, 1e-3, 1e12, 1e40, 1e200])
def test_numbers_of_any_size(pool, scale):
    rng = np.random.default_rng(6)
    n = 30
    groups = np.arange(n) % 3
    one = {
        "z": torch.tensor((rng.normal(size=n) + groups) * scale),
        "upstream": torch.tensor(rng.normal(size=n) / scale if scale < 1e100 else rng.normal(size=n)),
        "groups": groups,
        "constraints": [MeanParity(0.05 * scale)],
        "bounds": (-scale, 2 * scale),
    }
    results = run_splits(pool, [one], rng)[0]
    assert_same(results)
    problem = Problem(one["z"].numpy(), one["constraints"], groups, one["bounds"])
    assert_holds(problem, as_solution(results[0]))


def test_an_outlier_does_not_hide_the_rest(pool):
    rng = np.random.default_rng(7)
    n = 60
    groups = {"a": np.arange(n) % 2, "b": (np.arange(n) < 2).astype(int)}
    z = rng.normal(size=n) + groups["a"]
    z[0], z[1] = 1e30, -1e30
    one = {"z": torch.tensor(z), "groups": groups, "constraints": [MeanParity(0.01, over="a")], "bounds": (-2.0, 1e31)}
    results = run_splits(pool, [one], rng)[0]
    assert_same(results)
    alone = project(**one)
    torch.testing.assert_close(results[0]["value"], alone.value, rtol=1e-9, atol=1e-9)


def test_what_a_single_process_finds_out_is_found_out_by_all(pool):
    """Contradictions, relaxed rows, tolerances finer than the dtype: the batch is gathered."""
    rng = np.random.default_rng(8)
    n = 24
    groups = np.arange(n) % 2
    z = torch.tensor(rng.uniform(size=n))
    impossible = {
        "z": z,
        "groups": groups,
        "targets": np.where(groups == 1, 2.0, 0.2),
        "constraints": [ResidualMean(0.05)],
        "bounds": (0.0, 1.0),
    }
    listed = [
        impossible,
        {**impossible, "infeasible": "relax", "upstream": torch.tensor(rng.normal(size=n))},
        {"z": z, "groups": groups, "constraints": [MeanParity(0.0)]},
        {"z": z.float(), "groups": groups, "constraints": [MeanParity(0.0)]},
        {"z": z, "groups": np.zeros(n, dtype=int), "constraints": [MeanParity(0.0)], "absent": "raise"},
        {"z": torch.full((n,), 1e299, dtype=torch.float64), "groups": groups, "constraints": [MeanParity(0.1)]},
    ]
    contradiction, relaxed, equal, equal32, absent, large = run_splits(pool, listed, rng)
    for batch, kind in ((contradiction, "InfeasibleError"), (absent, "AbsentGroupError"), (large, "InputError")):
        messages = {error for result in batch for error in result["error"]}
        assert len(messages) == 1
        assert messages.pop()[0] == kind
    assert_same(relaxed)
    assert relaxed[0]["status"] == "RELAXED"
    assert relaxed[0]["excess"] == pytest.approx(0.95)  # targets of 2 with outputs up to 1
    for batch, arguments in ((equal, listed[2]), (equal32, listed[3])):
        assert_same(batch)
        problem = Problem(arguments["z"].double().numpy(), arguments["constraints"], groups)
        found = as_solution(batch[0])
        worst = max(exact_violations(problem.rows, plain(found.value)))
        assert found.satisfied == (worst <= 0)
        assert worst <= 2 * torch.finfo(found.value.dtype).eps


@pytest.mark.parametrize("n", [1000, 5000])
def test_few_collectives(pool, n):
    """One forward and one backward, once the first message has room for the samples."""
    rng = np.random.default_rng(9)
    groups = rng.integers(0, 2, (2 * n, 2))
    z = 1.0 / (1.0 + np.exp(-rng.normal(size=2 * n) - groups.sum(axis=1) * 0.7))
    one = {
        "z": torch.tensor(z),
        "upstream": torch.tensor(rng.normal(size=2 * n)),
        "groups": groups,
        "constraints": [MeanParity(0.02)],
        "bounds": (0.0, 1.0),
    }
    halves = [np.arange(n), np.arange(n, 2 * n)]
    first, *others = pool.run("jobs:project_many", [[share(one, rows)] * 3 for rows in halves])[0]
    assert first["forward"] <= 4  # settings and labels are sent as well
    for later in others:
        assert later["forward"] == later["backward"] == 1


def test_gradients_of_samples_that_are_equal_in_everything(pool):
    """Their order is not known from what they are, and must not show in sums of their gradients."""
    rng = np.random.default_rng(16)
    n = 200
    one = {
        "z": torch.tensor(rng.integers(0, 3, n) / 4.0),
        "upstream": torch.tensor(rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, n)),
        "groups": {"a": rng.integers(0, 2, n), "b": rng.integers(0, 2, n)},
        "constraints": [MeanParity(0.01)],
    }
    classes = torch.stack([one["z"], 1.0 - one["z"]], dim=1)
    upstream = torch.stack([one["upstream"], one["upstream"].flip(0)], dim=1)
    boxed = one | {"bounds": (0.1, np.where(np.arange(n) % 3 == 0, 0.4, 0.9))}
    listed = [one, boxed, one | {"z": classes, "upstream": upstream, "simplex": True}]
    for results in run_splits(pool, listed, rng):
        assert results[0]["status"] == "OPTIMAL"
        assert_same(results)


def test_few_samples_on_one_rank_and_many_on_another(pool):
    """Whether samples travel with the first message must not show."""
    rng = np.random.default_rng(10)
    n = 4000
    one = {
        "z": torch.tensor(rng.random(n)),
        "upstream": torch.tensor(rng.normal(size=n)),
        "groups": rng.integers(0, 2, (n, 2)),
        "constraints": [MeanParity(0.01)],
        "bounds": (0.0, 1.0),
    }
    few, many = [np.arange(2000), np.arange(2000, n)], [np.arange(3900), np.arange(3900, n)]
    results = pool.run(
        "jobs:project_many", [[share(one, rows[r]) for rows in (few, few, many, many, few)] for r in (0, 1)]
    )
    for at, rows in enumerate((few, few, many, many, few)):
        for name in ("value", "gradient"):
            found = joined([rank[at] for rank in results], rows, name)
            assert torch.equal(found, joined([rank[0] for rank in results], few, name))


def test_labels_of_different_kinds(pool):
    one = {"z": torch.tensor([0.1, 0.9]).double(), "constraints": [MeanParity(0.1)]}
    words, numbers = {"place": np.array(["north", "south"])}, {"place": np.array([0, 1])}
    results = pool.run("jobs:project_many", [[one | {"groups": words}], [one | {"groups": numbers}]])
    for ((kind, message),) in results:
        assert kind == "RankError"
        assert "'place': int, str" in message
    empty = {"z": torch.zeros(0).double(), "groups": {"place": np.zeros(0, dtype=int)}}
    results = pool.run("jobs:project_share", [one | {"groups": words}, one | empty])
    assert results[0]["rows"] == project(**one, groups=words).rows  # a rank without samples has labels of no kind


@pytest.mark.parametrize(
    ("usual", "strays"),
    [("fbfb", "ffb"), ("ffbb", "fbfb"), ("fbfb", "fbb"), ("ff01", "ff10")],
    ids=["a backward is missed", "an order of its own", "a forward is skipped", "backwards in another order"],
)
def test_ranks_that_are_out_of_step(pool, usual, strays):
    one = {"z": torch.tensor([0.1, 0.9]).double(), "groups": np.array([0, 1]), "constraints": [MeanParity(0.1)]}
    for kind, message in pool.run("jobs:step", [one | {"steps": steps} for steps in (usual, strays, usual)]):
        assert kind == "RankError"
        assert "rank 1: " in message
        assert "different calls" in message
    pool.run("jobs:project_share", [one] * 3)  # who goes on all the same is in step again


DISAGREEMENTS = {
    "tolerances": {"constraints": [MeanParity(0.2)]},
    "constraints": {"constraints": [MeanParity(0.1, over=["a"])]},
    "dtype": {"z": torch.zeros(4, dtype=torch.float32), "upstream": torch.zeros(4, dtype=torch.float32)},
    "bounds": {"bounds": (0.0, 2.0)},
    "attributes": {"groups": {"c": np.array([0, 1, 0, 1])}},
    "weights": {"weights": np.ones(4)},
    "gradients wanted of": {"upstream": None},
    "infeasible": {"infeasible": "relax"},
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_ranks_that_disagree_are_told_what_on(pool, what):
    one = {
        "z": torch.tensor([0.1, 0.9, 0.4, 0.3]).double(),
        "upstream": torch.ones(4).double(),
        "groups": {"a": np.array([0, 1, 0, 1])},
        "constraints": [MeanParity(0.1)],
        "bounds": (0.0, 1.0),
    }
    pool.run("jobs:project_share", [one] * 3)
    results = pool.run("jobs:project_many", [[one], [one], [{**one, **DISAGREEMENTS[what]}]])
    for (result,) in results:
        assert result[0] == "RankError"
        assert f"disagree on {what}" in result[1]
        assert "rank 2" in result[1]
    pool.run("jobs:project_share", [one] * 3)  # nothing is left over


BAD = {
    "weights must be finite": {"weights": np.array([1.0, -1.0, 1.0, 1.0])},
    "outputs must be finite": {"z": torch.tensor([0.1, float("nan"), 0.4, 0.3]).double()},
    "groups has no columns": {"groups": {}},
    "one label per output": {"groups": {"a": np.array([0, 1])}},
    "Affine": {"constraints": [Affine(np.ones((1, 4)), 0.0, 1.0)]},
    "over a process group, project each column": {"z": torch.zeros(4, 2).double()},
    "discrepancy 'weighted squared'": {"discrepancy": WeightedSquared(2.0)},
}


@pytest.mark.parametrize("what", BAD)
def test_what_one_rank_refuses_all_hear_of(pool, what):
    one = {
        "z": torch.tensor([0.1, 0.9, 0.4, 0.3]).double(),
        "groups": {"a": np.array([0, 1, 0, 1])},
        "constraints": [MeanParity(0.1)],
        "weights": np.ones(4),
    }
    (good,), (bad,), (other,) = pool.run("jobs:project_many", [[one], [{**one, **BAD[what]}], [one]])
    assert bad[0] == "InputError"
    assert what in bad[1]
    assert good == other
    assert good[0] == "RankError"
    assert what in good[1]
    assert "Rank 1" in good[1]
    pool.run("jobs:project_share", [one] * 3)


def test_gradients_that_are_no_numbers_are_so_on_all_ranks(pool):
    z = torch.tensor([0.1, 0.9, 0.4, 0.3]).double()
    one = {"z": z, "groups": np.array([0, 1, 0, 1]), "constraints": [MeanParity(0.1)]}
    upstream = [torch.ones(4).double(), torch.tensor([1.0, float("inf"), 1.0, 1.0]).double()]
    results = pool.run("jobs:project_share", [{**one, "upstream": own} for own in upstream])
    assert not any(result["gradient"].isfinite().any() for result in results)


def test_double_backward_is_refused(pool):
    one = {"z": torch.tensor([0.1, 0.9]).double(), "groups": np.array([0, 1]), "constraints": [MeanParity(0.1)]}
    assert all("process group" in message for message in pool.run("jobs:double_backward", [one] * 2))


def test_a_condition_that_only_one_rank_meets(pool):
    rng = np.random.default_rng(11)
    n = 60
    age = np.concatenate([np.full(30, 20), np.full(30, 50)])
    problem = Problem(
        rng.normal(size=n) + np.arange(n) % 2,
        [ConditionalParity(0.05, regions={"age": [(None, 30), (40, None)]})],
        np.arange(n) % 2,
        features={"age": age},
    )
    arguments = {"z": torch.tensor(problem.z), **problem.arguments()}
    halves = [np.arange(30), np.arange(30, 60)]
    results = pool.run("jobs:project_share", [share(arguments, rows) for rows in halves])
    alone = project(**arguments)
    value = joined(results, halves, "value")
    torch.testing.assert_close(value, alone.value, rtol=1e-12, atol=1e-12)
    assert results[0]["rows"] == alone.rows
    assert_holds(problem, as_solution({**results[0], "value": value}))
