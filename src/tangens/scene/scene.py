"""The scene: a fixed, checked description of what is simulated."""

from __future__ import annotations

import copy
import hashlib
import pickle
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from tangens.dynamics import tangent
from tangens.dynamics.layout import JointLayout
from tangens.errors import OptionError, SceneError
from tangens.scene.parameters import PARAMETERS, merged, row_index
from tangens.scene.support import element_name
from tangens.scene.validate import check_model
from tangens.state import State, as_vector

if TYPE_CHECKING:
    from tangens.geometry import Shape

Array = NDArray[np.float64]
_OBJ = mujoco.mjtObj


class Scene:
    """What is simulated: bodies, joints, shapes, actuators and their parameters. Immutable; vary it by `replace`.

    Scenes come from `tangens.load` and `tangens.scenes`.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        *,
        restitution: Array | None = None,
        source: str = "MjModel",
        shapes: Mapping[str, Shape] | None = None,
    ) -> None:
        self._model = model
        self.shapes: Mapping[str, Shape] = MappingProxyType(dict(shapes or {}))
        """Shapes of `tangens.geometry` that stand in for geoms, by the geom's name."""
        self._restitution = _declared_restitution(model, source) if restitution is None else restitution
        self.source = source
        """Where the scene came from: a path, or what kind of object."""

    @property
    def model(self) -> mujoco.MjModel:
        """The compiled MuJoCo model: a copy, yours to alter."""
        return copy.copy(self._model)

    @property
    def shared_model(self) -> mujoco.MjModel:
        """The compiled MuJoCo model itself, for reading: copying one with large meshes takes tens of milliseconds."""
        return self._model

    # ------------------------------------------------------------------ sizes and names

    @property
    def nq(self) -> int:
        """Size of q."""
        return int(self._model.nq)

    @property
    def nv(self) -> int:
        """Size of v, of tau, and of every perturbation of q."""
        return int(self._model.nv)

    @property
    def nu(self) -> int:
        """Number of controls."""
        return int(self._model.nu)

    @property
    def timestep(self) -> float:
        """Duration of a step [s]."""
        return float(self._model.opt.timestep)

    @cached_property
    def body_names(self) -> tuple[str, ...]:
        """Bodies in order, the world first; unnamed ones are ''."""
        return self._names(_OBJ.mjOBJ_BODY, self._model.nbody)

    @cached_property
    def joint_names(self) -> tuple[str, ...]:
        """Joints in the order of their coordinates."""
        return self._names(_OBJ.mjOBJ_JOINT, self._model.njnt)

    @cached_property
    def geom_names(self) -> tuple[str, ...]:
        """Shapes in the order of per-geom parameters."""
        return self._names(_OBJ.mjOBJ_GEOM, self._model.ngeom)

    @cached_property
    def actuator_names(self) -> tuple[str, ...]:
        """Actuators in the order of u."""
        return self._names(_OBJ.mjOBJ_ACTUATOR, self._model.nactuator)

    @cached_property
    def keyframe_names(self) -> tuple[str, ...]:
        """Named states that the scene brings along, for `initial_state(keyframe=...)`."""
        return self._names(_OBJ.mjOBJ_KEY, self._model.nkey)

    def _names(self, kind: mujoco.mjtObj, count: int) -> tuple[str, ...]:
        return tuple(mujoco.mj_id2name(self._model, kind, i) or "" for i in range(count))

    # ------------------------------------------------------------------ parameters

    @cached_property
    def parameters(self) -> Mapping[str, Array]:
        """The numbers a derivative may be taken by, as read-only arrays.

        friction, restitution (ngeom,), size (ngeom, 3); mass (nbody,), com (nbody, 3), inertia (nbody, 6) as
        xx, yy, zz, xy, xz, yz about the centre of mass in body axes, placement (nbody, 3), where a body's frame is in
        its parent's; damping, armature, frictionloss (nv,);
        gravity (3,).
        """
        values = {name: parameter.read(self._model) for name, parameter in PARAMETERS.items()}
        values["restitution"] = self._restitution.copy()
        for value in values.values():
            value.flags.writeable = False
        return MappingProxyType(values)

    def replace(self, *, timestep: float | None = None, **parameters: Any) -> Scene:
        """A new scene with other parameters; this one stays as it is.

        Each value is a number or array for all elements, or a mapping from names to values:
        `scene.replace(friction=0.8, mass={"box": 2.0}, gravity=[0, 0, -1.6])`. Damping and armature go by joint name.
        Parameters do not drag each other along: a new mass leaves the inertia as it is.
        """
        model = copy.copy(self._model)
        restitution = self._restitution
        if timestep is not None:
            try:
                model.opt.timestep = float(timestep)
            except (TypeError, ValueError):
                raise OptionError(f"timestep={timestep!r} is no number of seconds") from None
        for name, value in parameters.items():
            if name == "restitution":
                index = self._row_index(name, value, _OBJ.mjOBJ_GEOM)
                restitution = merged(name, restitution, value, index)
                if (restitution < 0).any() or (restitution > 1).any():
                    raise OptionError(f"restitution must lie between 0 and 1; got {value!r}")
                continue
            if name not in PARAMETERS:
                known = ", ".join(("timestep", "restitution", *PARAMETERS))
                raise OptionError(f"a scene has no parameter {name!r}. Known: {known}")
            parameter = PARAMETERS[name]
            new = merged(name, parameter.read(model), value, self._row_index(name, value, parameter.owner))
            if (new < parameter.minimum).any():
                raise OptionError(f"{name} must be at least {parameter.minimum:g}; got {value!r}")
            parameter.write(model, new)
        if {"mass", "com", "inertia", "armature", "placement"} & set(parameters):
            _refresh_constants(model)
        check_model(model, file=self.source)
        return Scene(model, restitution=restitution, source=self.source, shapes=self.shapes)

    def with_shapes(self, shapes: Mapping[str, Shape]) -> Scene:
        """A new scene in which geoms, named here, have shapes that MJCF cannot describe.

        They are in the geom's frame, as MJCF has it. For models that work on convex shapes ("single-level", "bilevel").
        Planar shapes lie in the plane x-z; then all that can touch must be planar. What a geom weighs and how it looks
        stays as it is.
        """
        for name in shapes:
            if name not in self.geom_names:
                known = ", ".join(repr(n) for n in self.geom_names if n) or "none"
                raise OptionError(f"the scene has no geom {name!r}. Named geoms: {known}")
        both = {**self.shapes, **shapes}
        return Scene(self._model, restitution=self._restitution, source=self.source, shapes=both)

    def _row_index(self, name: str, value: object, owner: mujoco.mjtObj | None) -> Any:
        return row_index(self._model, name, owner) if isinstance(value, Mapping) else None

    # ------------------------------------------------------------------ states

    def initial_state(self, keyframe: str | int | None = None) -> State:
        """The state the scene starts in: its reference pose at rest, or one of its keyframes."""
        m = self._model
        if keyframe is None:
            return State(m.qpos0, np.zeros(m.nv))
        if isinstance(keyframe, str):
            if keyframe not in self.keyframe_names:
                known = ", ".join(repr(name) for name in self.keyframe_names) or "none"
                raise OptionError(f"the scene has no keyframe {keyframe!r}. Known: {known}")
            keyframe = self.keyframe_names.index(keyframe)
        if not -m.nkey <= keyframe < m.nkey:
            raise OptionError(f"keyframe {keyframe} is out of range: the scene has {m.nkey}")
        return State(m.key_qpos[keyframe], m.key_qvel[keyframe])

    @cached_property
    def joint_layout(self) -> JointLayout:
        """Where quaternions and plain coordinates live in q and v."""
        return JointLayout.from_model(self._model)

    def integrate(self, q: ArrayLike, dv: ArrayLike) -> Array:
        """The configuration q ⊕ dv."""
        return tangent.integrate(self.joint_layout, as_vector("q", q, self.nq), as_vector("dv", dv, self.nv))

    def difference(self, q1: ArrayLike, q2: ArrayLike) -> Array:
        """The perturbation that takes q1 to q2, of size nv."""
        return tangent.difference(self.joint_layout, as_vector("q1", q1, self.nq), as_vector("q2", q2, self.nq))

    def integrate_jacobians(self, q: ArrayLike, dv: ArrayLike) -> tuple[Array, Array]:
        """∂(q ⊕ dv)/∂q and ∂(q ⊕ dv)/∂dv in the tangent space."""
        return tangent.integrate_jacobians(self.joint_layout, as_vector("q", q, self.nq), as_vector("dv", dv, self.nv))

    def difference_jacobians(self, q1: ArrayLike, q2: ArrayLike) -> tuple[Array, Array]:
        """∂difference(q1, q2)/∂q1 and /∂q2 in the tangent spaces."""
        ends = as_vector("q1", q1, self.nq), as_vector("q2", q2, self.nq)
        return tangent.difference_jacobians(self.joint_layout, *ends)

    def __repr__(self) -> str:
        m = self._model
        return f"Scene({self.source!r}: {m.nbody - 1} bodies, nq={m.nq}, nv={m.nv}, nu={m.nu}, {m.ngeom} geoms)"

    @cached_property
    def fingerprint(self) -> str:
        """The same for scenes of the same content, in every process."""
        buffer = np.zeros(mujoco.mj_sizeModel(self._model), np.uint8)
        mujoco.mj_saveModel(self._model, None, buffer)
        digest = hashlib.sha256(buffer.tobytes())
        digest.update(self._restitution.tobytes())
        for name, shape in sorted(self.shapes.items()):
            digest.update(pickle.dumps((name, shape)))
        return digest.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._model, self._restitution, self.source, dict(self.shapes))


def _rebuild(model: mujoco.MjModel, restitution: Array, source: str, shapes: Mapping[str, Shape]) -> Scene:
    return Scene(model, restitution=restitution, source=source, shapes=shapes)


def _declared_restitution(m: mujoco.MjModel, file: str) -> Array:
    """Restitution per geom from `<custom><tuple name="restitution">`, where MJCF has no attribute for it."""
    out = np.zeros(m.ngeom)
    for t in range(m.ntuple):
        if mujoco.mj_id2name(m, _OBJ.mjOBJ_TUPLE, t) != "restitution":
            continue
        for i in range(m.tuple_adr[t], m.tuple_adr[t] + m.tuple_size[t]):
            value = m.tuple_objprm[i]
            if m.tuple_objtype[i] != int(_OBJ.mjOBJ_GEOM) or not 0 <= value <= 1:
                raise SceneError(
                    f"prm={value:g} of its element {i - m.tuple_adr[t]} is no restitution of a geom",
                    file=file,
                    element="tuple 'restitution'",
                    remedy='write <element objtype="geom" objname="..." prm="..."/> with prm from 0 to 1',
                )
            out[m.tuple_objid[i]] = value
    return out


def keep_small_offsets(m: mujoco.MjModel) -> None:
    """MuJoCo takes a centre of mass within a micrometre of the origin to be there; steps and derivatives do not."""
    m.body_sameframe[(m.body_ipos != 0.0).any(axis=1)] = int(mujoco.mjtSameFrame.mjSAMEFRAME_NONE)


def _refresh_constants(m: mujoco.MjModel) -> None:
    """Let MuJoCo update what it derives from the inertial parameters."""
    try:
        mujoco.mj_setConst(m, mujoco.MjData(m))
        keep_small_offsets(m)
    except mujoco.FatalError as error:
        simple = next((b for b in range(1, m.nbody) if m.body_simple[b]), 0)
        raise SceneError(
            f"MuJoCo compiled the model for a fixed centre of mass ({error})",
            element=element_name(m, _OBJ.mjOBJ_BODY, simple),
            remedy='load the scene from XML or an MjSpec, or give the body simple="false"',
        ) from None
