"""What a check found."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Report:
    """Relative errors of a check, by name; `str()` is a table of them."""

    title: str
    """What was compared with what."""
    tolerance: float
    """The largest relative error allowed."""
    errors: dict[str, float]
    """By name: "mass matrix", or "v/q" for ∂v⁺/∂q."""
    details: dict[str, str] = field(default_factory=dict)
    """Where the largest error of a block is; only of those beyond the tolerance."""
    notes: tuple[str, ...] = ()
    """What could not be compared, and what makes the numbers less certain."""

    @property
    def ok(self) -> bool:
        """Whether all errors are within the tolerance."""
        return all(error <= self.tolerance for error in self.errors.values())

    @property
    def worst(self) -> float:
        """The largest relative error."""
        return max(self.errors.values(), default=0.0)

    def __str__(self) -> str:
        names = {key: _symbols(key) for key in self.errors}
        width = max(map(len, names.values()), default=0)
        lines = [f"{self.title}: {'ok' if self.ok else 'FAILED'}, relative errors, {self.tolerance:g} allowed"]
        for key, error in self.errors.items():
            detail = self.details.get(key, "")
            lines.append(f"  {names[key]:{width}}  {error:.1e}" + (f"  {detail}" if detail else ""))
        return "\n".join([*lines, *(f"  note: {note}" for note in self.notes)])


def _symbols(key: str) -> str:
    output, by, name = key.partition("/")
    return f"∂{output}⁺/∂{name}" if by else key
