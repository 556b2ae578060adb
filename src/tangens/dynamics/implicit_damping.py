"""Damping that a step treats implicitly, of tendons and actuators: what `integrator="implicitfast"` asks for.

    (M + h·D)(v⁺ − v) = h·(forces)        D = −∂(forces)/∂v, of joint dampers, tendons and actuators

D is symmetric, because a line pulls along the same arms that it measures by, and without the slope of Coriolis forces.
As in MuJoCo, it has entries where M has some: what a tendon ties together across two branches stays explicit. So does
an actuator whose joint has reached the limit of its actuator force. Dampers of joints are on the diagonal, with or
without all this.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.dynamics.force_elements import unpack
from tangens.dynamics.forces import evaluate_forces
from tangens.dynamics.kinematic_tree import unpack_tree
from tangens.kernels import fixed_floats, floats, inline, integer, kernel, subroutine

Array = NDArray[np.float64]
Columns = NDArray[np.int64]
Records = NDArray[np.void]


class LineDamping(NamedTuple):
    """D of tendons and actuators at one state, and how D·a changes with it at a fixed a."""

    D: Array  # (nv, nv)
    by_v: Array  # (nv, nv)
    by_u: Array  # (nv, nu)


@inline
def has_implicit_lines(elements: Array) -> bool:
    """Whether there are tendons or actuators whose damping is implicit."""
    _, _, line, _ = unpack(elements)
    return bool(line.shape[0] > 0 and line[0].implicit != 0)


@subroutine
def evaluate_lines(elements: Array, q: Array, v: Array, u: Array, tau: Array, actuation: Array) -> None:
    """Evaluate the elements, given the actuator forces of all dofs, gravity compensation included."""
    nv = v.shape[0]
    evaluate_forces(elements, np.empty(nv), q, v, u, tau, np.zeros(nv))
    dof, _, _, _ = unpack(elements)
    for k in range(nv):
        dof[k].unclamped = 1.0 if dof[k].force_min < actuation[k] < dof[k].force_max else 0.0


@kernel(floats(1), floats(1), fixed_floats(1), integer)
def line_damping(tree: Array, elements: Array, a: Array, controls: int) -> tuple[Array, Array, Array]:
    """`set_line_damping`, for Python."""
    dofs, _, column = unpack_tree(tree)
    nv = a.shape[0]
    out = LineDamping(np.empty((nv, nv)), np.empty((nv, nv)), np.empty((nv, controls)))
    set_line_damping(dofs, column, elements, a, out)
    return out.D, out.by_v, out.by_u


@subroutine
def set_line_damping(dofs: Records, column: Columns, elements: Array, a: Array, out: LineDamping) -> None:
    """Fill `out`, elements being evaluated, at some acceleration; `by_u` only if it has columns."""
    dof, _, line, row = unpack(elements)
    out.D[:], out.by_v[:], out.by_u[:] = 0.0, 0.0, 0.0
    for e in range(line.shape[0]):
        pull, k = line[e], line[e].clamped_by
        if k >= 0 and dof[k].unclamped == 0.0:
            continue
        for i in range(pull.start, pull.stop):
            own, arm, along = row[i].dof, row[i].moment, 0.0
            for j in range(pull.start, pull.stop):
                if _coupled(dofs, column, own, row[j].dof):
                    out.D[own, row[j].dof] -= pull.d_velocity * arm * row[j].moment
                    along += row[j].moment * a[row[j].dof]
            for j in range(pull.start, pull.stop):
                out.by_v[own, row[j].dof] -= pull.d_velocity_velocity * arm * along * row[j].moment
            if out.by_u.shape[1]:
                out.by_u[own, pull.control] -= pull.d_velocity_control * arm * along


@inline
def _coupled(dofs: Records, column: Columns, i: int, j: int) -> bool:
    """Whether M has an entry for two dofs."""
    low, high = min(i, j), max(i, j)
    start = dofs[high].address
    for a in range(start, start + dofs[high].count):  # noqa: SIM110  (compiled code knows no `any` of a generator)
        if column[a] == low:
            return True
    return False
