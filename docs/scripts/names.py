"""The public names of the package: what every module with an `__all__` lists there."""

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2] / "src"

# What goes with a module though it is defined elsewhere: what users are handed but never make, how models are kept.
ALONGSIDE = {
    "fairlayer": [
        "fairlayer.frozen.frozen.Frozen",
        "fairlayer.frozen.certificate.Certificate",
        "fairlayer.frozen.certificate.GapBound",
    ],
    "fairlayer.sklearn": [
        "fairlayer.estimators.estimator.FairEstimator",
        "fairlayer.estimators.folder.save",
        "fairlayer.estimators.folder.load",
    ],
    "fairlayer.stream": ["fairlayer.stream.certificate.ConstraintReport", "fairlayer.stream.certificate.GroupReport"],
}


def public_modules() -> list[str]:
    """Every module that has an `__all__`, the package itself first."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        if parts[-1] == "__init__":
            parts = parts[:-1]
        if not any(part.startswith("_") for part in parts) and _lists_names(path):
            found.append(".".join(parts))
    return sorted(found)


def public_names(module: str) -> list[str]:
    """What a module lists in its `__all__`."""
    return list(import_module(module).__all__)


def address(module: str, name: str) -> str:
    """Where the documentation of a name is: under the module that lists it, unless a submodule of its name hides it."""
    home = getattr(getattr(import_module(module), name), "__module__", module)
    return f"{home}.{name}" if f"{module}.{name}" in sys.modules else f"{module}.{name}"


def sections(module: str) -> Iterator[tuple[str, str, list[str]]]:
    """The names of a module by where they are defined: that module's name and summary, and the names' paths."""
    grouped: dict[str, list[str]] = {}
    for name in public_names(module):
        home = getattr(getattr(import_module(module), name), "__module__", module)
        grouped.setdefault(home, []).append(address(module, name))
    for path in ALONGSIDE.get(module, []):
        grouped.setdefault(path.rpartition(".")[0], []).append(path)
    for home, paths in grouped.items():
        summary = (import_module(home).__doc__ or "").strip().split("\n\n")[0]
        yield home, " ".join(summary.split()), paths


def _lists_names(path: Path) -> bool:
    """Whether a file assigns `__all__`."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets):
            return True
    return False
