"""Contact manifolds: against MuJoCo's box-box clipper, against differences, and in poses where directions vanish."""

from __future__ import annotations

from functools import cache, partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from tangens.collision.edge_edge import edge_edge
from tangens.collision.pair_manifold import Manifold, Pose, Smoothing, pair_manifold
from tangens.collision.vertex_face import vertex_face
from tangens.dynamics.tangent_jax import exp_matrix
from tangens.geometry.solids import Solid, solid_of_geom

Array = NDArray[np.float64]
HALF = np.full(3, 0.05)
BOX, CAPSULE, SPHERE, CYLINDER, ELLIPSOID = (
    int(getattr(mujoco.mjtGeom, f"mjGEOM_{kind}")) for kind in ("BOX", "CAPSULE", "SPHERE", "CYLINDER", "ELLIPSOID")
)
CORNERS = 0.05 * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
FINE = 5e-5
"""Smoothing [m] of comparisons with MuJoCo: 0.05 % of a box."""


@partial(jax.jit, static_argnames=("kind1", "kind2", "edges"))
def found(
    size1: Any, size2: Any, pose: Any, tau: Any, kind1: int = BOX, kind2: int = BOX, edges: bool = True
) -> Manifold:
    """Contacts with solid 1 in place; `pose` moves solid 2."""
    still = Pose(jnp.zeros(3), jnp.eye(3))
    one, two = solid_of_geom(kind1, size1), solid_of_geom(kind2, size2)
    return pair_manifold(
        one, two, still, Pose(pose[:3], exp_matrix(pose[3:])), Smoothing(tau, 0.05, 0.005, 1e-5, 5 * tau), edges=edges
    )


@cache
def boxes() -> tuple[mujoco.MjModel, mujoco.MjData]:
    geom = '<body><freejoint/><geom type="box" size=".05 .05 .05"/></body>'
    model = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{2 * geom}</worldbody></mujoco>")
    return model, mujoco.MjData(model)


def clipped(pose: Array) -> list[tuple[Array, Array, float]]:
    """MuJoCo's contacts of two boxes: position, normal from 1 to 2, distance."""
    model, data = boxes()
    data.qpos[:] = [0, 0, 0, 1, 0, 0, 0, *pose[:3], 1, 0, 0, 0]
    angle = float(np.linalg.norm(pose[3:]))
    mujoco.mju_axisAngle2Quat(data.qpos[10:], pose[3:] / max(angle, 1e-12), angle)
    mujoco.mj_forward(model, data)
    return [(c.pos.copy(), c.frame[:3].copy(), float(c.dist)) for c in data.contact[: data.ncon]]


def active(pose: Array, least: float = 0.3) -> Any:
    """Overlapping contacts that count."""
    manifold = found(HALF, HALF, pose, FINE)
    on = (np.asarray(manifold.activity) > least) & (np.asarray(manifold.distance) < 0)
    return tuple(np.asarray(column)[on] for column in (manifold.point, manifold.normal, manifold.distance))


def edge_on_edge(rng: np.random.Generator) -> Array:
    """Box 2 stands on one of its edges, which crosses an upper edge of box 1, itself turned up, at a random angle."""
    up1 = np.array([np.pi / 4, 0, 0])
    yaw = np.array([0, 0, rng.uniform(0.35, np.pi - 0.35)])
    R1, R2 = (np.asarray(exp_matrix(jnp.asarray(x))) for x in (up1, yaw))
    edge = np.sqrt(2) * 0.05
    depth = rng.uniform(4e-4, 1.5e-3)  # twice the smoothing, and more
    place = np.array([rng.uniform(-0.01, 0.01), rng.uniform(-0.01, 0.01), 2 * edge - depth])
    turn = R1.T @ R2 @ R1  # seen from box 1
    return np.concatenate([R1.T @ place, _rotation_vector(turn)])


def _rotation_vector(R: Array) -> Array:
    quat = np.zeros(4)
    mujoco.mju_mat2Quat(quat, R.flatten())
    out = np.zeros(3)
    mujoco.mju_quat2Vel(out, quat, 1.0)
    return out


class TestAgainstMujoco:
    def test_edges_that_cross_at_100_random_angles(self) -> None:
        rng = np.random.default_rng(0)
        for _ in range(100):
            pose = edge_on_edge(rng)
            (position, normal, distance), *more = clipped(pose)
            assert not more
            points, normals, distances = active(pose)
            assert len(points) == 1
            assert np.linalg.norm(points[0] - position) < 2e-3
            assert np.degrees(np.arccos(min(1.0, normals[0] @ normal))) < 2.0
            assert distances[0] == pytest.approx(distance, abs=2e-4)
            assert distances[0] < 0

    def test_a_box_on_a_box_at_100_random_angles(self) -> None:
        """But for vertices near a rim: one that is nearer to a side than it is deep would leave through that side.

        Signed distances choose the shortest way out, the clipper the same face for all.
        """
        rng, taken = np.random.default_rng(0), 0
        while taken < 100:
            pose = np.array([*rng.uniform(-0.03, 0.03, 2), 0.0995, 0, 0, rng.uniform(0.1, 1.4)])
            if not self._near_a_rim(pose, CORNERS, CORNERS):
                self._same(pose)
                taken += 1

    def test_a_box_on_an_edge_of_a_box_at_100_random_angles(self) -> None:
        """Its lower edge lies across the upper face of the other one: where it ends, and where it leaves the face."""
        rng, taken = np.random.default_rng(0), 0
        up, height = exp_matrix(jnp.array([np.pi / 4, 0, 0])), 0.05 + np.sqrt(2) * 0.05 - 5e-4
        while taken < 100:
            turn = np.asarray(exp_matrix(jnp.array([0, 0, rng.uniform(-0.4, 0.4)])) @ up)
            pose = np.array([rng.uniform(-0.03, 0.03), 0, height, *_rotation_vector(turn)])
            lowest = CORNERS[np.argsort((CORNERS @ turn.T)[:, 2])[:2]]
            if not self._near_a_rim(pose, lowest, CORNERS[:0]):
                self._same(pose)
                taken += 1

    def test_an_edge_askew_across_a_face_crosses_the_rims_on_both_sides(self) -> None:
        """It is 4.5 mm deep at one and 0.5 mm at the other, that is the nearer one."""
        tilt, depth, slope = 0.04, 2.5e-3, np.sqrt(2) * 0.05
        turn = np.asarray(exp_matrix(jnp.array([0, tilt, 0])) @ exp_matrix(jnp.array([np.pi / 4, 0, 0])))
        place = [slope * np.sin(tilt), 0.0, 0.05 - depth + slope * np.cos(tilt)]
        pose = np.array([*place, *_rotation_vector(turn)])
        manifold = found(HALF, np.array([0.1, 0.05, 0.05]), pose, FINE)
        on = (np.asarray(manifold.activity) > 0.5) & (np.asarray(manifold.distance) < 0)
        depths = -np.sort(np.asarray(manifold.distance)[on])
        at_rims = (depth + 0.05 * np.array([1, -1]) * np.tan(tilt)) * np.cos(tilt)
        assert depths == pytest.approx(at_rims, abs=FINE)

    def _near_a_rim(self, pose: Array, of_upper: Array, of_lower: Array) -> bool:
        """Whether corners are within 1 mm of a side of the other box, seen from above."""
        R = np.asarray(exp_matrix(jnp.asarray(pose[3:])))
        seen = np.concatenate([of_upper @ R.T + pose[:3], (of_lower - pose[:3]) @ R])[:, :2]
        return bool(np.abs(np.abs(seen).max(axis=1) - 0.05).min() < 1e-3)

    def _same(self, pose: Array) -> None:
        """Each contact of the clipper is one of ours, and each of ours is one of the clipper's."""
        clip = clipped(pose)
        points, normals, distances = active(pose)
        assert clip
        for position, normal, distance in clip:
            near = np.linalg.norm(points - position, axis=1)
            i = int(near.argmin())
            assert near[i] < 2e-3, (position, points)
            assert np.degrees(np.arccos(min(1.0, normals[i] @ normal))) < 2.0
            assert np.sign(distances[i]) == np.sign(distance)
            assert distances[i] == pytest.approx(distance, abs=2e-4)
        for point in points:
            assert min(np.linalg.norm(point - position) for position, _, _ in clip) < 2e-3

    def test_far_apart_nothing_is_active(self) -> None:
        assert not len(active(np.array([0.3, 0.1, 0.2, 0.3, 0.2, 0.1]), 1e-3)[0])

    def test_swapping_the_solids_turns_normals_around(self) -> None:
        pose = np.array([0.01, 0.02, 0.0995, 0, 0, 0.4])
        R = exp_matrix(jnp.asarray(pose[3:]))
        one, two = solid_of_geom(BOX, HALF), solid_of_geom(BOX, 0.8 * HALF)
        a, b = Pose(jnp.zeros(3), jnp.eye(3)), Pose(jnp.asarray(pose[:3]), R)
        first, second = pair_manifold(one, two, a, b, Smoothing(FINE)), pair_manifold(two, one, b, a, Smoothing(FINE))
        np.testing.assert_allclose(first.distance[:8], second.distance[8:16], atol=1e-12)
        swapped = np.asarray(second.normal[16:]).reshape(12, 12, 3).transpose(1, 0, 2).reshape(-1, 3)
        np.testing.assert_allclose(first.normal[16:], -swapped, atol=1e-9)
        again = np.asarray(second.activity[16:]).reshape(12, 12).T.reshape(-1)
        np.testing.assert_allclose(first.activity[16:], again, atol=1e-9)


@cache
def mean_distance() -> Any:
    """The paper's scalar (Sec. V-3), by both poses and both sizes."""

    def of(poses: Any, sizes: Any) -> Any:
        one, two = (solid_of_geom(BOX, size) for size in sizes)
        at = [Pose(p[:3], exp_matrix(p[3:])) for p in poses]
        # Witness points of parallel edges turn by 1 / λ: less of it would bend within the steps of differences.
        smoothing = Smoothing(1e-3, angle=0.1, along=0.1, regularization=1e-2)
        manifold = pair_manifold(one, two, at[0], at[1], smoothing)
        return jnp.mean(manifold.distance) + jnp.sum(manifold.activity * manifold.distance)

    return jax.jit(of), jax.jit(jax.grad(of, (0, 1)))


POSES = {
    "crossing edges": [0.0, 0.005, 0.13, 0.7, 0.75, 0.2],
    "parallel edges": [0.1, 0.0, 0.099, 0.0, 0.0, 0.0],
    "coplanar faces": [0.02, 0.03, 0.0995, 0.0, 0.0, 0.0],
    "one in the other": [0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
    "aligned": [0.0, 0.0, 0.0995, 0.0, 0.0, 0.0],
    "far apart": [0.5, 0.2, 0.1, 0.4, 0.1, 0.2],
    "random": [0.03, -0.04, 0.09, 1.0, 0.5, -0.3],
}


class TestGradients:
    @pytest.mark.parametrize("name", list(POSES))
    def test_mean_distance_by_12_pose_coordinates_and_6_sizes(self, name: str) -> None:
        run, slope = mean_distance()
        poses = jnp.array([[0.001, -0.002, 0.003, 0.0, 0.0, 0.0], POSES[name]])
        if name != "random":
            poses = poses.at[0].set(0.0)
        sizes = jnp.array([[0.05, 0.05, 0.05], [0.05, 0.05, 0.05]])
        exact = slope(poses, sizes)
        for which, value in enumerate((poses, sizes)):
            differences = np.zeros(value.shape)
            for i in np.ndindex(value.shape):
                # Fourth order: second order would leave (step / smoothing)² of a function that bends over 1 mm,
                # and where edges of the two coincide, over 1 µm.
                ends = []
                for k in (1, 2):
                    moved = [value.at[i].add(sign * k * 1e-7) for sign in (1, -1)]
                    args = [(m, sizes) if which == 0 else (poses, m) for m in moved]
                    ends.append((float(run(*args[0])) - float(run(*args[1]))) / (2 * k * 1e-7))
                differences[i] = (4 * ends[0] - ends[1]) / 3
            error = np.abs(np.asarray(exact[which]) - differences).max()
            assert error < 1e-5 * max(np.abs(differences).max(), 1e-2), (which, exact[which], differences)

    def test_batches_are_single_calls(self) -> None:
        poses = jnp.array(list(POSES.values()))
        many = jax.jit(jax.vmap(lambda pose: found(HALF, HALF, pose, 1e-3)))(poses)
        for i, pose in enumerate(poses):
            one = found(HALF, HALF, pose, 1e-3)
            np.testing.assert_allclose(many.distance[i], one.distance, atol=1e-9)  # sums in another order
            np.testing.assert_allclose(many.activity[i], one.activity, atol=1e-9)


def degenerate_poses(count: int) -> Array:
    """Random poses; every third has angles that are multiples of 45° and places that are multiples of half a side."""
    rng = np.random.default_rng(0)
    poses = np.concatenate([rng.uniform(-0.15, 0.15, (count, 3)), rng.uniform(-np.pi, np.pi, (count, 3))], 1)
    poses[::3, :3] = 0.05 * rng.integers(-2, 3, (len(poses[::3]), 3))
    turns = np.zeros((len(poses[::3]), 3))
    turns[np.arange(len(turns)), rng.integers(0, 3, len(turns))] = np.pi / 4 * rng.integers(-4, 5, len(turns))
    poses[::3, 3:] = turns
    return poses


class TestDegenerate:
    """Concentric, coplanar, with parallel edges and axes: values and gradients stay finite."""

    KINDS: ClassVar = {
        "boxes": (BOX, BOX), "box and cylinder": (BOX, CYLINDER), "cylinders": (CYLINDER, CYLINDER),
        "capsule and box": (CAPSULE, BOX), "ellipsoid and cylinder": (ELLIPSOID, CYLINDER),
    }  # fmt: skip

    def _finite(self, kinds: tuple[int, int], count: int) -> None:
        def mean(pose: Any) -> Any:
            manifold = found(HALF, HALF, pose, FINE, *kinds)
            return jnp.mean(manifold.distance + manifold.activity + manifold.normal[:, 0]), manifold

        run = jax.jit(jax.vmap(jax.grad(mean, has_aux=True)))
        poses = degenerate_poses(count)
        for first in range(0, count, 250):
            slope, manifold = run(poses[first : first + 250])
            for value in (*manifold, slope):
                assert np.isfinite(value).all()

    @pytest.mark.parametrize("kinds", ["boxes", "box and cylinder"])
    def test_no_number_is_lost_in_500_poses(self, kinds: str) -> None:
        self._finite(self.KINDS[kinds], 500)

    @pytest.mark.slow
    @pytest.mark.parametrize("kinds", list(KINDS))
    def test_no_number_is_lost_in_many_poses(self, kinds: str) -> None:
        self._finite(self.KINDS[kinds], 100_000 if kinds == "boxes" else 2_000)


class TestThickShapes:
    def test_a_ball_on_a_box_touches_in_one_point(self) -> None:
        manifold = found(HALF, np.array([0.03, 0, 0]), np.array([0.01, 0.02, 0.079, 0, 0, 0]), 1e-4, kind2=SPHERE)
        ball = len(manifold.distance) - 1
        assert manifold.distance[ball] == pytest.approx(-1e-3, abs=1e-5)
        np.testing.assert_allclose(manifold.normal[ball], [0, 0, 1], atol=1e-6)
        np.testing.assert_allclose(manifold.point[ball], [0.01, 0.02, 0.0495], atol=1e-5)

    def test_crossed_capsules_touch_between_their_axes(self) -> None:
        size = np.array([0.02, 0.1, 0])
        pose = np.array([0.03, 0.039, 0.01, 0, np.pi / 2, 0])
        manifold = found(size, size, pose, 1e-4, kind1=CAPSULE, kind2=CAPSULE)
        between = len(manifold.distance) - 1
        assert manifold.activity[between] > 0.9
        assert manifold.distance[between] == pytest.approx(-1e-3, abs=1e-5)
        np.testing.assert_allclose(manifold.normal[between], [0, 1, 0], atol=1e-4)
        np.testing.assert_allclose(manifold.point[between], [0, 0.0195, 0.01], atol=1e-4)


class TestWitnessPoints:
    def _nearest(self, points1: Any, points2: Any) -> float:
        return float(np.min(np.linalg.norm(points1[:, None] - points2[None], axis=2)))

    def test_edges_meet_where_a_search_says(self) -> None:
        rng = np.random.default_rng(0)
        grid = np.linspace(0, 1, 400)[:, None]
        for _ in range(50):
            e1, e2 = rng.uniform(size=(2, 2, 3))
            searched = self._nearest(e1[0] + grid * (e1[1] - e1[0]), e2[0] + grid * (e2[1] - e2[0]))
            exact = edge_edge(jnp.asarray(e1), jnp.asarray(e2), 1e-12, 0)
            apart = np.linalg.norm(exact.point1 - exact.point2)
            assert apart == pytest.approx(searched, abs=3e-3)
            assert apart <= searched + 1e-9
            smooth = edge_edge(jnp.asarray(e1), jnp.asarray(e2), 1e-9, 1e-4)
            np.testing.assert_allclose(smooth.along, exact.along, atol=2e-3)

    def test_parallel_edges_meet_in_their_middles_and_all_do_under_strong_regularization(self) -> None:
        e1, e2 = jnp.array([[0.0, 0, 0], [1, 0, 0]]), jnp.array([[0.0, 1, 0], [1, 1, 0]])
        np.testing.assert_allclose(edge_edge(e1, e2, 1e-3, 1e-3).along, [0.5, 0.5], atol=1e-9)
        far = jnp.array([[3.0, 1, 0], [4, 2, 1]])
        np.testing.assert_allclose(edge_edge(e1, far, 1e6, 1e-3).along, [0.5, 0.5], atol=1e-4)

    def test_a_vertex_meets_a_triangle_where_a_search_says(self) -> None:
        rng = np.random.default_rng(1)
        a, b = (x.flatten() for x in np.meshgrid(*[np.linspace(0, 1, 150)] * 2))
        a, b = a[a + b <= 1], b[a + b <= 1]
        for _ in range(50):
            v, triangle = rng.uniform(size=3), rng.uniform(size=(3, 3))
            points = triangle[0] + a[:, None] * (triangle[1] - triangle[0]) + b[:, None] * (triangle[2] - triangle[0])
            searched = np.linalg.norm(points - v, axis=1).min()
            exact = vertex_face(jnp.asarray(v), jnp.asarray(triangle), 0)
            assert np.linalg.norm(exact - v) == pytest.approx(searched, abs=5e-3)
            assert np.linalg.norm(exact - v) <= searched + 1e-9
            np.testing.assert_allclose(vertex_face(jnp.asarray(v), jnp.asarray(triangle), 1e-4), exact, atol=2e-3)


class TestSelection:
    def _manifold(self, one: Solid, **options: Any) -> Manifold:
        pose = Pose(jnp.array([0.01, 0.02, 0.0995]), exp_matrix(jnp.array([0.02, 0.01, 0.4])))
        return pair_manifold(one, one, Pose(jnp.zeros(3), jnp.eye(3)), pose, Smoothing(FINE), **options)

    def test_the_deepest_vertices_and_edges_are_enough(self) -> None:
        box = solid_of_geom(BOX, HALF)
        every, few = self._manifold(box), self._manifold(box, vertices_kept=4, edges_kept=6)
        assert few.distance.shape == (4 + 4 + 36,)
        total, kept = (float(jnp.sum(m.activity * jnp.minimum(m.distance, 0))) for m in (every, few))
        assert kept == pytest.approx(total, rel=1e-3)
        soft = self._manifold(box, vertices_kept=4, edges_kept=6, soft_selection=True)
        assert jnp.isfinite(soft.point).all()

    def test_simplifications_leave_contacts_out(self) -> None:
        box = solid_of_geom(BOX, HALF)
        assert self._manifold(box, edges=False).distance.shape == (16,)
        assert self._manifold(box, edges=False, both_sides=False).distance.shape == (8,)

    def test_witness_points_are_moved_to_their_surface(self) -> None:
        box = solid_of_geom(BOX, HALF)
        far = Solid(1.02 * box.vertices, box.radius, box.field, box.edges)  # a mesh that does not fit its field
        plain, moved = self._manifold(far), self._manifold(far, projections=3)
        assert jnp.isfinite(moved.point).all()
        assert float(jnp.max(jnp.abs(plain.point[16:] - moved.point[16:]))) > 1e-4


class TestPublic:
    def test_of_two_solids_and_of_a_scene(self) -> None:
        import tangens as tg

        xml = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>
        <body name="b"><freejoint/><geom name="box" type="box" size=".05 .06 .07"/></body>
        <body pos="0.01 0 0.13"><freejoint/><geom name="top" type="box" size=".04 .05 .06"/></body>
        </worldbody></mujoco>"""
        scene = tg.load(xml)
        of_scene = tg.collision.manifold(scene, scene.initial_state().q, geoms=[("box", "top")], smoothing=1e-4)
        one, two = (solid_of_geom(BOX, np.array(size)) for size in ([0.05, 0.06, 0.07], [0.04, 0.05, 0.06]))
        still = [1.0, 0.0, 0.0, 0.0]
        pair = tg.collision.manifold((one, two), (([0.0, 0, 0], still), ([0.01, 0, 0.13], still)), smoothing=1e-4)
        np.testing.assert_allclose(of_scene.distance, pair.distance, atol=1e-12)
        assert (np.asarray(of_scene.geom) == [1, 2]).all()
        every = tg.collision.manifold(scene, scene.initial_state().q)
        assert len(every.distance) == len(pair.distance) + 16
        with pytest.raises(tg.OptionError, match="two solids"):
            tg.collision.manifold("box", None)
        with pytest.raises(tg.OptionError, match="no geom"):
            tg.collision.manifold(scene, scene.initial_state().q, geoms=[("box", "lid")])
