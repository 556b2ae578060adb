"""MJX, without what it prints when it is imported."""

from __future__ import annotations

import contextlib
import io

with contextlib.redirect_stdout(io.StringIO()):  # that it has no use for a GPU library
    from mujoco import mjx

__all__ = ["mjx"]
