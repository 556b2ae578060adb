"""The errors tangens raises. Each says what is wrong, where, and what to do about it."""

from __future__ import annotations


class Error(Exception):
    """Base of every error that tangens raises on purpose."""


class SceneError(Error):
    """A scene description that cannot be simulated as written.

    The parts are kept apart, so that a program can react to them; `str()` joins them in one sentence each.
    """

    def __init__(
        self, reason: str, *, file: object = None, element: str | None = None, remedy: str | None = None
    ) -> None:
        self.reason = reason
        self.file = None if file is None else str(file)
        self.element = element
        self.remedy = remedy
        where = ": ".join(part for part in (self.file, element) if part)
        lines = [f"{where}: {reason}" if where else reason]
        if remedy:
            lines.append(f"Remedy: {remedy}")
        super().__init__("\n".join(lines))


class SceneWarning(UserWarning):
    """Something that a scene asks for and that is simulated in another way than MuJoCo would."""


class StateError(Error):
    """A state, control or force vector of the wrong size, with NaNs, or with a quaternion that is none."""


class SolverError(Error):
    """A step whose result is not usable: what did not converge, by how much, at which step."""


class NotDifferentiable(Error):  # noqa: N818  (a promised public name)
    """A derivative that the contact model cannot give; never answered by zeros instead."""


class OptionError(Error):
    """An argument outside what a function understands: an unknown name, a size or value out of range."""


class MissingExtra(Error):  # noqa: N818  (it names what is missing)
    """A package that only an extra of tangens brings: what needs it, and how to install it."""

    def __init__(self, what: str, package: str, extra: str) -> None:
        super().__init__(f'{what} needs {package}, which is not installed: pip install "tangens[{extra}]"')


def diverged(timestep: float) -> str:
    """What to say of a step that ended in velocities that are not finite, or beyond reason."""
    return (
        "the step ended in numbers that are not finite, or beyond reason: the forces or velocities are too large for a "
        f"time step of {timestep:g} s. Use a smaller timestep, more damping or armature, or smaller controls"
    )
