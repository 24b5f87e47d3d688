"""`project` as a function: types in and out, shapes, what a solution tells."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fairlayer
from fairlayer import InputError, MeanParity, Solution, Status, project

N = 30
GROUPS = np.arange(N) % 2
Z = torch.tensor(np.random.default_rng(0).normal(size=N) + GROUPS)


def answer(z, groups=GROUPS, **options):
    return project(z, {"sex": groups}, MeanParity(0.05), **options)


def test_public_names():
    assert set(fairlayer.__all__) <= set(dir(fairlayer))
    needed = {"MeanParity", "ConditionalParity", "EqualizedResiduals", "ResidualMean", "EqualizedOdds", "Affine"}
    assert needed | {"FairLayer", "project", "SoftGroup", "Solution", "Status"} <= set(fairlayer.__all__)
    assert fairlayer.__version__


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_arrays_in_arrays_out(dtype):
    z = Z.numpy().astype(dtype)
    solution = answer(z)
    assert type(solution.value) is np.ndarray
    assert type(solution.gaps) is np.ndarray
    assert solution.value.dtype == dtype
    assert np.array_equal(solution.value, answer(torch.tensor(z)).value.numpy())


def test_lists_of_floats_are_read():
    assert np.array_equal(answer(Z.tolist()).value, answer(Z).value.numpy())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_value_has_the_type_of_the_input(dtype):
    solution = answer(Z.to(dtype))
    assert solution.value.dtype == dtype
    assert solution.value.shape == Z.shape
    assert solution.gaps.dtype == torch.float64


@pytest.mark.parametrize("as_type", [torch.tensor, np.asarray])
def test_column_vectors(as_type):
    column = as_type(Z.numpy()[:, None])
    solution = answer(column)
    assert solution.value.shape == (N, 1)
    assert np.array_equal(np.asarray(solution.value)[:, 0], answer(Z).value.numpy())


def test_outputs_that_are_not_contiguous():
    wide = torch.randn(N, 3, dtype=torch.float64, generator=torch.manual_seed(0))
    wide[:, 1] = Z
    assert torch.equal(answer(wide[:, 1]).value, answer(Z).value)
    assert np.array_equal(answer(wide.numpy()[:, 1]).value, answer(Z).value.numpy())
    backwards = answer(Z.numpy()[::-1], GROUPS[::-1]).value[::-1]
    assert np.abs(backwards - answer(Z).value.numpy()).max() < 1e-12


def test_the_value_shares_no_memory_with_the_input():
    z = torch.zeros(N, dtype=torch.float64)
    solution = answer(z)
    assert torch.equal(solution.value, z)
    solution.value.add_(1.0)
    assert not z.any()


def test_inputs_without_gradients_give_outputs_without():
    assert not answer(Z).value.requires_grad
    assert answer(Z.clone().requires_grad_()).value.requires_grad
    with torch.no_grad():
        assert not answer(Z.clone().requires_grad_()).value.requires_grad
    with torch.inference_mode():
        assert torch.equal(answer(Z).value, answer(Z.clone()).value)


def test_parameters_are_outputs_too():
    assert torch.equal(answer(torch.nn.Parameter(Z.clone())).value, answer(Z).value)


def test_a_solution_describes_itself():
    solution = answer(Z)
    assert isinstance(solution, Solution)
    assert solution.status is Status.OPTIMAL
    assert solution.satisfied
    assert solution.excess == 0
    assert "OPTIMAL" in repr(solution)
    assert "mean parity, sex: 0 - 1" in repr(solution)


def test_every_status_is_a_sentence():
    for status in Status:
        assert status.value.endswith(".")


def test_one_sample():
    solution = project(torch.tensor([3.0]), torch.tensor([[1, 0]]), MeanParity(0.0), bounds=(0.0, 1.0))
    assert solution.value.item() == 1.0
    assert solution.status is Status.VACUOUS


def test_the_same_call_gives_the_same_bits():
    assert all(torch.equal(answer(Z).value, answer(Z).value) for _ in range(5))


def test_threads_do_not_disturb_each_other():
    """The compiled part runs without the interpreter's lock: answers must not depend on what else runs."""
    from concurrent.futures import ThreadPoolExecutor

    constraint = fairlayer.FairLayer(MeanParity(0.05), bounds=(0.0, 1.0))
    batches = [
        (Z + seed / 100, torch.tensor(np.random.default_rng(seed).integers(0, 2 + seed % 2, (N, 2))))
        for seed in range(40)
    ]
    alone = [project(z, groups, MeanParity(0.05), (0.0, 1.0)).value for z, groups in batches]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda item: constraint(*item), batches * 5))
    for position, value in enumerate(together):
        assert torch.equal(value, alone[position % len(batches)])


def test_arrays_carry_no_gradient():
    tolerance = torch.tensor(0.1, requires_grad=True)
    y = project(np.array([0.0, 1.0]), [0, 1], MeanParity(tolerance)).value
    assert isinstance(y, np.ndarray)


def test_a_rank_outside_the_group_is_told_so():
    outside = torch.distributed.GroupMember.NON_GROUP_MEMBER  # what new_group gives to ranks that it does not hold
    with pytest.raises(InputError, match="does not hold this rank"):
        project(torch.rand(4), torch.tensor([0, 0, 1, 1]), [MeanParity(0.1)], process_group=outside)
