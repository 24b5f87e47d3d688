"""Counts: expected numbers of visits, whose group means agree, by a discrepancy of their own.

A clinic plans for the visits that it expects of each patient in a year. The model says fewer for one district, whose
people came less often in the past for lack of a bus. The means of the districts are to differ by at most 0.1 visits.
With `discrepancy="kl"` counts are multiplied rather than shifted: they stay positive, without a bound, and those who
need much are moved more than those who need little.

    python examples/counts.py
"""

import numpy as np

from fairlayer import MeanParity, Stream, project

TOLERANCE = 0.1


def expected_visits(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """What a model of the past says, and the districts."""
    rng = np.random.default_rng(seed)
    district = rng.choice(["north", "south"], n, p=[0.3, 0.7])
    return np.exp(rng.normal(0.3, 0.8, n) - 0.5 * (district == "north")), district


def main() -> None:
    visits, district = expected_visits(5000, 0)
    for kind, bounds in (("squared", (0.0, None)), ("kl", None)):
        fair = project(visits, {"district": district}, [MeanParity(TOLERANCE)], bounds, discrepancy=kind).value
        means = {name: round(float(fair[district == name].mean()), 3) for name in ("north", "south")}
        ratio = (fair / visits)[district == "south"]
        print(f"{kind}: means {means}; {(fair == 0).mean():.1%} are planned for no visit; ", end="")
        print(f"in the south multiplied by {ratio.min():.2f} to {ratio.max():.2f}")
        assert abs(means["north"] - means["south"]) <= TOLERANCE + 1e-3
    assert (fair > 0).all()

    # Patients come one by one: the pooled means agree after every one of them.
    stream = Stream([MeanParity(TOLERANCE)], discrepancy="kl", warm_start=(visits, {"district": district}))
    new, where = expected_visits(300, 1)
    widest = 0.0
    for i in range(len(new)):
        gaps = stream.update(new[i : i + 1], {"district": where[i : i + 1]}).gaps
        widest = max([widest, *np.abs(gaps)])
    print(f"one by one: the pooled gap was never above {widest:.3f}")
    assert widest <= TOLERANCE


if __name__ == "__main__":
    main()
