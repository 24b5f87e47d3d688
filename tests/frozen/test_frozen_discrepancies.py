"""Frozen layers of other discrepancies: the same function of one sample in the module, the program and ONNX."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fairlayer import FairLayer, InputError, MeanParity, freeze, project


def people(n: int = 600) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    groups = {"sex": rng.choice(["f", "m"], n), "age": rng.integers(0, 3, n)}
    return rng.normal(0.0, 1.0, n) + (groups["sex"] == "m") - 0.4 * groups["age"], groups


def outputs(kind: str, logits: np.ndarray) -> np.ndarray:
    return {"entropy": lambda: 1 / (1 + np.exp(-logits)), "kl": lambda: np.exp(logits)}.get(kind, lambda: logits)()


@pytest.mark.parametrize("kind", ["entropy", "logits", "kl"])
def test_on_its_own_sample_it_is_the_projection(kind):
    logits, groups = people()
    z = outputs(kind, logits)
    frozen = freeze(FairLayer([MeanParity(0.02)], discrepancy=kind), z, groups, confidence=None)
    expected = project(z, groups, [MeanParity(0.02)], discrepancy=kind)
    np.testing.assert_allclose(frozen.predict(z, groups), expected.value, atol=1e-9)
    far = outputs(kind, np.array([-30.0, 30.0]))
    served = frozen.predict(far.astype(np.float32), {name: column[:2] for name, column in groups.items()})
    assert (served > 0).all()
    assert kind == "kl" or (served < 1).all()


@pytest.mark.parametrize("kind", ["entropy", "kl"])
def test_export(kind, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is absent")
    pytest.importorskip("onnxscript", reason="onnxscript is absent")
    logits, groups = people()
    z = outputs(kind, logits).astype(np.float32)
    frozen = freeze(FairLayer([MeanParity(0.02)], discrepancy=kind), z, groups, confidence=None)
    codes, expected = frozen.encode(groups), frozen.predict(z, groups)
    assert expected.dtype == np.float32
    program = frozen.export(torch.from_numpy(z[:2]))
    np.testing.assert_allclose(program.module()(torch.from_numpy(z), codes).numpy(), expected, rtol=1e-6)
    frozen.to_onnx(tmp_path / "frozen.onnx", torch.from_numpy(z[:2]))
    session = runtime.InferenceSession(str(tmp_path / "frozen.onnx"))
    (found,) = session.run(None, {"x": z, "groups": codes.numpy()})
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_statement_needs_no_bounds_where_outputs_are_probabilities():
    logits, groups = people(4000)
    for kind in ("entropy", "logits"):
        frozen = freeze(FairLayer([MeanParity(0.02)], discrepancy=kind), outputs(kind, logits), groups)
        assert frozen.certificate is not None
    with pytest.raises(InputError, match="unbounded"):
        freeze(FairLayer([MeanParity(0.02)], discrepancy="kl"), outputs("kl", logits), groups)
