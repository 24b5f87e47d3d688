"""`fairlayer stream` with a store in PostgreSQL; tests/cli has the rest."""

import numpy as np
import pytest

from fairlayer import MeanParity, Stream

pytest.importorskip("typer")
pytest.importorskip("duckdb")
pytest.importorskip("jinja2")


def test_a_store_in_postgresql(tmp_path, postgres):
    from typer.testing import CliRunner

    from fairlayer.cli.app import app

    url = postgres.replace("postgres@", "postgres:S3CRET@")
    stream = Stream([MeanParity(0.05)], store=url, name="loans")
    for _ in range(5):
        stream.update(np.array([0.2, 0.8]), {"sex": ["f", "m"]})
    result = CliRunner().invoke(app, ["stream", "certificate", url, "-o", str(tmp_path / "c.html")])
    assert result.exit_code == 0, result.stderr
    assert "5 entries, as written" in result.stdout
    for text in (result.stdout, (tmp_path / "c.html").read_text(), (tmp_path / "c.json").read_text()):
        assert "S3CRET" not in text
    assert CliRunner().invoke(app, ["stream", "verify", url]).exit_code == 0
