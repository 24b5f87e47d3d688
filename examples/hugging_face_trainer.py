"""A Hugging Face `Trainer` whose model ends in the fairness layer.

`Trainer` passes every column of the data set to the model by name, the groups among them, and trains on the loss that
the model returns. Nothing else has to be told. Needs `transformers` and `accelerate`.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from transformers import Trainer, TrainingArguments
from transformers.utils import ModelOutput

from fairlayer import FairLayer, MeanParity, audit


@dataclass
class Output(ModelOutput):
    """What `Trainer` expects: a loss, and what was predicted."""

    loss: Tensor | None = None
    logits: Tensor | None = None


class FairScores(nn.Module):
    """Scores of people, whose group means agree within 0.02 in every batch."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
        self.layer = FairLayer([MeanParity(0.02)], bounds=(0.0, 1.0))

    def forward(self, features: Tensor, sex: Tensor, labels: Tensor | None = None) -> Output:
        """Fair scores, and their loss where it is known who repaid."""
        scores = self.layer(self.network(features).squeeze(1), groups={"sex": sex})
        loss = None if labels is None else nn.functional.mse_loss(scores, labels)
        return Output(loss=loss, logits=scores)


class People(torch.utils.data.Dataset):
    """Applicants: six features, their sex, and whether they repaid."""

    def __init__(self, n: int, seed: int) -> None:
        random = torch.Generator().manual_seed(seed)
        self.sex = torch.randint(0, 2, (n,), generator=random)
        self.features = torch.randn(n, 6, generator=random) + 0.5 * self.sex[:, None]
        chance = torch.sigmoid(self.features.sum(dim=1) / 2)
        self.labels = (torch.rand(n, generator=random) < chance).float()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return {"features": self.features[i], "sex": self.sex[i], "labels": self.labels[i]}


def main(n: int = 2000) -> None:
    torch.manual_seed(0)
    train, test = People(n, 0), People(n, 1)
    with tempfile.TemporaryDirectory() as folder:
        options = TrainingArguments(
            output_dir=folder,
            num_train_epochs=3,
            per_device_train_batch_size=200,
            per_device_eval_batch_size=n,  # a promise about all of the test rows: one batch
            learning_rate=1e-2,
            remove_unused_columns=False,
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        )
        trainer = Trainer(model=FairScores(), args=options, train_dataset=train)
        trainer.train()
        scores = trainer.predict(test).predictions
    print(audit(scores, {"sex": test.sex}, [MeanParity(0.02)], targets=test.labels, tradeoff=False).headline)


if __name__ == "__main__":
    main()
