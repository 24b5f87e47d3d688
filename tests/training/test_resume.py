"""Checkpoints load safely, and a resumed run ends bit for bit where an uninterrupted one does."""

import random

import numpy as np
import pytest
import torch
from tasks import make_data, make_model
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from fairlayer import FairLayer, FairlayerError, InputError, MeanParity
from fairlayer.training import AugmentedLagrangian, SoftStep, batches, fit
from fairlayer.training.checkpoint import copy_state

mse = nn.functional.mse_loss


class CrashError(Exception):
    pass


def noisy_loss(outputs, targets):
    """Draws from the generators that user code may draw from."""
    return mse(outputs, targets) * (1 + 0.1 * random.random() + 0.1 * np.random.random())


def global_shuffle():
    return DataLoader(TensorDataset(*make_data()), batch_size=50, shuffle=True)


def own_generator():
    return DataLoader(
        TensorDataset(*make_data()), batch_size=50, shuffle=True, generator=torch.Generator().manual_seed(3)
    )


class DrawnBatches:
    """A batch sampler with a generator of its own."""

    def __init__(self, n, size):
        self.n, self.size, self.generator = n, size, torch.Generator().manual_seed(5)

    def __iter__(self):
        return iter(torch.randperm(self.n, generator=self.generator).split(self.size))

    def __len__(self):
        return -(-self.n // self.size)


def own_batches():
    data = TensorDataset(*make_data())
    return DataLoader(data, batch_sampler=DrawnBatches(len(data), 50))


def stratified():
    return batches(*make_data(), batch_size=50, shuffle=True, stratify=True, seed=4)


def plateau(optimizer):
    return torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)


def cosine(optimizer):
    return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 8)


def run(layer, loader, scheduler, path=None, crash_after=None, epochs=8, **options):
    model = make_model(layer(), dropout=0.3)
    finished = 0

    def on_epoch(record):
        nonlocal finished
        finished += 1
        if finished == crash_after:
            torch.rand(7), np.random.random(3), random.random()  # whatever happens next is not part of the run
            raise CrashError

    fitted = fit(
        model,
        loader(),
        batches(*make_data(seed=1), batch_size=100),
        loss=noisy_loss,
        epochs=epochs,
        learning_rate=3e-2,
        scheduler=scheduler,
        seed=11,
        checkpoint=path,
        on_epoch=on_epoch,
        **options,
    )
    return fitted, copy_state(model)


def timeless(history):
    return {name: column for name, column in history.items() if name != "seconds"}


LAYERS = {
    "layer": lambda: FairLayer([MeanParity(0.02)]),
    "lagrangian": lambda: AugmentedLagrangian([MeanParity(0.02)]),
    "soft": lambda: SoftStep([MeanParity(0.02)], b_tau=999),
}


@pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
@pytest.mark.parametrize(
    ("loader", "scheduler"),
    [(global_shuffle, plateau), (own_generator, cosine), (own_batches, None), (stratified, None)],
)
def test_resumed_is_uninterrupted(tmp_path, layer, loader, scheduler):
    path = tmp_path / "run" / "checkpoint.pt"
    whole, wanted = run(layer, loader, scheduler, patience=6)
    with pytest.raises(CrashError):
        run(layer, loader, scheduler, path, crash_after=3, patience=6)
    resumed, found = run(layer, loader, scheduler, path, resume=True, patience=6)
    assert timeless(resumed.history) == timeless(whole.history)
    assert len(resumed.history["seconds"]) == whole.epochs
    assert (resumed.best_epoch, resumed.stopped) == (whole.best_epoch, whole.stopped)
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.equal(found[name], value) if isinstance(value, torch.Tensor) else found[name] == value, name


def test_a_finished_run_can_go_on_and_an_early_stop_stays_stopped(tmp_path):
    arguments = (LAYERS["layer"], stratified, plateau)
    path = tmp_path / "checkpoint.pt"
    whole, wanted = run(*arguments)
    run(*arguments, path, epochs=5)
    longer, found = run(*arguments, path, resume=True)
    assert timeless(longer.history) == timeless(whole.history)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    again, kept = run(*arguments, path, resume=True)  # nothing left to do
    assert again.epochs == 8
    assert all(torch.equal(kept[name], wanted[name]) for name in wanted)

    path.unlink()
    stopped, weights = run(*arguments, path, epochs=50, patience=1)
    assert stopped.stopped == "patience"
    again, kept = run(*arguments, path, epochs=50, patience=1, resume=True)
    assert (again.stopped, again.epochs) == ("patience", stopped.epochs)
    assert all(torch.equal(kept[name], weights[name]) for name in weights)


def test_resuming_with_last_weights_does_not_bring_back_the_best(tmp_path):
    arguments = (LAYERS["layer"], stratified, None, tmp_path / "checkpoint.pt")
    run(*arguments, epochs=3, monitor=lambda record: 0.0)  # the first epoch stays the best
    last = torch.load(arguments[-1], weights_only=True)["model"]
    _, found = run(*arguments, epochs=3, resume=True, restore="last")
    assert all(torch.equal(found[name], last[name]) for name in last)
    _, best = run(*arguments, epochs=3, resume=True, restore="best")
    assert not all(torch.equal(best[name], last[name]) for name in last)


def test_loads_without_trust_and_leaves_no_debris(tmp_path):
    path = tmp_path / "checkpoint.pt"
    fitted, _ = run(LAYERS["lagrangian"], global_shuffle, plateau, path, epochs=3, checkpoint_every=2)
    contents = torch.load(path, weights_only=True)
    assert contents["history"] == fitted.history
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_checkpoint_every(tmp_path):
    path = tmp_path / "checkpoint.pt"
    with pytest.raises(CrashError):
        run(LAYERS["layer"], stratified, None, path, crash_after=5, checkpoint_every=2)
    assert len(torch.load(path, weights_only=True)["history"]["train_loss"]) == 4


def test_wrong_files_are_refused(tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(FairlayerError, match="not a readable checkpoint"):
        run(LAYERS["layer"], stratified, None, path, resume=True)
    torch.save({"weights": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="not a checkpoint of this version"):
        run(LAYERS["layer"], stratified, None, path, resume=True)
    path.unlink()
    run(LAYERS["layer"], stratified, None, path, epochs=1)
    with pytest.raises(InputError, match="another scheduler"):
        run(LAYERS["layer"], stratified, plateau, path, resume=True)
