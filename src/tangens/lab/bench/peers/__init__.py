"""The tools that tangens is measured against, each at its best reasonable setting.

Scripts named `*_script.py` run in a process of their own: Nimble in its own environment, MJX under flags that JAX
reads only at its start.
"""

from __future__ import annotations


class PeerUnavailable(Exception):  # noqa: N818  (no error: an answer, which the report passes on)
    """Why a peer could not be measured."""
