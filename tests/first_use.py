"""The first things a user does, in one process: a layer forward and backward, a stream with a store, an audit.

Run as a script, in the folder for the stream's file: on a wheel in an empty environment, and wherever wheels are built.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch

from fairlayer import FairLayer, MeanParity, Stream, audit
from fairlayer.core import _native

GROUPS = {"sex": ["f"] * 50 + ["m"] * 50}


def use_layer() -> torch.Tensor:
    """Project a batch and take its gradient."""
    z = torch.linspace(0, 1, 100, requires_grad=True)
    y = FairLayer([MeanParity(0.02)], bounds=(0.0, 1.0))(z, groups=GROUPS)
    y.sum().backward()
    assert abs(y[:50].mean() - y[50:].mean()) <= 0.02 + 1e-6
    assert torch.isfinite(z.grad).all()
    return y.detach()


def use_stream(store: Path) -> None:
    """Emit twenty scores one by one, and verify the log."""
    stream = Stream([MeanParity(0.05)], bounds=(0, 1), store=store, name="smoke")
    for score in np.random.default_rng(0).random(20):
        stream.update([score], {"sex": ["f" if score < 0.5 else "m"]})
    assert stream.verify()
    assert max(map(abs, stream.gaps().values())) <= 0.05


def main(folder: Path) -> None:
    """Use the package; the stream's file goes into the folder."""
    assert _native.__file__
    y = use_layer()
    use_stream(folder / "decisions.db")
    assert audit(y, GROUPS, [MeanParity(0.02)]).satisfied


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
