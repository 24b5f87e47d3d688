"""The paper's experiments on fairlayer's public interface; `python -m experiments NAME` runs one.

Each experiment is a module with an `EXPERIMENT` (see `experiments.runner`); results are kept in `results/`, the
published figures they are put beside in `published/`.
"""

from pathlib import Path

NAMES = ("employee", "loan", "synthetic", "fairface", "celeba", "beyond")
RESULTS = Path(__file__).parent / "results"
