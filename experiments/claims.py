"""The table of claims: what the paper says, what its authors' stored results give, what is measured here, a verdict.

The paper's statements and figures are data, in `published/claims/NAME.csv` (id, claim, published). An experiment
computes a `Finding` for each from its results; one without a finding has not been run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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


def verdict(holds: bool, partly: bool = False) -> Verdict:
    """From a comparison: whether the claim holds, and if not, whether a part of it does."""
    return Verdict.HOLDS if holds else Verdict.PARTLY if partly else Verdict.FAILS


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
        (folder / "claims.md").write_text(markdown(rows) + "\n")
