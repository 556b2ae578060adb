"""Which geoms of a scene can touch, and what two of them have in common: shared by the models in JAX."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.errors import NotDifferentiable
from tangens.scene import Scene

Array = jax.Array

EARTH = 9.81  # m/s²: forces are about as large as weights on Earth, whatever a scene's gravity


def touching_geoms(m: mujoco.MjModel) -> list[tuple[int, int]]:
    """Pairs of geoms that MuJoCo's rules let touch: masks, welded bodies, parents and children, exclusions."""
    weld, exclude = m.body_weldid, set(m.exclude_signature.tolist())
    explicit = {(int(a), int(b)) for a, b in zip(m.pair_geom1, m.pair_geom2, strict=True)}
    filters = not m.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_FILTERPARENT
    found = []
    for a, b in itertools.combinations(range(m.ngeom), 2):
        body1, body2 = sorted((int(m.geom_bodyid[a]), int(m.geom_bodyid[b])))
        if (a, b) in explicit or (b, a) in explicit:
            if weld[body1] != weld[body2]:  # what cannot move against each other has no contact to solve for
                found.append((a, b))
            continue
        masks = (m.geom_contype[a] & m.geom_conaffinity[b]) | (m.geom_contype[b] & m.geom_conaffinity[a])
        root1, root2 = weld[body1], weld[body2]
        parent1, parent2 = weld[m.body_parentid[root1]], weld[m.body_parentid[root2]]
        family = filters and root1 != 0 and root2 != 0 and (root1 == parent2 or root2 == parent1)
        if masks and root1 != root2 and not family and (body1 << 16) + body2 not in exclude:
            found.append((a, b))
    return found


def tree_masses(m: mujoco.MjModel, mass: Array) -> Array:
    """For each body, the mass of all bodies that hang together with it; that of the world is infinite [kg]."""
    total = jnp.zeros(m.nbody).at[m.body_rootid].add(mass)
    return jnp.where(m.body_weldid == 0, jnp.inf, total[m.body_rootid])


def tree_lengths(m: mujoco.MjModel, mass: Array, inertia: Array) -> Array:
    """For each body, about how long bodies are that hang together with it: √(trace of inertias / mass) [m]."""
    traces = jnp.zeros(m.nbody).at[m.body_rootid].add(jnp.sum(inertia[:, :3], axis=1))
    masses = jnp.zeros(m.nbody).at[m.body_rootid].add(mass)
    squares = jnp.where(masses > 0, traces, 1.0) / jnp.where(masses > 0, masses, 1.0)
    return jnp.sqrt(squares[m.body_rootid] + 1e-24)


def pair_friction(m: mujoco.MjModel, friction: Any, one: NDArray[np.int_], two: NDArray[np.int_]) -> Array:
    """The friction of pairs of geoms: that of the one with the higher priority, or the larger one."""
    f, priority = jnp.asarray(friction), m.geom_priority
    first, second = priority[one] > priority[two], priority[two] > priority[one]
    return jnp.where(first, f[one], jnp.where(second, f[two], jnp.maximum(f[one], f[two])))


def is_frictionless(m: mujoco.MjModel, one: NDArray[np.int_], two: NDArray[np.int_]) -> NDArray[np.bool_]:
    """Whether pairs of geoms have condim="1": that of the one with the higher priority, or the larger one."""
    dims, priority = m.geom_condim, m.geom_priority
    first, second = priority[one] > priority[two], priority[two] > priority[one]
    chosen = np.where(first, dims[one], np.where(second, dims[two], np.maximum(dims[one], dims[two])))
    frictionless: NDArray[np.bool_] = chosen == 1
    for a, b, dim in zip(m.pair_geom1, m.pair_geom2, m.pair_dim, strict=True):
        frictionless[((one == a) & (two == b)) | ((one == b) & (two == a))] = dim == 1
    return frictionless


def refuse_sizes(contact: str, scene: Scene, wrt: Sequence[str]) -> None:
    """NotDifferentiable if a derivative by sizes is asked for where shapes do not come from them."""
    if "size" not in wrt:
        return
    m = scene.shared_model
    for g, name in enumerate(scene.geom_names):
        if m.geom_type[g] == mujoco.mjtGeom.mjGEOM_MESH or name in scene.shapes:
            raise NotDifferentiable(
                f"{contact!r} cannot be differentiated by size: the shape of geom {name!r} does not come from its size"
            )
