"""Stiffness, damping and smoothing from the scene: masses, sizes and the time step.

Nobody should have to tune contacts. The rules are those of one body of mass m and size L at rest under its own weight:

- ε₃, how far forces reach, is a share of L; but no less than a body falls in a step or so, and more where the
  integrator is explicit: a stiffer contact would not be stable at rest, nor where bodies meet at 1 m/s.
- k puts the body at rest exactly at distance 0: k ε₃ ln 2 = m g. Twice the load presses it in by 1.1 ε₃, ten times by
  6.9 ε₃, a hundred times by 69 ε₃.
- v_d damps small motions about that rest critically: m g / v_d = 2 m ω, with ω² = k / 2m.
- ε₂, over which the load is shared among points, is a share of L, too; but several times what a body falls in a step:
  how points share the load is taken from where they are about to be, which is explicit, and would make a heavily
  loaded body rock.
- v_s is a share of L per second; where the integrator is explicit, what friction changes in a step.
- ε₁ is a share of the squared distance between neighbouring points: planes change over a fraction of it.

Two bodies count with the lighter mass (all that hangs together with it) and the smaller size.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from numpy.typing import NDArray

from tangens.contact.geom_pairs import EARTH, pair_friction
from tangens.contact.soft.options import Soft
from tangens.contact.soft.table import SoftTable

Array = NDArray[np.float64]

REACH_SHARE = 5e-4
"""ε₃ / L: ten times a body's weight presses it in by 0.35 % of its size."""
FALL = {"implicit": 0.25, "euler": 18.0, "rk4": 1.5}
"""ε₃ over the way g h² that a body falls in a step, at least."""
STABLE = {"implicit": np.inf, "euler": 2.0, "rk4": 2.8}
"""Rates that an integrator takes, over 1 / h."""
IMPACT = 1.0
"""Speed v [m/s] at which bodies may meet under an explicit integrator: after a step they are h v deep, and damped at
the rate k h v / (m v_d), which must be stable."""
DEPTH_SHARE = 1e-3
"""ε₂ / L."""
ROCKING = {"implicit": 4.0, "euler": 18.0, "rk4": 12.0}
"""ε₂ over g h², at least: from 4/3 on a cube at rest does not rock, and it may carry three of its kind."""
SLIP = {"implicit": 0.0, "euler": 6.0, "rk4": 2.0}
"""v_s over μ g h, at least. Friction slows the contact of a ball by 3.5 μ g h in a step; where slip is small that is a
rate of 3.5 μ g / v_s, of which Runge-Kutta's method takes 2.8 / h, Euler's 2 / h, and no more than 1 / h without
ringing."""
STICTION_SHARE = 5e-3
"""v_s / L [1/s]."""
TEMPERATURE_SHARE = 0.05
"""ε₁ over the squared distance of neighbouring points."""
LIMIT_SHARE = 1e-3
"""ε₃ of a joint limit, over the joint's range."""


@dataclass(frozen=True, eq=False)
class Derived:
    """The numbers that a scene is simulated with: for each pair of geoms, geom and joint limit."""

    pairs: NDArray[np.int_]
    """Geoms of each pair, (n, 2)."""
    mass: Array
    """[kg], (n,)."""
    size: Array
    """[m], (n,)."""
    stiffness: Array
    dissipation: Array
    stiction: Array
    depth_temperature: Array
    reach: Array
    temperature: Array
    """ε₁ of each geom [m²], (ngeom,)."""


def derive(
    m: mujoco.MjModel, table: SoftTable, contact: Soft, timestep: float, mass: Array, friction: Array
) -> Derived:
    """The numbers of all pairs, from the options where they are given; `mass` of each body, `friction` of each geom."""
    one, two = table.pairs.T
    trees = tree_masses(m, mass)
    light = np.minimum(trees[m.geom_bodyid[one]], trees[m.geom_bodyid[two]])
    sizes = np.array([np.inf if g is None else g.size for g in table.geoms])
    size = np.minimum(sizes[one], sizes[two])
    given1, given2, given3 = contact.smoothing
    impact = (IMPACT * timestep**2 * np.sqrt(2 * EARTH) / STABLE[contact.integrator]) ** (2 / 3) / np.log(2)
    least = max(FALL[contact.integrator] * EARTH * timestep**2, impact)
    reach = _or(given3, np.maximum(REACH_SHARE * size, least))
    stiffness = _or(contact.stiffness, light * EARTH / (reach * np.log(2)))
    dissipation = _or(contact.dissipation, EARTH / np.sqrt(2 * stiffness / light))
    slip = SLIP[contact.integrator] * np.asarray(pair_friction(m, friction, one, two)) * EARTH * timestep
    stiction = _or(contact.stiction, np.maximum(STICTION_SHARE * size, slip))
    spacing = np.array([0.0 if g is None else g.spacing for g in table.geoms])
    temperature = _or(given1, np.where(spacing > 0, TEMPERATURE_SHARE * spacing**2, 1.0))
    depth = _or(given2, np.maximum(DEPTH_SHARE * size, ROCKING[contact.integrator] * EARTH * timestep**2))
    return Derived(table.pairs, light, size, stiffness, dissipation, stiction, depth, reach, temperature)


def tree_masses(m: mujoco.MjModel, mass: Array) -> Array:
    """For each body, the mass of all bodies that hang together with it; that of the world is infinite [kg]."""
    total = np.zeros(m.nbody)
    np.add.at(total, m.body_rootid, mass)
    return np.where(m.body_weldid == 0, np.inf, total[m.body_rootid])


def _or(given: float | None, derived: Array) -> Array:
    return derived if given is None else np.full_like(derived, given)
