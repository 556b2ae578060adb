"""`tangens.collision.manifold`: contacts of two solids, or of the geoms of a scene, for users."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tangens.collision.pair_manifold import Manifold, Pose, Smoothing, pair_manifold
from tangens.collision.scene_manifold import Choices, SceneManifold
from tangens.dynamics.smooth import SmoothDynamics
from tangens.errors import OptionError
from tangens.geometry.solids import Solid
from tangens.scene import Scene

Array = jax.Array


class SceneContacts(NamedTuple):
    """Contacts of a scene's geoms, as in `Manifold`."""

    point: Array
    distance: Array
    normal: Array
    """From the first geom to the second."""
    activity: Array
    geom: Array
    """(n, 2)."""


def manifold(of: Any, poses: Any, *, smoothing: Smoothing | float | None = None, **options: Any) -> Any:
    """Contacts as arrays of fixed size: points, signed distances, normals, activity.

    `of` is a pair of solids, and `poses` a pair of (position, quaternion); more options are those of `pair_manifold`.
    Or `of` is a scene, and `poses` its q; options are then `geoms`, pairs of names (all pairs on different bodies, if
    not given), and those of `Choices`. `smoothing` is a length [m], or a `Smoothing`; if not given, 0.1 % of the
    smaller solid's size. A pure function of JAX, but for a scene's structure.
    """
    if isinstance(of, Scene):
        return _of_scene(of, poses, smoothing, **options)
    if not (isinstance(of, Sequence) and len(of) == 2 and all(isinstance(solid, Solid) for solid in of)):
        raise OptionError(f"a manifold is that of a scene or of two solids; got {type(of).__name__}")
    at = [Pose(jnp.asarray(p, float), _matrix(jnp.asarray(quat, float))) for p, quat in poses]
    chosen = smoothing if isinstance(smoothing, Smoothing) else Smoothing(_length(of, smoothing))
    return pair_manifold(of[0], of[1], at[0], at[1], chosen, **options)


def _of_scene(
    scene: Scene, q: Any, smoothing: Any, geoms: Sequence[tuple[str, str]] | None = None, **choices: Any
) -> SceneContacts:
    m, names = scene.shared_model, scene.geom_names
    if geoms is None:
        body = m.geom_bodyid
        numbers = [(a, b) for a, b in itertools.combinations(range(m.ngeom), 2) if body[a] != body[b]]
    else:
        for name in itertools.chain(*geoms):
            if name not in names:
                known = ", ".join(repr(n) for n in names if n) or "none"
                raise OptionError(f"the scene has no geom {name!r}. Named geoms: {known}")
        numbers = [(names.index(a), names.index(b)) for a, b in geoms]
    described = {g: scene.shapes[n] for g, n in enumerate(names) if isinstance(scene.shapes.get(n), Solid)}
    table = SceneManifold(m, numbers, described, Choices(**choices))  # type: ignore[arg-type]
    solids = table.solids(scene.parameters["size"], described)  # type: ignore[arg-type]
    size = table.sizes(solids)
    own = smoothing if isinstance(smoothing, Smoothing) else Smoothing(1e-3 * size if smoothing is None else smoothing)
    spread = Smoothing(*(jnp.broadcast_to(jnp.asarray(x, float), size.shape) for x in own))
    found: Manifold = table(solids, table.poses(SmoothDynamics(m).spatial_kinematics(q)), spread)
    return SceneContacts(*found, jnp.asarray(table.pairs[table.pair_of]))


def _length(solids: Sequence[Solid], given: float | None) -> Any:
    """0.1 % of the smaller solid."""
    if given is not None:
        return given
    extents = [np.ptp(np.asarray(s.vertices), axis=0).max() + 2 * float(s.radius) for s in solids if len(s.vertices)]
    return 1e-3 * float(min(extents))


def _matrix(quaternion: Array) -> Array:
    w, x, y, z = quaternion / jnp.sqrt(jnp.sum(quaternion**2))
    return jnp.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
