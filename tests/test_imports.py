"""What an import loads, and that public names are found whatever was loaded before."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import fairlayer

HEAVY = {"torch", "scipy", "sklearn", "pandas", "numpy", "duckdb", "torch._dynamo"}


def loaded_by(code: str) -> set[str]:
    """The modules that a new process has loaded after running some code."""
    script = f"import sys\n{code}\nprint('LOADED', *sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(run.stdout.rpartition("LOADED")[2].split())


def test_the_package_loads_nothing():
    assert not HEAVY & loaded_by("import fairlayer; dir(fairlayer); fairlayer.__version__")


def test_the_layer_does_not_load_the_compiler_of_torch():
    use = "import torch\nfrom fairlayer import FairLayer, MeanParity, project\n"
    use += "FairLayer([MeanParity(0.1)])(torch.randn(8), torch.arange(8) % 2)"
    assert "torch._dynamo" not in loaded_by(use)


def test_a_public_name_is_found_where_it_is_at_home():
    """The imports for type checkers, the names listed and the homes of the names are the same."""
    stated = {}
    for node in ast.walk(ast.parse(Path(fairlayer.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("fairlayer."):
            stated |= {entry.name: str(node.module) for entry in node.names}
    assert sorted(stated) == sorted(fairlayer.__all__)
    for name, home in stated.items():
        assert getattr(fairlayer, name) is getattr(import_module(home), name)
    assert set(fairlayer.__all__) <= set(dir(fairlayer))


def test_a_name_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'fairlayer' has no attribute 'Fairlayer'"):
        fairlayer.Fairlayer  # noqa: B018
    with pytest.raises(ImportError):
        from fairlayer import nothing  # noqa: F401


@pytest.mark.parametrize("first", ["import fairlayer.audit", "from fairlayer.audit import Audit", "pass"])
def test_the_function_audit_is_not_hidden_by_its_module(first):
    loaded_by(
        f"{first}\nfrom fairlayer import audit\nimport fairlayer\nassert callable(audit) and fairlayer.audit is audit"
    )
