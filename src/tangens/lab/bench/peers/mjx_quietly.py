"""MJX, without what it prints when it is imported."""

from __future__ import annotations

import contextlib
import io

from tangens.errors import MissingExtra

with contextlib.redirect_stdout(io.StringIO()):  # that it has no use for a GPU library
    try:
        from mujoco import mjx
    except ImportError:
        raise MissingExtra("a bench against MJX", "mujoco-mjx", "bench") from None

__all__ = ["mjx"]
