"""How compiled functions become LLVM modules: linked only, or emitted as an object file.

numba optimises each function three times, links it into each caller and optimises it again there. Here, what is linked
stays as it is until it has become part of something that is emitted; that is optimised once. In an object file all but
the function itself is internal, so two files cannot mix up what they have of the same name.

Uses parts of numba that are private: its minor version is pinned in pyproject.toml.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding as llvm
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, DefaultPassBuilder

# Arrays and structs are counted without atomic operations: those that a kernel makes, and numba's records of those that
# Python hands over, belong to one call in one thread. Atomic counting took a tenth of a step.
_COUNTING = """
declare void @NRT_MemInfo_call_dtor(ptr)
define linkonce_odr void @NRT_incref(ptr %info) noinline {
  %none = icmp eq ptr %info, null
  br i1 %none, label %done, label %count
count:
  %before = load i64, ptr %info
  %after = add i64 %before, 1
  store i64 %after, ptr %info
  br label %done
done:
  ret void
}
define linkonce_odr void @NRT_decref(ptr %info) noinline {
  %none = icmp eq ptr %info, null
  br i1 %none, label %done, label %count
count:
  %before = load i64, ptr %info
  %after = add i64 %before, -1
  store i64 %after, ptr %info
  %last = icmp eq i64 %after, 0
  br i1 %last, label %free, label %done
free:
  call void @NRT_MemInfo_call_dtor(ptr %info)
  br label %done
done:
  ret void
}
"""


class LinkedLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of a function that only ever becomes part of others."""

    def add_llvm_module(self, ll_module: Any) -> None:
        """Take in code as it is."""
        self._final_module.link_in(ll_module)

    def finalize(self) -> None:
        """Take in what is called; nothing is optimised or emitted."""
        self._link_callees()
        self._finalized = True

    def _link_callees(self) -> None:
        self._final_module.link_in(llvm.parse_assembly(_COUNTING))  # first, so that it stands for numba's own
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)


class EmittedLibrary(LinkedLibrary):
    """The code of a function that is emitted: a kernel or a subroutine."""

    object_code: bytes
    defined: tuple[str, ...]
    """Symbols that the object file has for others."""

    def finalize(self) -> None:
        """Take in what is called, optimise, emit; nothing is put into memory yet."""
        own = {f.name for f in self._final_module.functions if not f.is_declaration}
        self._link_callees()
        for function in self._final_module.functions:
            if not function.is_declaration and function.name not in own:
                function.linkage = llvm.Linkage.internal
        self._optimize_final_module()
        self._final_module.verify()
        module = self._final_module
        self.defined = tuple(g.name for g in (*module.functions, *module.global_variables) if not g.is_declaration)
        if any(name.startswith("numba.dynamic.globals") for name in self.defined):
            raise TypeError(f"{sorted(own)} refers to memory of this process: it cannot be kept")
        self.object_code = self._codegen._tm.emit_object(module)
        self._finalized = True


def loaded(codegen: Any, name: str, object_code: bytes, defined: tuple[str, ...]) -> JITCodeLibrary:
    """Put an object file into memory."""
    library = JITCodeLibrary(codegen, name)
    library.enable_object_caching()
    library._set_compiled_object(object_code)
    library._finalize_final_module()
    codegen._engine._defined_symbols.update(defined)
    return library


class LinkedCompiler(CompilerBase):  # type: ignore[misc]
    """numba's passes, into a `LinkedLibrary`."""

    library: type[LinkedLibrary] = LinkedLibrary

    def __init__(self, typingctx: Any, targetctx: Any, library: Any, *rest: Any) -> None:
        super().__init__(typingctx, targetctx, library, *rest)
        if library is None:
            self.state.library = self.library(targetctx.codegen(), "tangens")

    def define_pipelines(self) -> list[Any]:
        """Those of `numba.njit`."""
        return [DefaultPassBuilder.define_nopython_pipeline(self.state)]


class EmittedCompiler(LinkedCompiler):
    """The same, into an `EmittedLibrary`."""

    library = EmittedLibrary
