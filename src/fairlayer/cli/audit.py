"""`fairlayer audit`: are the predictions in a file fair?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fairlayer.cli import options
from fairlayer.cli.options import option
from fairlayer.cli.output import digest, in_words, note, read_facts, say, write_reports
from fairlayer.errors import InputError
from fairlayer.tables.table_io import Source, TableFile, check_output, open_source, replacing

if TYPE_CHECKING:
    from fairlayer.audit import Audit
    from fairlayer.tables.entries import Attribute

Form = Literal["report", "ll144"]


@options.with_constraints
def audit(
    data: options.Data,
    prediction: Annotated[list[str], option("COLUMN", "The predictions, or one column of them for each class.")],
    protected: options.Protected,
    asked: options.ConstraintOptions,
    target: options.Target = None,
    positive: Annotated[str | None, option("VALUE", "The class of the target that predictions are about.")] = None,
    raw: Annotated[list[str] | None, option("COLUMN", "The predictions before they were made fair.")] = None,
    weight: Annotated[str | None, option("COLUMN", "The column with the weight of each row.")] = None,
    output: Annotated[Path | None, option("FILE", "Write the report to this HTML file.", "--output", "-o")] = None,
    card: Annotated[Path | None, option("FILE", "Write a model card to this Markdown file.")] = None,
    facts: options.Facts = None,
    format: Annotated[Form, option(None, "Write a report, or the tables of a bias audit.")] = "report",  # noqa: A002
    confidence: Annotated[float, option("P", "The joint confidence of the intervals of all gaps.")] = 0.95,
    seed: Annotated[
        int, option("N", "The seed for drawing rows of a large file, to compute the trade-off.", least=0)
    ] = 0,
) -> int:
    """Judge predictions, group by group.

    Every gap comes with an interval and a verdict about the population; a group of a few rows never reads as fair. The
    exit code is about the rows of the file: 0 if they keep every constraint, 1 if not.

    Predictions are scores, or 0 and 1. Several columns, `p_low,p_mid,p_high`, are the probabilities of as many classes.
    Amounts have no decisions without --threshold, and a target other than 0 and 1 no error rates without --positive.
    The report is HTML, with JSON beside it. `--format ll144` writes the tables of a bias audit as New York City's Local
    Law 144 describes them, to the terminal and to a .csv or .html file.

    `fairlayer audit out.csv --prediction probability --protected sex --parity 0.02 -o report.html`
    """
    _check_outputs(output, card, [path for path in (data, facts) if path is not None], format)
    if facts is not None and card is None:
        raise InputError("--facts is for the model card: add --card FILE.")
    source = open_source(data, may_repeat=lambda _: True)  # a column that is not asked for does no harm
    attributes = options.read_attributes(protected, source)
    predictions = options.split_list(prediction, source.columns.__contains__)
    before = options.split_list(raw or (), source.columns.__contains__)
    several = len(predictions) > 1
    if before and len(before) != len(predictions):
        raise InputError(f"--raw names {len(before)} columns, --prediction {len(predictions)}: name as many.")
    if several and format == "ll144":
        raise InputError("--format ll144 is of one prediction: name one column with --prediction.")
    named = [*((one, "--prediction") for one in predictions), *((one, "--raw") for one in before)]
    for column, name in [*named, (target, "--target"), (weight, "--weight")]:
        if column is not None:
            source.check(column, name)

    told = read_facts(facts)
    with TableFile(source) as table:
        classes = None if positive is None else _two_classes(table, target, positive, several)
        constraints = asked.read(table, attributes, classes)
        constraints.check_target(target, "predictions")
        cut = {attribute.column: "--protected" for attribute in attributes if attribute.cuts}
        table.check_numbers(dict.fromkeys(predictions, "--prediction"), cut)
        table.check_groups(attributes, "--protected")
    roles: dict[str, Any] = {"target": target, "weight": weight}
    how: dict[str, Any] = {"threshold": asked.threshold, "confidence": confidence, "seed": seed}
    if several:
        result = _audit_classes(source, attributes, constraints, predictions, before, **roles, how=how)
    else:
        roles |= {"prediction": predictions[0], "raw": before[0] if before else None}
        result = _audit_scores(source, attributes, constraints, roles, positive, how)
    if classes is not None:
        result = in_words(result, str(target), classes)
    result = replace(result, settings=replace(result.settings, source=data.name))
    if format == "ll144":
        decides = asked.threshold is not None or bool(constraints.about_decisions)
        _write_bias_audit(result, output, decides or None)
    else:
        say(str(result))
        if output is not None or card is not None:
            written = write_reports(result, page=output, card=card, facts=told, provenance=digest(data))
            note(f"Wrote {', '.join(map(str, written))}.")
    return 0 if result.satisfied else 1


def _two_classes(table: TableFile, target: str | None, positive: str, several: bool) -> dict[str, int]:
    """The positive class, the numbers that stand for it and for the others."""
    if target is None or several:
        raise InputError("--positive is a class of the target of one prediction: add --target, or leave it out.")
    found = table.values(target, None)
    if positive not in found:
        some = ", ".join(map(repr, found[:8]))
        raise InputError(f"--positive: column {target!r} has no value {positive!r}; it has {some}.")
    others = [value for value in found if value != positive]
    return {positive: 1, others[0] if len(others) == 1 else f"not {positive}": 0}


def _audit_scores(
    source: Source,
    attributes: Sequence[Attribute],
    constraints: options.Constraints,
    roles: dict[str, Any],
    positive: str | None,
    how: dict[str, Any],
) -> Audit:
    """Audit one output for each row, whatever the size of the file. roles: columns by what they are."""
    from fairlayer.audit import audit as run

    names = [attribute.column for attribute in attributes]
    for attribute in attributes:
        if attribute.cuts and attribute.column in [*roles.values(), *constraints.features]:
            raise InputError(
                f"--protected: column {attribute.column!r} has another role too: leave out its cut points."
            )
    target = roles["target"]
    if target is not None and positive is not None:
        if target in [*names, *constraints.features]:
            raise InputError(f"--positive: column {target!r} has another role too: leave the option out.")
        source = source.counting(target, positive)
    with TableFile(source.cut_by(attributes)) as table:
        return run(table, names, list(constraints), **roles, **how)


def _audit_classes(
    source: Source,
    attributes: Sequence[Attribute],
    constraints: options.Constraints,
    predictions: list[str],
    before: list[str],
    target: str | None,
    weight: str | None,
    how: dict[str, Any],
) -> Audit:
    """Audit the probabilities of several classes, a column each. Classes are called as their columns are, less what
    `fairlayer predict` puts before them."""
    from fairlayer.audit import audit as run
    from fairlayer.tables.entries import group_label, label, number

    prefixed = all("probability_" in name for name in predictions)
    with TableFile(source, memory="8GB") as table:
        kinds = table.columns
        labels = {one.column: one.label(kinds[one.column]) for one in attributes}
        features = {
            name: number(name) if table.is_number(name) else group_label(name, kinds[name])
            for name in constraints.features
        }
        return run(
            table.frame({name: number(name) for name in predictions}).to_numpy(),
            table.frame(labels),
            list(constraints),
            targets=None if target is None else table.frame({target: label(target, kinds[target])})[target],
            classes=[name.partition("probability_")[2] if prefixed else name for name in predictions],
            features=table.frame(features) if features else None,
            weights=None if weight is None else table.frame({weight: number(weight)})[weight].to_numpy(),
            raw=table.frame({name: number(name) for name in before}).to_numpy() if before else None,
            **how,
        )


def _write_bias_audit(result: Audit, output: Path | None, decisions: bool | None) -> None:
    """The tables of a bias audit, on the terminal and in a file."""
    from fairlayer.report.bias_audit import as_csv, as_html, as_text, bias_audit

    tables, notes = bias_audit(result, decisions=decisions)
    say(as_text(tables, notes))
    if output is None:
        return
    with replacing(output) as temporary:
        text = as_csv(tables) if output.suffix.lower() == ".csv" else as_html(tables, notes)
        temporary.write_text(text, encoding="utf-8")
    note(f"Wrote {output}.")


def _check_outputs(output: Path | None, card: Path | None, inputs: list[Path], form: str) -> None:
    tables = form == "ll144"
    if tables and card is not None:
        raise InputError("--card goes with --format report: leave one of them out.")
    taken = [] if output is None else [output] if tables else [output, output.with_suffix(".json")]
    if output is not None and output.suffix.lower() not in (".html", ".htm", *((".csv",) if tables else ())):
        raise InputError(f"-o: {output} must end in {'.csv or .html.' if tables else '.html: the report is a page.'}")
    for path in taken:
        check_output(path, *inputs)
    if card is not None:
        check_output(card, *inputs, option="--card")
        if card.absolute() in [path.absolute() for path in taken]:
            raise InputError(f"--card: {card} is where the report goes: name another file.")
