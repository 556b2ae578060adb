"""The steps of a trajectory with their tapes, forwards and backwards; those without a tape are taken again."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tangens.contact.base import Engine, Point
from tangens.errors import StateError
from tangens.results import Step, Trajectory

_SEGMENT = 64  # steps taken again at a time, where a trajectory came without tapes
# On the machine that made them, steps are repeated to the last bit; another CPU rounds otherwise.
_SAME = 1e-9


def forwards(engine: Engine, trajectory: Trajectory) -> Iterator[Step]:
    """The steps from the first to the last."""
    segment = trajectory.checkpoint or _SEGMENT
    again: dict[int, Step] = {}
    for t, step in enumerate(trajectory.steps):
        if step.tape is None and t not in again:
            own_step(engine, step)
            again = _retrace(engine, trajectory, t, min(t + segment, len(trajectory)) - 1)
        yield step if step.tape is not None else again.pop(t)


def backwards(engine: Engine, trajectory: Trajectory) -> Iterator[tuple[int, Step]]:
    """The steps from the last to the first, with their numbers."""
    segment = trajectory.checkpoint or _SEGMENT
    again: dict[int, Step] = {}
    for t in reversed(range(len(trajectory))):
        step = again.pop(t, None) or own_step(engine, trajectory.steps[t])
        if step.tape is None:
            again = _retrace(engine, trajectory, t - t % segment, t)
            step = again.pop(t)
        yield t, step


def own_step(engine: Engine, step: Step) -> Step:
    """The step, if it is one of this scene and model."""
    own = engine.owner
    if step.owner is not own and step.owner != own:
        raise StateError(
            f"this step was made by another simulator than that of {engine.scene!r} under {engine.contact!r}: take it "
            "with this one, or use the other"
        )
    return step


def _retrace(engine: Engine, trajectory: Trajectory, first: int, last: int) -> dict[int, Step]:
    """Take steps of a trajectory again, and see that they lead where they led."""
    guess, out = trajectory.steps[first - 1].guess if first else None, dict[int, Step]()
    for t in range(first, last + 1):
        x = Point(trajectory.q[t], trajectory.v[t], trajectory.u[t], trajectory.tau[t])
        out[t] = step = engine.step(x, guess)
        guess = step.guess
        moved = np.abs(step.state.v - trajectory.v[t + 1]).max(initial=0.0)
        if not moved <= _SAME * (1.0 + np.abs(trajectory.v[t + 1]).max(initial=0.0)):
            raise StateError(
                f"step {t} of the trajectory leads elsewhere when it is taken again (v⁺ differs by {moved:.2g}): "
                "it was made by another scene, model or version"
            )
    return out
