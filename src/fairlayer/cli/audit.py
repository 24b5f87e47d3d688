"""`fairlayer audit`: are the predictions in a file fair?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fairlayer.cli import constraint_options as asking
from fairlayer.cli import options
from fairlayer.cli.options import option
from fairlayer.cli.terminal import note, say
from fairlayer.errors import InputError
from fairlayer.tables.table_io import Source, TableFile, check_output, open_source, replacing

if TYPE_CHECKING:
    from fairlayer.audit import Audit
    from fairlayer.tables.entries import Attribute

Form = Literal["report", "ll144"]


def audit(
    data: options.Data,
    prediction: Annotated[list[str], option("COLUMN", "The predictions, or one column of them for each class.")],
    protected: options.Protected,
    parity: asking.Parity = None,
    ratio: asking.Ratio = None,
    rate: asking.Rate = None,
    rate_ratio: asking.RateRatio = None,
    given: asking.Given = None,
    odds: asking.Odds = None,
    residuals: asking.Residuals = None,
    residual_mean: asking.ResidualMean = None,
    conditional: asking.Conditional = None,
    threshold: Annotated[float | None, option("P", "A prediction of P or more is a yes; 0.5 by default.")] = None,
    constraint: asking.Constraint = None,
    over: asking.Over = None,
    target: options.Target = None,
    positive: Annotated[str | None, option("VALUE", "The class of the target that predictions are about.")] = None,
    raw: Annotated[list[str] | None, option("COLUMN", "The predictions before they were made fair.")] = None,
    weight: Annotated[str | None, option("COLUMN", "The column that says how much each row counts.")] = None,
    output: Annotated[Path | None, option("FILE", "Write the report here, as a page.", "--output", "-o")] = None,
    card: Annotated[Path | None, option("FILE", "Write a model card here, in Markdown.")] = None,
    facts: options.Facts = None,
    format: Annotated[Form, option(None, "Write a report, or the tables of a bias audit.")] = "report",  # noqa: A002
    confidence: Annotated[float, option("P", "The confidence of all intervals of gaps together.")] = 0.95,
    seed: Annotated[int, option("N", "Draw rows of a large file, for the trade-off, from this seed.", least=0)] = 0,
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
    asked = asking.ConstraintOptions(
        parity, ratio, rate, rate_ratio, given, odds, residuals, residual_mean, conditional, threshold, constraint, over
    )  # fmt: skip
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
    named = [*((name, "--prediction") for name in predictions), *((name, "--raw") for name in before)]
    for column, name in [*named, (target, "--target"), (weight, "--weight")]:
        if column is not None:
            source.check(column, name)

    from fairlayer.audit import audit as run
    from fairlayer.cli.reporting import digest, in_words, read_facts, write_reports

    told = read_facts(facts)
    with TableFile(source) as columns:
        classes = None if positive is None else _two_classes(columns, target, positive, several)
        constraints = asked.read(columns, attributes, classes)
        constraints.check_target(target, "predictions")
        cut = {attribute.column: "--protected" for attribute in attributes if attribute.cuts}
        columns.check_numbers(dict.fromkeys(predictions, "--prediction"), cut)
        columns.check_groups(attributes, "--protected")
    how: dict[str, Any] = {"threshold": threshold, "confidence": confidence, "seed": seed}
    if several:
        if format == "ll144":
            raise InputError("--format ll144 is of one prediction: name one column with --prediction.")
        result = _audit_classes(source, attributes, list(constraints), predictions, before, target, weight, how)
    else:
        roles: dict[str, Any] = {"prediction": predictions[0], "target": target, "weight": weight}
        roles["raw"] = before[0] if before else None
        for attribute in attributes:
            if attribute.cuts and attribute.column in [*roles.values(), *asked.columns(source)]:
                raise InputError(
                    f"--protected: column {attribute.column!r} has another role too: leave out its cut points."
                )
        if target is not None and positive is not None:
            if target in [*(attribute.column for attribute in attributes), *asked.columns(source)]:
                raise InputError(f"--positive: column {target!r} has another role too: leave the option out.")
            source = source.counting(target, positive)
        with TableFile(source.cut_by(attributes)) as table:
            result = run(table, [attribute.column for attribute in attributes], list(constraints), **roles, **how)
        if target is not None and classes is not None:
            result = in_words(result, target, classes)
    result = replace(result, settings=replace(result.settings, source=data.name))
    if format == "ll144":
        decides = threshold is not None or bool(constraints.about_decisions)
        _write_bias_audit(result, output, decides or None)
    else:
        say(str(result))
        if output is not None or card is not None:
            provenance = {"data, SHA-256": digest(data)}
            written = write_reports(result, page=output, card=card, facts=told, provenance=provenance)
            note(f"Wrote {', '.join(map(str, written))}.")
    return 0 if result.satisfied else 1


def _two_classes(columns: TableFile, target: str | None, positive: str, several: bool) -> dict[str, int]:
    """The positive class, the numbers that stand for it and for the others."""
    if target is None or several:
        raise InputError("--positive is a class of the target of one prediction: add --target, or leave it out.")
    found = columns.values(target, None)
    if positive not in found:
        some = ", ".join(map(repr, found[:8]))
        raise InputError(f"--positive: column {target!r} has no value {positive!r}; it has {some}.")
    others = [value for value in found if value != positive]
    return {positive: 1, others[0] if len(others) == 1 else f"not {positive}": 0}


def _audit_classes(
    source: Source,
    attributes: Sequence[Attribute],
    constraints: Any,
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

    looked_at = {str(condition.name) for one in constraints for condition in one.conditions if condition.name}
    with TableFile(source, memory="8GB") as table:
        kinds = table.columns
        features = {
            name: number(name) if table.is_number(name) else group_label(name, kinds[name]) for name in looked_at
        }
        values = {f"p{j}": number(name) for j, name in enumerate(predictions)}
        values |= {f"raw{j}": number(name) for j, name in enumerate(before)}
        values |= {f"g{j}": one.label(kinds[one.column]) for j, one in enumerate(attributes)}
        values |= {f"f{j}": sql for j, sql in enumerate(features.values())}
        values |= {} if target is None else {"t": label(target, kinds[target])}
        values |= {} if weight is None else {"w": number(weight)}
        frame = table.frame(values)
    prefixed = all("probability_" in name for name in predictions)
    return run(
        frame[[f"p{j}" for j in range(len(predictions))]].to_numpy(),
        {one.column: frame[f"g{j}"].to_numpy(dtype=object) for j, one in enumerate(attributes)},
        constraints,
        targets=None if target is None else frame["t"].to_numpy(dtype=object),
        classes=[name.partition("probability_")[2] if prefixed else name for name in predictions],
        features={name: frame[f"f{j}"] for j, name in enumerate(features)},
        weights=None if weight is None else frame["w"].to_numpy(),
        raw=frame[[f"raw{j}" for j in range(len(before))]].to_numpy() if before else None,
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
