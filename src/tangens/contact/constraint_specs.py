"""Constraints of a scene besides contact: limits, dry friction and equalities, as records; read once for both worlds.

A *line* is a sum of coordinates with coefficients: one joint, or a fixed tendon. Limits and dry friction act on lines;
a `joint` or `tendon` equality makes one line a polynomial of another. A ball joint limits its angle. `connect` and
`weld` tie a point, or a whole frame, of one body to another.
"""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.errors import SceneError
from tangens.scene.support import element_name

Array = NDArray[np.float64]
Records = NDArray[np.void]

LINE_LIMIT, LINE_DRY, LINE_EQUAL, BALL_LIMIT, CONNECT, WELD = range(6)
"""Shapes of constraints."""

SPEC = np.dtype(
    [
        ("shape", np.int64),
        ("start", np.int64),  # its entries: the line from start to middle, the one it depends on from there to stop
        ("middle", np.int64),
        ("stop", np.int64),
        ("low", np.float64),  # limits
        ("high", np.float64),
        ("bound", np.float64),  # largest dry friction force
        ("polynomial", np.float64, 5),  # LINE_EQUAL: length − rest₀ = p(other length − rest₁)
        ("rest", np.float64, 2),
        ("joint", np.int64, 2),  # BALL_LIMIT: addresses in q and v
        ("body", np.int64, 2),  # CONNECT, WELD: what is tied
        ("anchor", np.float64, 6),  # a point of each body, in its frame
        ("turn", np.float64, 4),  # WELD: orientation of body 1 in body 0
        ("owner", np.int64),  # LINE_DRY of a joint: its dof, else -1
    ]
)
ENTRY = np.dtype([("dof", np.int64), ("coordinate", np.int64), ("coefficient", np.float64)])
_ROWS = {LINE_LIMIT: 2, LINE_DRY: 1, LINE_EQUAL: 1, BALL_LIMIT: 1, CONNECT: 3, WELD: 6}


class Constraints:
    """All of them, as `packed` plain numbers, and the largest number of rows that they can have."""

    def __init__(self, m: mujoco.MjModel) -> None:
        self._specs: list[NDArray[np.void]] = []
        self._entries: list[tuple[int, int, float]] = []
        self.owners: list[tuple[mujoco.mjtObj, int]] = []
        """What each constraint belongs to: a joint, a tendon or an equality."""
        off = mujoco.mjtDisableBit
        for j in range(m.njnt):
            self._add_joint(m, j, limits=not m.opt.disableflags & off.mjDSBL_LIMIT)
        for t in range(m.ntendon):
            line, owner = _tendon_line(m, t), (mujoco.mjtObj.mjOBJ_TENDON, t)
            if m.tendon_limited[t] and not m.opt.disableflags & off.mjDSBL_LIMIT:
                self._add(owner, LINE_LIMIT, line, low=m.tendon_range[t, 0], high=m.tendon_range[t, 1])
            if m.tendon_frictionloss[t] > 0 and not m.opt.disableflags & off.mjDSBL_FRICTIONLOSS:
                self._add(owner, LINE_DRY, line, bound=m.tendon_frictionloss[t])
        if not m.opt.disableflags & off.mjDSBL_FRICTIONLOSS:
            for i in np.flatnonzero(m.dof_frictionloss > 0):
                joint = mujoco.mjtObj.mjOBJ_JOINT, int(m.dof_jntid[i])
                self._add(joint, LINE_DRY, [(int(i), 0, 1.0)], bound=m.dof_frictionloss[i], owner=int(i))
        if not m.opt.disableflags & off.mjDSBL_EQUALITY:
            for e in np.flatnonzero(m.eq_active0):
                self._add_equality(m, int(e))
        self.specs = specs = np.array(self._specs, dtype=SPEC)
        self.entries = entries = np.array(self._entries, dtype=ENTRY)
        sizes = np.array([len(specs), len(entries)], dtype=np.float64)
        self.packed = np.concatenate([sizes, specs.view(np.float64).ravel(), entries.view(np.float64).ravel()])
        self.count = len(specs)
        self.rows = sum(_ROWS[int(spec["shape"])] for spec in specs)

    def _add(
        self, of: tuple[mujoco.mjtObj, int], shape: int, line: list[tuple[int, int, float]], **fields: object
    ) -> None:
        self.owners.append(of)
        spec = np.zeros((), dtype=SPEC)
        other = fields.pop("other", [])
        assert isinstance(other, list)
        start = len(self._entries)
        self._entries += line + other
        fields = {"owner": -1} | fields
        fields |= {"shape": shape, "start": start, "middle": start + len(line), "stop": len(self._entries)}
        for name, value in fields.items():
            spec[name] = value
        self._specs.append(spec[()])

    def _add_joint(self, m: mujoco.MjModel, j: int, limits: bool) -> None:
        if not (m.jnt_limited[j] and limits):
            return
        low, high = m.jnt_range[j]
        if m.jnt_type[j] == int(mujoco.mjtJoint.mjJNT_BALL):
            self._add(
                (mujoco.mjtObj.mjOBJ_JOINT, j), BALL_LIMIT, [], high=high, joint=(m.jnt_qposadr[j], m.jnt_dofadr[j])
            )
        elif m.jnt_type[j] != int(mujoco.mjtJoint.mjJNT_FREE):
            self._add((mujoco.mjtObj.mjOBJ_JOINT, j), LINE_LIMIT, _joint_line(m, j), low=low, high=high)

    def _add_equality(self, m: mujoco.MjModel, e: int) -> None:
        kind, (one, two), data = (
            int(m.eq_type[e]),
            m.eq_obj1id[e : e + 1].tolist() + m.eq_obj2id[e : e + 1].tolist(),
            m.eq_data[e],
        )
        equality, owner = mujoco.mjtEq, (mujoco.mjtObj.mjOBJ_EQUALITY, e)
        if kind in (int(equality.mjEQ_JOINT), int(equality.mjEQ_TENDON)):
            joints = kind == int(equality.mjEQ_JOINT)
            line = _joint_line if joints else _tendon_line
            rest = [_rest_length(m, i, joints) if i >= 0 else 0.0 for i in (one, two)]
            other = line(m, two) if two >= 0 else []
            self._add(owner, LINE_EQUAL, line(m, one), other=other, polynomial=data[:5], rest=rest)
        elif kind in (int(equality.mjEQ_CONNECT), int(equality.mjEQ_WELD)):
            self._add_tie(m, e, kind == int(equality.mjEQ_WELD), one, two, data)
        else:
            raise SceneError(
                "equalities of flexible bodies are not simulated",
                element=element_name(m, mujoco.mjtObj.mjOBJ_EQUALITY, e),
                remedy="take it out of the model",
            )

    def _add_tie(self, m: mujoco.MjModel, e: int, weld: bool, one: int, two: int, data: Array) -> None:
        shape = WELD if weld else CONNECT
        if m.eq_objtype[e] == int(mujoco.mjtObj.mjOBJ_SITE):
            quats = m.site_quat[[one, two]]
            turn, back = np.zeros(4), np.zeros(4)  # body 1 in body 0 so that the sites coincide: s₀·s₁⁻¹
            mujoco.mju_negQuat(back, quats[1])
            mujoco.mju_mulQuat(turn, quats[0], back)
            bodies, anchor = m.site_bodyid[[one, two]], m.site_pos[[one, two]].ravel()
        else:
            # MuJoCo keeps a connect's anchors in order, a weld's the other way round.
            anchor = np.concatenate([data[3:6], data[:3]]) if weld else data[:6]
            bodies, turn = np.array([one, two]), data[6:10] if weld else np.array([1.0, 0, 0, 0])
        self._add((mujoco.mjtObj.mjOBJ_EQUALITY, e), shape, [], body=bodies, anchor=anchor, turn=turn)


def _joint_line(m: mujoco.MjModel, j: int) -> list[tuple[int, int, float]]:
    return [(int(m.jnt_dofadr[j]), int(m.jnt_qposadr[j]), 1.0)]


def _tendon_line(m: mujoco.MjModel, t: int) -> list[tuple[int, int, float]]:
    wraps = range(m.tendon_adr[t], m.tendon_adr[t] + m.tendon_num[t])
    return [(*_joint_line(m, m.wrap_objid[w])[0][:2], float(m.wrap_prm[w])) for w in wraps]


def _rest_length(m: mujoco.MjModel, index: int, joint: bool) -> float:
    return float(m.qpos0[m.jnt_qposadr[index]] if joint else m.tendon_length0[index])
