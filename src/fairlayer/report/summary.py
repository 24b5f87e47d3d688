"""What an audit says, in sentences: promised, here, in the population, and what it cannot tell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlayer.audit.numerals import confidence, count, interval, number, stated
from fairlayer.audit.result import Audit, Finding, Verdict
from fairlayer.audit.selection import FOUR_FIFTHS
from fairlayer.audit.text import gap_text
from fairlayer.report.names import isolated, pair, shortened

AMONG = {
    "": "",
    "feature": "among people alike in the stated features, ",
    "target": "among people with similar targets, ",
}
MEANS = {"output": "mean predictions", "residual": "mean errors", "decision": "rates of positive decisions"}

LIMITS = (
    "It is about the averages of groups. It says nothing about any one person.",
    "It takes the targets and the recorded groups at face value: it cannot see if they are right, or who is missing.",
    "It does not say how the decisions affect people, or whether these constraints are the right ones.",
)


@dataclass(frozen=True)
class Answer:
    """The answer to one question: a verdict, a few words, and a sentence or two."""

    verdict: Verdict
    words: str
    text: str


@dataclass(frozen=True)
class Summary:
    """What a person who must sign reads first."""

    headline: str
    promises: tuple[str, ...]
    here: Answer
    population: Answer
    limits: tuple[str, ...]
    decisions: Answer | None = None  # None where there are none

    @property
    def questions(self) -> tuple[tuple[str, Answer], ...]:
        """What is answered at the top of the page."""
        promised = ("In these data", self.here), ("In the population they were drawn from", self.population)
        return promised if self.decisions is None else (*promised, ("In decisions, promised or not", self.decisions))


def summarize(audit: Audit) -> Summary:
    """The four things to know, from the findings alone."""
    here, population = _here(audit), _population(audit)
    decisions = _decisions(audit)
    headline = _headline(here, population, audit)
    if decisions is not None and decisions.verdict is Verdict.VIOLATED:
        headline += "; but some group is selected at less than four fifths of another's rate"
    return Summary(headline, promises(audit), here, population, LIMITS, decisions)


def promises(audit: Audit) -> tuple[str, ...]:
    """One sentence for each constraint and tolerance, naming where it applies."""
    places_of: dict[tuple[str, str], set[str]] = {}
    for finding in audit.findings:
        place = finding.where.removeprefix(finding.constraint).removeprefix(",").strip()
        places_of.setdefault((finding.constraint, _promise(finding)), set()).add(place)
    sentences = [
        f"{name[:1].upper()}{name[1:]}: {promise} ({_listed(sorted(places))})."
        for (name, promise), places in places_of.items()
    ]
    return (*sentences, *(f"{name}: promised, but there are no two groups to compare." for name in audit.empty))


def _promise(finding: Finding) -> str:
    """What the constraint of a finding asks for."""
    among, means, tolerance = AMONG[finding.within], MEANS[finding.quantity], stated(finding.tolerance)
    if finding.comparison == "ratio":
        least = stated(1.0 - finding.tolerance)
        return f"{among}the {means} of every group are at least {least} times those of any other"
    if len(finding.groups) > 1:
        return f"{among}the {means} of any two groups differ by at most {tolerance}"
    if finding.quantity == "residual":
        return f"{among}no group is over- or underestimated by more than {tolerance} on average"
    return f"{among}the {means} of every group are at most {tolerance} from 0"


def _headline(here: Answer, population: Answer, audit: Audit) -> str:
    if not audit.findings:
        return "Nothing could be compared"
    state = "broken" if here.verdict is Verdict.VIOLATED else "kept"
    if audit.empty:
        return f"The promise is {state} in these data where groups can be compared, but some cannot be"
    level = confidence(audit.settings.confidence)
    if population.verdict is Verdict.UNDECIDED:
        return f"The promise is {state} in these data, which are inconclusive about the population"
    there = "kept" if population.verdict is Verdict.SATISFIED else "broken"
    if state == there:
        return f"The promise is {state} in these data and, at {level} confidence, in the population"
    return f"The promise is {state} in these data but, at {level} confidence, {there} in the population"


def _here(audit: Audit) -> Answer:
    """Arithmetic: do these very data keep the constraints?"""
    findings, worst = audit.findings, audit.worst
    if worst is None:
        return Answer(Verdict.UNDECIDED, "Nothing to compare", "Fewer than two groups have samples.")
    broken, compared = sum(not finding.holds for finding in findings), _comparisons(len(findings))
    if broken:
        text = f"{count(broken)} of {compared} beyond the tolerance. The worst is {_place(worst)}."
        return Answer(Verdict.VIOLATED, "Broken", text)
    text = f"{compared} within tolerance. The closest to it is {_place(worst)}."
    if audit.empty:
        return Answer(Verdict.UNDECIDED, "Kept where comparable", text)
    return Answer(Verdict.SATISFIED, "Kept", text)


def _population(audit: Audit) -> Answer:
    """Statistics: what do they say about the population they were drawn from?"""
    words = {Verdict.SATISFIED: "Kept", Verdict.VIOLATED: "Broken", Verdict.UNDECIDED: "Inconclusive"}
    by_verdict = {v: found for v in Verdict if (found := [f for f in audit.findings if f.verdict is v])}
    sentences = [_tally(by_verdict, len(audit.findings))] if by_verdict else []
    decisive = by_verdict.get(audit.verdict, [])
    if decisive and audit.verdict is Verdict.VIOLATED:
        sentences.append(f"The worst is {_reach(decisive[0])}.")
    elif decisive and audit.verdict is Verdict.UNDECIDED:
        sentences.append(_undecided(min(decisive, key=lambda finding: finding.smallest), audit.settings.margin))
    elif decisive:
        nearest = max(decisive, key=lambda finding: max(map(abs, finding.interval or (0.0,))) - finding.tolerance)
        sentences.append(f"The closest to its tolerance is {_reach(nearest)}.")
    if audit.settings.margin:
        sentences.append(audit.settings.margin)
    if audit.not_compared:
        sentences.append(f"Absent, and so not compared: {_listed(audit.not_compared)}.")
    return Answer(audit.verdict, words[audit.verdict], " ".join(sentences) or "There is no interval to judge by.")


def _decisions(audit: Audit) -> Answer | None:
    """The four-fifths rule, whatever was promised: means within tolerance can hide decisions that are far apart."""
    least = audit.least_selected
    if least is None or least.impact_ratio is None or least.impact_ratio == 1.0:
        return None
    ends = "" if least.ratio_interval is None else f" (interval {interval(least.ratio_interval)})"
    of = "Of predicted classes" if audit.classes else f"At a threshold of {stated(audit.settings.threshold)}"
    text = (
        f"{of}, {isolated(shortened(least.name, 60))} is selected at "
        f"{number(least.impact_ratio)} times{ends} the rate of the group selected most."
    )
    if least.impact_ratio < FOUR_FIFTHS:
        return Answer(Verdict.VIOLATED, "Below four fifths", text)
    if least.ratio_interval is not None and least.ratio_interval[0] < FOUR_FIFTHS:
        return Answer(Verdict.UNDECIDED, "Four fifths or more in these data", text)
    return Answer(Verdict.SATISFIED, "Four fifths or more", text)


def _tally(by_verdict: Mapping[Verdict, Sequence[Finding]], total: int) -> str:
    """How many comparisons came out how."""
    if len(by_verdict) == 1:
        (verdict,) = by_verdict
        return f"The one comparison is {verdict.value}." if total == 1 else f"All {count(total)} are {verdict.value}."
    parts = ", ".join(f"{count(len(found))} {verdict.value}" for verdict, found in by_verdict.items())
    return f"{count(total)} comparisons: {parts}."


def _undecided(finding: Finding, margin: str) -> str:
    """Why one is, and what would help."""
    few = f"{count(finding.smallest)} sample{'' if finding.smallest == 1 else 's'} in the smaller group"
    needed = finding.samples_to_decide
    if needed is not None:
        few += f"; about {count(needed)} would be enough to decide"
    elif finding.interval is not None and not margin:  # which says how many would do
        few += "; the gap is right at its tolerance, so no number of samples would decide: aim for a smaller gap"
    return f"For example, {_reach(finding)} ({few})."


def _place(finding: Finding) -> str:
    return f"{pair(finding, 40)}, with a gap of {gap_text(finding)} where {stated(finding.tolerance)} is allowed"


def _reach(finding: Finding) -> str:
    if finding.interval is None:
        return f"{pair(finding, 40)}, for which there is no interval"
    reach = f"with an interval of {interval(finding.interval)}"
    return f"{pair(finding, 40)}, {reach} where {stated(finding.tolerance)} is allowed"


def _comparisons(n: int) -> str:
    return "1 comparison is" if n == 1 else f"{count(n)} comparisons are"


def _listed(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(isolated(shortened(name, 80)) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {count(len(names) - most)} more"
