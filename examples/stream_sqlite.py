"""A stream of decisions in SQLite: it survives a restart, counts a batch that was sent twice once, and can be audited.

Scores arrive one to four at a time. After every batch the mean scores of all decisions so far differ by at most 0.05
between groups. The process that writes them ends half-way, and another goes on.

    python examples/stream_sqlite.py
"""

import tempfile
from pathlib import Path

import numpy as np

from fairlayer import MeanParity, Stream

TOLERANCE = 0.05


def arrivals(batches: int, seed: int) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Batches: an id, raw scores, and who they are for."""
    random = np.random.default_rng(seed)
    listed = []
    for number in range(batches):
        sex = random.choice(["f", "m"], random.integers(1, 5), p=[0.7, 0.3])
        score = np.clip(random.normal(0.45 + 0.2 * (sex == "m"), 0.15), 0.0, 1.0)
        listed.append((f"batch {number}", score, sex))
    return listed


def decide(file: Path, batches: list[tuple[str, np.ndarray, np.ndarray]]) -> float:
    """Decide some batches, as one process would; return the largest pooled gap on the way."""
    stream = Stream([MeanParity(TOLERANCE)], bounds=(0.0, 1.0), store=file, name="loans")
    largest = 0.0
    for name, score, sex in batches:
        solution = stream.update(score, {"sex": sex}, batch_id=name)
        largest = max(largest, float(np.abs(solution.gaps).max(initial=0.0)))
    stream.close()
    return largest


def main() -> None:
    batches = arrivals(300, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "decisions.db"
        first = decide(file, batches[:150])
        second = decide(file, batches[140:])  # ten of them again: a client that was not sure
        stream = Stream([MeanParity(TOLERANCE)], bounds=(0.0, 1.0), store=file, name="loans")
        certificate, verification = stream.certificate(), stream.verify()
        stream.close()
    print(certificate)
    print(verification)
    assert max(first, second) <= TOLERANCE
    assert certificate.samples == sum(len(score) for _, score, _ in batches)
    assert verification


if __name__ == "__main__":
    main()
