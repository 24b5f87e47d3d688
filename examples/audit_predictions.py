"""Are these predictions fair? An audit before and after the layer, with a page to show and a model card.

Scores of applicants of two sexes and four regions, one of which has three people. The audit answers two questions: do
these data keep the rule (arithmetic), and what do they say about the population (statistics)? The region of three keeps
the rule after the projection, like all others; about the population it stays undecided.

    python examples/audit_predictions.py [FOLDER]
"""

import sys
import tempfile
from pathlib import Path

import numpy as np

from fairlayer import MeanParity, audit, project

TOLERANCE = 0.05


def applicants(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Scores, whether they paid back, and who they are."""
    random = np.random.default_rng(seed)
    groups = {"sex": random.choice(["f", "m"], n), "region": random.choice(["north", "south", "west"], n)}
    groups["region"][:3] = "east"
    chance = np.clip(random.normal(0.55 + 0.1 * (groups["sex"] == "m"), 0.15), 0.02, 0.98)
    return chance, (random.random(n) < chance).astype(float), groups


def main(folder: Path) -> None:
    scores, paid, groups = applicants(6_000)
    before = audit(scores, groups, [MeanParity(TOLERANCE)], targets=paid)
    fair = project(scores, groups, [MeanParity(TOLERANCE)], bounds=(0.0, 1.0)).value
    after = audit(fair, groups, [MeanParity(TOLERANCE)], targets=paid, raw=scores)
    print(before.headline)
    print(after.headline)
    print(after.table(rows=8))
    page, card = after.to_html(folder / "report.html"), after.to_card(folder / "model-card.md")
    print(f"{page.name}: {page.stat().st_size // 1024} kB; {card.name}: {len(card.read_text().splitlines())} lines")
    assert not before.satisfied
    assert after.satisfied
    tiny = [finding for finding in after.findings if "east" in finding.groups]
    assert all(finding.verdict == "undecided" for finding in tiny)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
