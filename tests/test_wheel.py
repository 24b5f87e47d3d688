"""The wheel has all of the package and nothing else; `./dev wheel` tries it in an empty environment."""

from __future__ import annotations

import re
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import fairlayer
from wheels import ROOT, build

pytest.importorskip("scikit_build_core", reason="scikit-build-core is not installed")
SOURCE = ROOT / "src" / "fairlayer"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # Without the compiled module, which takes a while: `./dev wheel` looks for it.
    return build(tmp_path_factory.mktemp("wheel"), "--config-settings=wheel.cmake=false")


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path, names: set[str]) -> Message:
    (path,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(zipfile.ZipFile(wheel).read(path).decode())


def test_it_has_the_whole_package_and_nothing_else(names: set[str]) -> None:
    package = {
        f"fairlayer/{path.relative_to(SOURCE).as_posix()}"
        for path in SOURCE.rglob("*")
        if path.is_file() and not {"__pycache__", "native"} & set(path.parts) and not path.name.startswith("_native.")
    }
    assert {name for name in names if ".dist-info/" not in name} == package
    assert {"fairlayer/py.typed", "fairlayer/report/templates/page.html.jinja"} <= package


def test_it_has_the_licence(wheel: Path, names: set[str]) -> None:
    (path,) = (name for name in names if name.endswith(".dist-info/licenses/LICENSE"))
    assert zipfile.ZipFile(wheel).read(path) == (ROOT / "LICENSE").read_bytes()


def test_it_has_one_version(metadata: Message) -> None:
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert metadata["Version"] == fairlayer.__version__ == citation[1].strip("\"'")


def test_without_extras_it_needs_three_packages(metadata: Message) -> None:
    plain = [entry for entry in metadata.get_all("Requires-Dist") if "extra ==" not in entry]
    assert {re.match(r"[\w.-]+", entry)[0] for entry in plain} == {"torch", "numpy", "scipy"}
