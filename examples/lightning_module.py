"""The layer in a LightningModule. Needs `lightning`, which fairlayer itself does not.

python examples/lightning_module.py
"""

import warnings

import lightning
import torch
from torch import nn

from fairlayer import FairLayer, FairModel, MeanParity
from fairlayer.training import Batch, batches
from plain_loop import TOLERANCE, make_data


class FairModule(lightning.LightningModule):
    """A network with a fairness layer; batches come as `fairlayer.training.Batch`."""

    def __init__(self, width: int = 16, rate: float = 5e-3):
        super().__init__()
        self.rate = rate
        backbone = nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, 1), nn.Sigmoid())
        self.model = FairModel(backbone, FairLayer([MeanParity(TOLERANCE)], bounds=(1e-4, 1 - 1e-4)))

    def forward(self, x: torch.Tensor, groups: torch.Tensor) -> torch.Tensor:
        """Scores of one batch."""
        return self.model(x, groups=groups)

    def training_step(self, batch: Batch, _: int) -> torch.Tensor:
        """Loss of the fair outputs; gradients go through the projection."""
        loss = nn.functional.binary_cross_entropy(self(batch.x, batch.groups), batch.targets)
        self.log("train_loss", loss, on_step=False, on_epoch=True, batch_size=len(batch.x))
        return loss

    def validation_step(self, batch: Batch, _: int) -> None:
        """Loss and largest gap of the fair outputs."""
        loss = nn.functional.binary_cross_entropy(self(batch.x, batch.groups), batch.targets)
        rows = len(batch.x)
        self.log("validation_loss", loss, batch_size=rows)
        self.log("validation_gap", self.model.layer.solution.gaps.abs().max().float(), batch_size=rows)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=self.rate)


def train(epochs: int = 5) -> tuple[FairModule, dict[str, float]]:
    """Train, and return the module with what it logged last."""
    lightning.seed_everything(0, verbose=False)
    module = FairModule()
    trainer = lightning.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loader = batches(*make_data(4000, seed=0), batch_size=250, shuffle=True, stratify=True)
    validation = batches(*make_data(1000, seed=1), batch_size=500)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        trainer.fit(module, loader, validation)
    return module, {name: float(value) for name, value in trainer.callback_metrics.items()}


def main() -> None:
    _, logged = train()
    for name, value in logged.items():
        print(f"{name}: {value:.4f}")


if __name__ == "__main__":
    main()
