"""What the commands print: by rich where it is installed, as plain text where it is not."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, Protocol


class Progress(Protocol):
    """What a command needs of a progress bar."""

    def add_task(self, description: str, *, total: float | None) -> Any:
        """The handle of a new task."""

    def update(self, task_id: Any, **changes: Any) -> None:
        """Note how far a task is."""


class _Silent:
    """No progress bar."""

    def add_task(self, description: str, *, total: float | None) -> int:
        return 0

    def update(self, task_id: Any, **changes: Any) -> None:
        pass


def say(*parts: object) -> None:
    """Print a line; parts made by `coloured` keep their colour."""
    _print(parts, to_errors=False)


def complain(*parts: object) -> None:
    """Print a line on stderr."""
    _print(parts, to_errors=True)


def coloured(text: str, style: str) -> object:
    """The text in a style of rich's, "green" or "bold red" say."""
    if _console(False) is None:
        return text
    from rich.text import Text

    return Text(text, style=style)


def table(title: str, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> None:
    """Print a table; the first column reads left, numbers right."""
    console = _console(False)
    if console is None:
        _plain_table(title, columns, [[str(cell) for cell in row] for row in rows])
        return
    from rich.table import Table
    from rich.text import Text

    def literal(cell: object) -> Text:  # a string would be searched for markup, and lose the unit in "load [s]"
        return cell if isinstance(cell, Text) else Text(str(cell))

    out = Table(title=literal(title), title_justify="left", title_style="bold", header_style="")
    for index, column in enumerate(columns):
        out.add_column(literal(column), justify="left" if index == 0 else "right")
    for row in rows:
        out.add_row(*map(literal, row))
    console.print(out)


def progress() -> AbstractContextManager[Progress]:
    """A progress bar for long work, on stderr, gone when done; nothing without rich."""
    console = _console(True)
    if console is None:
        return nullcontext(_Silent())
    from rich import progress as bars

    return bars.Progress(
        bars.TextColumn("{task.description}"), bars.BarColumn(), bars.MofNCompleteColumn(), bars.TimeRemainingColumn(),
        console=console, transient=True, auto_refresh=False,
    )  # fmt: skip


@cache
def _console(to_errors: bool) -> Any:
    """A console of rich's; None where rich is not installed."""
    try:
        from rich.console import Console
    except ImportError:
        return None
    return Console(stderr=to_errors, highlight=False, markup=False, emoji=False)


def _print(parts: Sequence[object], to_errors: bool) -> None:
    console = _console(to_errors)
    if console is None:
        print(*parts, file=sys.stderr if to_errors else sys.stdout)
    else:
        console.print(*parts, soft_wrap=True)


def _plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    print(title)
    for row in (columns, *rows):
        cells = [
            cell.rjust(width) if k else cell.ljust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())
