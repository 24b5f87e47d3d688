"""Groups that are only guessed: a proxy gives probabilities, and the constraint holds for expected means.

The attribute is unknown when the model is used. A proxy, here a logistic curve of a postcode's share, says how likely
each person belongs to the group. The projection with `SoftGroup` makes means weighted by these probabilities agree. How
near the means of the true groups come depends on the proxy: the sharper it is, the nearer.

    python examples/soft_groups.py
"""

import numpy as np

from fairlayer import MeanParity, SoftGroup, project

TOLERANCE = 0.01


def people(n: int, sharpness: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Raw scores, the true group, and the proxy's probability of it."""
    random = np.random.default_rng(seed)
    probability = 1.0 / (1.0 + np.exp(-sharpness * random.normal(size=n)))
    member = random.random(n) < probability
    scores = np.clip(random.normal(0.6 - 0.2 * member, 0.15), 0.0, 1.0)
    return scores, member, probability


def gap(scores: np.ndarray, member: np.ndarray) -> float:
    """The difference of the means of the true groups."""
    return float(abs(scores[member].mean() - scores[~member].mean()))


def main() -> None:
    for sharpness in (1.0, 3.0, 10.0):
        scores, member, probability = people(20_000, sharpness)
        proxy = SoftGroup(np.stack([1.0 - probability, probability], axis=1), labels=["outside", "inside"])
        solution = project(scores, {"group": proxy}, [MeanParity(TOLERANCE)], bounds=(0.0, 1.0))
        assert solution.satisfied
        fair = solution.value
        right = np.mean((probability > 0.5) == member)
        print(
            f"proxy right for {right:.0%}: expected means {abs(solution.gaps[0]):.3f} apart, "
            f"means of the true groups {gap(scores, member):.3f} before and {gap(fair, member):.3f} after"
        )


if __name__ == "__main__":
    main()
