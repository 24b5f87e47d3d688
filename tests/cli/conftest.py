"""What the tests of the command line share."""

from __future__ import annotations

import pytest

pytest.importorskip("typer")
pytest.importorskip("duckdb")
pytest.importorskip("jinja2")

from people import FIT, people, write
from typer.testing import CliRunner

from fairlayer.cli.app import app


@pytest.fixture(scope="session")
def run():
    """Run a command; the result has exit_code, stdout and stderr. code: what the first must be."""

    def invoke(*arguments, code=None):
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert code in (None, result.exit_code), result.stdout + result.stderr
        return result

    return invoke


@pytest.fixture
def table(tmp_path):
    """A CSV file of people."""
    return write(people(), tmp_path / "people.csv")


@pytest.fixture(scope="session")
def classifier(run, tmp_path_factory):
    """A model folder for `approved`."""
    folder = tmp_path_factory.mktemp("classifier")
    data = write(people(), folder / "people.csv")
    run("fit", data, "--target", "approved", "--ignore", "amount", *FIT, "-o", folder / "model", code=0)
    return folder / "model"
