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


@pytest.mark.parametrize("name", [name for name, tree in FILES.items() if any(map(is_compiled, functions(tree)))])
def test_the_digest_of_compiled_code_covers_all_it_is_made_of(name):
    # The names of numba's cache files carry it: a file left out would go on running its old code.
    module = name.removesuffix(".py").replace("/", ".")
    covered = compiled.sources(module)
    for node in ast.walk(FILES[name]):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("fairlayer."):
            assert node.module.removeprefix("fairlayer.") in covered
            assert set(compiled.sources(node.module.removeprefix("fairlayer."))) <= set(covered)
        assert not (isinstance(node, ast.ImportFrom) and node.level), f"{name}: a relative import is not seen"
        if isinstance(node, ast.Import):
            assert not any(alias.name.startswith("fairlayer") for alias in node.names)


def test_what_does_not_concern_compiled_code_does_not_compile_it_again():
    assert "stream.database" not in compiled.sources("solve.loops")
    assert "solve.tensors" not in compiled.sources("solve.loops")
    assert {"solve.newton", "binding.rows", "solve.loops"} <= set(compiled.sources("solve.loops"))
