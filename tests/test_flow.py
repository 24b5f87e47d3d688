"""Data flow one way: a module imports from its own room, or from rooms that stand before it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "fairlayer"

# Rooms on one line do not import each other; a room is a folder or a module of `fairlayer`.
FLOW = [
    ("errors", "extras", "arrays", "frames", "nearest", "plural"),
    ("constraints",),
    ("problem",),
    ("solution", "metrics", "intervals"),
    ("core",),
    ("decisions",),
    ("gaps", "margin", "graph"),
    ("request",),
    ("ranks",),
    ("projection",),
    ("layer",),
    ("training", "stream"),
    ("frozen",),
    ("estimators", "tables"),
    ("audit", "warehouse"),
    ("report", "ray"),
    ("fairlayer",),  # the public names
    ("cli",),
    ("__main__",),
]
ONE_ROOM = {"sklearn": "estimators"}  # the public name of the estimators
FOUNDATION = FLOW[0]  # whose modules may import each other

# Against the flow, as things stand. Each is to be removed; none may be added.
EXCEPTIONS = {
    ("audit.result", "report.card"),
    ("audit.result", "report.page"),
}
MODULES = {
    ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in SOURCE.rglob("*.py")
}
RANKS = {room: rank for rank, rooms in enumerate(FLOW) for room in rooms}


def imports(path: Path) -> set[str]:
    """Modules of fairlayer that a file imports, at whatever place in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            members = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {member if member in MODULES else node.module for member in members}
    return {name for name in found if name in MODULES}


def room(module: str) -> str:
    name = module.split(".")[1] if "." in module else module
    return ONE_ROOM.get(name, name)


def goes_back(module: str, imported: str) -> bool:
    here, there = room(module), room(imported)
    if here == there or {here, there} <= set(FOUNDATION):
        return False
    return RANKS[there] >= RANKS[here]


def against_the_flow() -> set[tuple[str, str]]:
    edges = ((module, imported) for module, path in MODULES.items() for imported in imports(path))
    return {tuple(name.removeprefix("fairlayer.") for name in edge) for edge in edges if goes_back(*edge)}


def test_every_room_has_its_place():
    rooms = {room(module) for module in MODULES}
    assert rooms == set(RANKS), "say in FLOW where a new room stands, and take out one that is gone"


def test_nothing_is_imported_against_the_flow():
    assert against_the_flow() - EXCEPTIONS == set(), "a module imports only what stands before it"


def test_exceptions_that_are_mended_are_taken_out():
    assert EXCEPTIONS - against_the_flow() == set(), "these imports are gone: take them out of EXCEPTIONS"


@pytest.mark.parametrize(
    ("module", "imported", "back"),
    [
        ("core.solver", "projection", True),
        ("projection", "core.solver", False),
        ("stream.stream", "training.loop", True),
        ("core.solver", "core.grid", False),
        ("sklearn", "estimators.folder", False),
        ("extras", "errors", False),
        ("errors", "core", True),
    ],
)
def test_what_counts_as_going_back(module, imported, back):
    assert goes_back(f"fairlayer.{module}", f"fairlayer.{imported}") is back
