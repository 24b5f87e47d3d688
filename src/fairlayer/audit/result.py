"""What an audit found. Plain data: numbers, text and tuples of them, so that it goes to JSON and back unchanged.

Two questions are answered apart. *Do these data keep the constraint?* is arithmetic: `Finding.holds`, up to rounding in
float64. *What do they say about the population they were drawn from?* is statistics: `Finding.verdict`, from an
interval. A group of three samples can hold to the last digit and is still undecided: it never reads as fair.

Names of groups come from the data. They are kept as they are; what writes HTML, Markdown or SQL escapes them.
"""

from __future__ import annotations

import enum
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlayer.constraints.plain_data import record_from_plain, record_to_plain

Interval = tuple[float, float]


class Verdict(enum.StrEnum):
    """What the data say about the population, at the confidence of the audit."""

    SATISFIED = "satisfied"
    VIOLATED = "violated"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Rate:
    """A share of samples with its Wilson interval. value is None where there are no samples to take it of."""

    value: float | None
    lower: float
    upper: float
    count: int  # samples that it is a share of


@dataclass(frozen=True)
class Finding:
    """One comparison that a constraint makes: two groups, or one group with its target."""

    constraint: str  # its name, or what it is called: "mean parity"
    kind: str  # class of the constraint: "MeanParity"
    quantity: str  # what means are of: "output", "residual" for output less target, or "decision"
    within: str  # what groups are compared within parts of: "feature", "target", or "" for nothing
    name: str  # as everywhere in fairlayer: "mean parity, sex: f - m"
    where: str  # the part before the groups: "mean parity, sex"
    groups: tuple[str, ...]  # labels compared, ("f", "m"); one where a group is held against its target
    counts: tuple[int, ...]  # samples of each
    means: tuple[float, ...]  # of the output, or of output less target for residual constraints
    gap: float  # signed: first mean less second; over the larger of them, where ratios are compared
    tolerance: float
    holds: bool  # whether |gap| <= tolerance in these very data, up to 2^-48 of the largest output
    interval: Interval | None  # of the population's gap, together with all others; None where nothing can be said
    verdict: Verdict  # about the population, from `interval`
    comparison: str = "difference"  # or "ratio", whose gap is the difference over the larger mean; or "each"

    @property
    def ratio(self) -> float | None:
        """The lesser mean over the greater, where that is what is compared."""
        return 1.0 - abs(self.gap) if self.comparison == "ratio" else None

    @property
    def excess(self) -> float:
        """By how much |gap| exceeds the tolerance; negative within."""
        return abs(self.gap) - self.tolerance

    @property
    def smallest(self) -> int:
        """Samples of the smaller group."""
        return min(self.counts)

    @property
    def samples_to_decide(self) -> int | None:
        """About how many samples of the smaller group would decide, were the gap to stay as it is.

        None where it is decided already, and where no number would do: the gap is just at its tolerance.
        """
        if self.verdict is not Verdict.UNDECIDED or self.interval is None:
            return None
        half, margin = 0.5 * (self.interval[1] - self.interval[0]), abs(self.excess)
        if margin < 1e-3 * half:
            return None
        needed = max(self.smallest + 1, math.ceil(self.smallest * (half / margin) ** 2))
        digits = 10 ** max(0, len(str(needed)) - 2)  # two are all that an estimate deserves
        return -(-needed // digits) * digits


@dataclass(frozen=True)
class Selection:
    """How often a group is selected beside the group that is selected most, and how often it scores above the median.

    What compares with the most selected group is None for people whose label is missing and where there are no
    decisions; all but the ratio also for the most selected group itself.
    """

    selected: int | None  # decisions 1; None where there are no decisions
    impact_ratio: float | None  # the rate over the greatest rate of a group that is not small
    scoring_rate: Rate  # share of the group above the median of all outputs
    scoring_ratio: float | None  # the scoring rate over the greatest one
    small: bool  # below 2 % of the samples
    missing: bool  # people for whom an attribute is not known
    ratio_interval: Interval | None = None  # together with those of the other groups of the attribute
    p_value: float | None = None  # Fisher's exact test, two-sided
    deviations: float | None = None  # difference of the rates in standard deviations, negative where it is below
    shortfall: float | None = None  # people who would have been selected at the rate of both groups together


@dataclass(frozen=True)
class CalibrationBin:
    """Predictions of one group in [lower, upper), and the targets that came with them."""

    lower: float
    upper: float
    count: int
    mean_prediction: float
    mean_target: float
    interval: Interval | None  # of the mean target


@dataclass(frozen=True)
class Histogram:
    """How the outputs of one group are distributed over the bins between `Audit.edges`."""

    after: tuple[float, ...]  # counts (or weights) of predictions
    before: tuple[float, ...] | None  # of raw outputs, where they are given


@dataclass(frozen=True)
class Change:
    """How far predictions of one group are from the raw outputs; positive where the prediction is higher."""

    changed: float  # share of samples whose prediction differs from the raw output
    mean: float  # of prediction less raw output, over all samples
    mean_absolute: float
    lowest: float
    highest: float
    quantiles: dict[str, float]  # "0.05", "0.25", "0.5", "0.75", "0.95"
    flipped: float | None  # share of samples whose decision at the threshold differs


@dataclass(frozen=True)
class Group:
    """What is known of one group, of one attribute or of several together.

    What compares with targets is None without them; rates of errors also where targets are not 0 and 1.
    """

    attributes: tuple[str, ...]  # ("sex",), ("sex", "race"), or () for everybody
    labels: tuple[str, ...]  # ("f",)
    count: int
    share: float  # of the weight, which is 1 per sample unless weights are given
    mean: float
    mean_interval: Interval | None  # by itself, as all that follow
    deviation: float  # standard deviation
    decision_rate: Rate | None  # predictions at the threshold or above; None where there are no decisions
    selection: Selection | None = None  # None for everybody
    target_mean: float | None = None  # the base rate, where targets are 0 and 1
    bias: float | None = None  # mean of prediction less target
    root_mean_squared_error: float | None = None
    accuracy: Rate | None = None
    true_positive_rate: Rate | None = None
    false_positive_rate: Rate | None = None
    precision: Rate | None = None
    calibration_error: float | None = None  # mean |prediction - target| over the bins of `calibration`, by weight
    # Of everybody and of groups of one attribute, not of intersections:
    calibration: tuple[CalibrationBin, ...] = ()  # without bins that have no samples
    histogram: Histogram | None = None
    change: Change | None = None  # None without raw outputs

    @property
    def label(self) -> str:
        """For a table that names the attributes: "f", "f & black", "everybody"."""
        return " & ".join(self.labels) if self.attributes else "everybody"

    @property
    def name(self) -> str:
        """For a table: "sex: f", "sex & race: f & black", "everybody"."""
        return f"{' & '.join(self.attributes)}: {self.label}" if self.attributes else "everybody"


@dataclass(frozen=True)
class TradeoffPoint:
    """What projecting outputs onto the constraints would cost, were all tolerances this."""

    tolerance: float | None  # None for the outputs as they are, without constraints
    gap: float  # largest |gap| after projecting
    mean_change: float  # absolute
    root_mean_squared_change: float
    accuracy: float | None  # of decisions at the threshold, where targets are 0 and 1
    root_mean_squared_error: float | None  # against the targets


@dataclass(frozen=True)
class Settings:
    """With what the audit was made."""

    samples: int
    source: str  # "arrays", or the name of a file
    attributes: tuple[str, ...]
    constraints: tuple[str, ...]  # as Python would write them
    confidence: float
    seed: int
    threshold: float | None  # of decisions; None where outputs are amounts rather than probabilities
    bounds: Interval  # range that outputs are taken to have
    weighted: bool
    targets: str | None  # "binary", "numeric", "classes", or None without
    start: str  # of the trade-off: "unconstrained model", "raw outputs" or "predictions"; "" where there is none
    versions: dict[str, str]
    positive: str = ""  # what a decision 1 says, where it is known: "approved = yes"
    margin: str = ""  # what was aimed at so that the population keeps the tolerances, and whether the data are enough


@dataclass(frozen=True)
class Audit:
    """The result of `audit`. `str` and `table()` are for a terminal, `to_html` and `to_card` for a reader."""

    findings: tuple[Finding, ...]  # those that exceed their tolerance most come first
    not_compared: tuple[str, ...]  # groups that are absent, and so cannot be compared
    empty: tuple[str, ...]  # constraints with nobody to compare, as fewer than two groups have samples
    overall: Group
    groups: tuple[Group, ...]  # of every attribute by itself
    intersections: tuple[Group, ...]  # of all attributes together; empty where there is only one
    edges: tuple[float, ...]  # of the bins of histograms
    tradeoff: tuple[TradeoffPoint, ...]  # first without constraints, then ever stricter
    settings: Settings
    notes: tuple[str, ...] = ()  # what could not be computed, and what a reader should know
    history: dict[str, tuple[float, ...]] = field(default_factory=dict)  # training history: name -> one value per epoch
    # Of probabilities of several classes: the audit of each. Findings and groups are then those of all classes, and
    # decisions are predicted classes.
    classes: dict[str, Audit] = field(default_factory=dict)

    @property
    def satisfied(self) -> bool:
        """Whether these very data keep every constraint, as `Finding.holds` says, and each compares something.

        It is about these data. What they say about the population is `verdict`.
        """
        return bool(self.findings) and not self.empty and all(finding.holds for finding in self.findings)

    @property
    def verdict(self) -> Verdict:
        """About the population: violated if one gap is, satisfied if all gaps are and nobody was left uncompared."""
        verdicts = {finding.verdict for finding in self.findings}
        if Verdict.VIOLATED in verdicts:
            return Verdict.VIOLATED
        if verdicts == {Verdict.SATISFIED} and not self.not_compared and not self.empty:
            return Verdict.SATISFIED
        return Verdict.UNDECIDED

    @property
    def worst(self) -> Finding | None:
        """The finding that exceeds its tolerance most, or is nearest to it."""
        return max(self.findings, key=lambda finding: finding.excess, default=None)

    @property
    def decided(self) -> bool:
        """Whether there are decisions, and not all of them the same."""
        rates = [g.decision_rate.value for g in self.groups if g.decision_rate and g.decision_rate.value is not None]
        return any(rate > 0.0 for rate in rates) and any(rate < 1.0 for rate in rates)

    @property
    def selections(self) -> tuple[Group, ...]:
        """Groups and intersections, those with the least impact ratio of their attribute first."""
        groups = (*self.groups, *self.intersections)
        place = list(dict.fromkeys(group.attributes for group in groups))
        return tuple(sorted(groups, key=lambda group: (place.index(group.attributes), _impact(group))))

    @property
    def least_selected(self) -> Group | None:
        """The group with the least impact ratio, of those that are not small; None where there are no decisions."""
        rated = [g for g in self.selections if _impact(g) < math.inf and g.selection and not g.selection.small]
        return min(rated, key=_impact, default=None)

    @property
    def headline(self) -> str:
        """The result in a few sentences."""
        from fairlayer.audit.summary import summarize

        return summarize(self).text

    def table(self, rows: int = 20) -> str:
        """Findings and groups as plain text, at most `rows` lines of each kind."""
        from fairlayer.audit.tables import as_text

        return as_text(self, rows)

    def __str__(self) -> str:
        return self.table()

    def to_dict(self) -> dict[str, Any]:
        """For JSON, with `satisfied` and `verdict` in it; numbers that are not finite are None."""
        return {"satisfied": self.satisfied, "verdict": self.verdict.value, **record_to_plain(self)}

    def to_json(self, path: str | Path | None = None) -> str:
        """The result as JSON, also written to `path` where one is given."""
        text = json.dumps(self.to_dict(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Audit:
        """The result again, from what `to_dict` gave."""
        return record_from_plain(cls, data)

    @classmethod
    def from_json(cls, path: str | Path) -> Audit:
        """The result again, from a file that `to_json` wrote."""
        return cls.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))

    def to_html(self, path: str | Path) -> Path:
        """One self-contained page with plots."""
        from fairlayer.report.page import write_html

        return write_html(self, path)

    def to_card(self, path: str | Path) -> Path:
        """A model card in Markdown."""
        from fairlayer.report.card import write_card

        return write_card(self, path)


def _impact(group: Group) -> float:
    ratio = None if group.selection is None else group.selection.impact_ratio
    return math.inf if ratio is None else ratio
