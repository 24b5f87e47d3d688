"""Outputs on an accelerator: projected on the host, with one wait forward and one backward, and put back."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pretended import DEVICE, pretended_device, to_device, to_host

from fairlayer import (
    EqualizedResiduals,
    FairLayer,
    InputError,
    MeanParity,
    RateParity,
    Stream,
    code_groups,
    freeze,
    project,
)

N = 48
RNG = np.random.default_rng(0)
GROUPS = torch.tensor(RNG.integers(0, 2, (N, 2)))
WORDS = {"sex": np.array(["f", "m"])[GROUPS[:, 0]], "region": np.array(["e", "s", "w"])[RNG.integers(0, 3, N)]}
Z = torch.tensor(RNG.random(N)) * 0.6 + 0.2 * GROUPS[:, 0]
TARGETS = torch.tensor(RNG.random(N))
UPSTREAM = torch.tensor(RNG.normal(size=N))
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
DEVICE_GROUPS = {"table": lambda: to_device(GROUPS), "columns": lambda: {"sex": to_device(GROUPS[:, 0])}}


def host_groups(form: str):
    return GROUPS if form == "table" else {"sex": GROUPS[:, 0]}


def both_ways(layer: FairLayer, z: torch.Tensor, *data, **named):
    """Outputs and the gradient of z."""
    leaf = z.requires_grad_()
    y = layer(leaf, *data, **named)
    upstream = to_device(UPSTREAM.to(z.dtype)) if z.device == DEVICE else UPSTREAM.to(z.dtype)
    return y, leaf, upstream


class TestWaits:
    @pytest.mark.parametrize("groups", ["table", "columns", "words"])
    @pytest.mark.parametrize("dtype", DTYPES)
    def test_one_forward_and_one_backward(self, groups, dtype):
        """Where groups are on the device too, they travel with the outputs."""
        layer = FairLayer([MeanParity(0.05)], bounds=(0.0, 1.0))
        with pretended_device() as log:
            given = WORDS if groups == "words" else DEVICE_GROUPS[groups]()
            for _ in range(2):  # what is learned from a first batch must not cost more than the second does
                z = to_device(Z.to(dtype))
                log.clear()
                y, leaf, upstream = both_ways(layer, z, given)
                assert len(log.waits) <= 1, log.waits
                assert len(log.uploads) <= 1, log.uploads
                log.clear()
                (gradient,) = torch.autograd.grad(y, leaf, upstream)
                assert len(log.waits) <= 1, log.waits
                assert len(log.uploads) <= 1, log.uploads
            found, slope = to_host(y), to_host(gradient)
        expected, leaf, upstream = both_ways(layer, Z.to(dtype), WORDS if groups == "words" else host_groups(groups))
        assert torch.equal(found, expected.detach())
        assert torch.equal(slope, torch.autograd.grad(expected, leaf, upstream)[0])

    @pytest.mark.parametrize(
        ("layer", "data"),
        [
            (FairLayer([EqualizedResiduals(0.05)]), {"targets": TARGETS}),
            (FairLayer([MeanParity(0.05)]), {"weights": TARGETS + 0.5}),
            (FairLayer([MeanParity(0.05)], discrepancy="entropy"), {}),
            (FairLayer([RateParity(0.2, over=0)]), {}),
        ],
        ids=["targets", "weights", "entropy", "decisions"],
    )
    def test_all_data_on_the_device(self, layer, data):
        expected, leaf, upstream = both_ways(layer, Z.float(), GROUPS, **data)
        slope = torch.autograd.grad(expected, leaf, upstream)[0]
        with pretended_device() as log:
            there = {name: to_device(value) for name, value in data.items()}
            groups, z = to_device(GROUPS), to_device(Z.float())
            log.clear()
            y, leaf, upstream = both_ways(layer, z, groups, **there)
            assert len(log.waits) <= 1, log.waits
            log.clear()
            (gradient,) = torch.autograd.grad(y, leaf, upstream)
            assert len(log.waits) <= 1, log.waits
            assert torch.equal(to_host(y), expected.detach())
            assert torch.equal(to_host(gradient), slope)

    def test_classes(self):
        P = torch.softmax(torch.tensor(RNG.normal(size=(N, 3))), dim=1)
        layer = FairLayer([MeanParity(0.05)], discrepancy="entropy", simplex=True)
        expected = layer(P, GROUPS)
        with pretended_device() as log:
            z, groups = to_device(P), to_device(GROUPS)
            log.clear()
            y = layer(z, groups)
            assert len(log.waits) <= 1, log.waits
            assert torch.equal(to_host(y), expected)

    def test_tolerances_and_bounds(self):
        """Learned, on the device: their gradients come back there."""
        with pretended_device() as log:
            tolerance, hi = (to_device(torch.tensor(one, dtype=torch.float64)).requires_grad_() for one in (0.05, 0.9))
            z, groups = to_device(Z).requires_grad_(), to_device(GROUPS)
            layer = FairLayer([MeanParity(tolerance)], (0.0, hi))
            log.clear()
            y = layer(z, groups)
            assert len(log.waits) <= 1, log.waits
            log.clear()
            found = [to_host(one) for one in torch.autograd.grad(y, (z, tolerance, hi), to_device(UPSTREAM))]
            assert len(log.waits) <= 1, log.waits
        here = [Z.clone(), torch.tensor(0.05, dtype=torch.float64), torch.tensor(0.9, dtype=torch.float64)]
        z, tolerance, hi = (one.requires_grad_() for one in here)
        expected = project(z, GROUPS, [MeanParity(tolerance)], (0.0, hi)).value
        for one, other in zip(found, torch.autograd.grad(expected, (z, tolerance, hi), UPSTREAM), strict=True):
            assert torch.equal(one, other)


class TestDevices:
    def test_values_are_where_the_outputs_are(self):
        with pretended_device():
            solution = project(to_device(Z), to_device(GROUPS), [MeanParity(0.05)])
            assert solution.value.device == DEVICE
            assert solution.satisfied
            assert abs(float(solution.gaps[0])) <= 0.05

    @pytest.mark.parametrize("z_there", [False, True])
    def test_outputs_and_groups_on_different_devices(self, z_there):
        """The answer is that of one device, or the call is refused in words."""
        with pretended_device():
            z, groups = (to_device(Z), GROUPS) if z_there else (Z, to_device(GROUPS))
            try:
                value, refusal = project(z, groups, [MeanParity(0.05)]).value, None
            except InputError as error:
                value, refusal = None, str(error)
        if refusal is None:
            found = to_host(value) if z_there else value
            assert torch.equal(found, project(Z, GROUPS, [MeanParity(0.05)]).value)
        else:
            assert "device" in refusal

    @pytest.mark.parametrize("dtype", DTYPES[1:])
    def test_a_device_without_float64(self, dtype):
        layer = FairLayer([MeanParity(0.05)], bounds=(0.0, 1.0))
        expected, leaf, upstream = both_ways(layer, Z.to(dtype), GROUPS)
        slope = torch.autograd.grad(expected, leaf, upstream)[0]
        with pretended_device(without_float64=True):
            y, leaf, upstream = both_ways(layer, to_device(Z.to(dtype)), to_device(GROUPS))
            (gradient,) = torch.autograd.grad(y, leaf, upstream)
            assert torch.equal(to_host(y), expected.detach())
            assert torch.equal(to_host(gradient), slope)

    def test_tensors_of_two_devices_do_not_mix(self):
        """The pretended device is one."""
        with pretended_device() as log:
            with pytest.raises(RuntimeError, match="same device"):
                to_device(Z) + Z
            with pytest.raises(RuntimeError, match="numpy"):
                to_device(Z).numpy()
            z = to_device(Z)
            log.clear()
            z.cpu(), z.cpu(), z[3:].tolist()
            assert log.waits == ["copy to the host"]
            z.sum().item()
            assert log.waits == ["copy to the host", "_local_scalar_dense"]
            (z + 1.0).cpu()
            assert len(log.waits) == 3


class TestEverywhereElse:
    def test_coded_groups(self):
        rows = torch.tensor([3, 1, 7, 20])
        expected = code_groups(WORDS)[rows]
        with pretended_device():
            coded = code_groups(WORDS)[to_device(rows)]
            again = code_groups({"sex": to_device(GROUPS[:, 0])})[to_device(rows)]
            found = project(to_device(Z[rows]), coded, [MeanParity(0.05)])
            assert len(again) == len(coded) == 4
            assert torch.equal(to_host(found.value), project(Z[rows], expected, [MeanParity(0.05)]).value)

    @pytest.mark.parametrize("z_there", [False, True])
    def test_streams(self, z_there):
        here, there = (Stream([MeanParity(0.05)], bounds=(0.0, 1.0)) for _ in range(2))
        expected = [here.update(Z[rows], {"sex": GROUPS[rows, 0]}).value for rows in (slice(0, 20), slice(20, N))]
        with pretended_device():
            for rows, value in zip((slice(0, 20), slice(20, N)), expected, strict=True):
                z = to_device(Z[rows]) if z_there else Z[rows]
                emitted = there.update(z, {"sex": to_device(GROUPS[rows, 0])}).value
                assert torch.equal(to_host(emitted) if z_there else emitted, value)
        assert there.gaps() == here.gaps()

    @pytest.mark.parametrize("constraint", [MeanParity(0.1, over="sex"), RateParity(0.2, over="sex")])
    def test_frozen_shifts(self, constraint):
        groups = {"sex": GROUPS[:, 0]}
        frozen = freeze(FairLayer([constraint], bounds=(0.0, 1.0)), Z, groups, confidence=None)
        expected = frozen.predict(Z, groups)
        with pretended_device():
            for labels in (groups, {"sex": to_device(GROUPS[:, 0])}):
                assert torch.equal(to_host(frozen.predict(to_device(Z), labels)), expected)
