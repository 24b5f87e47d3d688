"""Training: a plain loop with checkpoints, batches with equal shares of every group, and evaluation.

train = batches(x, y, groups, batch_size=256, shuffle=True, stratify=True, seed=0)
model = FairModel(backbone, FairLayer([MeanParity(0.02)], bounds=(0, 1)))
fitted = fit(model, train, validation, loss=torch.nn.functional.binary_cross_entropy, epochs=50, patience=5)
evaluate(model, test).gap
"""

from fairlayer.training.batches import Batch, StratifiedBatches, as_batch, batches
from fairlayer.training.evaluation import Evaluation, evaluate
from fairlayer.training.loop import Fitted, fit

__all__ = ["Batch", "Evaluation", "Fitted", "StratifiedBatches", "as_batch", "batches", "evaluate", "fit"]
