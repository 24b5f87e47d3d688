"""The training loop."""

import io
import math
import sys
from contextlib import redirect_stderr

import numpy as np
import pytest
import torch
from tasks import make_data, make_model
from torch import nn

from fairlayer import FairLayer, FairlayerError, InputError, MeanParity
from fairlayer.training import Penalty, StratifiedBatches, Unconstrained, batches, evaluate, fit
from fairlayer.training.checkpoint import copy_state

mse = nn.functional.mse_loss


def loaders(batch_size=60, **options):
    train = batches(*make_data(), batch_size=batch_size, shuffle=True, **options)
    return train, batches(*make_data(seed=1), batch_size=100)


def same(model, weights):
    return all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def test_trains_and_stays_fair():
    train, validation = loaders()
    model = make_model(FairLayer([MeanParity(0.02)]))
    before = evaluate(model, validation, loss=mse)
    fitted = fit(model, train, validation, loss=mse, epochs=30, learning_rate=1e-2)
    after = evaluate(model, validation, loss=mse)
    assert after.loss < 0.8 * before.loss
    assert after.batch_gap <= 0.02
    assert after.loss == pytest.approx(min(fitted.history["validation_loss"]), rel=1e-6)
    assert not model.training
    assert fitted.stopped == "epochs"


def seesaw(values):
    """A monitor that reads off given values, whatever happens."""
    numbers = iter(values)
    return lambda record: next(numbers)


@pytest.mark.parametrize("restore", ["best", "last"])
@pytest.mark.parametrize(("patience", "epochs"), [(2, 5), (None, 6)])
def test_best_weights_are_restored_whether_or_not_it_stopped_early(restore, patience, epochs):
    train, validation = loaders()
    model = make_model(FairLayer([MeanParity(0.02)]))
    seen = []
    fitted = fit(
        model,
        train,
        validation,
        loss=mse,
        epochs=6,
        learning_rate=1e-2,
        patience=patience,
        restore=restore,
        monitor=seesaw([3.0, 2.0, 1.0, 1.5, 1.2, 1.1]),
        on_epoch=lambda record: seen.append(copy_state(model)),
    )
    assert fitted.stopped == ("patience" if patience else "epochs")
    assert (fitted.best_epoch, fitted.epochs) == (2, epochs)
    assert same(model, seen[2 if restore == "best" else -1])
    assert not same(model, seen[2 if restore == "last" else -1])
    assert {len(column) for column in fitted.history.values()} == {epochs}
    assert set(fitted.history) == {
        *(f"{part}_{what}" for part in ("train", "validation") for what in ("loss", "objective", "gap")),
        *("learning_rate", "seconds"),
    }
    assert fitted.best["train_loss"] == fitted.history["train_loss"][2]


def test_min_delta_and_nan():
    train, _ = loaders()
    fitted = fit(
        make_model(),
        train,
        loss=mse,
        epochs=9,
        patience=3,
        min_delta=0.1,
        monitor=seesaw([math.nan, 1.0, 0.95, 0.85, 0.84, math.nan, 0.83, 0.0, 0.0]),
    )
    assert (fitted.best_epoch, fitted.epochs) == (3, 7)


def test_without_validation_the_training_objective_drives_everything():
    train, _ = loaders(batch_size=None)
    model = make_model(Penalty([MeanParity(0.02)], strength=1.0))
    fitted = fit(
        model,
        train,
        loss=mse,
        epochs=12,
        learning_rate=0.0,
        patience=5,
        min_delta=1e-4,
        scheduler=lambda o: torch.optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=1),
    )
    assert fitted.stopped == "patience"
    assert fitted.epochs == 6
    assert "validation_loss" not in fitted.history
    rates = fit(
        make_model(),
        train,
        loss=mse,
        epochs=9,
        learning_rate=1.0,
        scheduler="plateau",
        monitor=seesaw([3, 2] + [2] * 7),
    ).history["learning_rate"]
    assert rates == [1.0] * 8 + [0.5]  # lowered after six epochs no better than the second
    rates = fit(
        make_model(),
        train,
        loss=mse,
        epochs=3,
        optimizer="sgd",
        learning_rate=0.1,
        scheduler=lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5),
    ).history["learning_rate"]
    assert rates == pytest.approx([0.1, 0.05, 0.025])


def test_metrics_weigh_rows_not_batches():
    x, y, groups = make_data(70)
    y[60:] += 100.0  # a short last batch of another kind
    data = batches(x, y, groups, batch_size=60)
    model = make_model(Penalty([MeanParity(0.02)], strength=0.5))
    fitted = fit(model, data, data, loss=mse, epochs=1, learning_rate=0.0)
    raw = model.raw(x).detach()
    for part in ("train", "validation"):
        assert fitted.history[f"{part}_loss"][0] == pytest.approx(float(mse(raw, y)), rel=1e-5)
    penalties = [
        0.5 * sum(abs(float(z[g[:, a] == 0].mean() - z[g[:, a] == 1].mean())) for a in (0, 1))
        for z, g in ((raw[:60], groups[:60]), (raw[60:], groups[60:]))
    ]
    expected = float(mse(raw, y)) + (60 * penalties[0] + 10 * penalties[1]) / 70
    assert fitted.history["train_objective"][0] == pytest.approx(expected, rel=1e-5)
    assert fitted.history["validation_objective"][0] == pytest.approx(expected, rel=1e-5)


def test_batches_that_lack_a_group_are_trained_on():
    x, y, groups = make_data(80)
    one = groups.clone()
    one[:, :] = 0
    model = make_model(FairLayer([MeanParity(0.0)]))
    before = copy_state(model)
    fitted = fit(model, batches(x, y, one, batch_size=40), loss=mse, epochs=2, restore="last")
    assert not same(model, before)
    assert all(math.isnan(gap) for gap in fitted.history["train_gap"])
    single = fit(model, batches(x[:3], y[:3], groups[:3], batch_size=1), loss=mse, epochs=1)
    assert math.isfinite(single.history["train_loss"][0])


def test_an_interrupt_ends_training_and_leaves_the_best_model():
    """Nobody may take a model for trained that is not."""
    train, validation = loaders()
    model = make_model()
    seen = []
    calls = 0

    def loss(outputs, targets):
        nonlocal calls
        calls += 1
        if calls == 7 * 4 + 2:  # within the fifth epoch: 4 training and 3 validation batches each
            raise KeyboardInterrupt
        return mse(outputs, targets)

    with pytest.raises(KeyboardInterrupt):
        fit(
            model,
            train,
            validation,
            loss=loss,
            epochs=50,
            monitor=seesaw([3.0, 1.0, 2.0, 2.0, 2.0]),
            on_epoch=lambda record: seen.append(copy_state(model)),
        )
    assert len(seen) == 4
    assert same(model, seen[1])
    assert not model.training


def test_training_stops_when_its_time_is_up():
    train, _ = loaders()
    assert (fit(make_model(), train, loss=mse, epochs=3, max_minutes=1e-9).stopped) == "time"
    fitted = fit(make_model(), train, loss=mse, epochs=1, max_minutes=1e-9)
    assert (fitted.stopped, fitted.epochs) == ("epochs", 1)
    assert fit(make_model(), train, loss=mse, epochs=2, max_minutes=1e9).stopped == "epochs"
    with pytest.raises(InputError, match="max_minutes must be above 0"):
        fit(make_model(), train, loss=mse, epochs=3, max_minutes=0)


def test_callback_stops():
    train, _ = loaders()
    fitted = fit(make_model(), train, loss=mse, epochs=50, on_epoch=lambda record: record["train_loss"] < 1e9)
    assert (fitted.stopped, fitted.epochs) == ("callback", 1)


def test_seed_repeats_a_run():
    def weights(seed):
        train, validation = loaders()
        model = make_model(FairLayer([MeanParity(0.02)]), dropout=0.5)
        fit(model, train, validation, loss=mse, epochs=3, seed=seed)
        return copy_state(model)

    first, again, other = weights(5), weights(5), weights(6)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_sampler_is_told_the_epoch():
    x, y, groups = make_data()
    told = []

    class Telling(StratifiedBatches):
        def set_epoch(self, epoch):
            told.append(epoch)
            super().set_epoch(epoch)

    data = torch.utils.data.TensorDataset(x, y, groups)
    loader = torch.utils.data.DataLoader(data, batch_sampler=Telling(groups, 60))
    fit(make_model(FairLayer([MeanParity(0.02)])), loader, loss=mse, epochs=3)
    assert told == [0, 1, 2]


def test_optimisers_and_gradient_clipping():
    train, _ = loaders(batch_size=None)
    model = make_model()
    own = torch.optim.SGD(
        [{"params": model.backbone[0].parameters(), "lr": 0.0}, {"params": model.backbone[3].parameters()}], lr=0.1
    )
    before = copy_state(model)
    fit(model, train, loss=mse, epochs=1, optimizer=own)
    assert torch.equal(before["backbone.0.weight"], model.backbone[0].weight)
    assert not torch.equal(before["backbone.3.weight"], model.backbone[3].weight)

    model = make_model()
    before = copy_state(model)
    fit(model, train, loss=mse, epochs=1, optimizer=lambda p: torch.optim.SGD(p, lr=1.0), clip_norm=1e-3)
    moved = torch.cat([(value - before[name]).flatten() for name, value in model.state_dict().items()])
    assert float(moved.norm()) == pytest.approx(1e-3, rel=1e-3)


def test_weighted_rows():
    x, y, groups = make_data(60)
    times = torch.arange(60).remainder(2)
    results = []
    for rows, weights in ((slice(None), times.double()), (times == 1, None)):
        model = make_model(FairLayer([MeanParity(0.02)]))
        data = batches(x[rows], y[rows], groups[rows], weights=weights)
        fit(model, data, loss=nn.MSELoss(reduction="none"), epochs=5)
        results.append(model.raw(x).detach())
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_a_loss_that_is_not_finite_says_so_and_keeps_the_best():
    train, _ = loaders(batch_size=None)
    model = make_model(Unconstrained([MeanParity(0.1)]))
    start = copy_state(model)
    count = iter(range(10))

    def loss(outputs, targets):
        return mse(outputs, targets) * (math.nan if next(count) == 2 else 1.0)

    with pytest.raises(FairlayerError, match="nan in epoch 2"):
        fit(model, train, loss=loss, epochs=5)
    assert not same(model, start)
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


@pytest.mark.parametrize("with_tqdm", [True, False])
def test_progress_shows_loss_and_gap(with_tqdm, monkeypatch):
    if with_tqdm:
        pytest.importorskip("tqdm", reason="tqdm is not installed: pip install tqdm")
    else:
        monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    train, validation = loaders()
    shown = io.StringIO()
    with redirect_stderr(shown):
        fit(make_model(FairLayer([MeanParity(0.02)])), train, validation, loss=mse, epochs=2, progress=True)
    assert "val_gap" in shown.getvalue()
    assert "train_loss" in shown.getvalue()
    assert ("epoch 2 of 2" in shown.getvalue()) != with_tqdm


def test_device_is_used():
    train, validation = loaders()
    model = make_model(FairLayer([MeanParity(0.02)]))
    devices = set()

    def loss(outputs, targets):
        devices.update({outputs.device.type, targets.device.type})
        return mse(outputs, targets)

    fit(model, train, validation, loss=loss, epochs=1, device="auto")
    assert devices == {"cuda" if torch.cuda.is_available() else "cpu"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"restore": "middle"}, "restore"),
        ({"optimizer": "magic"}, "optimizer 'magic'"),
        ({"scheduler": "magic"}, "scheduler 'magic'"),
        ({"monitor": "validation_loss"}, "monitor"),
        ({"resume": True}, "checkpoint"),
    ],
)
def test_refusals(arguments, message):
    train, _ = loaders()
    with pytest.raises(InputError, match=message):
        fit(make_model(), train, loss=mse, epochs=1, **arguments)


def test_empty_or_wrong_data():
    with pytest.raises(InputError, match="no batches"):
        fit(make_model(), [], loss=mse, epochs=1)
    with pytest.raises(InputError, match="targets is missing"):
        fit(make_model(), batches(np.zeros((4, 4))), loss=mse, epochs=1)
    with pytest.raises(InputError, match="shape"):
        fit(make_model(), loaders()[0], loss=lambda y, t: torch.zeros(3), epochs=1)
