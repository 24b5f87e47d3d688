"""Nothing is compiled inside a transaction: all that a stream runs is ready when it has been opened."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from fairlayer import (
    ConditionalParity,
    EqualizedOdds,
    EqualizedResiduals,
    MeanParity,
    RateParity,
    ResidualMean,
    Stream,
)


def signatures():
    """How many versions there are of every compiled function."""
    from numba.core.dispatcher import Dispatcher

    return {
        f"{module.__name__}.{name}": len(value.overloads)
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith("fairlayer.")
        for name, value in vars(module).items()
        if isinstance(value, Dispatcher)
    }


def forms_of(z, dtype):
    """Outputs in every form that a stream takes them in."""
    values = z.astype(dtype)
    frozen = values.copy()
    frozen.flags.writeable = False
    return [values, values[:, None], frozen, np.repeat(values, 2)[::2], torch.from_numpy(values), frozen[:1]]


def groups_of(n):
    """Groups in every form."""
    table = np.arange(2 * n).reshape(n, 2) % 3
    frozen = table.copy()
    frozen.flags.writeable = False
    words = {"a": [f"x{label}" for label in table[:, 0]], "b": table[:, 1] % 2 == 0}
    return [
        [table, np.asfortranarray(table), frozen, table.astype(np.int32), torch.from_numpy(table), table[::-1]],
        [words, pd.DataFrame(words)],
        [{"a": table[:, 0].copy(), "b": frozen[:, 1]}, pd.DataFrame(table, columns=["a", "b"])],
    ]


def go_through(policy, folder):
    """Streams of all kinds, one after another."""
    rng = np.random.default_rng(0)
    targets = np.array([0.0, 1.0, 1.0, 0.0, 1.0, 0.0])
    features = {"x": np.linspace(0, 1, 6)}
    conditional = ConditionalParity(0.01, regions={"x": [(None, 0.5), (0.4, None)]})
    kinds = [
        [MeanParity(0.01)],
        [MeanParity(0.0, over=["a", ("a", "b")]), conditional],
        [MeanParity(0.0)],
        [EqualizedOdds(0.01), MeanParity(0.02)],
        [EqualizedResiduals(0.01)],
        [ResidualMean(0.0)],
    ]
    if policy == "decisions":
        policy, kinds = (
            "ledger",
            [[RateParity(0.01)], [RateParity(0.0, over=["a", ("a", "b")])], [RateParity(ratio=0.9)]],
        )
    decides = kinds[0][0].quantity == "decision"
    for number, constraints in enumerate(kinds):
        each = [False, True] if policy == "ledger" and not decides else [False]
        for dtype in (np.float32, np.float64):
            for alike, groups_alike in enumerate(groups_of(6)):
                if number == 1 and alike == 0:
                    continue  # a table has no columns a and b
                for each_batch in each:
                    name = f"{number}{np.dtype(dtype).name}{alike}{each_batch}"
                    options = {"bounds": (0, 1), "b_tau": 4, "policy": policy, "each_batch": each_batch}
                    stream = Stream(constraints, store=folder / "a.db", name=name, **options)
                    with stream.transaction():
                        for groups in groups_alike:
                            for z in forms_of(rng.random(6), dtype):
                                n = len(z)
                                here = (
                                    groups[:n]
                                    if not isinstance(groups, dict)
                                    else {k: v[:n] for k, v in groups.items()}
                                )
                                part = {
                                    "targets": targets[:n] + (number == 5) * 9,
                                    "features": {"x": features["x"][:n]},
                                }
                                stream.update(z, here, **part)
                                if policy == "ledger" and stream.settings.rules.needs_targets:
                                    ids = [f"{stream.certificate().entries}-{i}" for i in range(n)]
                                    stream.update(z, here, ids=ids, features=part["features"])
                                    stream.observe(ids, targets[:n])
                    stream.certificate()
                    stream.close()


@pytest.mark.parametrize("policy", ["ledger", "primal-dual", "decisions"])
def test_an_open_stream_compiles_nothing_more(policy, tmp_path):
    """In a process of its own: in this one, other tests have compiled what this one is after."""
    done = subprocess.run([sys.executable, __file__, policy, tmp_path], capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing compiled" in done.stdout


def main(policy, folder):
    first = {"constraints": [MeanParity(0.01)], "policy": policy}
    Stream(**(first if policy != "decisions" else {"constraints": [RateParity(0.01)]}), store=Path(folder) / "first.db")
    before, modules = signatures(), set(sys.modules)
    assert sum(before.values()) > 20
    go_through(policy, Path(folder))
    after = signatures()
    more = {name: count - before.get(name, 0) for name, count in after.items() if count != before.get(name, 0)}
    late = sorted(name for name in set(sys.modules) - modules if name.split(".")[0] in ("fairlayer", "scipy", "numba"))
    print(f"compiled: {more}; loaded: {late}" if more or late else "nothing compiled")


if __name__ == "__main__":
    main(*sys.argv[1:])
