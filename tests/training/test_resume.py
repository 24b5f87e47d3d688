"""Checkpoints load safely, and a resumed run ends bit for bit where an uninterrupted one does."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from tasks import copy_state, make_data, make_model
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset

from fairlayer import FairLayer, FairlayerError, InputError, MeanParity
from fairlayer.training import batches, fit


class CrashError(Exception):
    pass


def noisy_loss(outputs, targets):
    """Draws from the generators that user code may draw from."""
    return nn.functional.mse_loss(outputs, targets) * (1 + 0.1 * random.random() + 0.1 * np.random.random())


def global_shuffle():
    return DataLoader(TensorDataset(*make_data()), batch_size=50, shuffle=True)


def own_generator():
    generator = torch.Generator().manual_seed(3)
    return DataLoader(TensorDataset(*make_data()), batch_size=50, shuffle=True, generator=generator)


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


plateau = partial(ReduceLROnPlateau, factor=0.5, patience=0)
cosine = partial(CosineAnnealingLR, T_max=8)


def run(loader, scheduler, path=None, crash_after=None, epochs=8, **options):
    model = make_model(FairLayer([MeanParity(0.02)]), dropout=0.3)
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


def same(found, wanted):
    return found.keys() == wanted.keys() and all(torch.equal(found[name], wanted[name]) for name in wanted)


def timeless(history):
    return {name: column for name, column in history.items() if name != "seconds"}


@pytest.mark.parametrize(
    ("loader", "scheduler"),
    [(global_shuffle, plateau), (own_generator, cosine), (own_batches, None), (stratified, None)],
)
def test_resumed_is_uninterrupted(tmp_path, loader, scheduler):
    path = tmp_path / "run" / "checkpoint.pt"
    whole, wanted = run(loader, scheduler, patience=6)
    with pytest.raises(CrashError):
        run(loader, scheduler, path, crash_after=3, patience=6)
    resumed, found = run(loader, scheduler, path, resume=True, patience=6)
    assert timeless(resumed.history) == timeless(whole.history)
    assert len(resumed.history["seconds"]) == whole.epochs
    assert (resumed.best_epoch, resumed.stopped) == (whole.best_epoch, whole.stopped)
    assert same(found, wanted)


def test_a_finished_run_can_go_on_and_an_early_stop_stays_stopped(tmp_path):
    path = tmp_path / "checkpoint.pt"
    whole, wanted = run(stratified, plateau)
    run(stratified, plateau, path, epochs=5)
    for _ in range(2):  # the second time there is nothing left to do
        longer, found = run(stratified, plateau, path, resume=True)
        assert timeless(longer.history) == timeless(whole.history)
        assert same(found, wanted)
    path.unlink()
    stopped, weights = run(stratified, plateau, path, epochs=50, patience=1)
    assert stopped.stopped == "patience"
    again, kept = run(stratified, plateau, path, epochs=50, patience=1, resume=True)
    assert (again.stopped, again.epochs) == ("patience", stopped.epochs)
    assert same(kept, weights)


def test_resuming_with_last_weights_does_not_bring_back_the_best(tmp_path):
    path = tmp_path / "checkpoint.pt"
    run(stratified, None, path, epochs=3, monitor=lambda record: 0.0)  # the first epoch stays the best
    last = torch.load(path, weights_only=True)["model"]
    assert same(run(stratified, None, path, epochs=3, resume=True, restore="last")[1], last)
    assert not same(run(stratified, None, path, epochs=3, resume=True, restore="best")[1], last)


def test_files_load_without_trust_and_wrong_ones_are_refused(tmp_path):
    path = tmp_path / "checkpoint.pt"
    fitted, _ = run(global_shuffle, plateau, path, epochs=2)
    assert torch.load(path, weights_only=True)["history"] == fitted.history
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]
    with pytest.raises(InputError, match="another scheduler"):
        run(global_shuffle, None, path, resume=True)
    torch.save({"weights": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="not a checkpoint of this version"):
        run(stratified, None, path, resume=True)
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(FairlayerError, match="not a readable checkpoint"):
        run(stratified, None, path, resume=True)
