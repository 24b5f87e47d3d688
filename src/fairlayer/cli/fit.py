"""`fairlayer fit`: from a table to a fair model, a report and a model card."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal

from fairlayer.cli import interrupts, options
from fairlayer.cli.terminal import note, say, show_table
from fairlayer.errors import InputError
from fairlayer.plural import plural
from fairlayer.tables.table_io import check_parent, open_source, read_frame, replacing_folder

if TYPE_CHECKING:
    from fairlayer.audit import Audit
    from fairlayer.cli.learning import Choice, Part, Setting
    from fairlayer.constraints import GroupConstraint
    from fairlayer.tables.schema import Inferred, Schema

FEWEST_ROWS = 40
PAGE, CARD = "report.html", "model-card.md"
FILES = ("model.safetensors", "model.json", "estimator.skops", "groups.skops", PAGE, "report.json", CARD)

UNKNOWN = {  # what constraints that need targets cannot look at in new rows, and what is done instead
    "residual": "Residuals are known only once targets are. New predictions are moved by the shift",
    "decision": "Who is compared is known only once targets are. New rows are decided by the thresholds",
}
Model = Literal["auto", "boosting", "network", "linear", "logistic"]
Method = Literal["layer", "projection", "penalty", "lagrangian", "unconstrained"]


def fit(
    data: Path,
    target: str,
    protected: list[str],
    output: Path,
    wanted: options.Wanted,
    bounds: tuple[float, float] | None = None,
    facts: Path | None = None,
    task: Literal["classification", "regression"] | None = None,
    positive: str | None = None,
    ignore: list[str] | None = None,
    hide_protected: bool = False,
    merge_rare: int = 0,
    model: Model = "network",
    confidence: float | None = None,
    serving: Literal["batch", "blind"] = "batch",
    method: Method | None = None,
    compare: bool = False,
    test: float = 0.2,
    epochs: int = 200,
    max_minutes: float | None = None,
    seed: int = 0,
) -> int:
    """Train a fair model on a table.

    It works out whether the target holds classes or numbers and what each column holds, and prints what it found. The
    model is judged on rows that it has not seen. The folder holds `model.safetensors` and `model.json` (and
    `estimator.skops` where the model is not a network, `groups.skops` where it is served blind), `report.html`,
    `report.json` and `model-card.md`. Ctrl-C ends the command and leaves the folder as it was.

    `fairlayer fit people.csv --target income --protected sex,race --parity 0.02 -o model/`

    DATA: A CSV or Parquet file with one row per sample.
    --target COLUMN: What to predict: classes, or numbers.
    --output, -o FOLDER: The model folder to write; it is replaced.

    Columns, where they are not read as you mean them:
    --task: Classification or regression, where the target leaves it open.
    --positive VALUE: The class whose probability is predicted, against all others. Without it, a target of three and
    more classes gets a probability for each.
    --ignore COLUMN: A column to leave out of the features, or several: `name,id`. The option may be given more than
    once. A name that has commas in it is taken whole.
    --hide-protected: Leave the protected columns out of the features.
    --merge-rare ROWS >= 0: Merge groups with fewer rows than this into one, 'other'.

    Training:
    --model: The kind of model: `boosting` for gradient boosted trees, `network`, `linear` for numbers, `logistic` for
    classes. `auto` tries all that apply and keeps the best on rows that it did not learn from, under the constraints.
    Output, report and card say which.
    --confidence P: Aim at tighter tolerances, so that the population that the rows are drawn from keeps the stated ones
    at this confidence, such as 0.95. The output says what was aimed at, or how many rows it would take.
    --serving: What new predictions look at. `batch`: the groups of their rows (`fairlayer predict --mode` says how).
    `blind`: no protected attribute. Rows are then moved by how likely their groups are, as a second model tells from
    the features, so that the true groups agree; a statement on the population is printed.
    --method: How to train. Default: `layer`, through the projection; `lagrangian` with --odds; `projection` where
    --model is not a network.
    --compare: Train the other methods too, and show them side by side.
    --test SHARE: The share of the rows that is kept from training, for the report.
    --epochs N >= 1: The most passes over the data. Training ends before that once it no longer improves.
    --max-minutes MINUTES: Stop training after the pass during which this time runs out, and keep the best model so far.
    Report and card say so. With --compare it is the time of each training.
    --seed N >= 0: Seed of the split, the network and the batches: the same seed gives the same model.
    """
    box = options.read_bounds(bounds)
    wanted.check_kinds()
    if not 0.0 < test < 1.0:
        raise InputError(f"--test: the share must lie between 0 and 1; got {test:g}.")
    if max_minutes is not None and not max_minutes > 0.0:
        raise InputError(f"--max-minutes: the time must be above 0; got {max_minutes:g}.")
    _check_folder(output)
    asked = {part.strip() for text in ignore or () for part in (text, *text.split(","))}
    source = open_source(data, may_repeat=lambda name: name in asked)
    attributes = options.read_attributes(protected, source)
    source.check(target, "--target")
    repeated = set(source.repeated.values())
    named = options.split_list(ignore or (), lambda name: name in source.columns or name in repeated)
    ignored = [*source.repeated, *(name for name in named if name not in repeated)]
    for name in ignored:
        source.check(name, "--ignore")
    if target in [attribute.column for attribute in attributes]:
        raise InputError(f"--target: column {target!r} is protected too: it cannot be both.")

    from fairlayer.audit import Verdict
    from fairlayer.cli.learning import Part, Setting, choose_model, split
    from fairlayer.cli.reporting import digest, in_words, read_facts, write_reports
    from fairlayer.constraints.plain_data import record_to_plain
    from fairlayer.estimators.folder import save
    from fairlayer.tables.schema import FrameColumns, infer

    interrupts.check()
    blind = serving == "blind"
    told = read_facts(facts)
    inferred = infer(
        read_frame(source),
        source,
        target=target,
        attributes=attributes,
        ignore=ignored,
        keep=wanted.conditional_columns(source),
        hide_protected=hide_protected or blind,
        task=task,
        positive=positive,
        merge_rare=merge_rare,
    )
    schema, frame = inferred.schema, inferred.frame
    if len(frame) < FEWEST_ROWS:
        raise InputError(f"{data} has {len(frame)} rows with a target: at least {FEWEST_ROWS} are needed to learn.")
    classify = schema.task == "classification"
    if classify and box not in (None, (0.0, 1.0)):
        raise InputError("--bounds: probabilities lie between 0 and 1; leave the option out for classes.")
    if schema.classes and compare and method in ("penalty", "lagrangian"):
        raise InputError(
            f"--method {method} is of two classes, and {target!r} has {len(schema.classes)}: leave it out."
        )
    constraints = wanted.constraints(FrameColumns(source, frame), attributes, schema.numbered if classify else None)
    if schema.classes:
        _check_classes(constraints, schema)
    wanted.check_threshold(required=None if classify else schema.target)
    _check_regions(constraints, schema, frame, wanted)
    if any(constraint.quantity == "decision" for constraint in constraints) and method != "unconstrained":
        if wanted.by_target:
            raise InputError(
                f"{wanted.by_target}: no model can keep rates within every class, as that of a row is unknown when "
                f"predicting. Name one, such as --given {quote(str(schema.positive))}."
            )
        if method in ("penalty", "lagrangian"):
            raise InputError(f"--method {method} is for means, as decisions have no gradient: leave it out.")
    kind = _choose_kind(model, method, wanted.by_target, classify, max_minutes)
    chosen = _choose(method, kind, wanted.by_target)
    if blind and chosen not in ("layer", "projection"):
        raise InputError(
            f"--serving blind moves outputs after training, and --method {chosen} does not: leave "
            f"{wanted.by_target or '--method'} out."
        )
    if confidence is not None and (
        chosen not in ("layer", "projection") or (not blind and any(c.needs_targets for c in constraints))
    ):
        raise InputError(
            "--confidence moves new predictions further, and nothing can where --method only trains towards the "
            "constraints, or where these look at targets, which are unknown when predicting: leave it out."
        )
    setting = Setting(
        constraints,
        classify,
        box,
        seed,
        epochs,
        max_minutes=max_minutes,
        verbose=sys.stderr.isatty(),
        confidence=confidence,
        serving=serving,
        classes=schema.classes,
    )
    whole = Part(schema.inputs(frame), inferred.answers, schema.groups(frame))
    train, held = split(whole, test, seed)
    if not len(held):
        raise InputError(f"--test: {test:g} of {len(whole)} rows leaves none for the report: raise it.")
    _introduce(inferred, len(whole), constraints)
    notes = []
    if positive is None and (guess := _guess(schema, constraints)):
        note(f"  {guess}")
        notes.append(guess)
    choice = None
    if kind == "auto":
        choice = choose_model(setting, train, note)
        kind, chosen = choice.best, chosen if choice.best == "network" else "projection"
        tried = [list(row.values()) for row in choice.rows]
        show_table(list(choice.rows[0]), tried, "On the rows kept to choose a model")
        note(choice.text)
        notes.append(choice.text)
    audit, fitted = _learn(replace(setting, model=kind), chosen, train, held, compare)
    if schema.positive is not None:
        audit = in_words(audit, target, schema.numbered)
    if blind:
        stated = f"Served blind, so that the promise is about the population. {fitted.frozen_.certificate}"
        note(stated)
        notes.append(stated)
    audit = replace(audit, notes=(*audit.notes, *notes))
    with replacing_folder(output) as temporary:
        save(
            fitted, temporary, table={"schema": record_to_plain(schema), "data": data.name, "seed": seed, "test": test}
        )
        write_reports(
            audit,
            page=temporary / PAGE,
            card=temporary / CARD,
            title=f"Fairness of {schema.target}",
            facts={**_facts(inferred, data, kind, chosen, choice, len(train), len(held), seed), **told},
            provenance={"data": data.name, "data, SHA-256": digest(data)},
        )
    say(str(audit))
    if audit.comparison:
        show_table(list(audit.comparison[0]), [list(row.values()) for row in audit.comparison], "On the rows held out")
    note(f"Wrote {output}: {', '.join(name for name in FILES if (output / name).exists())}.")
    if blind:  # nothing is promised for these rows alone
        return 1 if audit.verdict is Verdict.VIOLATED else 0
    return 0 if audit.satisfied else 1


def _check_folder(output: Path) -> None:
    """A new folder, an empty one, or one that holds a model and nothing else."""
    if output.exists() and not output.is_dir():
        raise InputError(f"-o: {output} is a file: name a folder for the model.")
    if output.is_dir():
        for path in output.iterdir():
            if path.name not in FILES:
                raise InputError(
                    f"-o: {output} holds files that are not part of a model, such as {path.name!r}: name a new folder."
                )
    check_parent(output)


def _choose_kind(model: Model, method: Method | None, by_target: str, classify: bool, max_minutes: float | None) -> str:
    """The kind of model that was asked for; refused where it cannot do what else was asked for."""
    from fairlayer.estimators.models import FOR_CLASSES, FOR_NUMBERS

    auto = model == "auto"
    if model == "network":
        return model
    if by_target:
        if auto:
            note("A constraint among rows of like target can only be trained towards: the model is a network.")
            return "network"
        raise InputError(
            f"--model {model} cannot keep {by_target}, which compares rows of like target, as targets are unknown when "
            "predicting. A network can be trained towards it: --model network."
        )
    possible = FOR_CLASSES if classify else FOR_NUMBERS
    if not auto and model not in possible:
        what = "classes" if classify else "numbers"
        raise InputError(f"--model {model}: the target holds {what}: use one of {', '.join(possible)}, or auto.")
    if method is not None and (auto or method not in ("projection", "unconstrained")):
        raise InputError(f"--method {method} is for --model network: leave it out, or choose that model.")
    if max_minutes is not None and not auto:
        raise InputError(f"--max-minutes is for networks, and --model {model} is none: leave it out.")
    return model


def _choose(method: Method | None, kind: str, by_target: str) -> str:
    """The layer, unless a constraint compares rows of like target: then no output can be projected."""
    if method is None and kind not in ("network", "auto"):
        return "projection"
    if method is None:
        return "lagrangian" if by_target else "layer"
    if by_target and method in ("layer", "projection"):
        raise InputError(
            f"--method {method} cannot keep {by_target}, which compares rows of like target, as targets are unknown "
            "when predicting: leave --method out."
        )
    return method


def _introduce(inferred: Inferred, rows: int, constraints: Sequence[GroupConstraint]) -> None:
    """Say what was inferred, and what can be promised."""
    schema = inferred.schema
    what = f"the probability of {schema.target} = {schema.positive}" if schema.positive else schema.target
    if schema.classes:
        what = f"the probabilities of the classes of {schema.target}, {', '.join(schema.classes)}"
    note(f"{rows:,} rows, {len(schema.features)} features; predicts {what} ({schema.task}).")
    among = [name for name in schema.attributes if name in schema.features]
    if among:
        note(
            f"  The features include {', '.join(among)}, which {plural(len(among), 'is', 'are')} protected: "
            f"--hide-protected leaves {plural(len(among), 'it', 'them')} out."
        )
    for text in inferred.lines:
        note(f"  {text}")
    compared = {name for c in constraints for grouping in c.groupings(schema.attributes) for name in grouping}
    for name in schema.attributes:
        if name not in compared:
            note(f"  {name} is protected, but no constraint compares its groups: they only appear in the report.")
    for quantity in {constraint.quantity for constraint in constraints if constraint.needs_targets} & UNKNOWN.keys():
        note(
            f"  {UNKNOWN[quantity]} that training found for their groups: over many rows like these, gaps are near "
            "their tolerances, but nothing is promised for a single file."
        )


def _guess(schema: Schema, constraints: Sequence[GroupConstraint]) -> str:
    """What to say of a class that nobody named, where rates of it are compared."""
    if schema.negative is None or not any(constraint.quantity == "decision" for constraint in constraints):
        return ""
    return (
        f"Rates of decisions are those of {schema.target} = {schema.positive}, which is a guess: --positive is not "
        f"given. If the decision that people hope for is {schema.negative}, add --positive {quote(schema.negative)}."
    )


def _check_classes(constraints: Sequence[GroupConstraint], schema: Schema) -> None:
    """Refuse what cannot be kept of the probabilities of several classes."""
    from fairlayer.binding.constraint_set import ConstraintSet
    from fairlayer.classes import check_class_rules

    try:
        check_class_rules(ConstraintSet(list(constraints)))
    except InputError as error:
        raise InputError(
            f"--target: {schema.target} has {len(schema.classes)} classes, whose mean probabilities are compared: use "
            f"--parity or --conditional, or tell one class from the rest, such as --positive {schema.classes[0]!r}."
        ) from error


def _check_regions(constraints: Sequence[GroupConstraint], schema: Schema, frame: Any, wanted: options.Wanted) -> None:
    """Refuse regions that cannot be told for every row."""
    from fairlayer.tables.entries import numbers
    from fairlayer.tables.schema import quartiles

    for condition in [condition for constraint in constraints for condition in constraint.conditions]:
        name = str(condition.name)
        if condition.source == "target":
            if condition.regions is None and schema.task == "regression":
                example = f"--odds {wanted.odds or 0.05}:{quartiles(frame[schema.target])}"
                raise InputError(f"--odds: {schema.target} holds numbers: give cut points, such as {example}.")
            continue
        option = wanted.option_of(condition)
        if name in schema.numbers and numbers(frame[name], name).isna().any():
            raise InputError(f"{option}: column {name!r} has missing entries: fill them in, or drop these rows.")
        if name not in schema.features:
            raise InputError(f"{option}: column {name!r} is not among the features: do not --ignore it.")


def _learn(setting: Setting, method: str, train: Part, held: Part, compare: bool) -> tuple[Audit, Any]:
    """Fit, compare with the other methods where asked for, and audit on the rows held out."""
    import numpy as np

    from fairlayer.audit import audit
    from fairlayer.cli.learning import TITLES, trial
    from fairlayer.estimators.estimator import projection_of

    trials = {}
    for name in setting.methods if compare else [method]:
        note(f"Training: {TITLES[name]} ...")
        trials[name] = trial(setting, name, train, held)
        interrupts.check()
    model, outputs, _ = trials[method]
    free = trials.get("unconstrained")
    result = audit(
        outputs.fair,
        held.groups,
        list(setting.constraints),
        targets=np.array(setting.classes)[held.y.astype(int)] if setting.classes else held.y,
        classes=setting.classes or None,
        features=held.X,
        raw=outputs.raw,
        unconstrained=None if free is None or setting.classes else free.outputs.fair,
        history=model.history_ or None,
        comparison=[entry.row for entry in trials.values()] if compare else (),
        seed=setting.seed,
    )
    solution = None if (layer := projection_of(model.layer_)) is None else layer.solution
    if solution is not None and solution.margin is not None:
        result = replace(result, settings=replace(result.settings, margin=str(solution.margin)))
    stopped = [TITLES[name] for name, entry in trials.items() if entry.model.stopped_ == "time"]
    if not stopped:
        return result, model
    which = f" of {', '.join(stopped)}" if compare else ""
    text = (
        f"Training{which} was stopped on purpose, by --max-minutes {setting.max_minutes:g}, before it had ended by "
        "itself: with more time the model may get better."
    )
    note(text)
    return replace(result, notes=(*result.notes, text)), model


def _facts(
    inferred: Inferred, data: Path, kind: str, method: str, choice: Choice | None, train: int, held: int, seed: int
) -> dict[str, str]:
    """What the model card says beyond the audit."""
    from fairlayer import __version__
    from fairlayer.cli.learning import TITLES
    from fairlayer.estimators import models

    schema = inferred.schema
    how = "" if choice is None else f". {choice.text}"
    left = "Missing numbers and categories are left to the trees."
    filled = "Missing numbers become the median and are marked; categories have a column each, missing ones too."
    return {
        "date": datetime.date.today().isoformat(),
        "type": f"{schema.task} by {models.TITLES[kind]}; fairness by: {TITLES[method]}; fairlayer {__version__}{how}",
        "training data": f"{train:,} rows of {data.name}, with {len(schema.features)} features",
        "evaluation data": f"{held:,} rows of {data.name} kept from training, drawn with seed {seed} in the shares of "
        "the groups",
        "preprocessing": " ".join([left if kind == "boosting" else filled, *inferred.lines]),
    }
