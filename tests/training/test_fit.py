"""The training loop."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from tasks import copy_state, make_data, make_model
from torch import nn
from torch.optim.lr_scheduler import ExponentialLR, ReduceLROnPlateau

from fairlayer import FairLayer, FairlayerError, InputError, MeanParity
from fairlayer.training import StratifiedBatches, batches, evaluate, fit

mse = nn.functional.mse_loss


def loaders(batch_size=60, **options):
    train = batches(*make_data(), batch_size=batch_size, shuffle=True, **options)
    return train, batches(*make_data(seed=1), batch_size=100)


def same(model, weights):
    return all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())


def seesaw(values):
    """A monitor that reads off given values, whatever happens."""
    numbers = iter(values)
    return lambda record: next(numbers)


def test_trains_and_stays_fair():
    train, validation = loaders()
    model = make_model(FairLayer([MeanParity(0.02)]))
    before = evaluate(model, validation, loss=mse)
    fitted = fit(model, train, validation, loss=mse, epochs=12, learning_rate=3e-2)
    after = evaluate(model, validation, loss=mse)
    assert after.loss < 0.8 * before.loss
    assert after.batch_gap <= 0.02
    assert after.loss == pytest.approx(min(fitted.history["validation_loss"]), rel=1e-6)
    assert not model.training
    assert fitted.stopped == "epochs"


@pytest.mark.parametrize(("restore", "patience", "epochs"), [("best", 2, 5), ("best", None, 6), ("last", None, 6)])
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


def test_min_delta_and_nan():
    monitor = seesaw([math.nan, 1.0, 0.95, 0.85, 0.84, math.nan, 0.83, 0.0, 0.0])
    fitted = fit(make_model(), loaders()[0], loss=mse, epochs=9, patience=3, min_delta=0.1, monitor=monitor)
    assert (fitted.best_epoch, fitted.epochs) == (3, 7)


def test_without_validation_the_training_objective_drives_patience_and_schedule():
    train, _ = loaders(batch_size=None)
    run = partial(fit, make_model(), train, loss=mse)
    fitted = run(epochs=12, learning_rate=0.0, patience=5, min_delta=1e-4)
    assert (fitted.stopped, fitted.epochs) == ("patience", 6)
    assert "validation_loss" not in fitted.history
    plateau = partial(ReduceLROnPlateau, factor=0.5, patience=1)
    rates = run(epochs=5, learning_rate=1.0, scheduler=plateau, monitor=seesaw([3, 2, 2, 2, 2])).history
    assert rates["learning_rate"] == [1.0] * 4 + [0.5]  # lowered after two epochs no better than the second
    halving = partial(ExponentialLR, gamma=0.5)
    rates = run(epochs=3, optimizer=torch.optim.SGD, learning_rate=0.1, scheduler=halving).history
    assert rates["learning_rate"] == pytest.approx([0.1, 0.05, 0.025])


def test_metrics_weigh_rows_not_batches_and_a_penalty_counts():
    x, y, groups = make_data(70)
    y[60:] += 100.0  # a short last batch of another kind
    data = batches(x, y, groups, batch_size=60)
    model = make_model()
    fitted = fit(model, data, data, loss=mse, penalty=lambda y, _: y.square().mean(), epochs=1, learning_rate=0.0)
    raw = model.raw(x).detach()
    for part in ("train", "validation"):
        assert fitted.history[f"{part}_loss"][0] == pytest.approx(float(mse(raw, y)), rel=1e-5)
        objective = float(mse(raw, y)) + float(raw.square().mean())
        assert fitted.history[f"{part}_objective"][0] == pytest.approx(objective, rel=1e-5)
    shrunk = make_model()
    fit(shrunk, data, loss=lambda y, t: 0 * mse(y, t), penalty=lambda y, _: y.square().mean(), epochs=9)
    assert shrunk.raw(x).detach().square().mean() < 0.95 * raw.square().mean()


def test_batches_that_lack_a_group_are_trained_on():
    x, y, groups = make_data(80)
    model = make_model(FairLayer([MeanParity(0.0)]))
    before = copy_state(model)
    fitted = fit(model, batches(x, y, 0 * groups, batch_size=40), loss=mse, epochs=2, restore="last")
    assert not same(model, before)
    assert all(math.isnan(gap) for gap in fitted.history["train_gap"])
    single = fit(model, batches(x[:3], y[:3], groups[:3], batch_size=1), loss=mse, epochs=1)
    assert math.isfinite(single.history["train_loss"][0])


def test_an_interrupt_ends_training_and_leaves_the_best_model():
    train, validation = loaders()
    model, seen, calls = make_model(), [], 0

    def loss(outputs, targets):
        nonlocal calls
        calls += 1
        if calls == 7 * 4 + 2:  # within the fifth epoch: 4 training and 3 validation batches each
            raise KeyboardInterrupt
        return mse(outputs, targets)

    keep, monitor = lambda record: seen.append(copy_state(model)), seesaw([3.0, 1.0, 2.0, 2.0, 2.0])
    with pytest.raises(KeyboardInterrupt):
        fit(model, train, validation, loss=loss, epochs=50, monitor=monitor, on_epoch=keep)
    assert len(seen) == 4
    assert same(model, seen[1])
    assert not model.training


def test_training_stops_when_its_time_is_up_or_a_callback_says_so():
    run = partial(fit, make_model(), loaders()[0], loss=mse)
    assert run(epochs=3, max_minutes=1e-9).stopped == "time"
    assert run(epochs=1, max_minutes=1e-9).stopped == "epochs"
    assert run(epochs=2, max_minutes=1e9).stopped == "epochs"
    fitted = run(epochs=50, on_epoch=lambda record: record["train_loss"] < 1e9)
    assert (fitted.stopped, fitted.epochs) == ("callback", 1)


def test_seed_repeats_a_run():
    def weights(seed):
        train, validation = loaders()
        model = make_model(FairLayer([MeanParity(0.02)]), dropout=0.5)
        fit(model, train, validation, loss=mse, epochs=3, seed=seed)
        return model, copy_state(model)

    (first, _), (_, again), (_, other) = weights(5), weights(5), weights(6)
    assert same(first, again)
    assert not same(first, other)


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
    first, last = model.backbone[0], model.backbone[3]
    own = torch.optim.SGD([{"params": first.parameters(), "lr": 0.0}, {"params": last.parameters()}], lr=0.1)
    before = copy_state(model)
    fit(model, train, loss=mse, epochs=1, optimizer=own)
    assert torch.equal(before["backbone.0.weight"], first.weight)
    assert not torch.equal(before["backbone.3.weight"], last.weight)

    model = make_model()
    before = copy_state(model)
    fit(model, train, loss=mse, epochs=1, optimizer=torch.optim.SGD, learning_rate=1.0, clip_norm=1e-3)
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
    model = make_model()
    start, count = copy_state(model), iter(range(10))

    def loss(outputs, targets):
        return mse(outputs, targets) * (math.nan if next(count) == 2 else 1.0)

    with pytest.raises(FairlayerError, match="nan in epoch 2"):
        fit(model, loaders(batch_size=None)[0], loss=loss, epochs=5)
    assert not same(model, start)
    assert all(torch.isfinite(value).all() for value in model.state_dict().values())


def test_progress_and_device(capsys):
    devices = set()

    def loss(outputs, targets):
        devices.update({outputs.device.type, targets.device.type})
        return mse(outputs, targets)

    layer = FairLayer([MeanParity(0.02)])
    fit(make_model(layer), *loaders(), loss=loss, epochs=2, progress=True, device="auto")
    assert devices == {"cuda" if torch.cuda.is_available() else "cpu"}
    shown = capsys.readouterr().err
    assert "epoch 2 of 2: train_loss " in shown
    assert "validation_gap " in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"restore": "middle"}, "restore"),
        ({"optimizer": "sgd"}, r"torch\.optim\.SGD; got 'sgd'"),
        ({"monitor": "validation_loss"}, "monitor"),
        ({"resume": True}, "checkpoint"),
        ({"max_minutes": 0}, "max_minutes must be above 0"),
        ({"train": []}, "no batches"),
        ({"train": batches(np.zeros((4, 4)))}, "targets is missing"),
        ({"loss": lambda y, t: torch.zeros(3)}, "shape"),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(InputError, match=message):
        fit(make_model(), **{"train": loaders()[0], "loss": mse, "epochs": 1, **arguments})
