"""The three parts that a compiled function can play: kernel, subroutine, inline.

Each is a numba dispatcher that obtains its code in another way. Uses parts of numba that are private: its minor version
is pinned in pyproject.toml.
"""

from __future__ import annotations

import hashlib
import importlib
import pickle
from collections.abc import Callable
from functools import cached_property
from types import FunctionType
from typing import Any, NamedTuple

from llvmlite import binding as llvm
from numba import _dynfunc
from numba.core import event
from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import _FunctionCompiler  # type: ignore[attr-defined]
from numba.core.environment import lookup_environment
from numba.core.funcdesc import ExternalFunctionDescriptor
from numba.core.imputils import user_function
from numba.core.registry import CPUDispatcher
from numba.core.serialize import dumps
from numba.core.sigutils import normalize_signature
from numba.core.types.misc import unliteral

from tangens.cache import announce
from tangens.kernels import store
from tangens.kernels.content import content_key
from tangens.kernels.library import EmittedCompiler, LinkedCompiler, loaded
from tangens.kernels.signatures import accepts

Needs = dict[store.Need, None]
"""Subroutines that are called, in order."""

_recording: list[Needs] = []
"""Of all functions that are being compiled, the innermost last."""


class Overload(NamedTuple):
    """A function, ready for some types of arguments; the names are those that numba's dispatchers look for."""

    entry_point: Any
    """What Python calls; for subroutines and inline functions a mere name."""
    signature: Any
    objectmode: bool = False


class CompiledFunction(CPUDispatcher):  # type: ignore[misc]
    """What the three parts share."""

    called_by_symbol = False
    compiler: type[LinkedCompiler] = LinkedCompiler
    has_wrapper = False

    def __init__(self, function: FunctionType, declared: tuple[Any, ...], options: dict[str, Any]) -> None:
        self.declared = declared
        """Types of arguments that Python calls it with, for which it is compiled ahead of time; empty: none."""
        super().__init__(function, targetoptions={"nopython": True, "error_model": "numpy", **options})
        flags = {"no_compile": True, "no_cfunc_wrapper": True, "no_cpython_wrapper": not self.has_wrapper}
        self._compiler = _Compiler(function, self.targetdescr, self.targetoptions, {}, self.compiler)
        self._compiler.flags = flags

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The types of a call from compiled code; values known at compile time are no types of their own."""
        plain = [unliteral(arg) for arg in args]
        return super().get_call_template(plain, {name: unliteral(arg) for name, arg in kws.items()})

    def compile(self, sig: Any) -> Any:
        """Obtain the function for some types of arguments."""
        args = tuple(normalize_signature(sig)[0])
        with global_compiler_lock:
            if args not in self.overloads:
                self.obtain(args)
            return self.overloads[args].entry_point

    def obtain(self, args: tuple[Any, ...]) -> None:
        """Make the function ready for these types."""
        raise NotImplementedError

    def compile_now(self, args: tuple[Any, ...]) -> tuple[Any, Needs]:
        """Let numba compile; returns its result, and the subroutines that are called."""
        needs: Needs = {}
        _recording.append(needs)
        try:
            with event.trigger_event("numba:compile", data={"dispatcher": self, "args": args, "return_type": None}):
                return self._compiler.compile(args, None), needs
        finally:
            _recording.pop()

    def add(self, entry_point: Any, signature: Any, descriptor: Any, libraries: tuple[Any, ...], needs: Needs) -> None:
        """Let compiled code call the function."""
        call = user_function(descriptor, libraries)

        def recorded(*args: Any) -> Any:
            if _recording:
                _recording[-1].update(needs)
            return call(*args)

        recorded.signature, recorded.libs = call.signature, call.libs  # type: ignore[attr-defined]
        self.targetctx._defns[entry_point].append(recorded, recorded.signature)  # type: ignore[attr-defined]
        self.overloads[tuple(signature.args)] = Overload(entry_point, signature)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        """Called from Python: a kernel of the same function answers."""
        entry_point = self.as_kernel._compile_for_args(*args, **kws)
        self._insert([self.typeof_pyval(arg)._code for arg in args], entry_point, False)
        return entry_point

    @cached_property
    def as_kernel(self) -> Kernel:
        """The same function as Python calls it."""
        return Kernel(self.py_func, self.declared, self.targetoptions)


class Inline(CompiledFunction):
    """Compiled into whoever calls it."""

    def obtain(self, args: tuple[Any, ...]) -> None:
        """Compile; nothing is kept, it is part of its callers."""
        compiled, needs = self.compile_now(args)
        self.add(_symbol(self, args), compiled.signature, compiled.fndesc, (compiled.library,), needs)


class Subroutine(CompiledFunction):
    """Compiled by itself, and called where it stands in memory."""

    called_by_symbol = True
    compiler = EmittedCompiler

    def obtain(self, args: tuple[Any, ...]) -> None:
        """Load the function, or compile, keep and load it."""
        written = str(args)
        if not self._is_ready(written):
            self._load(written, self._compile(args))
        found, entry_point = self._loaded[written]
        signature = pickle.loads(found.signature)
        external = ExternalFunctionDescriptor(_symbol(self, written), signature.return_type, signature.args)
        self.add(entry_point, signature, external, (), {self._need(written, found): None})

    def is_ready(self, need: store.Need) -> bool:
        """Make the function ready for compiled code that calls it; False if it is missing or returns another type."""
        if not self._is_ready(need.types) and store.is_worker():
            self.compile(pickle.loads(need.arguments))
        return need.types in self._loaded and self._loaded[need.types][0].returns == need.returns

    def _is_ready(self, written: str) -> bool:
        """Whether the function is loaded, with all that it needs, for these types; it is now if it was kept."""
        if written not in self._loaded:
            found = store.load(self.__name__, f"{self.content} {written}")
            if found is None or not all(_callee(need).is_ready(need) for need in found.needs):
                return False
            self._load(written, found)
        return True

    @cached_property
    def content(self) -> str:
        """What the function depends on."""
        options = [
            (name, sorted(value) if isinstance(value, set) else value) for name, value in self.targetoptions.items()
        ]
        return f"{content_key(self.py_func)} {sorted(options)!r} {self.has_wrapper}"

    @cached_property
    def _loaded(self) -> dict[str, tuple[store.Compiled, Any]]:
        return {}

    def _compile(self, args: tuple[Any, ...]) -> store.Compiled:
        compiled, needs = self.compile_now(args)
        library, descriptor = compiled.library, compiled.fndesc
        library._ensure_finalized()
        environments = [lookup_environment(name) for name in library.defined if name.startswith("_ZN08NumbaEnv")]
        found = store.Compiled(
            descriptor.llvm_func_name, descriptor.llvm_cpython_wrapper_name, descriptor.env_name, library.defined,
            library.object_code, tuple(needs), str(compiled.signature.return_type), dumps(compiled.signature),
            dumps([known for known in environments if known is not None and known.can_cache()]),
        )  # fmt: skip
        store.save(self.__name__, f"{self.content} {args}", found)
        return found

    def _load(self, written: str, found: store.Compiled) -> None:
        """Put the object file into memory."""
        self.targetctx.refresh()
        codegen = self.targetctx.codegen()
        library = loaded(codegen, found.symbol, found.object_code, found.defined)
        environments = {known.env_name: known for known in pickle.loads(found.environments)}
        for name, environment in environments.items():
            codegen.set_env(name, environment)
        llvm.add_symbol(_symbol(self, written), library.get_pointer_to_function(found.symbol))
        entry_point = self._entry_point(library, found, environments, written)
        self._loaded[written] = found, entry_point

    def _entry_point(self, library: Any, found: store.Compiled, environments: dict[str, Any], written: str) -> Any:
        """What Python calls: nothing, so a name will do."""
        del library, found, environments
        return _symbol(self, written)

    def _need(self, written: str, found: store.Compiled) -> store.Need:
        arguments = dumps(tuple(pickle.loads(found.signature).args))
        return store.Need(self.__module__, self.__qualname__, written, found.returns, arguments)


class Kernel(Subroutine):
    """Called from Python."""

    has_wrapper = True

    @property
    def as_kernel(self) -> Kernel:
        """Itself."""
        return self

    @cached_property
    def unchecked(self) -> Any:
        """The same for arguments that are known to be of the declared types, which nobody looks at: 0.2 µs quicker."""
        return self.compile(self.declared)

    def is_kept(self) -> bool:
        """Whether the function was compiled ahead of time, and can be loaded."""
        return self._is_ready(str(self.declared))

    def obtain(self, args: tuple[Any, ...]) -> None:
        """Load the function, have it built with all the others, or compile it here."""
        from tangens.kernels import build

        if not store.is_worker() and not self._is_ready(str(args)):
            if args == self.declared:
                build.on_demand(self)
            else:
                announce(f"compiling {self.__name__} for types of arguments that it was not built for")
        super().obtain(args)

    def _compile_for_args(self, *args: Any, **kws: Any) -> Any:
        assert not kws
        self._compilation_chain_init_hook()
        given = tuple(self.typeof_pyval(arg) for arg in args)
        fits = len(given) == len(self.declared) and all(map(accepts, self.declared, given))
        entry_point = self.compile(self.declared if fits else given)
        self._insert([one._code for one in given], entry_point, False)
        return entry_point

    def _entry_point(self, library: Any, found: store.Compiled, environments: dict[str, Any], written: str) -> Any:
        del written
        module, own = importlib.import_module(self.__module__), environments[found.environment]
        address = library.get_pointer_to_function(found.wrapper)
        return _dynfunc.make_function(module, self.__name__, self.__doc__ or "", address, own, (library,))


class _Compiler(_FunctionCompiler):  # type: ignore[misc]
    flags: dict[str, bool]

    def _customize_flags(self, flags: Any) -> Any:
        for name, value in self.flags.items():
            setattr(flags, name, value)
        return flags


def kernel(*declared: Any, **options: Any) -> Callable[[Callable[..., Any]], Any]:
    """A function that Python calls with arguments of the declared types; other types are compiled when they come."""
    return lambda function: Kernel(function, declared, options)  # type: ignore[arg-type]


def subroutine(*declared: Any, **options: Any) -> Any:
    """A function that kernels call, compiled by itself; Python may call it, too, with arguments of declared types."""
    return _decorator(Subroutine, declared, options)


def inline(*declared: Any, **options: Any) -> Any:
    """A small function that becomes part of whoever calls it; Python may call it as well."""
    return _decorator(Inline, declared, options)


def _decorator(part: type[CompiledFunction], declared: tuple[Any, ...], options: dict[str, Any]) -> Any:
    if len(declared) == 1 and isinstance(declared[0], FunctionType):  # without parentheses
        return part(declared[0], (), options)
    return lambda function: part(function, declared, options)


def _symbol(function: CompiledFunction, types: Any) -> str:
    """The symbol by which compiled code calls a function for some types."""
    digest = hashlib.sha256(str(types).encode()).hexdigest()[:16]
    return f"{function.__module__}.{function.__qualname__}.{digest}"


def _callee(need: store.Need) -> Any:
    return getattr(importlib.import_module(need.module), need.name)
