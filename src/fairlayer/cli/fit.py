"""`fairlayer fit`: from a table to a fair model, a report and a model card."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fairlayer.cli import options, raise_interrupt
from fairlayer.cli.options import option
from fairlayer.cli.output import digest, in_words, note, read_facts, say, write_reports
from fairlayer.errors import InputError
from fairlayer.plural import plural
from fairlayer.tables.table_io import Source, TableFile, check_parent, open_source, replacing_folder

if TYPE_CHECKING:
    from fairlayer.audit import Audit
    from fairlayer.cli.learning import Learner
    from fairlayer.tables.entries import Attribute
    from fairlayer.tables.schema import Inferred, Rows, Schema

FEWEST_ROWS = 40
PAGE, CARD = "report.html", "model-card.md"
FILES = ("model.safetensors", "model.json", "estimator.skops", PAGE, "report.json", CARD)
UNKNOWN = {  # what constraints that need targets cannot see in new rows, and what is done instead
    "residual": "Residuals are known only once targets are. New predictions are moved by the shift",
    "decision": "Who is compared is known only once targets are. New rows are decided by the thresholds",
}

Task = Literal["classification", "regression"]
Model = Literal["auto", "boosting", "network", "linear", "logistic"]
Method = Literal["layer", "projection"]
Serving = Literal["batch", "blind"]
_column = partial(option, panel="Columns, where they are not read as you mean them")
_training = partial(option, panel="Training")


@options.with_constraints
def fit(
    data: options.Data,
    target: Annotated[str, option("COLUMN", "The column to predict: classes, or numbers.")],
    protected: options.Protected,
    output: Annotated[
        Path, option("FOLDER", "The model folder to write; an earlier one is replaced.", "--output", "-o")
    ],
    asked: options.ConstraintOptions,
    bounds: options.Bounds = None,
    facts: options.Facts = None,
    task: Annotated[Task | None, _column(None, "Treat the target as classes or as numbers.")] = None,
    positive: Annotated[str | None, _column("VALUE", "Predict this class against all others.")] = None,
    ignore: Annotated[list[str] | None, _column("COLUMN", "Leave columns out of the features: `name,id`.")] = None,
    hide_protected: Annotated[bool, _column(None, "Leave protected columns out as well.", "--hide-protected")] = False,
    merge_rare: Annotated[int, _column("ROWS", "Merge groups of fewer rows into one, 'other'.", least=0)] = 0,
    model: Annotated[Model, _training(None, "The kind of model. `auto` tries all and keeps the best.")] = "network",
    method: Annotated[Method | None, _training(None, "Train the network through the layer, or project it.")] = None,
    serving: Annotated[Serving, _training(None, "Predict with the groups of rows, or blind, without them.")] = "batch",
    confidence: Annotated[
        float | None, _training("P", "Keep the tolerances in the population too, with this confidence.")
    ] = None,
    test: Annotated[float, _training("SHARE", "Keep this share of the rows for the report.")] = 0.2,
    epochs: Annotated[int, _training("N", "Pass over the data at most this often.", least=1)] = 200,
    max_minutes: Annotated[float | None, _training("MINUTES", "Stop training after this time.")] = None,
    seed: Annotated[int, _training("N", "The seed for splitting the rows and for the network.", least=0)] = 0,
) -> int:
    """Train a fair model on a table.

    The command works out whether the target holds classes or numbers and what each column holds, and prints what it
    found. The model is judged on rows that it has not seen. The folder holds the model, a report and a model card.
    Ctrl-C ends the command and leaves the folder as it was.

    A target of three or more classes gets a probability for each, unless --positive names one. Networks are trained
    through the fairness layer, or projected after training, as boosted trees, linear models (of numbers) and logistic
    models (of classes) always are. Training ends once it no longer improves. `--confidence 0.95` tightens the
    tolerances until the population that the rows are drawn from keeps the stated ones at 95 % confidence, or reports
    how many rows that needs. With `--serving blind`, a second model estimates the groups of a row from its features,
    the row is moved accordingly, and a statement about the population is printed.

    `fairlayer fit people.csv --target income --protected sex,race --parity 0.02 -o model/`
    """
    if not 0.0 < test < 1.0:
        raise InputError(f"--test: the share must lie between 0 and 1; got {test:g}.")
    if max_minutes is not None and not max_minutes > 0.0:
        raise InputError(f"--max-minutes: the time must be above 0; got {max_minutes:g}.")
    box = options.read_bounds(bounds)
    _check_folder(output)
    source, attributes, ignored = _open(data, target, protected, ignore or ())

    from fairlayer import __version__
    from fairlayer.cli.learning import Learner, choose_model, split
    from fairlayer.constraints.plain_data import record_to_plain
    from fairlayer.estimators.folder import save
    from fairlayer.estimators.models import TITLES
    from fairlayer.tables.schema import infer

    told = read_facts(facts)

    # Read the table
    with TableFile(source, memory="8GB") as file:
        table = infer(
            file,
            target=target,
            attributes=attributes,
            ignore=ignored,
            keep=asked.read(file, attributes).features,
            hide_protected=hide_protected or serving == "blind",
            task=task,
            positive=positive,
            merge_rare=merge_rare,
        )
        schema = table.schema
        if len(table.rows) < FEWEST_ROWS:
            raise InputError(
                f"{data} has {len(table.rows)} rows with a target: at least {FEWEST_ROWS} are needed to learn."
            )
        classify = schema.task == "classification"
        constraints = asked.read(file, attributes, schema.numbered if classify else None)

    # Refuse what cannot be done with it
    asked.check_threshold(numbers=None if classify else target)
    _check_constraints(constraints, table)
    _check_model(model, method, max_minutes, classify)
    if classify and box not in (None, (0.0, 1.0)):
        raise InputError("--bounds: probabilities lie between 0 and 1: leave the option out for classes.")
    _check_serving(constraints, serving, confidence, bounded=classify or box is not None)

    # Train
    settings = {"serving": serving, "confidence": confidence}
    network = {"method": method or "layer", "max_epochs": epochs, "max_minutes": max_minutes}
    network["verbose"] = sys.stderr.isatty()
    learner = Learner(list(constraints), classify, schema.classes, box, seed, settings, network)
    train, held = split(table.rows, test, seed)
    if not len(held):
        raise InputError(f"--test: {test:g} of {len(table.rows)} rows leaves none for the report: raise it.")
    _introduce(table, constraints)

    remarks: list[str] = []  # for the terminal, and for report and card

    def remark(text: str) -> None:
        note(text)
        remarks.append(text)

    if positive is None and schema.negative is not None and constraints.about_decisions:
        remark(
            f"Rates of decisions are those of {target} = {schema.positive}, which is a guess: --positive is not given. "
            f"If people hope for {schema.negative}, add --positive {quote(schema.negative)}."
        )
    kind: str = model
    if model == "auto":
        kind, text = choose_model(learner, train)
        remark(text)
    way = "training through the layer" if kind == "network" and method != "projection" else "projection after training"
    made = f"{TITLES[kind]}; fairness by {way}"
    note(f"Training: {made} ...")
    fitted: Any = learner.fit(kind, train)
    raise_interrupt()
    if fitted.stopped_ == "time":
        remark(
            f"Training was stopped on purpose, by --max-minutes {max_minutes:g}, before it had ended by itself: with "
            "more time the model may get better."
        )
    if serving == "blind":
        remark(f"Served blind, so the guarantee is about the population. {fitted.frozen_.certificate}")

    # Judge and write
    result = _audit(fitted, learner, held, schema, remarks)
    kept = {"schema": record_to_plain(schema), "data": data.name, "seed": seed, "test": test}
    left = "Missing numbers become the median and are marked; categories have a column each, missing ones too."
    if kind == "boosting":
        left = "Missing numbers and categories are left to the trees."
    described = {
        "date": datetime.date.today().isoformat(),
        "type": f"{schema.task} by {made}; fairlayer {__version__}",
        "training data": f"{len(train):,} rows of {data.name}, with {len(schema.features)} features",
        "evaluation data": f"{len(held):,} rows of {data.name} kept from training, drawn with seed {seed} in the "
        "shares of the groups",
        "preprocessing": " ".join([left, *table.lines]),
    }
    with replacing_folder(output) as temporary:
        save(fitted, temporary, table=kept)
        write_reports(
            result,
            page=temporary / PAGE,
            card=temporary / CARD,
            title=f"Fairness of {target}",
            facts={**described, **told},
            provenance={"data": data.name, **digest(data)},
        )
    say(str(result))
    note(f"Wrote {output}: {', '.join(name for name in FILES if (output / name).exists())}.")
    if serving == "blind":  # nothing is guaranteed for these rows alone
        return 1 if result.verdict.name == "VIOLATED" else 0
    return 0 if result.satisfied else 1


def _check_folder(output: Path) -> None:
    """Accept a new folder, an empty one, or one that holds a model and nothing else."""
    if output.exists() and not output.is_dir():
        raise InputError(f"-o: {output} is a file: name a folder for the model.")
    for path in output.iterdir() if output.is_dir() else ():
        if path.name not in FILES:
            raise InputError(
                f"-o: {output} holds files that are not part of a model, such as {path.name!r}: name a new folder."
            )
    check_parent(output)


def _open(
    data: Path, target: str, protected: Sequence[str], ignore: Sequence[str]
) -> tuple[Source, list[Attribute], list[str]]:
    """The table, its protected attributes, and the columns to ignore."""
    named = {part.strip() for text in ignore for part in (text, *text.split(","))}
    source = open_source(data, may_repeat=lambda name: name in named)
    attributes = options.read_attributes(protected, source)
    source.check(target, "--target")
    repeated = set(source.repeated.values())
    listed = options.split_list(ignore, lambda name: name in source.columns or name in repeated)
    ignored = [*source.repeated, *(name for name in listed if name not in repeated)]
    for name in ignored:
        source.check(name, "--ignore")
    if target in [attribute.column for attribute in attributes]:
        raise InputError(f"--target: column {target!r} is protected too: it cannot be both.")
    return source, attributes, ignored


def _check_constraints(constraints: options.Constraints, table: Inferred) -> None:
    """Refuse what no model could keep on new rows."""
    from fairlayer.core.classes import check_class_rules
    from fairlayer.problem.constraint_set import ConstraintSet

    schema = table.schema
    constraints.check_kinds()
    try:
        if schema.classes:
            check_class_rules(ConstraintSet(list(constraints)))
    except InputError as error:
        raise InputError(
            f"--target: {schema.target} has {len(schema.classes)} classes, whose mean probabilities are compared: use "
            f"--parity or --conditional, or tell one class from the rest, such as --positive {schema.classes[0]!r}."
        ) from error
    by_target = constraints.option(lambda constraint: not constraint.serves_unknown_targets)
    if by_target:
        remedy = f"--rate 0.05 --given {quote(schema.positive)}" if schema.positive else "--parity"
        raise InputError(
            f"{by_target} compares rows with the same target, for each of its values. Targets are unknown when "
            f"predicting, so no model can keep it: use {remedy}. `fairlayer audit` and `fairlayer project` take it."
        )
    for condition, asked in constraints.conditions:
        name = str(condition.name)
        if condition.source == "target":
            continue
        if name in schema.numbers and table.rows.X[name].isna().any():
            raise InputError(f"{asked}: column {name!r} has missing entries: fill them in, or drop these rows.")
        if name not in schema.features:
            raise InputError(f"{asked}: column {name!r} is not among the features: do not --ignore it.")


def _check_serving(constraints: options.Constraints, serving: str, confidence: float | None, bounded: bool) -> None:
    """Refuse what cannot be guaranteed for new rows."""
    by_targets = constraints.option(lambda one: one.needs_targets)
    if serving == "blind" and (option := constraints.about_decisions or by_targets):
        raise InputError(f"--serving blind keeps means of outputs, and {option} is not about them: use --parity.")
    if serving == "blind" and not bounded:
        raise InputError("--serving blind makes a statement about the population, for which it needs --bounds LO HI.")
    if confidence is not None and by_targets:
        raise InputError(
            f"--confidence is about new rows, and {by_targets} looks at their targets, which are unknown when "
            "predicting: leave --confidence out."
        )


def _check_model(model: str, method: str | None, max_minutes: float | None, classify: bool) -> None:
    """Refuse a kind of model that cannot do what else was asked for."""
    from fairlayer.estimators.models import FOR_CLASSES, FOR_NUMBERS

    possible, what = (FOR_CLASSES, "classes") if classify else (FOR_NUMBERS, "numbers")
    if model not in (*possible, "auto"):
        raise InputError(f"--model {model}: the target holds {what}: use one of {', '.join(possible)}, or auto.")
    if method is not None and model != "network":
        raise InputError(f"--method {method} is for --model network: leave it out, or choose that model.")
    if max_minutes is not None and model not in ("network", "auto"):
        raise InputError(f"--max-minutes is for networks, and --model {model} is none: leave it out.")


def _introduce(table: Inferred, constraints: options.Constraints) -> None:
    """Say what was inferred, and what can be guaranteed."""
    schema = table.schema
    what = f"the probability of {schema.target} = {schema.positive}" if schema.positive else schema.target
    if schema.classes:
        what = f"the probabilities of the classes of {schema.target}, {', '.join(schema.classes)}"
    note(f"{len(table.rows):,} rows, {len(schema.features)} features; predicts {what} ({schema.task}).")
    lines = []
    among = [name for name in schema.attributes if name in schema.features]
    if among:
        lines.append(
            f"The features include {', '.join(among)}, which {plural(len(among), 'is', 'are')} protected: "
            f"--hide-protected leaves {plural(len(among), 'it', 'them')} out."
        )
    lines += table.lines
    compared = {name for c in constraints for grouping in c.groupings(schema.attributes) for name in grouping}
    for name in schema.attributes:
        if name not in compared:
            lines.append(f"{name} is protected, but no constraint compares its groups: they only appear in the report.")
    for quantity in {one.quantity for one in constraints if one.needs_targets} & UNKNOWN.keys():
        lines.append(
            f"{UNKNOWN[quantity]} that training found for their groups: over many rows like these, gaps are near their "
            "tolerances, but nothing is guaranteed for a single file."
        )
    for text in lines:
        note(f"  {text}")


def _audit(fitted: Any, learner: Learner, held: Rows, schema: Schema, remarks: Sequence[str]) -> Audit:
    """An audit of the model on the rows held out. remarks: what it should say besides."""
    import numpy as np

    from fairlayer.audit import audit
    from fairlayer.cli.learning import outputs

    raw, fair = outputs(fitted, held.X, held.groups)
    result = audit(
        fair,
        held.groups,
        list(learner.constraints),
        targets=np.array(schema.classes)[held.y.astype(int)] if schema.classes else held.y,
        classes=schema.classes or None,
        features=held.X,
        raw=raw,
        history=fitted.history_ or None,
        seed=learner.seed,
    )
    solution = fitted.layer_.solution
    if solution is not None and solution.margin is not None:
        result = replace(result, settings=replace(result.settings, margin=str(solution.margin)))
    if schema.positive is not None:
        result = in_words(result, schema.target, schema.numbered)
    return replace(result, notes=(*result.notes, *remarks))
