"""Training: a plain loop, batches with equal shares of every group, and the methods the layer is compared with.

train = batches(x, y, groups, batch_size=256, shuffle=True, seed=0)
model = FairModel(backbone, FairLayer([MeanParity(0.02)], bounds=(0, 1)))
fitted = fit(model, train, validation, loss=torch.nn.functional.binary_cross_entropy, epochs=50, patience=5)
evaluate(model, test).gap
"""

from fairlayer.training.aggregate import AggregateBound, aggregate_bound
from fairlayer.training.batches import Batch, PlainBatches, as_batch, batches
from fairlayer.training.evaluation import Evaluation, evaluate
from fairlayer.training.loop import Fitted, fit
from fairlayer.training.methods import (
    AugmentedLagrangian,
    Method,
    Penalty,
    Projection,
    SoftStep,
    StrictPenalty,
    Unconstrained,
)
from fairlayer.training.selection import Selection, Trial, select_strength
from fairlayer.training.stratified import StratifiedBatches, StratifiedReport

__all__ = [
    "AggregateBound",
    "AugmentedLagrangian",
    "Batch",
    "Evaluation",
    "Fitted",
    "Method",
    "Penalty",
    "PlainBatches",
    "Projection",
    "Selection",
    "SoftStep",
    "StratifiedBatches",
    "StratifiedReport",
    "StrictPenalty",
    "Trial",
    "Unconstrained",
    "aggregate_bound",
    "as_batch",
    "batches",
    "evaluate",
    "fit",
    "select_strength",
]
