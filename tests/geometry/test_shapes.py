"""Shapes are sets that scale: their rows obey the laws the solvers rely on, and describe the sets they claim to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.spatial.transform import Rotation

from tangens import OptionError
from tangens import geometry as geo

Array = NDArray[np.float64]

# Each function runs a few times only: compile quickly rather than well.
jit = partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False})


class Case(NamedTuple):
    """A shape, and what is known of it without its rows: a point that is farthest in a direction."""

    shape: geo.Shape
    farthest: Callable[[Array], Array]
    heights: int = (
        0  # how many ε come first that are heights in a cone, for which rows are meant where they are positive
    )


def unit(x: Array) -> Array:
    return x / max(float(np.linalg.norm(x)), 1e-300)


def far_on_polytope(A: Array, b: Array) -> Callable[[Array], Array]:
    corners = geo.corners(A, b)
    return lambda d: corners[np.argmax(corners @ d)]


def far_on_cone(height: float, half_angle: float, dim: int) -> Callable[[Array], Array]:
    down = height * dim / (dim + 1)

    def farthest(d: Array) -> Array:
        apex = -down * np.eye(dim)[-1]
        rim = np.append(height * np.tan(half_angle) * unit(d[:-1]), height - down)
        return max(apex, rim, key=lambda p: float(p @ d))

    return farthest


def cases(dim: int) -> dict[str, Case]:
    rng = np.random.default_rng(dim)
    half, x = np.array([0.3, 0.2, 0.5])[:dim], np.array([0.1, -0.1, 0.05])[:dim]
    E = np.diag(1 / half) + 0.4 * rng.normal(size=(dim, dim))
    S = np.linalg.inv(E.T @ E)
    A, b = rng.normal(size=(4 * dim, dim)), rng.uniform(0.2, 0.4, 4 * dim)
    R = Rotation.from_rotvec([0, 0, 0.7] if dim == 2 else [0.3, -0.5, 0.7]).as_matrix()[:dim, :dim]
    cone, polytope = far_on_cone(0.6, 0.5, dim), far_on_polytope(A, b)
    capsule = lambda d: 0.4 * np.sign(d[-1]) * np.eye(dim)[-1] + 0.1 * unit(d)  # noqa: E731
    placed = lambda d: x + R @ (np.sign(R.T @ d) * half)  # noqa: E731
    placed_box = geo.Placed(geo.box(half), x, R)
    a_cone, a_capsule = geo.Cone(0.6, 0.5, dim), geo.Capsule(0.1, 0.4, dim)
    return {
        "sphere": Case(geo.sphere(0.3, dim), lambda d: 0.3 * unit(d)),
        "ellipsoid": Case(geo.Ellipsoid(E), lambda d: S @ d / np.sqrt(d @ S @ d)),
        "box": Case(geo.box(half), lambda d: np.sign(d) * half),
        "polytope": Case(geo.Polytope(A, b), polytope),
        "padded polytope": Case(geo.PaddedPolytope(A, b, 0.1), lambda d: polytope(d) + 0.1 * unit(d)),
        "capsule": Case(a_capsule, capsule),
        "cylinder": Case(geo.Cylinder(0.2, 0.3, dim), lambda d: np.append(0.2 * unit(d[:-1]), 0.3 * np.sign(d[-1]))),
        "cone": Case(a_cone, cone, heights=1),
        "placed box": Case(placed_box, placed),
        "cone + capsule": Case(geo.MinkowskiSum(a_cone, a_capsule), lambda d: cone(d) + capsule(d), heights=1),
        "(placed box + capsule) + sphere": Case(
            geo.MinkowskiSum(geo.MinkowskiSum(placed_box, a_capsule), geo.sphere(0.1, dim)),
            lambda d: placed(d) + capsule(d) + 0.1 * unit(d),
        ),
    }


CASES = {f"{name}, {dim}D": case for dim in (2, 3) for name, case in cases(dim).items()}
each_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


@jit
def rows(shape: geo.Shape, p: Any, alpha: Any, inner: Any) -> jax.Array:
    return shape.rows(p, alpha, inner)


@jit
def rows_and_slopes(shape: geo.Shape, p: Any, x: Any) -> tuple[jax.Array, jax.Array]:
    g = lambda x: shape.rows(p, x[0], x[1:])  # noqa: E731
    return g(x), jax.jacfwd(g)(x)


guess = jit(lambda shape, p, alpha: shape.inner_guess(p, alpha))
reach_of = jit(lambda shape: shape.reach)


def random_point(case: Case, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    p, inner = rng.normal(size=case.shape.dim), rng.normal(size=case.shape.n_inner)
    inner[: case.heights] = np.exp(inner[: case.heights])
    return p, np.asarray(np.exp(rng.normal())), inner


def gauge(case: Case, p: Array) -> float:
    """The least α whose scaled shape holds p, by a solver that knows nothing of shapes."""
    least = [1e-6] + [1e-9] * case.heights + [-np.inf] * (case.shape.n_inner - case.heights)
    out = minimize(
        lambda x: (x[0], np.eye(x.size)[0]), np.append(1.0, guess(case.shape, p, 1.0)), jac=True, method="SLSQP",
        bounds=[(low, np.inf) for low in least], options={"ftol": 1e-12, "maxiter": 300},
        constraints={
            "type": "ineq",
            "fun": lambda x: -np.asarray(rows_and_slopes(case.shape, p, x)[0]),
            "jac": lambda x: -np.asarray(rows_and_slopes(case.shape, p, x)[1]),
        },
    )  # fmt: skip
    assert np.max(rows(case.shape, p, out.x[0], out.x[1:])) < 1e-7, out.message
    return float(out.x[0])


@each_case
def test_rows_scale_with_the_world(case: Case) -> None:
    rng = np.random.default_rng(0)
    for scale in (1e-3, 0.5, 40.0):
        p, alpha, inner = random_point(case, rng)
        g = rows(case.shape, p, alpha, inner)
        assert g.shape == (case.shape.n_rows,)
        np.testing.assert_allclose(rows(case.shape, scale * p, scale * alpha, scale * inner), scale * g, rtol=1e-9)


@each_case
def test_rows_are_convex_in_everything_at_once(case: Case) -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        one, two = random_point(case, rng), random_point(case, rng)
        middle = [(a + b) / 2 for a, b in zip(one, two, strict=True)]
        g1, g2 = rows(case.shape, *one), rows(case.shape, *two)
        assert np.all(rows(case.shape, *middle) <= (g1 + g2) / 2 + 1e-12 * (1 + np.abs(g1) + np.abs(g2)))


@each_case
def test_what_is_farthest_in_a_direction_is_on_the_surface(case: Case) -> None:
    rng = np.random.default_rng(2)
    for direction in rng.normal(size=(4, case.shape.dim)):
        assert gauge(case, case.farthest(direction)) == pytest.approx(1.0, abs=1e-5)


@each_case
def test_no_point_of_a_shape_is_farther_than_its_farthest(case: Case) -> None:
    rng = np.random.default_rng(3)
    for p in rng.normal(size=(4, case.shape.dim)):
        on_surface = p / gauge(case, p)
        for d in rng.normal(size=(10, case.shape.dim)):
            assert d @ on_surface <= d @ case.farthest(d) + 1e-6


@each_case
def test_reach_and_girth_bound_a_shape(case: Case) -> None:
    rng = np.random.default_rng(4)
    reach, girth = float(case.shape.reach), float(case.shape.girth)
    for d in map(unit, rng.normal(size=(200, case.shape.dim))):
        above, below = case.farthest(d), case.farthest(-d)
        assert np.linalg.norm(above) <= reach * (1 + 1e-9)
        assert 0 < 2 * girth <= d @ (above - below) + 1e-9
    # The same number comes out while JAX does not know the values.
    assert reach_of(case.shape) == pytest.approx(reach, rel=1e-6)


@each_case
def test_the_centre_is_inside_and_the_guess_there_is_a_good_one(case: Case) -> None:
    centre = case.shape.centre
    inner = guess(case.shape, centre, 1.0)
    assert inner.shape == (case.shape.n_inner,)
    assert np.all(rows(case.shape, centre, 1.0, inner) < 0)


@each_case
def test_guesses_scale_with_the_world(case: Case) -> None:
    p, alpha, _ = random_point(case, np.random.default_rng(5))
    np.testing.assert_allclose(guess(case.shape, 3 * p, 3 * alpha), 3 * guess(case.shape, p, alpha), rtol=1e-9)


@jit
def derivatives(shape: geo.Shape, p: Array, inner: Array) -> object:
    """Of the sum of all rows: by the point and by the shape, and of second order by the point."""
    total = lambda shape, x: shape.rows(x[: p.size], x[p.size], x[p.size + 1 :]).sum()  # noqa: E731
    x = jnp.concatenate([p, jnp.ones(1), inner])
    return jax.grad(total, argnums=(0, 1))(shape, x), jax.hessian(total, argnums=1)(shape, x)


@each_case
def test_derivatives_of_both_orders_are_finite_at_the_origin_and_at_the_centre(case: Case) -> None:
    for p in (np.zeros(case.shape.dim), case.shape.centre):
        numbers = jax.tree.leaves(derivatives(case.shape, p, guess(case.shape, p, 1.0)))
        assert all(np.isfinite(number).all() for number in numbers)


def test_a_cone_is_smooth_at_its_apex() -> None:
    cone = geo.Cone(0.6, 0.5)
    apex = np.array([0.0, 0.0, -cone.depth])
    t = guess(cone, apex, 1.0)
    assert t[0] > 0
    assert all(np.isfinite(number).all() for number in jax.tree.leaves(derivatives(cone, apex, t)))


def test_heights_in_a_cone_start_positive_wherever_the_point_is() -> None:
    cone = geo.Cone(0.6, 0.5)
    for z in (-100.0, -0.45, 0.0, 100.0):
        assert guess(cone, np.array([0.3, 0.0, z]), 1.0)[0] > 0


def test_a_cone_in_the_plane_is_a_triangle_about_its_centroid() -> None:
    cone = CASES["cone, 2D"]
    corners = np.array([[0.0, -0.4], [0.6 * np.tan(0.5), 0.2], [-0.6 * np.tan(0.5), 0.2]])
    np.testing.assert_allclose(corners.mean(axis=0), 0, atol=1e-12)
    rng = np.random.default_rng(0)
    for weights in rng.dirichlet(np.ones(3), 10):
        # seen from the centroid, the side opposite corner i is where the weight i has fallen from 1/3 to 0
        assert gauge(cone, weights @ corners) == pytest.approx(1 - 3 * weights.min(), abs=1e-5)
    for share in rng.uniform(size=4):
        assert gauge(cone, share * corners[0] + (1 - share) * corners[1]) == pytest.approx(1, abs=1e-5)


def test_a_cylinder_in_the_plane_is_a_rectangle() -> None:
    cylinder, box = geo.Cylinder(0.2, 0.3, dim=2), geo.box([0.2, 0.3])
    for p in np.random.default_rng(0).uniform(-0.5, 0.5, (50, 2)):
        assert np.all(rows(cylinder, p, 1.0, np.zeros(0)) <= 0) == np.all(rows(box, p, 1.0, np.zeros(0)) <= 0)


def test_a_half_space_does_not_scale() -> None:
    ground = geo.HalfSpace([0, 0, 2])
    p = np.array([1.0, 2.0, -0.3])
    np.testing.assert_allclose([rows(ground, p, a, np.zeros(0)) for a in (0.1, 10.0)], -0.3)
    assert ground.reach == np.inf
    assert ground.girth == 0


def test_a_sphere_has_the_row_of_a_ball() -> None:
    p, alpha, R = np.array([0.2, -0.1, 0.4]), 1.7, 0.3
    np.testing.assert_allclose(rows(geo.sphere(R), p, alpha, np.zeros(0)), p @ p / (alpha * R) - alpha * R)


def test_faces_count_in_metres_however_they_were_scaled() -> None:
    A, b, factor = np.array([[1.0, 0], [-1, 1], [0, -1]]), np.array([1.0, 2, 3]), np.array([2.0, 5, 0.1])
    one, two = geo.Polytope(A, b), geo.Polytope(factor[:, None] * A, factor * b)
    np.testing.assert_allclose(one.A, two.A)
    np.testing.assert_allclose(one.b, two.b)
    np.testing.assert_allclose(np.linalg.norm(one.A, axis=1), 1)


def test_a_batch_of_shapes_is_a_shape_of_batches() -> None:
    radii = jnp.array([0.1, 0.2, 0.3])
    capsules = jax.vmap(geo.Capsule)(radii, 2 * radii)
    assert isinstance(capsules, geo.Capsule)
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(geo.Capsule(r, 2 * r) for r in radii))
    p, inner = np.array([0.2, -0.1, 0.4]), np.array([0.1])
    for batch in (capsules, stacked):
        together = jax.vmap(lambda shape: shape.rows(p, 1.0, inner))(batch)
        np.testing.assert_allclose(together, [rows(geo.Capsule(r, 2 * r), p, 1.0, inner) for r in radii])
        np.testing.assert_allclose(jax.vmap(lambda shape: shape.reach)(batch), 3 * radii)


def test_a_gradient_by_a_shape_has_the_structure_of_the_shape() -> None:
    shape = CASES["padded polytope, 3D"].shape
    by_shape = jax.grad(lambda shape: shape.rows(np.ones(3), 1.0, np.zeros(3)).sum())(shape)
    assert geo.kind(by_shape) == geo.kind(shape)
    np.testing.assert_allclose(by_shape.b, -1)  # neither checked nor normalised


def test_kinds_tell_which_shapes_one_compiled_function_serves() -> None:
    assert geo.kind(geo.Capsule(0.1, 0.2)) == geo.kind(geo.Capsule(0.3, 0.4))
    others = [geo.Capsule(0.1, 0.2), geo.Capsule(0.1, 0.2, dim=2), geo.Cylinder(0.1, 0.2), geo.box([1, 1, 1])]
    others += [geo.Polytope([[1, 0], [-1, 1], [0, -1]], [1, 1, 1]), geo.box([1, 1])]
    assert len({geo.kind(shape) for shape in others}) == len(others)


@each_case
def test_numbers_stay_as_precise_as_they_came(case: Case) -> None:
    def outputs(shape: geo.Shape, p: jax.Array, alpha: jax.Array) -> tuple[jax.Array, ...]:
        inner = shape.inner_guess(p, alpha)
        return inner, shape.rows(p, alpha, inner), shape.reach, shape.girth, shape.centre

    single = jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), case.shape)
    out = jax.eval_shape(outputs, single, np.ones(single.dim, np.float32), np.float32(1))
    assert {each.dtype for each in out} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: geo.sphere(0.0), "radius must be positive"),
        (lambda: geo.sphere(-1), "radius must be positive"),
        (lambda: geo.sphere(1.0, dim=4), "plane .* or in space"),
        (lambda: geo.Capsule(0.1, np.nan), "half_length must be finite"),
        (lambda: geo.Capsule(0.1, np.ones(3)), "half_length must be a number.*jax.vmap"),
        (lambda: geo.Cylinder("wide", 1), "radius must be a number"),
        (lambda: geo.Cone(1.0, np.pi / 2), "half_angle must be below"),
        (lambda: geo.HalfSpace([0, 0, 0]), "normal must not be zero"),
        (lambda: geo.HalfSpace([0, 0, 0, 1]), "plane .* or in space"),
        (lambda: geo.Ellipsoid(np.diag([1, 1, 0])), "invertible"),
        (lambda: geo.Ellipsoid(np.ones((2, 3))), "square"),
        (lambda: geo.ellipsoid([1, 0, 1]), "semi_axes must be positive"),
        (lambda: geo.box([1, 2, -1]), "half_sizes must be positive"),
        (lambda: geo.box([[1, 2], [3]]), "half_sizes must be a vector"),
        (lambda: geo.Polytope([[1, 0], [-1, 1], [0, -1]], [1, 1, 0]), "b must be positive"),
        (lambda: geo.Polytope([[1, 0], [-1, 1], [0, -1]], [1, 1]), "a row for each face"),
        (lambda: geo.Polytope([[1, 0], [-1, 1], [0, 0]], [1, 1, 1]), "rows of zeros"),
        (lambda: geo.Polytope([[1, 0], [-1, 0], [0, 1]], [1, 1, 1]), "must be bounded"),
        (lambda: geo.Polytope(np.eye(3), np.ones(3)), "must be bounded"),
        (lambda: geo.Polytope(np.concatenate([np.eye(3)[:2], -np.eye(3)[:2]]), np.ones(4)), "must be bounded"),
        (lambda: geo.PaddedPolytope(geo.box([1, 1]).A, geo.box([1, 1]).b, 0), "radius must be positive"),
    ],
)
def test_what_is_no_shape_is_refused(make: Callable[[], geo.Shape], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        make()


def test_numbers_keep_their_precision_whatever_jax_is_set_to() -> None:
    with jax.enable_x64(False):
        box, ball = geo.box([0.1, 0.4]), geo.sphere(0.3)
        assert np.asarray(box.b).tolist() == [0.1, 0.4, 0.1, 0.4]
        assert np.asarray(ball.E)[0, 0] == 1 / 0.3
