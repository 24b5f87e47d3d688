"""Synthetic regression: 32 sets, three regimes of batches, all methods.

A unit is a method on one set, or what a well-trained model reaches on one set of one generator. The networks trained
with large batches serve both large and small batches in inference. Losses are over all test rows, each in one batch of
the same loader for every method; inference has a state of its own, and every batch gets its predictions.
"""

from __future__ import annotations

from typing import Any

from experiments.runner import Experiment, Result, Unit
from experiments.synthetic.claims import claims
from experiments.synthetic.inference import REGIMES, infer
from experiments.synthetic.settings import GENERATORS, PROFILES, Settings
from experiments.synthetic.tables import summarise
from experiments.synthetic.training import load_task, model_of, raw_outputs, search_strength, train
from experiments.synthetic.well_trained import anchors, well_trained

TRAININGS = ("F-Layer", "Unconstrained", "Penalty", "Strict Penalty")  # Projection's is "Unconstrained"
WELL_TRAINED = "well-trained"


def units(settings: Settings) -> list[Unit]:
    """Set by set, so that a process need not generate a set again for its next unit."""
    listed = []
    for index in settings.sets:
        for generator in GENERATORS:
            compared = generator == "published" or index in settings.corrected_sets
            listed += [
                Unit(f"{generator}/{index:02d}/{work}", {"generator": generator, "set": index, "work": work})
                for work in ((*TRAININGS, WELL_TRAINED) if compared else (WELL_TRAINED,))
            ]
    return listed


def run(unit: Unit, settings: Settings) -> Result:
    """One unit; the result's "rows" are its lines in the tables."""
    generator, index, work = (unit.arguments[name] for name in ("generator", "set", "work"))
    task = load_task(index, generator, settings)
    about: Result = {"generator": generator, "set": index, "work": work}
    if work == WELL_TRAINED:
        return about | {"rows": anchors(task, settings) + well_trained(task, settings)}
    if work == "Penalty":
        selection = search_strength(task, settings)
        about |= {"strength": selection.strength, "strength_satisfied": selection.satisfied}
        about["trials"] = [(trial.strength, trial.loss, trial.gap, trial.satisfied) for trial in selection.trials]
    elif work == "Strict Penalty":
        about["strength"] = settings.strict
    rows: list[dict[str, Any]] = []
    for small, name in enumerate(("large", "small") if generator == "published" else ("large",)):
        model = model_of(work, task, settings, about.get("strength"))
        fitted = train(model, task, settings, settings.train_batch[small], settings.epochs[small])
        raw = raw_outputs(model, task.test)
        methods = ("Unconstrained", "Projection") if work == "Unconstrained" else (work,)
        for regime in REGIMES:
            if regime.startswith(name):
                found = [row for method in methods for row in infer(method, regime, raw, task, settings)]
                rows += [row | {"epochs": fitted.epochs} for row in found]
    return about | {"rows": rows}


EXPERIMENT = Experiment("synthetic", PROFILES, units, run, summarise, claims)
