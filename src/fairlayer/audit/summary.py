"""What an audit says, in sentences: promised, here, in the population, and what it cannot tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fairlayer.audit.result import Audit, Finding, Verdict
from fairlayer.audit.selection import FOUR_FIFTHS
from fairlayer.audit.tables import gap_text, pair
from fairlayer.audit.words import confidence, count, interval, isolated, number, shortened, stated, typed

AMONG = {
    "": "",
    "feature": "among people alike in the stated features, ",
    "target": "among people with similar targets, ",
}
MEANS = {"output": "mean predictions", "residual": "mean errors", "decision": "rates of positive decisions"}

HERE, POPULATION = "In these data", "In the population they were drawn from"
DECISIONS = "In decisions, promised or not"
LIMITS = (
    "It is about the averages of groups. It says nothing about any one person.",
    "It takes the targets and the recorded groups at face value: it cannot see if they are right, or who is missing.",
    "It does not say how the decisions affect people, or whether these constraints are the right ones.",
)


@dataclass(frozen=True)
class Answer:
    """The answer to one question: a verdict, a few words, a sentence or two, and an example."""

    verdict: Verdict
    words: str
    sentence: str
    example: str = ""

    @property
    def text(self) -> str:
        """The sentence with the example."""
        return f"{self.sentence} {self.example}".strip()


@dataclass(frozen=True)
class Summary:
    """What a person who must sign reads first."""

    headline: str
    promises: tuple[str, ...]
    questions: Mapping[str, Answer]
    limits: tuple[str, ...]

    @property
    def text(self) -> str:
        """All answers in plain characters."""
        return typed(" ".join(answer.sentence for answer in self.questions.values() if answer.sentence))


def summarize(audit: Audit) -> Summary:
    """What to know, from the findings alone."""
    here, population, decisions = _here(audit), _population(audit), _decisions(audit)
    headline, questions = _headline(here, population, audit), {HERE: here, POPULATION: population}
    if decisions is not None:
        questions[DECISIONS] = decisions
        if decisions.verdict is Verdict.VIOLATED:
            headline += "; some group is selected at less than four fifths of another's rate"
    return Summary(headline, _promises(audit), questions, LIMITS)


def _promises(audit: Audit) -> tuple[str, ...]:
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
    worst, samples = audit.worst, f"in these {count(audit.settings.samples)} samples."
    if worst is None:
        text = "Nothing can be compared: fewer than two groups have samples."
        return Answer(Verdict.UNDECIDED, "Nothing to compare", text)
    gap = f"{pair(worst, 40)}, with a gap of {gap_text(worst)} where {stated(worst.tolerance)} is allowed"
    beyond = sum(not finding.holds for finding in audit.findings)
    if beyond:
        words = exceeding(beyond, len(audit.findings))
        return Answer(Verdict.VIOLATED, "Broken", f"{words[0].upper()}{words[1:]} {samples}", f"The worst is {gap}.")
    nearest = f"The closest to it is {gap}."
    if audit.empty:
        text = f"Some constraints have nothing to compare: {_listed(audit.empty)}. All other gaps are within tolerance."
        return Answer(Verdict.UNDECIDED, "Kept where comparable", text, nearest)
    return Answer(Verdict.SATISFIED, "Kept", f"Every gap is within its tolerance {samples}", nearest)


def exceeding(part: int, whole: int) -> str:
    """How many of all gaps are beyond their tolerances."""
    if whole == 1:
        return "the gap exceeds its tolerance"
    return f"{count(part)} of {count(whole)} gaps {'exceeds its tolerance' if part == 1 else 'exceed their tolerances'}"


def _population(audit: Audit) -> Answer:
    """Statistics: what do they say about the population they were drawn from?"""
    verdict, margin, level = audit.verdict, audit.settings.margin, confidence(audit.settings.confidence)
    words = {Verdict.SATISFIED: "Kept", Verdict.VIOLATED: "Broken", Verdict.UNDECIDED: "Inconclusive"}[verdict]
    absent = f"Absent, and so not compared: {_listed(audit.not_compared)}." if audit.not_compared else ""
    if not audit.findings:
        return Answer(verdict, words, "", absent or "There is no interval to judge by.")
    counts, total = Counter(finding.verdict for finding in audit.findings), len(audit.findings)
    listed = ", ".join(f"{count(counts[v])} {v.value}" if total > 1 else v.value for v in Verdict if counts[v])
    sentence = f"In the population, at {level} confidence: {listed}{_why(audit)}. {margin}".strip()
    decisive, example = [finding for finding in audit.findings if finding.verdict is verdict], ""
    if decisive and verdict is Verdict.VIOLATED:
        example = f"The worst is {_reach(decisive[0])}."
    elif decisive and verdict is Verdict.UNDECIDED:
        smallest = min(decisive, key=lambda finding: finding.smallest)
        example = f"For example, {_reach(smallest)} ({_few(smallest)})."
    elif decisive:
        nearest = max(decisive, key=lambda finding: max(map(abs, finding.interval or (0.0,))) - finding.tolerance)
        example = f"The closest to its tolerance is {_reach(nearest)}."
    return Answer(verdict, words, sentence, f"{example} {absent}".strip())


def _why(audit: Audit) -> str:
    """Why gaps are undecided: more samples would help, unless a gap is just at its tolerance."""
    undecided = [finding for finding in audit.findings if finding.verdict is Verdict.UNDECIDED]
    at = sum(finding.samples_to_decide is None for finding in undecided)
    if not at:
        return " (too few samples to tell)" if undecided else ""
    if audit.settings.margin:  # who aimed for smaller gaps already needs more samples
        return " (too few samples to leave room)"
    which = f"{count(at)} gap{' is' if at == 1 else 's are'}" if len(audit.findings) > 1 else "the gap is"
    return f" ({which} right at the tolerance: aim for {'a smaller one' if at == 1 else 'smaller ones'} to leave room)"


def _decisions(audit: Audit) -> Answer | None:
    """The four-fifths rule, whatever was promised: means within tolerance can hide decisions that are far apart."""
    least = audit.least_selected
    ratio = None if least is None or least.selection is None else least.selection.impact_ratio
    if least is None or least.selection is None or ratio is None or ratio == 1.0:
        return None
    of = "Predicted classes" if audit.classes else f"Decisions at {stated(audit.settings.threshold)}"
    text = (
        f"{of}: {isolated(shortened(least.name, 60))} is selected at {number(ratio)} times the rate of the group "
        f"selected most{', below four fifths' if ratio < FOUR_FIFTHS else ''}."
    )
    ends = least.selection.ratio_interval
    example = "" if ends is None else f"The interval is {interval(ends)}."
    if ratio < FOUR_FIFTHS:
        return Answer(Verdict.VIOLATED, "Below four fifths", text, example)
    if ends is not None and ends[0] < FOUR_FIFTHS:
        return Answer(Verdict.UNDECIDED, "Four fifths or more in these data", text, example)
    return Answer(Verdict.SATISFIED, "Four fifths or more", text, example)


def statement(finding: Finding) -> str:
    """What a finding says of these data and of the population."""
    here = f"{'within' if finding.holds else 'beyond'} tolerance in these data; {finding.verdict.value}"
    few = f" ({_few(finding)})" if finding.verdict is Verdict.UNDECIDED else ""
    return f"{here} for the population{few}"


def _few(finding: Finding) -> str:
    few = f"{count(finding.smallest)} sample{'' if finding.smallest == 1 else 's'} in the smaller group"
    needed = finding.samples_to_decide
    return few if needed is None else f"{few}; about {count(needed)} would be enough to decide"


def _reach(finding: Finding) -> str:
    if finding.interval is None:
        return f"{pair(finding, 40)}, for which there is no interval"
    reach = f"with an interval of {interval(finding.interval)}"
    return f"{pair(finding, 40)}, {reach} where {stated(finding.tolerance)} is allowed"


def _listed(names: Sequence[str], most: int = 4) -> str:
    shown = ", ".join(isolated(shortened(name, 80)) for name in names[:most])
    return shown if len(names) <= most else f"{shown} and {count(len(names) - most)} more"
