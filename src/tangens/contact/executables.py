"""Compiled JAX functions on disk: what one process compiled, the next one loads, without tracing anything.

They are kept in the user's cache folder, named by all that they depend on: the function's key, the shapes of its
arguments, our sources, versions and flags, and the processor. JAX's own cache of compilations, if the user has set it
up, is neither used for this nor changed. Functions of models that are not part of tangens are not kept, since we cannot
tell when their sources change.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
from collections.abc import Callable, Hashable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import JaxRuntimeError
from jax.experimental import serialize_executable
from llvmlite import binding as llvm

from tangens.cache import announce, writable_folder, write

_LOG = logging.getLogger("tangens")
_MOST_FILES = 300
_UNREADABLE = (OSError, EOFError, ValueError, pickle.UnpicklingError, AttributeError, ImportError)
_ROOMS = ("contact", "collision", "geometry", "dynamics")  # whose sources compiled functions are made of


class KeptFunction:
    """A function of arrays of one set of shapes: loaded from disk or compiled, when it is first called."""

    def __init__(self, key: Hashable, make: Callable[[], Callable[..., Any]], options: dict[str, Any] | None) -> None:
        self._make: Callable[[], Callable[..., Any]] | None = make
        self._name, self._options = written_key(key), options
        self._what = _named(key)
        self._run: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        """The function itself."""
        if self._run is None:
            self._run, self._make = self._obtained(arguments), None
        return self._run(*arguments)

    def _obtained(self, arguments: tuple[Any, ...]) -> Callable[..., Any]:
        if self._name is None:
            return self._compiled(arguments)
        path = writable_folder("jax", _MOST_FILES) / self._file_name(arguments)
        run = _loaded(path, arguments)
        if run is not None:
            return run
        run = self._compiled(arguments)
        if not path.exists():  # what is there already could not be loaded, and would not be the next time
            _save(path, run)
        return run

    def _compiled(self, arguments: tuple[Any, ...]) -> Any:
        assert self._make is not None
        announce(f"compiling {self._what} with contact in JAX: 10 s to a minute, once for scenes of this kind")
        return jax.jit(self._make(), compiler_options=self._options).lower(*arguments).compile()

    def _file_name(self, arguments: tuple[Any, ...]) -> str:
        leaves, tree = jax.tree.flatten(arguments)
        shapes = [(np.shape(leaf), str(getattr(leaf, "dtype", type(leaf)))) for leaf in leaves]
        text = repr((self._name, str(tree), shapes, self._options, _surroundings()))
        return f"{hashlib.sha256(text.encode()).hexdigest()[:40]}.executable"


_WORDS = {"solve": "a step", "jacobian": "its derivative", "pullback": "its derivative in reverse"}


def _named(key: Hashable) -> str:
    """What the function of a key does, in words."""
    names = [part for part in (key if isinstance(key, tuple) else ()) if isinstance(part, str)]
    return _WORDS.get(names[0], names[0]) if names else "a function"


def _save(path: Path, run: Any) -> None:
    """Keep an executable, if JAX can write it down."""
    try:
        data, _, tree = serialize_executable.serialize(run)
        shape = jax.tree.unflatten(tree, range(tree.num_leaves))  # trees themselves cannot be pickled
        write(path, lambda file: pickle.dump((data, shape), file))
    except (ValueError, NotImplementedError, TypeError, pickle.PicklingError, OSError):
        return


@cache
def _load_lapack() -> None:
    """JAX looks up LAPACK's functions when it lowers a program that needs them: an executable takes them as given."""
    jax.jit(jnp.linalg.cholesky).lower(np.eye(2, dtype=np.float32))


def _loaded(path: Path, arguments: tuple[Any, ...]) -> Callable[..., Any] | None:
    _load_lapack()
    try:
        data, shape = pickle.loads(path.read_bytes())
        trees = jax.tree.structure((arguments, {})), jax.tree.structure(shape)
        run: Callable[..., Any] = serialize_executable.deserialize_and_load(data, *trees)
        # An executable that JAX's own cache had brought back from disk is written incomplete: only a run shows it.
        jax.block_until_ready(run(*arguments))
    except FileNotFoundError:
        return None
    except (
        OSError,
        EOFError,
        ValueError,
        pickle.UnpicklingError,
        AttributeError,
        ImportError,
        JaxRuntimeError,
    ) as error:
        _LOG.info("%s is of no use, so it is compiled again: %s", path.name, error)
        return None
    return run


def written_key(key: Hashable) -> str | None:
    """A key in writing, the same in every process; None if it holds something that has no such form."""
    if isinstance(key, tuple):
        parts = [written_key(part) for part in key]
        return None if None in parts else f"({' '.join(map(str, parts))})"
    if isinstance(key, type):
        return f"{key.__module__}.{key.__qualname__}" if key.__module__.split(".")[0] == "tangens" else None
    return repr(key) if isinstance(key, (bytes, str, int, float, bool, type(None))) else None


@cache
def _surroundings() -> str:
    """What compiled functions depend on besides their key: sources, versions, flags, the machine."""
    digest, package = hashlib.sha256(), Path(__file__).parents[1]
    for room in _ROOMS:
        for path in sorted((package / room).rglob("*.py")):
            if "rigid" not in path.parts:
                digest.update(path.read_bytes())
    versions = [version(name) for name in ("jax", "jaxlib", "mujoco", "numpy")]
    machine = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), jax.devices()[0].device_kind
    return repr((digest.hexdigest(), versions, machine, os.environ.get("XLA_FLAGS")))
