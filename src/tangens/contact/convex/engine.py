"""The convex contact model at work on one scene."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from tangens.collision.scene_manifold import Choices
from tangens.contact.base import Point
from tangens.contact.convex.model import ConvexModel, described_geoms
from tangens.contact.convex.options import Convex
from tangens.contact.geom_pairs import refuse_sizes
from tangens.contact.jax_engine import JaxEngine
from tangens.contact.jax_model import Inputs, PureModel
from tangens.contact.structure import structure
from tangens.errors import SceneError
from tangens.geometry.solids import Solid
from tangens.scene import Scene

Array = NDArray[np.float64]

_ALL = 1 << 30
"""Room for all contacts."""
_DISSIPATION = 0.5
"""τ_d over the time step, if not given: overlaps are undone by two thirds in each step."""


class ConvexEngine(JaxEngine):
    """Steps and derivatives of one scene."""

    contact: Convex
    method = "newton"
    first_room = 48  # contacts: a box on a box has 16 at most, a robot on its feet some dozens

    def __init__(self, scene: Scene, contact: Convex) -> None:
        for name, shape in scene.shapes.items():
            if not isinstance(shape, Solid):
                raise SceneError(
                    f"contact model 'convex' works on solids; the shape of geom {name!r} is a {type(shape).__name__}",
                    file=scene.source,
                    element=f"geom {name!r}",
                    remedy="describe it by a tangens.geometry.Solid, or choose contact='single-level'",
                )
        super().__init__(scene, contact)

    def key(self) -> tuple[Hashable, ...]:
        """What two scenes have in common that can share a model and its compiled functions."""
        scene = self.scene
        shapes = [(g, jax.tree.structure(scene.shapes[name])) for g, name in described_geoms(scene).items()]
        digest = hashlib.sha256(repr(shapes).encode()).hexdigest()
        return structure(scene.shared_model), scene.geom_names, digest, *self._choices()

    def _choices(self) -> Choices:
        c = self.contact
        projections = 3 if self.scene.shapes else 0  # edges of described meshes are chords of their surface
        return Choices(c.edges, c.both_sides, c.vertices_kept, c.edges_kept, projections, c.points)

    def model(self, room: int | None) -> ConvexModel:
        """The model of all scenes with this key."""
        return ConvexModel(self.scene, self._choices(), room)

    def numbers(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The parameters of this scene, and the settings."""
        scene, c = self.scene, self.contact
        parameters: dict[str, Any] = {name: scene.parameters[name] for name in c.parameters}
        parameters["shapes"] = {name: scene.shapes[name] for name in described_geoms(scene).values()}
        time = _DISSIPATION * scene.timestep if c.dissipation_time is None else c.dissipation_time
        settings = {
            "timestep": scene.timestep,
            "ahead": scene.timestep + time,
            "compliance": c.compliance,
            "stiffness": 0.0 if c.stiffness is None else c.stiffness,
            "stick": c.stick,
            "smoothing": c.smoothing,
            "margin": c.margin,
            "tolerance": c.tolerance,
            "max_iterations": np.int32(c.max_iterations),
        }
        return parameters, {n: np.float64(x) if isinstance(x, float) else x for n, x in settings.items()}

    def inverse_dynamics(self, x: Point, acceleration: Array) -> Array:
        """The tau of a step that ends with this acceleration; all contacts count, wherever they are."""
        with jax.enable_x64(True):
            run = self.compiled("inverse", _ALL, lambda model: model.inverse_dynamics)
            return np.asarray(run(Inputs(x, self.parameters, self.settings), acceleration))

    def elastic_energy(self, x: Point) -> float:
        """What the springs of contacts, limits and equalities hold at the beginning of a step [J].

        Together with kinetic and potential energy it never rises without input, but for what turns a contact on that
        overlaps already.
        """
        with jax.enable_x64(True):
            run = self.compiled("elastic", _ALL, _elastic)
            return float(run(Inputs(x, self.parameters, self.settings)))

    def check(self, wrt: Sequence[str]) -> None:
        """Refuse sizes where shapes do not come from them."""
        refuse_sizes(self.contact.name, self.scene, wrt)


def _elastic(model: PureModel) -> Callable[[Inputs], jax.Array]:
    assert isinstance(model, ConvexModel)
    return model.elastic_energy
