"""A result as plain text, for a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairlayer.audit.numerals import ABSENT, MINUS, aligned, beside, number, signed, stated
from fairlayer.audit.result import Audit, Finding, GroupReport, Rate, Selection, Verdict
from fairlayer.audit.selection import FOUR_FIFTHS


def headline(result: Audit) -> str:
    """What holds in these data, and what that says about the population."""
    broken = sum(not finding.holds for finding in result.findings)
    if not result.findings:
        return "Nothing can be compared: fewer than two groups have samples."
    gaps = len(result.findings)
    if broken:
        words = exceeding(broken, gaps)
        first = f"{words[0].upper()}{words[1:]} in these {result.settings.samples:,} samples."
    elif result.empty:
        first = f"Some constraints have nothing to compare: {_printable('; '.join(result.empty))}."
    else:
        first = f"Every gap is within its tolerance in these {result.settings.samples:,} samples."
    counts = Counter(finding.verdict for finding in result.findings)
    verdicts = [f"{counts[v]:,} {v.value}" for v in Verdict if counts[v]]
    listed = ", ".join(verdicts) if gaps > 1 else verdicts[0].split()[1]
    level = f"{100 * result.settings.confidence:.6g} % confidence"
    margin = f" {result.settings.margin}" if result.settings.margin else ""
    return f"{first} In the population, at {level}: {listed}{_why(result)}.{margin}{_decisions(result)}"


def _decisions(result: Audit) -> str:
    """What decisions look like beside: means within their tolerance say little of them."""
    least = result.least_selected
    if least is None or least.impact_ratio is None or least.impact_ratio == 1.0:
        return ""
    short = ", below four fifths" if least.impact_ratio < FOUR_FIFTHS else ""
    of = "Predicted classes" if result.classes else f"Decisions at {_typed(stated(result.settings.threshold))}"
    return (
        f" {of}: {_printable(least.name)} is selected at "
        f"{_typed(number(least.impact_ratio))} times the rate of the group selected most{short}."
    )


def _why(result: Audit) -> str:
    """Why gaps are undecided: more samples would help, unless a gap is just at its tolerance."""
    undecided = [finding for finding in result.findings if finding.verdict is Verdict.UNDECIDED]
    if not undecided:
        return ""
    at_tolerance = [finding for finding in undecided if finding.samples_to_decide is None]
    if not at_tolerance:
        return " (too few samples to tell)"
    if result.settings.margin:  # who aimed for smaller gaps already needs more samples
        return " (too few samples to leave room)"
    count = f"{len(at_tolerance):,}" if len(result.findings) > 1 else "the"
    which, aim = (
        (f"{count} gap is", "a smaller one") if len(at_tolerance) == 1 else (f"{count} gaps are", "smaller ones")
    )
    return f" ({which} right at the tolerance: aim for {aim} to leave room)"


def exceeding(part: int, whole: int) -> str:
    """How many of all gaps are beyond their tolerances."""
    if whole == 1:
        return "the gap exceeds its tolerance"
    return f"{part} of {whole} gaps {'exceeds its tolerance' if part == 1 else 'exceed their tolerances'}"


def table(result: Audit, rows: int) -> str:
    """The headline, the findings, the groups, and the notes."""
    parts = [headline(result)]
    if result.settings.positive:
        parts.append(f"Decision counted as positive: {_printable(result.settings.positive)}.")
    if result.findings:
        shown = [_finding(finding) for finding in result.findings[:rows]]
        header = ["gap between", "samples", "means", "gap", "tolerance", "interval", "in these data", "population"]
        parts.append(_columns(header, shown) + _more(len(result.findings), rows, "gaps"))
    groups = [result.overall, *result.groups]
    decisions = ["decisions"] if result.overall.decision_rate is not None else []
    header = ["group", "samples", "share", "mean", *decisions, *_target_header(result)]
    parts.append(_columns(header, [_group(group) for group in groups[:rows]]) + _more(len(groups), rows, "groups"))
    if result.least_selected is not None:
        header = ["selection", "samples", "selected", "rate", "impact ratio", "interval", "Fisher's p", "shortfall"]
        chosen = [_selection(one) for one in result.selections[:rows]]
        parts.append(_columns(header, chosen) + _more(len(result.selections), rows, "groups"))
    if result.changes:
        everybody = result.changes[0]
        parts.append(
            f"Changed from the raw outputs: {everybody.changed:.1%} of samples, by "
            f"{_typed(number(everybody.mean_absolute))} on average over all, from {_typed(signed(everybody.lowest))} "
            f"to {_typed(signed(everybody.highest))}."
        )
    if result.not_compared:
        listed = "; ".join(map(_printable, result.not_compared[:rows]))
        parts.append(f"Not compared: {listed}{_more(len(result.not_compared), rows, 'others')}")
    parts += [f"Note: {note}" for note in result.notes]
    return "\n\n".join(parts)


def _finding(finding: Finding) -> tuple[str, ...]:
    verdict = finding.verdict.value
    if finding.verdict is Verdict.UNDECIDED:
        verdict += f" ({finding.smallest:,} samples)" if finding.smallest != 1 else " (1 sample)"
    return (
        finding.name,
        " / ".join(f"{count:,}" for count in finding.counts),
        _typed(" / ".join(aligned(finding.means, 4))),
        _typed(gap_text(finding)),
        _typed(stated(finding.tolerance)),
        _typed(_interval(finding)),
        "within" if finding.holds else "BEYOND",
        verdict,
    )


def gap_text(finding: Finding) -> str:
    """The gap with its sign, as precise as its tolerance."""
    size = max(map(abs, finding.means))
    return beside(finding.gap, finding.tolerance, not finding.holds, size)


def _interval(finding: Finding) -> str:
    if finding.interval is None:
        return "-"
    size = max(map(abs, finding.means))
    low, high = (beside(end, finding.tolerance, False, size) for end in finding.interval)
    return f"[{low}, {high}]"


def _target_header(result: Audit) -> tuple[str, ...]:
    if result.settings.targets == "binary":
        return "base rate", "accuracy", "TPR", "FPR"
    return ("mean target", "bias", "RMSE") if result.settings.targets == "numeric" else ()


def _group(group: GroupReport) -> tuple[str, ...]:
    cells = [f"{group.count:,}", f"{group.share:.1%}", number(group.mean, 4)]
    cells += [_rate(group.decision_rate)] if group.decision_rate is not None else []
    if group.accuracy is not None:
        cells += [number(group.target_mean), _rate(group.accuracy)]
        cells += [_rate(group.true_positive_rate), _rate(group.false_positive_rate)]
    elif group.bias is not None:
        cells += [number(group.target_mean, 4), signed(group.bias, 4), number(group.root_mean_squared_error, 4)]
    return (group.name, *map(_typed, cells))


def _selection(one: Selection) -> tuple[str, ...]:
    ends = "-" if one.ratio_interval is None else f"[{one.ratio_interval[0]:.3f}, {one.ratio_interval[1]:.3f}]"
    ratio = "-" if one.impact_ratio is None else f"{one.impact_ratio:.3f}"
    cells = [_rate(one.rate), ratio, ends, number(one.p_value, 2), number(one.shortfall, 2)]
    return (one.name + (" (small)" if one.small else ""), f"{one.count:,}", f"{one.selected:,}", *map(_typed, cells))


def _rate(rate: Rate | None) -> str:
    if rate is None or rate.value is None:
        return "-"
    return f"{rate.value:.3f} [{rate.lower:.3f}, {rate.upper:.3f}]"


def _more(total: int, shown: int, what: str) -> str:
    return f"\n... and {total - shown} more {what}" if total > shown else ""


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns. Control characters in names that come from data are shown, not sent to the terminal."""
    lines = [header, *[[_printable(cell) for cell in row] for row in rows]]
    widths = [max(len(line[j]) for line in lines) for j in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else repr(character)[1:-1] for character in text)


def _typed(text: str) -> str:
    """A number in the characters that a keyboard has, for terminals that show no others."""
    return text.replace(MINUS, "-").replace(ABSENT, "-")
