"""What is compiled says so itself: no list of compiled sources is kept anywhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from fairlayer import compiled

SOURCE = Path(compiled.__file__).parent
FILES = {path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}


def is_compiled(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(decorator).split("(")[0] == "compiled" for decorator in function.decorator_list)


def is_annotated(function: ast.FunctionDef) -> bool:
    arguments = function.args
    listed = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return function.returns is not None or any(argument.annotation for argument in listed)


def functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_function_has_types_unless_numba_infers_them(name):
    for function in functions(FILES[name]):
        assert is_annotated(function) != is_compiled(function), f"{name}, line {function.lineno}: {function.name}"


def test_every_file_with_compiled_functions_is_part_of_the_digest():
    # The names of numba's cache files carry a digest of these: a file left out would go on running its old code.
    found = {name for name, tree in FILES.items() if any(map(is_compiled, functions(tree)))}
    assert found
    assert found <= {source.relative_to(SOURCE).as_posix() for source in compiled._SOURCES}
