"""What is compiled says so itself: no list of compiled sources is kept anywhere."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import numba
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


_LISTEN = """
import numpy as np
from numba.core import event

class Compiled(event.Listener):
    def on_start(self, event):
        print(event.data["dispatcher"].py_func.__name__)
    def on_end(self, event):
        pass

event.register("numba:compile", Compiled())
"""
_RUN = """
from fairlayer.binding.exact_sums import exact_sums
S, error = np.empty(2), np.empty(2)
exact_sums(np.array([0.1, 0.2, 0.3]), np.array([0, 1, 0], dtype=np.int32), np.empty(0), S, error)
print(S.tolist())
"""


def run(program: str = _RUN) -> list[str]:
    """What is printed, and before it the names of functions that had to be compiled."""
    command = [sys.executable, "-c", _LISTEN + program]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")


def test_what_is_called_by_its_address_is_loaded_with_its_caller(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    first, again = run(), run()
    assert {"exact_sums", "accumulate", "round_sums"} <= set(first)
    assert again == ["[0.4, 0.2]", ""]
    for file in tmp_path.rglob("*accumulate*"):  # what is missing of what it calls is compiled again
        file.unlink()
    found = run()
    assert "accumulate" in found
    assert "exact_sums" not in found
    assert found[-2] == "[0.4, 0.2]"


_INTERRUPTED = """
import signal
import numpy as np
from fairlayer.binding.cells import mark_codes

def ring(*_):
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, ring)
code, caught = np.zeros(4, dtype=np.int64), 0
mark_codes(code, 1)
for _ in range(500):
    try:
        signal.setitimer(signal.ITIMER_REAL, 2e-4)
        while True:
            mark_codes(code, 1)
    except KeyboardInterrupt:
        caught += 1
print(caught)
"""


def test_an_interrupt_while_arrays_are_returned_is_an_interrupt():
    """Not a SystemError, nor the end of the process."""
    command = [sys.executable, "-c", _INTERRUPTED]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "500\n"


def test_what_only_compiled_functions_call_is_refused_to_others():
    with pytest.raises(TypeError, match="gram can be called by compiled functions alone"):
        gram(None, np.ones(1))


_LATER = """
from fairlayer.binding.rows import Rows
from fairlayer.compiled import compile_all
from fairlayer.solve.newton import solve_active

def solve(K):
    family = np.array([[1.0], [1.0], [-0.1], [0.1]])
    present, first = np.ones(K, dtype=bool), np.array([0, K])
    rows = Rows(np.arange(K + 1), np.arange(K), np.full(K, 0.5), np.zeros(K), present, first, family)
    nu = np.zeros(K)
    nu[0], nu[1] = 1.0, -1.0
    return solve_active(rows, nu, np.ones(K), np.arange(float(K)))[:2].round(9).tolist()

print(solve(2))
if ready:
    compile_all(but="")
    print("ready")
print(solve(30))
"""


def test_what_is_seldom_reached_is_compiled_when_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    found, again = run("ready = False" + _LATER), run("ready = False" + _LATER)
    few, many = found.index("[-1.0, 1.0]"), found.index("[-1.0, 1.0]", found.index("[-1.0, 1.0]") + 1)
    assert "solve_active" in found[:few]
    assert not {"_solve_many", "solve_sides"} & set(found[:few])
    assert {"_solve_many", "solve_sides"} <= set(found[few:many])
    assert again == ["[-1.0, 1.0]", "[-1.0, 1.0]", ""]
    for file in tmp_path.rglob("*solve_sides*"):
        file.unlink()
    beforehand = run("ready = True" + _LATER)
    assert beforehand[0] == "[-1.0, 1.0]"
    assert "solve_sides" in beforehand[1:-3]  # beside whatever else was not reached
    assert beforehand[-3:] == ["ready", "[-1.0, 1.0]", ""]


@pytest.mark.parametrize("small", [False, True])
def test_what_borrows_arrays_is_given_none_to_keep(small):
    def copied(x):
        return x.copy()

    def first(x):
        return copied(x)[0]

    for function in (copied, first):
        function.__module__ = "fairlayer.solve.newton"  # whose digest will do
    copied = compiled.compiled(inner=not small, small=small)(copied)
    with pytest.raises(TypeError, match="copied returns an array, but first only borrows"):
        compiled.compiled(inner=True, borrows=True)(first).compile((numba.float64[::1],))
    assert compiled.compiled(inner=True)(first).compile((numba.float64[::1],))


def test_what_is_compiled_later_returns_what_it_says():
    def half(x):
        return 0.5 * x

    half.__module__ = "fairlayer.solve.newton"
    function = compiled.compiled(inner=True, later="int")(half)
    with pytest.raises(TypeError, match="half returns float64, not int64"):
        function.answer((numba.float64,))


def test_functions_of_others_compile_as_ever():
    space = {}
    exec("def one(x): return x + 1", space)  # it has no module
    assert numba.njit(space["one"])(1) == 2
