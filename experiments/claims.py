"""The table of claims: what the paper says, what its authors' stored results give, what is measured here, a verdict.

The paper's statements and figures are data, in `published/claims/NAME.csv` (id, claim, published). An experiment
computes a `Finding` for each from its results; one without a finding has not been run. Verdicts follow from the
measured figures by the same rules for all claims: `RULES`, which the table begins with, and which `in_all`, `at_least`,
`at_most` and `together` carry out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from experiments.tables import PUBLISHED, markdown, read_csv, write_csv
from fairlayer.errors import FairlayerError

COLUMNS = ("experiment", "claim", "published", "stored", "measured", "verdict", "profile")


class Verdict(StrEnum):
    """What is to be said of a claim after the measurement."""

    HOLDS = "holds"
    PARTLY = "holds in part"
    FAILS = "does not hold"
    NOT_RUN = "not run"


RULES = """Verdicts follow from the measured figures by these rules, which are the same for all claims:

- What is claimed of every case (split, set, seed, network, output) holds if it is so in all of those measured, and
  holds in part if it is so in at least half of them.
- A claimed figure holds if the one measured is at least as good: for a range as its less favourable end, for "about x"
  as x less a tenth. It holds in part if it is at least half as good, and on the same side of zero.
- A claim without a figure that is not of every case is held to the figure of the authors' stored results.
- A claim of several parts, or of a figure in several settings, holds if it holds in each, and holds in part if it holds
  in at least half of them, if only in part.
- Accuracies that differ by at most 0.005 are similar, and such a difference negligible; one that is lower by more than
  0.05 is far below.
- Figures in brackets are there to compare, and are not judged.
- The profile `medium` is less than the paper had: its verdicts are of what was run.
"""


def in_all(cases: int, of: int) -> Verdict:
    """Of a claim on every case: in how many of them it is so."""
    return Verdict.HOLDS if cases == of else Verdict.PARTLY if 2 * cases >= of else Verdict.FAILS


def at_least(measured: float, claimed: float) -> Verdict:
    """Of a claimed figure above zero of which more is better; claimed: its lower end."""
    return Verdict.HOLDS if measured >= claimed else Verdict.PARTLY if 2 * measured >= claimed else Verdict.FAILS


def at_most(measured: float, claimed: float) -> Verdict:
    """Of a claimed figure above zero of which less is better; claimed: its upper end."""
    return at_least(claimed, measured)


def together(verdicts: Iterable[Verdict]) -> Verdict:
    """Of a claim with several parts, or in several settings."""
    parts = list(verdicts)
    if all(part is Verdict.HOLDS for part in parts):
        return Verdict.HOLDS
    return Verdict.PARTLY if 2 * sum(part is not Verdict.FAILS for part in parts) >= len(parts) else Verdict.FAILS


def about(figure: float) -> float:
    """The lower end of a figure that is given as "about" so much."""
    return 0.9 * figure


@dataclass(frozen=True)
class Finding:
    """What was found about a claim, ready to be read; stored: what the authors' own result files give."""

    measured: str
    verdict: Verdict
    stored: str = ""


def published_claims(name: str) -> list[dict[str, str]]:
    """The paper's claims about an experiment: id, claim, published."""
    path = PUBLISHED / "claims" / f"{name}.csv"
    return read_csv(path) if path.exists() else []


def published_number(name: str, identity: str) -> float:
    """The first number in what is published on a claim."""
    text = next(claim["published"] for claim in published_claims(name) if claim["id"] == identity)
    found = re.search(r"\d+(\.\d+)?", text)
    if found is None:
        raise FairlayerError(f"There is no number in what is published on {name}, {identity}: {text!r}.")
    return float(found.group())


def write_claims(folder: Path, names: Sequence[str], findings: Mapping[str, tuple[str, Mapping[str, Finding]]]) -> None:
    """Write claims.csv and claims.md; findings: by experiment, the profile they come from and the findings by id."""
    rows = []
    for name in names:
        profile, found = findings.get(name, ("", {}))
        claims = published_claims(name)
        if unknown := set(found) - {claim["id"] for claim in claims}:
            raise FairlayerError(f"{name} has findings on {sorted(unknown)}, which published/claims does not list.")
        for claim in claims:
            finding = found.get(claim["id"], Finding("", Verdict.NOT_RUN))
            cells = (name, claim["claim"], claim["published"], finding.stored, finding.measured, finding.verdict.value)
            rows.append(dict(zip(COLUMNS, (*cells, profile), strict=True)))
    if rows:
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(folder / "claims.csv", rows)
        (folder / "claims.md").write_text(f"{RULES}\n{markdown(rows)}\n")
