"""Witness points of vertices and triangles, and of two edges, as quadratic programs: by qpax, and by L-BFGS.

Both are what paper 4 compares with (Fig. 6). qpax's interior point method solves the programs over edges and triangles
themselves; optimistix's L-BFGS (in place of jaxopt's, which is no longer maintained) minimises distance and a log
barrier, a triangle being a square whose one side is a point, so that bounds are all there is. Neither is asked for more
than tangens gives: a thousandth of an edge.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tangens.errors import MissingExtra

Function = Callable[..., Any]

TOLERANCE = 1e-3
BARRIER = 1e-4
"""κ of the log barrier, for edges of length 1: solutions are off by about a hundredth of an edge."""
SETTINGS = {
    "qpax": f"solve_qp, tolerance {TOLERANCE:g}, Cholesky, vmap and jit, single precision",
    "L-BFGS": f"optimistix.LBFGS(rtol=atol={TOLERANCE:g}, history 3), log barrier {BARRIER:g}, vmap and jit, "
    "single precision",
}


def peers() -> dict[str, tuple[Function, Function]]:
    """(vertex-face, edge-edge) of each peer, for batches."""
    try:
        import optimistix
        import qpax
    except ImportError as error:
        raise MissingExtra("bench manifold", error.name or "qpax", "bench") from None
    return {
        "qpax": (jax.vmap(lambda v, t: _vertex_face_qp(qpax, v, t)), jax.vmap(lambda a, b: _edge_edge_qp(qpax, a, b))),
        "L-BFGS": (
            jax.vmap(lambda v, t: _vertex_face_barrier(optimistix, v, t)),
            jax.vmap(lambda a, b: _edge_edge_barrier(optimistix, a, b)),
        ),
    }


def _vertex_face_qp(qpax: Any, vertex: Any, triangle: Any) -> Any:
    """Min ‖Σ αᵢ tᵢ − v‖², Σ αᵢ = 1, α >= 0 (Eqs. 7 to 9)."""
    one = jnp.eye(3, dtype=vertex.dtype)
    share = qpax.solve_qp(
        triangle @ triangle.T + 1e-4 * one, -triangle @ vertex, jnp.ones_like(one[:1]), jnp.ones_like(vertex[:1]),
        -one, jnp.zeros_like(vertex), solver_tol=TOLERANCE,
    )[0]  # fmt: skip
    return share @ triangle


def _edge_edge_qp(qpax: Any, edge1: Any, edge2: Any) -> Any:
    """Min ‖e₁(α₁) − e₂(α₂)‖² with both α between 0 and 1 (Eq. 10)."""
    A = jnp.stack([edge1[1] - edge1[0], edge2[0] - edge2[1]], 1)
    one, low = jnp.eye(2, dtype=A.dtype), jnp.zeros(2, A.dtype)
    share = qpax.solve_qp(
        A.T @ A + 1e-4 * one, A.T @ (edge1[0] - edge2[0]), jnp.zeros((0, 2), A.dtype), low[:0],
        jnp.concatenate([one, -one]), jnp.concatenate([low + 1, low]), solver_tol=TOLERANCE,
    )[0]  # fmt: skip
    return edge1[0] + share[0] * (edge1[1] - edge1[0]), edge2[0] + share[1] * (edge2[1] - edge2[0])


def _barrier(optimistix: Any, squared_distance: Function) -> Any:
    """The two shares that minimise distance and barrier, from the middle."""

    def cost(x: Any, _: Any) -> Any:
        inside = jnp.all((x > 0) & (x < 1))
        safe = jnp.where(inside, x, 0.5)
        barrier = -BARRIER * jnp.sum(jnp.log(safe) + jnp.log1p(-safe))
        return jnp.where(inside, squared_distance(safe) / 2 + barrier, jnp.inf)

    solver = optimistix.LBFGS(rtol=TOLERANCE, atol=TOLERANCE, history_length=3)
    start = jnp.full(2, 0.5, jnp.float32)
    return optimistix.minimise(cost, solver, start, max_steps=100, throw=False).value


def _vertex_face_barrier(optimistix: Any, vertex: Any, triangle: Any) -> Any:
    def at(x: Any) -> Any:
        far = triangle[1] + x[1] * (triangle[2] - triangle[1])
        return triangle[0] + x[0] * (far - triangle[0])

    return at(_barrier(optimistix, lambda x: jnp.sum((at(x) - vertex) ** 2)))


def _edge_edge_barrier(optimistix: Any, edge1: Any, edge2: Any) -> Any:
    def at(x: Any) -> Any:
        return edge1[0] + x[0] * (edge1[1] - edge1[0]), edge2[0] + x[1] * (edge2[1] - edge2[0])

    return at(_barrier(optimistix, lambda x: jnp.sum((at(x)[0] - at(x)[1]) ** 2)))
