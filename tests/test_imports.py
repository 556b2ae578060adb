"""Imports point one way: a room imports from its own row of the table in docs/architecture.md and from rows above."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tangens.contact import CONTACT_MODELS, contact_model

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
TABLE = re.compile(r"^\| room \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", re.MULTILINE)


def name_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(file): file for file in sorted((SOURCE / "tangens").rglob("*.py"))}


def room_of(module: str) -> str:
    """`contact` for tangens.contact.ncp; `__init__` for tangens itself."""
    return module.split(".")[1] if "." in module else "__init__"


def rows() -> dict[str, int]:
    """The row of each room in docs/architecture.md."""
    found = TABLE.search((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert found is not None
    names = [re.findall(r"`(\w+)(?:/|\.py)`", line.split("|")[1]) for line in found[1].splitlines()]
    return {name: row for row, line in enumerate(names) for name in line}


def imports(module: str) -> Iterator[str]:
    """Modules of tangens that a module imports anywhere, but for types alone."""
    pending: list[ast.AST] = [ast.parse(MODULES[module].read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            pending.extend(node.orelse)
            continue
        pending.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "tangens")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import, in line {node.lineno}"
            source = node.module or ""
            if source.split(".")[0] == "tangens":
                inner = (f"{source}.{alias.name}" for alias in node.names)
                yield from (name if name in MODULES else source for name in inner)


def test_the_table_has_every_room() -> None:
    assert {room_of(module) for module in MODULES} == rows().keys()


@pytest.mark.parametrize("room", sorted({room_of(module) for module in MODULES}))
def test_a_room_imports_from_its_row_and_from_rows_above(room: str) -> None:
    row = rows()
    inside = [module for module in MODULES if room_of(module) == room]
    wrong = {
        f"{module} imports {other}"
        for module in inside
        for other in imports(module)
        if room_of(other) != room and row[room_of(other)] > row[room]
    }
    assert not wrong


def test_only_the_command_line_imports_the_lab() -> None:
    users = {room_of(module) for module in MODULES if any(room_of(other) == "lab" for other in imports(module))}
    assert users == {"lab", "cli"}


def test_no_contact_model_imports_another() -> None:
    models = {type(contact_model(name)).__module__ for name in (None, *CONTACT_MODELS)}
    assert len(models) > len(CONTACT_MODELS)
    assert not {(model, other) for model in models for other in imports(model) if other in models - {model}}


def test_importing_tangens_leaves_the_heavy_libraries_alone() -> None:
    script = "import sys, tangens, tangens.cli; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    loaded = {module.split(".")[0] for module in done.stdout.split()}
    assert not loaded & {"jax", "matplotlib", "rich", "trimesh", "cma", "piqp"}
