"""The figures of an audit as tables, which the terminal, the page and the model card all show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlayer.audit.result import Audit, Finding, Group, Rate
from fairlayer.audit.words import (
    ABSENT,
    MINUS,
    aligned,
    aligned_intervals,
    beside,
    count,
    isolated,
    number,
    percent,
    shortened,
    stated,
    typed,
)

FIGURES = {  # of a group, and what they are called
    "decision_rate": "decided positive",
    "target_mean": "mean target",
    "bias": "bias",
    "root_mean_squared_error": "RMSE",
    "calibration_error": "calibration error",
    "accuracy": "accuracy",
    "true_positive_rate": "true positive rate",
    "false_positive_rate": "false positive rate",
    "precision": "precision",
}
_LONG = ("interval of the mean", "deviation", "calibration error", "precision")  # not in a terminal


@dataclass(frozen=True)
class FigureTable:
    """Text by column. The first `headers` columns are headings of their rows."""

    caption: str
    columns: Mapping[str, Sequence[str]]
    headers: int = 1
    verdicts: tuple[str, ...] = ()  # by row, where there is one

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Text by row."""
        return list(zip(*self.columns.values(), strict=True))

    def __str__(self) -> str:
        """Aligned columns for a terminal, names on the left and figures on the right."""
        columns = {**self.columns, "population": self.verdicts} if self.verdicts else self.columns
        texts = [[typed(cell) for cell in (name, *cells)] for name, cells in columns.items()]
        placed = []
        for j, cells in enumerate(texts):
            width = max(map(len, cells))
            placed.append([cell.ljust(width) if j < self.headers else cell.rjust(width) for cell in cells])
        return "\n".join("  ".join(line).rstrip() for line in zip(*placed, strict=True))


def as_text(result: Audit, rows: int) -> str:
    """The headline, the findings, the groups, and the notes, in plain characters."""

    def cut(text: str, known: Sequence, what: str) -> str:
        return f"{text}\n... and {len(known) - rows} more {what}" if len(known) > rows else text

    parts = [result.headline]
    if result.settings.positive:
        parts.append(typed(f"Decision counted as positive: {result.settings.positive}."))
    groups = (result.overall, *result.groups)
    changed = [group for group in groups if group.change]
    parts += [cut(str(findings_table(result, rows)), result.findings, "gaps")] if result.findings else []
    parts.append(cut(str(groups_table("", groups[:rows], brief=True)), groups, "groups"))
    if result.decided:
        parts.append(cut(str(selection_table("", result.selections[:rows])), result.selections, "groups"))
    if changed:
        parts.append(cut(str(changes_table(changed[:rows], brief=True)), changed, "groups"))
    if result.not_compared:
        listed = typed(f"Not compared: {'; '.join(result.not_compared[:rows])}")
        parts.append(cut(listed, result.not_compared, "others"))
    return "\n\n".join(parts + [typed(f"Note: {note}") for note in result.notes])


def pair(finding: Finding, length: int | None = None) -> str:
    """Who is compared: two groups, or one with its target."""
    names = (group if length is None else shortened(group, length) for group in finding.groups)
    return f" {MINUS} ".join(map(isolated, names))


def gap_text(finding: Finding) -> str:
    """The gap with its sign, as precise as its tolerance."""
    return beside(finding.gap, finding.tolerance, not finding.holds, max(map(abs, finding.means)))


def share_of(rate: Rate | None) -> str:
    """A rate as a percentage."""
    return percent(None if rate is None else rate.value)


def findings_table(audit: Audit, most: int) -> FigureTable:
    """Every comparison with its figures, or the first `most` of them."""
    shown = audit.findings[:most]
    caption = "Every comparison, the one that exceeds its tolerance most first."
    if len(shown) < len(audit.findings):
        caption = f"The first {count(len(shown))} of {count(len(audit.findings))} comparisons; the JSON result has all."
    columns = {
        "compared": [pair(f) for f in shown],
        "constraint": [f.where for f in shown],
        "samples": [" and ".join(map(count, f.counts)) for f in shown],
        "means": [" and ".join(aligned(f.means)) for f in shown],
        "gap": [gap_text(f) for f in shown],
        "tolerance": [stated(f.tolerance) for f in shown],
        "interval": aligned_intervals([f.interval for f in shown]),
        "in these data": ["within" if f.holds else "beyond" for f in shown],
    }
    return FigureTable(caption, columns, headers=2, verdicts=tuple(f.verdict.value for f in shown))


def groups_table(caption: str, groups: Sequence[Group], brief: bool = False) -> FigureTable:
    """What is known of groups; columns that none of them has are left out. Intersections go by their labels alone."""
    columns: dict[str, Sequence[str]] = {
        "group": [group.label if len(group.attributes) > 1 and not brief else group.name for group in groups],
        "samples": [count(group.count) for group in groups],
        "share": [percent(group.share) for group in groups],
        "mean": aligned([group.mean for group in groups]),
        "interval of the mean": aligned_intervals([group.mean_interval for group in groups]),
        "deviation": aligned([group.deviation for group in groups]),
    }
    for field, title in FIGURES.items():
        values = [getattr(group, field) for group in groups]
        if any(isinstance(value, Rate) for value in values):
            columns[title] = [share_of(rate) for rate in values]
        elif any(value is not None for value in values):
            columns[title] = aligned(values, sign=field == "bias")
    if brief:
        columns = {title: cells for title, cells in columns.items() if title not in _LONG and set(cells) != {ABSENT}}
    return FigureTable(caption, columns)


def selection_table(caption: str, groups: Sequence[Group]) -> FigureTable:
    """What is known of the selection of groups."""
    chosen = [(group, one) for group in groups if (one := group.selection) is not None]
    columns: dict[str, Sequence[str]] = {
        "group": [group.name + (" (small)" if one.small else "") for group, one in chosen],
        "samples": [count(group.count) for group, _ in chosen],
        "selected": [count(one.selected) for _, one in chosen],
        "rate": [share_of(group.decision_rate) for group, _ in chosen],
        "impact ratio": aligned([one.impact_ratio for _, one in chosen], 4),
        "interval of the ratio": aligned_intervals([one.ratio_interval for _, one in chosen], 4),
        "Fisher's p": [number(one.p_value, 2) for _, one in chosen],
        "standard deviations": aligned([one.deviations for _, one in chosen], sign=True),
        "shortfall": aligned([one.shortfall for _, one in chosen], 2),
        "above the median": [share_of(one.scoring_rate) for _, one in chosen],
    }
    return FigureTable(caption, columns)


def changes_table(groups: Sequence[Group], brief: bool = False) -> FigureTable:
    """How far the predictions of each group are from the raw outputs."""
    changed = [group for group in groups if group.change is not None]
    changes = [group.change for group in changed if group.change is not None]
    columns: dict[str, Sequence[str]] = {
        "group": [group.name for group in changed],
        "samples": [count(group.count) for group in changed],
        "changed": [percent(change.changed) for change in changes],
        "mean change": aligned([change.mean for change in changes], sign=True),
        "mean absolute change": aligned([change.mean_absolute for change in changes]),
        "lowest": aligned([change.lowest for change in changes], sign=True),
    }
    for q in dict.fromkeys(q for change in changes for q in change.quantiles if not brief):
        columns[f"quantile {q}"] = aligned([change.quantiles.get(q) for change in changes], sign=True)
    columns["highest"] = aligned([change.highest for change in changes], sign=True)
    if any(change.flipped is not None for change in changes):
        columns["decisions flipped"] = [percent(change.flipped) for change in changes]
    return FigureTable("Change of predictions, by group.", columns)
