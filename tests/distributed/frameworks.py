"""One training run, as a framework does it, on as many processes as it was started on.

    torchrun --nproc-per-node 2 frameworks.py lightning|accelerate PATH

The first process writes the losses of whole batches and the parameters to PATH.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from fairlayer import FairLayer, FairModel, MeanParity

BATCH, STEPS = 120, 5


def make_model() -> FairModel:
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1), nn.Sigmoid()).double()
    return FairModel(backbone, FairLayer([MeanParity(0.02)], bounds=(1e-4, 1 - 1e-4), process_group="default"))


def make_loader(size: int) -> DataLoader:
    """Batches that, put together over `size` processes, hold the same samples whatever their number."""
    generator = torch.Generator().manual_seed(1)
    groups = torch.randint(0, 2, (BATCH * STEPS,), generator=generator)
    x = torch.randn(BATCH * STEPS, 3, generator=generator, dtype=torch.float64) + groups[:, None]
    targets = (x[:, 0] + torch.randn(len(x), generator=generator, dtype=torch.float64) > 0.5).double()
    return DataLoader(TensorDataset(x, groups, targets), batch_size=BATCH // size)


def mean_over_all(y: Tensor, targets: Tensor, size: int) -> Tensor:
    """A loss whose gradients, averaged over processes, are those of the mean over the whole batch."""
    return nn.functional.binary_cross_entropy(y, targets, reduction="sum") * size / BATCH


def lightning_run(size: int) -> tuple[FairModel, list[float]]:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.model = make_model()
            self.losses: list[float] = []

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            x, groups, targets = batch
            loss = mean_over_all(self.model(x, groups=groups), targets, self.trainer.world_size)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.5)

    logging.getLogger("lightning").setLevel(logging.ERROR)
    module = Module()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=1,
        accelerator="cpu",
        devices=size,
        strategy="ddp" if size > 1 else "auto",
        enable_model_summary=False,
        use_distributed_sampler=False,  # its own would shuffle
        **quiet,
    )
    plain = make_loader(size)
    sampler = DistributedSampler(plain.dataset, size, int(os.environ.get("RANK", "0")), shuffle=False)
    trainer.fit(module, DataLoader(plain.dataset, batch_size=BATCH // size, sampler=sampler))
    return module.model, module.losses


def accelerate_run(size: int) -> tuple[FairModel, list[float]]:
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    assert accelerator.num_processes == size
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    network, optimizer, loader = accelerator.prepare(model, optimizer, make_loader(size))
    losses = []
    for x, groups, targets in loader:
        loss = mean_over_all(network(x, groups=groups), targets, accelerator.num_processes)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    size = int(os.environ.get("WORLD_SIZE", "1"))
    model, losses = {"lightning": lightning_run, "accelerate": accelerate_run}[sys.argv[1]](size)
    whole = torch.tensor(losses, dtype=torch.float64) / size
    if size > 1:
        dist.all_reduce(whole)
    if size == 1 or dist.get_rank() == 0:
        found = {
            "losses": whole.tolist(),
            "parameters": [parameter.detach().reshape(-1).tolist() for parameter in model.parameters()],
            "gap": float(model.layer.solution.gaps.abs().max()),
        }
        Path(sys.argv[2]).write_text(json.dumps(found))
    if size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
