"""Evaluation: every sample counts once, whatever batch it came in."""

import math

import numpy as np
import pytest
import torch
from tasks import make_data, make_model
from torch import nn

from fairlayer import ConditionalParity, FairLayer, FairModel, InputError, MeanParity, ResidualMean
from fairlayer.training import batches, evaluate

mse = nn.functional.mse_loss


def test_loss_and_gaps_are_pooled():
    x, y, groups = make_data()
    model, data = make_model(), batches(x, y, groups, batch_size=100)  # the last batch is short
    result = evaluate(model, data, loss=mse, constraints=[MeanParity(0.05)])
    raw = model.raw(x).detach()
    assert result.loss == pytest.approx(float(mse(raw, y)), rel=1e-5)
    for attribute in (0, 1):
        one = groups[:, attribute] == 1
        gap = float(raw[~one].double().mean() - raw[one].double().mean())
        assert result.gaps[f"mean parity, {attribute}: 0 - 1"] == pytest.approx(gap, abs=1e-12)
    assert result.gap == pytest.approx(max(map(abs, result.gaps.values())))
    assert result.excess == pytest.approx(result.gap - 0.05)
    assert (len(result.outputs), result.batches, result.satisfied) == (240, 3, False)
    torch.testing.assert_close(result.outputs, raw)


def test_every_batch_of_the_layer_is_fair_and_no_row_is_skipped():
    x, y, groups = make_data()
    order = groups[:, 0].argsort()  # most batches have one group only
    model = make_model(FairLayer([MeanParity(0.01)]))
    result = evaluate(model, batches(x[order], y[order], groups[order], batch_size=32), loss=mse)
    assert (len(result.outputs), result.batches) == (240, 8)
    assert result.batches_satisfied == 8
    assert result.batches_incomplete >= 6
    assert result.batch_gap <= 0.01
    assert result.gap > 0.05  # which is why batches should be stratified
    stratified = evaluate(model, batches(x, y, groups, batch_size=60, stratify=True))
    assert stratified.gap < 0.05
    assert math.isnan(stratified.loss)


def test_exact_verdict():
    x, y, groups = make_data()
    model = make_model(FairLayer([MeanParity(0.01), ResidualMean(0.2)], infeasible="relax"))
    assert evaluate(make_model(FairLayer([MeanParity(0.01)])), batches(x, y, groups)).satisfied
    assert set(evaluate(model, batches(x, y, groups)).gaps) >= {"residual mean, 0: 0", "residual mean, 1: 1"}


def test_weights_count_as_repetitions():
    x, y, groups = make_data(60)
    times = torch.arange(60).remainder(3) + 1
    again = torch.repeat_interleave(torch.arange(60), times)
    model = make_model(FairLayer([MeanParity(0.05)]))

    def rows(outputs, targets):
        return (outputs - targets) ** 2

    weighted = evaluate(model, batches(x, y, groups, weights=times.double()), loss=rows)
    repeated = evaluate(model, batches(x[again], y[again], groups[again]), loss=rows)
    assert weighted.loss == pytest.approx(repeated.loss, rel=1e-5)
    assert weighted.gap == pytest.approx(repeated.gap, abs=1e-6)
    with pytest.raises(InputError, match="one number per sample"):
        evaluate(model, batches(x, y, groups, weights=times.double()), loss=mse)


def test_other_constraints_can_be_measured():
    x, y, groups = make_data()
    features = {"level": x[:, 2].numpy()}
    conditional = ConditionalParity(0.1, regions={"level": [(None, 0.0), (0.0, None)]})
    result = evaluate(make_model(), batches(x, y, groups, features, batch_size=70), constraints=conditional)
    assert len(result.gaps) == 4
    low, second = x[:, 2] < 0, groups[:, 1]
    y_low = result.outputs.double()[low]
    gap = float(y_low[second[low] == 0].mean() - y_low[second[low] == 1].mean())
    assert result.gaps["conditional parity, 1 within level in [-inf, 0.0): 0 - 1"] == pytest.approx(gap, abs=1e-12)


def test_without_constraints_or_targets_there_is_nothing_to_state():
    x, _, _ = make_data(20)
    result = evaluate(make_model(), batches(x))
    assert math.isnan(result.gap)
    assert not result.satisfied
    with pytest.raises(InputError, match="targets is missing"):
        evaluate(make_model(), batches(x), loss=mse)
    with pytest.raises(InputError, match="no batches"):
        evaluate(make_model(), [])


def test_mode_is_put_back():
    x, _, _ = make_data(20)
    model = make_model(dropout=0.5).train()
    first, second = (evaluate(model, batches(x)).outputs for _ in range(2))
    assert torch.equal(first, second)
    assert model.training


def test_any_module_with_a_layer_inside():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.fair = nn.Linear(4, 1), FairLayer([MeanParity(0.0)])

        def forward(self, x, groups=None, **_):
            return self.fair(self.net(x), groups)

    x, y, groups = make_data(40)
    assert evaluate(Own(), batches(x.double().float(), y, groups)).gap < 1e-6
    assert np.isnan(evaluate(FairModel(nn.Linear(4, 1)), batches(x, y, groups)).gap)
