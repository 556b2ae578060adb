"""The kinematic tree as compiled code walks it: each degree of freedom knows the one before it.

Velocities and forces are spatial vectors (angular part first) in world axes about the centre of mass of their tree,
as MuJoCo's `cdof`, `cvel` and `cinert` are. A rotation's three degrees of freedom form a *group*: their axes are fixed
in the child, so they turn together.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.kernels import inline, subroutine

Array = NDArray[np.float64]
Records = NDArray[np.void]

DOF = np.dtype(
    [
        ("parent", np.int64),  # dof before it on the way to the world, -1 at the root
        ("first", np.int64),  # of its group
        ("last", np.int64),
        ("address", np.int64),  # of its row in M
        ("count", np.int64),
        ("damper", np.float64, 3),
    ]
)
BODY = np.dtype([("last_dof", np.int64), ("root", np.int64)])
COLUMN = np.dtype([("dof", np.int64)])  # of each entry of M
_DOF_SIZE, _BODY_SIZE = DOF.itemsize // 8, BODY.itemsize // 8


def pack_tree(m: mujoco.MjModel, damper: Array) -> Array:
    """What compiled code needs to know of a model's tree, as one plain array: quicker to hand over than records."""
    dofs, bodies = _tree_of(m)
    dofs["address"], dofs["count"], dofs["damper"] = m.M_rowadr, m.M_rownnz, damper
    return _packed(dofs, bodies, m.M_colind.astype(np.int64))


def pack_long_tree(m: mujoco.MjModel) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:
    """The tree with three more dofs in front of each body that has no free joint.

    Returns it, the place of each dof in it, and the place of the first new one of each body, or −1. There is no mass
    matrix that goes with it.
    """
    dofs, bodies = _tree_of(m)
    free = {int(m.jnt_bodyid[j]) for j in np.flatnonzero(m.jnt_type == int(mujoco.mjtJoint.mjJNT_FREE))}
    real, sliding = np.zeros(m.nv, dtype=np.int64), np.full(m.nbody, -1, dtype=np.int64)
    records, last = list[tuple[int, int, int]](), np.full(m.nbody, -1, dtype=np.int64)
    for body in range(1, m.nbody):
        before = last[m.body_parentid[body]]
        if body not in free:
            sliding[body] = len(records)
            for _ in range(3):
                records.append((int(before), len(records), len(records)))
                before = len(records) - 1
        start, shift = m.body_dofadr[body], len(records) - m.body_dofadr[body]
        for k in range(start, start + m.body_dofnum[body]):
            real[k] = len(records)
            records.append((int(before), int(dofs["first"][k] + shift), int(dofs["last"][k] + shift)))
            before = len(records) - 1
        last[body] = before
    longer = np.zeros(len(records), dtype=DOF)
    for name, values in zip(
        ("parent", "first", "last"), np.array(records, dtype=np.int64).reshape(-1, 3).T, strict=True
    ):
        longer[name] = values
    bodies["last_dof"] = last
    return _packed(longer, bodies, np.zeros(0, dtype=np.int64)), real, sliding


def _tree_of(m: mujoco.MjModel) -> tuple[Records, Records]:
    dofs = np.zeros(m.nv, dtype=DOF)
    dofs["parent"] = m.dof_parentid
    dofs["first"] = dofs["last"] = np.arange(m.nv)
    for j in range(m.njnt):
        kind = int(m.jnt_type[j])
        if kind in (int(mujoco.mjtJoint.mjJNT_FREE), int(mujoco.mjtJoint.mjJNT_BALL)):
            rotation = m.jnt_dofadr[j] + (3 if kind == int(mujoco.mjtJoint.mjJNT_FREE) else 0)
            dofs["first"][rotation : rotation + 3] = rotation
            dofs["last"][rotation : rotation + 3] = rotation + 2
    bodies = np.zeros(m.nbody, dtype=BODY)
    bodies["root"], bodies["last_dof"] = m.body_rootid, -1
    for body in range(1, m.nbody):
        own = m.body_dofnum[body]
        inherited = bodies[m.body_parentid[body]]["last_dof"]
        bodies[body]["last_dof"] = m.body_dofadr[body] + own - 1 if own else inherited
    return dofs, bodies


def _packed(dofs: Records, bodies: Records, column: NDArray[np.int64]) -> Array:
    sizes = np.array([len(dofs), len(bodies)], dtype=np.float64)
    return np.concatenate([sizes, *(array.view(np.float64).ravel() for array in (dofs, bodies, column))])


@inline
def unpack_tree(packed: Array) -> tuple[Records, Records, NDArray[np.int64]]:
    """Dofs, bodies and the columns of M's entries."""
    a = 2 + int(packed[0]) * _DOF_SIZE
    b = a + int(packed[1]) * _BODY_SIZE
    return packed[2:a].view(DOF), packed[a:b].view(BODY), packed[b:].view(np.int64)


@subroutine
def propagate_velocities(dofs: Records, cdof: Array, rate: Array, before: Array, after: Array) -> None:
    """Spatial velocity of the tree before and after the group of each dof, shapes (nv, 6), at joint velocities."""
    for k in range(dofs.shape[0]):
        first, last, parent = dofs[k].first, dofs[k].last, dofs[k].parent
        if k == first:
            for i in range(6):
                before[k, i] = after[parent, i] if parent >= 0 else 0.0
                after[last, i] = before[k, i]
        for i in range(6):
            before[k, i] = before[first, i]
            after[last, i] += cdof[k, i] * rate[k]
        if k == last:
            for j in range(first, last):
                for i in range(6):
                    after[j, i] = after[last, i]
