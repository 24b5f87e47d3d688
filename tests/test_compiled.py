"""What is compiled says so itself: no list of compiled sources is kept anywhere."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fairlayer import compiled
from fairlayer.solve.newton import gram

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


_RUN = """
import numpy as np
from numba.core import event
from fairlayer.binding.exact_sums import exact_sums

class Compiled(event.Listener):
    def on_start(self, event):
        print(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass

event.register("numba:compile", Compiled())
S, error = np.empty(2), np.empty(2)
exact_sums(np.array([0.1, 0.2, 0.3]), np.array([0, 1, 0], dtype=np.int32), np.empty(0), S, error)
print(S.tolist())
"""


def test_what_is_called_by_its_address_is_loaded_with_its_caller(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))

    def run() -> list[str]:
        return subprocess.run([sys.executable, "-c", _RUN], capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )

    first, again = run(), run()
    assert {"exact_sums", "accumulate", "round_sums"} <= set(first)
    assert again == ["[0.4, 0.2]", ""]
    for file in tmp_path.rglob("*accumulate*"):  # what is missing of what it calls is compiled again
        file.unlink()
    found = run()
    assert "accumulate" in found
    assert "exact_sums" not in found
    assert found[-2] == "[0.4, 0.2]"


def test_what_only_compiled_functions_call_is_refused_to_others():
    with pytest.raises(TypeError, match="gram can be called by compiled functions alone"):
        gram(None, np.ones(1))
