"""`compiled`: numba's njit, cached on disk under a name that changes with the compiled code.

numba's own cache watches the file a function stands in, not the files of the functions it calls: after an update of one
file it would go on running the old code of another, or fail on what an older release left behind. So the names of cache
files carry a digest of the function's file and of all files that it imports from, directly or by way of others.
"""

from __future__ import annotations

import ctypes
import gc
import hashlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import numba
from llvmlite import ir
from llvmlite.binding import add_symbol
from numba import types
from numba.core import cgutils, event, serialize, sigutils
from numba.core.compiler_lock import global_compiler_lock
from numba.core.imputils import user_function
from numba.core.registry import CPUDispatcher
from numba.core.typing import make_concrete_template
from numba.extending import intrinsic

# Whoever returns an array calls this from machine code, which does not look whether it failed. A cache in C runs no
# bytecode, so that no Ctrl-C can fall into it.
serialize._numba_unpickle = cache(serialize._numba_unpickle)
_PACKAGE = Path(__file__).parent
_IMPORT = re.compile(r"^from fairlayer\.([\w.]+) import", re.MULTILINE)


@cache
def _source(module: str) -> tuple[bytes, tuple[str, ...]]:
    """The source of a module of this package, and the modules that it imports from."""
    path = _PACKAGE.joinpath(*module.split("."))
    text = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text(encoding="utf-8")
    return text.encode(), tuple(_IMPORT.findall(text))


def sources(module: str) -> list[str]:
    """All modules that code of a module can be made of: itself, and what it imports from, however far away."""
    found, ahead = {module}, [module]
    while ahead:
        new = set(_source(ahead.pop())[1]) - found
        found |= new
        ahead += new
    return sorted(found)


@cache
def _digest(module: str) -> str:
    return hashlib.sha256(b"".join(_source(name)[0] for name in sources(module))).hexdigest()[:12]


class _Notice(event.Listener):
    """Says in one line why the first call takes long, where somebody is watching."""

    said = False

    def on_start(self, event: Any) -> None:
        """At the first function that was not found on disk."""
        home = event.data["dispatcher"].py_func.__module__ or ""  # others compile functions without one
        if not _Notice.said and home.startswith("fairlayer.") and sys.stderr.isatty():
            _Notice.said = True
            print("fairlayer: compiling for this machine, once; this takes some twenty seconds.", file=sys.stderr)

    def on_end(self, event: Any) -> None:
        """Nothing more to say."""


event.register("numba:compile", _Notice())


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Without what takes time beside compiling.

    Garbage is not collected, which goes through all that torch has loaded, again and again. And numba has a clock for
    every function under way, which all hear of every single call of LLVM: here only that of the last.
    """
    enabled, clocks = gc.isenabled(), event._registered["numba:llvm_lock"]
    gc.disable()
    event._registered["numba:llvm_lock"] = []
    try:
        yield
    finally:
        event._registered["numba:llvm_lock"] = clocks
        if enabled:
            gc.enable()


class _Linked(CPUDispatcher):
    """A compiled function whose code becomes part of every compiled caller, and is optimised anew with each."""

    def enable_caching(self) -> None:
        """Keep what is compiled on disk, in files whose names carry the digest."""
        super().enable_caching()
        file = getattr(self._cache, "_cache_file", None)  # type: ignore[attr-defined]
        if file is not None:  # absent where numba has no folder to write to
            digest = _digest(self.py_func.__module__.removeprefix("fairlayer."))
            file._source_stamp = digest
            file._index_name = f"{digest}.{file._index_name}"
            file._index_path = str(Path(file._cache_path) / file._index_name)
            file._data_name_pattern = f"{digest}.{file._data_name_pattern}"

    def compile(self, sig: Any) -> Any:
        """Compile for arguments of these types, or load what was compiled; a constant is like any other number."""
        arguments, _ = sigutils.normalize_signature(sig)
        with global_compiler_lock, _undisturbed():
            return super().compile(tuple(map(types.unliteral, arguments)))

    def add_overload(self, cres: Any) -> None:
        """Note what was compiled or loaded."""
        cres.library._reload_init.update(cres.reload_init)  # what is read from disk has lost it, and callers need it
        if not self.targetoptions["_nrt"]:
            self._check_borrowed(cres)
        if self.targetoptions.get("no_cpython_wrapper"):
            self.overloads[tuple(cres.signature.args)] = cres  # there is nothing that the interpreter could call
        else:
            super().add_overload(cres)

    def _check_borrowed(self, cres: Any) -> None:
        """See that what only borrows is given no array to keep: nobody would give it back."""
        returned = [(self.py_func.__name__, cres.signature.return_type)]
        if cres.type_annotation is not None and not isinstance(cres.type_annotation, str):  # compiled just now
            known = cres.type_annotation
            for call, signature in known.calltypes.items():
                called = known.typemap[call.func.name] if getattr(call, "op", None) == "call" else None
                if isinstance(called, types.Dispatcher):
                    returned.append((called.dispatcher.py_func.__name__, signature.return_type))
        for name, kind in returned:
            if self.targetctx.data_model_manager[kind].contains_nrt_meminfo():
                raise TypeError(f"{name} returns an array, but {self.py_func.__name__} only borrows arrays.")

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        """A call from Python for which nothing is compiled yet."""
        if self.targetoptions.get("no_cpython_wrapper"):
            raise TypeError(f"{self.py_func.__qualname__} can be called by compiled functions alone.")
        return super()._compile_for_args(*args, **kws)  # type: ignore[misc]


class _Apart(_Linked):
    """A compiled function that compiled callers reach by its address, under a name that is the same in every process.

    What is kept on disk of a caller holds that name alone, so loading a caller loads first what it calls.
    """

    def symbol(self, arguments: tuple[Any, ...]) -> str:
        """The name of what is compiled for these arguments."""
        home = self.py_func.__module__.removeprefix("fairlayer.")
        which = hashlib.sha256(repr((self.py_func.__qualname__, arguments)).encode()).hexdigest()[:12]
        return f"fairlayer.{home}.{self.py_func.__name__}.{_digest(home)}.{which}"

    def add_overload(self, cres: Any) -> None:
        """Note what was compiled or loaded, and tell the compiler how to call it: numba's way, less the linking."""
        super().add_overload(cres)
        outside = copy(cres.fndesc)
        outside.mangled_name = self.symbol(cres.signature.args)
        add_symbol(outside.mangled_name, self.address(cres))
        self.tell(cres.entry_point, cres.signature.args, user_function(outside, ()))

    def address(self, cres: Any) -> int:
        """Where the machine code is."""
        return cres.library.get_pointer_to_function(cres.fndesc.llvm_func_name)

    def tell(self, key: Any, arguments: tuple[Any, ...], call: Any) -> None:
        """Tell the compiler how to call what it knows by this key."""
        load = partial(_load, self.py_func.__module__, self.py_func.__name__, arguments)

        def lowered(context: Any, builder: Any, signature: Any, values: Any) -> Any:
            context.active_code_library._reload_init.add(load)
            return call(context, builder, signature, values)

        way: Any = lowered
        way.signature, way.libs = arguments, ()
        known = self.targetctx._defns
        known.pop(key, None)
        known[key].append(way, way.signature)

    def load(self, arguments: tuple[Any, ...]) -> None:
        """Have it ready for a caller that was found on disk."""
        self.compile(arguments)


class _Later(_Apart):
    """A function that is compiled when a compiled caller reaches it, not with its caller.

    A caller has a place for its address. Where it finds it empty, it asks for the address, by a call into the
    interpreter. What the function returns has to be said, as the caller is compiled without it.
    """

    # By symbol: what was not reached yet, and the calls by which callers ask.
    waiting: ClassVar[dict[str, tuple[_Later, tuple[Any, ...]]]] = {}
    asked: ClassVar[dict[str, Any]] = {}
    returns: Any

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """What a call returns; numba would compile it to find out."""
        pysig, args = self._compiler.fold_argument_types(args, kws)  # type: ignore[attr-defined]
        arguments = tuple(map(types.unliteral, args))
        self.load(arguments)
        name = self.py_func.__name__
        return make_concrete_template(name, name, [self.returns(*arguments)]), pysig, args, {}

    def get_overload(self, sig: Any) -> Any:
        """By which key the compiler knows how to call it."""
        return self, tuple(sigutils.normalize_signature(sig)[0])

    def load(self, arguments: tuple[Any, ...]) -> None:
        """Have it ready to be asked for."""
        symbol = self.symbol(arguments)
        if symbol in self.asked:
            return
        self.asked[symbol] = _ASK(partial(self.answer, arguments))
        add_symbol(f"{symbol}.ask", ctypes.cast(self.asked[symbol], ctypes.c_void_p).value)
        self.waiting[symbol] = (self, arguments)
        self.tell((self, arguments), arguments, partial(self._call, symbol, arguments))

    def answer(self, arguments: tuple[Any, ...]) -> int:
        """Compile it, and say where it is."""
        self.compile(arguments)
        self.waiting.pop(self.symbol(arguments), None)
        found: Any = self.overloads[arguments]
        if found.signature.return_type != self.returns:
            raise TypeError(f"{self.py_func.__qualname__} returns {found.signature.return_type}, not {self.returns}.")
        return self.address(found)

    def _call(self, symbol: str, arguments: tuple[Any, ...], context: Any, builder: Any, _: Any, values: Any) -> Any:
        """The call: look for the address, ask for it if need be."""
        convention, module, pointer = context.call_conv, builder.module, ir.IntType(8).as_pointer()
        place = module.globals.get(symbol)
        if place is None:
            place = cgutils.add_global_variable(module, pointer, symbol)
            place.linkage, place.initializer = "internal", pointer(None)
        with cgutils.if_unlikely(builder, cgutils.is_null(builder, builder.load(place))):
            ask = cgutils.get_or_insert_function(module, ir.FunctionType(pointer, []), f"{symbol}.ask")
            builder.store(builder.call(ask, []), place)
            with cgutils.if_unlikely(builder, cgutils.is_null(builder, builder.load(place))):
                text = f"{self.py_func.__qualname__} could not be compiled; the reason was printed."
                convention.return_user_exc(builder, RuntimeError, (text,))
        kind = convention.get_function_type(self.returns, arguments)
        callee = builder.bitcast(builder.load(place), kind.as_pointer())
        status, result = convention.call_function(builder, callee, self.returns, arguments, values)
        with cgutils.if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return result


_ASK = ctypes.CFUNCTYPE(ctypes.c_void_p)
_RETURNS = {"bool": types.boolean, "int": types.int64, "float": types.float64, "None": types.none}


def compile_all(but: str) -> None:
    """Compile or load what callers did not reach yet, but for what is of one module: later calls find it all ready."""
    while ahead := [one for one in _Later.waiting.values() if one[0].py_func.__module__ != but]:
        for function, arguments in ahead:
            function.answer(arguments)


def _load(module: str, name: str, arguments: tuple[Any, ...]) -> None:
    """Have a function ready for its caller, which was found on disk."""
    getattr(import_module(module), name).load(arguments)


@intrinsic
def same_bits(_: Any, number: Any) -> Any:
    """The whole number of the same bits as a float, or the float of the same bits as a whole number."""
    pairs: dict[Any, Any] = {types.float32: types.int32, types.float64: types.int64}
    other = {**pairs, **{whole: part for part, whole in pairs.items()}}[number]

    def lowered(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.bitcast(values[0], context.get_value_type(signature.return_type))

    return other(number), lowered


def compiled(
    function: Callable[..., Any] | None = None,
    *,
    reorder: bool = False,
    inline: bool = False,
    inner: bool = False,
    small: bool = False,
    borrows: bool = False,
    brief: bool = False,
    later: str | None = None,
) -> Any:
    """Compile at the first call; run without the interpreter's lock.

    reorder: allow sums to be taken in any order, many terms at a time, and take it that no number is NaN.
    inner: is called by compiled functions alone; a call from Python is refused.
    small: becomes part of the machine code of whoever calls it, as numba's functions do. What is not small is called by
    its address: it is compiled once, however many call it, for however many dtypes of their own.
    later: what is seldom needed is compiled when it is first reached, not with its callers, who have to know what it
    returns: "bool", "int", "float" or "None".
    borrows: neither makes nor returns an array, nor calls what returns one: references to those it is given need not be
    counted, which may take longer than what it does with them.
    brief: takes so little time that it keeps the interpreter's lock: to give it back and take it again takes longer.
    inline: becomes part of the source of whoever calls it, and is compiled with it: for what has one caller, or a few
    lines.
    """

    def make(function: Callable[..., Any]) -> Any:
        if inline:
            return numba.njit(inline="always", error_model="numpy")(function)
        options = {
            "nopython": True,
            "nogil": not brief,
            "error_model": "numpy",
            "boundscheck": None,
            "fastmath": {"reassoc", "nsz", "nnan", "contract"} if reorder else False,
            "no_cfunc_wrapper": True,
            "no_cpython_wrapper": inner or small,
            "_nrt": not borrows,
        }
        dispatcher: Any = (_Linked if small else _Later if later else _Apart)(function, targetoptions=options)
        if later:
            dispatcher.returns = _RETURNS[later]
        dispatcher.enable_caching()
        return dispatcher

    return make if function is None else make(function)
