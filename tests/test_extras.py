"""Where a package is missing that only a part of fairlayer needs, the error says which extra brings it."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from fairlayer import FairLayer, FairModel, MeanParity, Stream, audit, freeze
from fairlayer.errors import FairlayerError
from fairlayer.extras import MissingExtraError, needs

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "fairlayer"
CLAIMS = ROOT / "experiments" / "results" / "claims.csv"  # any file
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
IMPORTED_AS = {"pillow": "PIL", "scikit-learn": "sklearn"}
OPTIONAL = {
    IMPORTED_AS.get(name, name): name
    for extra in EXTRAS.values()
    for requirement in extra
    if (name := re.match(r"[\w.-]+", requirement)[0]) != "fairlayer"
}
# Imports that need no hint, by file or folder.
SETTLED = {
    ("cli", "rich"),  # the command asks for both before it imports anything else
    ("cli", "typer"),
}


def packages(node: ast.AST) -> list[str]:
    """What a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name.split(".")[0] for alias in node.names]
    return [node.module.split(".")[0]] if isinstance(node, ast.ImportFrom) and node.module else []


def named(node: ast.AST) -> set[str]:
    """What a `with needs(...)` names."""
    calls = [item.context_expr for item in node.items] if isinstance(node, ast.With) else []
    calls = [call for call in calls if isinstance(call, ast.Call) and ast.unparse(call.func) == "needs"]
    return {argument.value for call in calls for argument in call.args[1:]}


def unexplained(node: ast.AST, explained: frozenset[str] = frozenset()) -> set[str]:
    """Optional packages that are imported where no `with needs(...)` around names them."""
    explained |= named(node)
    found = {name for name in packages(node) if OPTIONAL.get(name, name) not in explained and name in OPTIONAL}
    return found.union(*(unexplained(child, explained) for child in ast.iter_child_nodes(node)))


def test_every_import_of_an_optional_package_says_how_to_get_it():
    found = {
        (place, package)
        for path in SOURCE.rglob("*.py")
        for package in unexplained(ast.parse(path.read_text()))
        for place in [path.relative_to(SOURCE).as_posix()]
    }
    found = {(place.split("/")[0] if place.startswith("cli/") else place, package) for place, package in found}
    assert found == SETTLED


def frozen() -> None:
    x, groups = torch.randn(40, 2), {"sex": ["f", "m"] * 20}
    model = FairModel(torch.nn.Linear(2, 1), FairLayer([MeanParity(0.5)], (0.0, 1.0)))
    freeze(model, x, groups).to_onnx("never.onnx", x)


def on_ray() -> None:
    with mock.patch.dict(sys.modules):  # as in a process that has not imported it
        for name in [name for name in sys.modules if name.startswith(("fairlayer.ray", "fairlayer.tables.dataset"))]:
            del sys.modules[name]
        importlib.import_module("fairlayer.ray")


def audited() -> None:
    audit(np.arange(4.0), {"sex": ["f", "m", "f", "m"]}, [MeanParity(0.5)]).to_html("never.html")


@pytest.mark.parametrize(
    ("module", "package", "use"),
    [
        ("duckdb", "duckdb", lambda: audit(CLAIMS, "verdict", [MeanParity(0.5)], prediction="x")),
        ("jinja2", "jinja2", audited),
        ("psycopg", "psycopg", lambda: Stream([MeanParity(0.5)], store="postgresql://localhost/x", name="x")),
        ("onnxscript", "onnx and onnxscript", frozen),
        ("ray.data", "ray and pyarrow", on_ray),
    ],
)
def test_a_missing_package(module, package, use, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    hint = rf" needs {package} \(.*\): pip install 'fairlayer\[\w+\]'\.$"
    with pytest.raises(MissingExtraError, match=hint) as caught:
        use()
    assert isinstance(caught.value, FairlayerError)


def installed(monkeypatch, *requirements: str) -> None:
    monkeypatch.setattr(metadata, "requires", lambda _: list(requirements))


def test_the_extra_is_the_smallest_that_brings_all(monkeypatch):
    installed(
        monkeypatch,
        "torch>=2",
        "scikit-learn>=1.6; extra == 'all'",
        "Jinja2>=3; extra == 'all'",
        'scikit-learn>=1.6; extra == "estimators"',
        "psycopg[binary]>=3.2; extra == 'all'",
    )
    for names, extra in (
        (["scikit-learn"], "'fairlayer[estimators]'"),
        (["scikit-learn", "jinja2"], "'fairlayer[all]'"),
        (["psycopg"], "'fairlayer[all]'"),
        (["scikit-learn", "other"], "scikit-learn other"),
    ):
        with pytest.raises(MissingExtraError, match=re.escape(f"pip install {extra}.")), needs("This", *names):
            raise ImportError


def test_without_having_been_installed_the_package_itself_is_named(monkeypatch):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", absent)
    hint = r"^This needs jinja2 \(gone\): pip install jinja2\.$"
    with pytest.raises(MissingExtraError, match=hint), needs("This", "jinja2"):
        raise ImportError("gone")


# Runs without the packages of all extras, as if they had never been installed.
BARE = """
import sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.split(".")[0] in HIDDEN else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(PathFinder)] = Bare
import fairlayer
try:
    import fairlayer.sklearn
except ModuleNotFoundError as error:
    print(error)
from fairlayer.cli import main
main()
"""


def test_what_a_bare_installation_says():
    script = f"HIDDEN = {list(OPTIONAL)}\n{BARE}"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    hint = r" \(.*\): pip install 'fairlayer\[\w+\]'\.\n"
    assert re.fullmatch(rf"fairlayer\.sklearn needs scikit-learn{hint}", done.stdout)
    assert re.fullmatch(rf"The command line needs typer and rich{hint}", done.stderr)
    assert done.returncode == 2
