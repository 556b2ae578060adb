"""The user's cache folder, for what took long to make; and a word to those who wait for it."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import BinaryIO

_LOG = logging.getLogger("tangens")


def cache_folder() -> Path:
    """The user's cache folder for tangens; TANGENS_CACHE_DIR names another one."""
    chosen = os.environ.get("TANGENS_CACHE_DIR")
    if chosen:
        return Path(chosen)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "tangens"
    base = os.environ.get("LOCALAPPDATA" if os.name == "nt" else "XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "tangens"


@cache
def writable_folder(name: str, most: int) -> Path:
    """A folder inside the cache, of whose files the `most` newest are kept; or one that goes away with the process."""
    folder = cache_folder() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except (OSError, RuntimeError):  # read-only, or nobody's home
        return Path(_temporary().name)
    files = sorted((path for path in folder.iterdir() if path.is_file()), key=lambda path: path.stat().st_mtime)
    for path in files[: max(0, len(files) - most)]:
        path.unlink(missing_ok=True)
    return folder


def write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Write a file in one piece: whoever reads it meanwhile finds all of it, or nothing."""
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
        fill(file)  # type: ignore[arg-type]
    Path(file.name).chmod(0o644)
    Path(file.name).replace(path)


def announce(what: str) -> None:
    """Say what takes its time: on the terminal, or else in the log."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"tangens: {what} ...", file=sys.stderr, flush=True)
    else:
        _LOG.info(what)


@cache
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="tangens-")
