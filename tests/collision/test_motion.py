"""The derivative of a contact is that of what MuJoCo reports, for every pair of shapes."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import mujoco
import numpy as np
import pytest
from numpy.typing import NDArray

from tangens.collision.accuracy import refine_contact, set_accuracy
from tangens.collision.contact_rows import GEOM, geom_records
from tangens.collision.motion import contact_response
from tangens.collision.randomized import RandomizedContacts
from tangens.collision.shapes import hull_tables, shape_motion

Array = NDArray[np.float64]

SHAPES = {
    "plane": 'type="plane" size="1 1 1"',
    "sphere": 'type="sphere" size=".12"',
    "capsule": 'type="capsule" size=".08 .15"',
    "ellipsoid": 'type="ellipsoid" size=".1 .15 .2"',
    "cylinder": 'type="cylinder" size=".1 .14"',
    "box": 'type="box" size=".1 .14 .18"',
    "mesh": 'type="mesh" mesh="stone"',
}
SIZES = {"sphere": 1, "capsule": 2, "ellipsoid": 3, "cylinder": 2, "box": 3}
PAIRS = [pair for pair in itertools.combinations_with_replacement(SHAPES, 2) if pair != ("plane", "plane")]
STEP = 1e-6
# Central differences of positions of order 0.1 m rounded to 1e-17 m, and their own error STEP² · (third derivative,
# up to 1e5 where a rim or a gap of 3 mm bends sharply).
TOLERANCE = 1e-6


class Contacts(NamedTuple):
    geom: NDArray[np.int32]
    p: Array
    frame: Array
    gap: Array


def stone() -> str:
    directions = np.random.default_rng(5).normal(size=(14, 3))
    return " ".join(f"{x:.6f}" for x in (0.17 * directions / np.linalg.norm(directions, axis=1)[:, None]).ravel())


def turn(w: Array) -> Array:
    quaternion, R = np.zeros(4), np.zeros(9)
    angle = float(np.linalg.norm(w))
    mujoco.mju_axisAngle2Quat(quaternion, w / max(angle, 1e-300), angle)
    mujoco.mju_quat2Mat(R, quaternion)
    return R.reshape(3, 3)


class Pair:
    """Two bodies that can be put anywhere, and the contacts between them."""

    def __init__(self, one: str, two: str, margin: float = 0.01) -> None:
        bodies = "".join(
            f'<body mocap="true"><geom {SHAPES.get(shape, shape)} margin="{margin}"/></body>' for shape in (one, two)
        )
        spec = f'<mujoco><asset><mesh name="stone" vertex="{stone()}"/></asset><worldbody>{bodies}<body><freejoint/>'
        spec += '<geom size=".01" contype="0" conaffinity="0"/></body></worldbody></mujoco>'
        # MuJoCo does not collide what is fixed: pairs of mocap bodies are asked for by name.
        spec = spec.replace('<body mocap="true"><geom ', '<body mocap="true"><geom name="a" ', 1)
        head, tail = spec.rsplit('<body mocap="true"><geom type', 1)
        spec = head + '<body mocap="true"><geom name="b" type' + tail
        spec = spec.replace(
            "</worldbody>", f'</worldbody><contact><pair geom1="a" geom2="b" margin="{margin}"/></contact>'
        )
        self.model = mujoco.MjModel.from_xml_string(spec)
        set_accuracy(self.model)
        self.data = mujoco.MjData(self.model)
        self.hulls = hull_tables(self.model)
        self.refresh()

    def refresh(self) -> None:
        m = self.model
        self.geoms = geom_records(m, np.zeros(m.ngeom)).view(GEOM)

    def put(self, body: int, x: Array, R: Array) -> None:
        self.data.mocap_pos[body] = x
        mujoco.mju_mat2Quat(self.data.mocap_quat[body], R.ravel())

    def contacts(self, exact: bool = True) -> Contacts:
        m, d = self.model, self.data
        mujoco.mj_kinematics(m, d)
        mujoco.mj_comPos(m, d)
        mujoco.mj_collision(m, d)
        c = d.contact
        out = Contacts(np.array(c.geom), np.array(c.pos), np.array(c.frame), np.array(c.dist))
        for i in range(len(out.gap) if exact else 0):
            out.gap[i] = refine_contact(
                self.geoms, self.hulls, out.geom[i], d.geom_xpos, d.geom_xmat, out.p[i], out.frame[i], out.gap[i]
            )
        return out

    def response(self, contacts: Contacts, i: int) -> tuple[bool, Array]:
        D = np.full((7, 6), np.nan)
        known = contact_response(
            self.geoms, self.hulls, contacts.geom[i], self.data.geom_xpos, self.data.geom_xmat, contacts.p[i],
            contacts.frame[i], contacts.gap[i], D,
        )  # fmt: skip
        return known, D

    def approach(self, rng: np.random.Generator, plane: bool) -> None:
        """Put the bodies in random poses, 3 mm apart or 3 mm into each other."""
        R0, R1 = turn(2.0 * rng.normal(size=3)), turn(2.0 * rng.normal(size=3))
        direction = rng.normal(size=3)
        direction = R0[:, 2] if plane else direction / np.linalg.norm(direction)
        target = rng.choice([-3e-3, 3e-3])
        self.put(0, np.zeros(3), R0)
        margin = self.model.pair_margin[0]
        self.model.pair_margin[0] = 0.3
        low, high = 0.0, 1.0
        for _ in range(45):
            middle = 0.5 * (low + high)
            self.put(1, middle * direction, R1)
            gap = self.contacts(exact=False).gap.min(initial=1.0)
            low, high = (middle, high) if gap < target else (low, middle)
        self.model.pair_margin[0] = margin


def nearest(contacts: Contacts, p: Array) -> int:
    """MuJoCo numbers the corners of a patch anew when it wants to: the same corner is the nearest one."""
    return int(np.argmin(np.linalg.norm(contacts.p - p, axis=1)))


def differences(pair: Pair, at: Contacts, i: int) -> Array | None:
    """Of (p, n, gap) by the twist of the body of geom 1 about p; None if contacts come or go."""
    body = int(at.geom[i, 1])
    x, R = pair.data.mocap_pos[body].copy(), _matrix(pair.data.mocap_quat[body])
    out = np.empty((7, 6))
    for k in range(6):
        ends = []
        for sign in (1.0, -1.0):
            twist = np.zeros(6)
            twist[k] = sign * STEP
            Q = turn(twist[3:])
            pair.put(body, at.p[i] + Q @ (x - at.p[i]) + twist[:3], Q @ R)
            now = pair.contacts()
            if len(now.gap) != len(at.gap):
                pair.put(body, x, R)
                return None
            j = nearest(now, at.p[i])
            ends.append(np.concatenate([now.p[j], now.frame[j, :3], now.gap[j : j + 1]]))
        out[:, k] = (ends[0] - ends[1]) / (2.0 * STEP)
    pair.put(body, x, R)
    pair.contacts()
    return out


def _matrix(quaternion: Array) -> Array:
    R = np.zeros(9)
    mujoco.mju_quat2Mat(R, quaternion)
    return R.reshape(3, 3)


def as_seen(D: Array, n: Array) -> Array:
    """(p, n, gap) by the twist."""
    return np.concatenate([D[:3], np.cross(D[3:6].T, n).T, D[6:]])


def worst(pair: Pair) -> list[float]:
    """Relative errors of the contacts that stay; all must be known but the extra ones of capsules on CCD shapes."""
    at = pair.contacts()
    kinds = set(pair.model.geom_type[:2])
    blurred = (
        int(mujoco.mjtGeom.mjGEOM_CAPSULE) in kinds and len(at.gap) > 1 and int(mujoco.mjtGeom.mjGEOM_BOX) not in kinds
    )
    errors = []
    for i in range(len(at.gap)):
        known, D = pair.response(at, i)
        reference = differences(pair, at, i)
        assert known or blurred
        if reference is not None and known:
            ours = as_seen(D, at.frame[i, :3])
            errors.append(float(np.abs(ours - reference).max() / max(1.0, np.abs(reference).max())))
    return errors


class TestPoses:
    @pytest.mark.parametrize(("one", "two"), PAIRS)
    def test_a_contact_moves_as_differences_say(self, one: str, two: str) -> None:
        pair, rng = Pair(one, two), np.random.default_rng(11)
        errors = []
        for _ in range(6):
            pair.approach(rng, one == "plane")
            errors += worst(pair)
        assert len(errors) >= 5
        assert np.max(errors) < 10 * TOLERANCE, errors
        assert np.median(errors) < TOLERANCE, errors

    @pytest.mark.parametrize("upper", ["box", "cylinder", "mesh"])
    @pytest.mark.parametrize("tilt", [0.0, 1e-3, 5e-3])
    def test_corners_of_a_patch_follow_the_features_that_meet_there(self, upper: str, tilt: float) -> None:
        below = 'type="box" size=".2 .17 .1"'
        shape = 'type="mesh" mesh="stone"' if upper == "mesh" else SHAPES[upper]
        pair = Pair(below, shape, margin=0.02)
        height = {"box": 0.18, "cylinder": 0.14}.get(upper, 0.0)
        x, R = (
            np.array([0.13, 0.08, 0.1 + height - 2e-3]),
            turn(np.array([tilt, 0.6 * tilt, 0.0])) @ turn(np.array([0.0, 0.0, 0.4])),
        )
        if upper == "mesh":  # a face of the stone on the face of the box
            m, face = pair.model, 3
            normal, corner = pair.hulls.normal[face], pair.hulls.corner[pair.hulls.first[face]]
            axis = np.cross(normal, [0.0, 0.0, -1.0])
            angle = np.arctan2(np.linalg.norm(axis), -normal[2])
            level = turn(angle * axis / np.linalg.norm(axis))
            G = _matrix(m.geom_quat[1])
            R = R @ level @ G.T
            x = np.array([0.18, 0.15, 0.098 - (level @ corner)[2]]) - R @ m.geom_pos[1]
        pair.put(0, np.zeros(3), np.eye(3))
        pair.put(1, x, R)
        at = pair.contacts()
        assert len(at.gap) >= 3
        errors = worst(pair)
        if tilt > 0.0:  # exactly parallel faces are a kink: corners come and go with the least tilt
            assert len(errors) >= 3
            assert max(errors) < TOLERANCE, errors
        assert all(pair.response(at, i)[0] for i in range(len(at.gap)))

    def test_a_lying_cylinder_or_capsule_moves_by_its_ends_and_the_edges_below(self) -> None:
        for shape in ("cylinder", "capsule"):
            pair = Pair('type="box" size=".2 .17 .1"', shape, margin=0.02)
            radius = pair.model.geom_size[1, 0]
            R = turn(np.array([0.0, 0.0, 0.3])) @ turn(np.array([0.0, np.pi / 2 + 2e-3, 0.0]))
            x = np.array([0.12, 0.05, 0.1 + radius - 2e-3])
            pair.put(0, np.zeros(3), np.eye(3))
            pair.put(1, x, R)
            errors = worst(pair)
            assert len(errors) == 2
            assert max(errors) < TOLERANCE, errors

    def test_equal_cubes_on_each_other_have_known_corners(self) -> None:
        pair = Pair('type="box" size=".1 .1 .1"', 'type="box" size=".1 .1 .1"')
        pair.put(0, np.zeros(3), np.eye(3))
        pair.put(1, np.array([0.0, 0.0, 0.199]), np.eye(3))
        at = pair.contacts()
        assert len(at.gap) == 4
        for i in range(4):
            known, D = pair.response(at, i)
            assert known
            np.testing.assert_allclose(D[6], np.concatenate([at.frame[i, :3], np.zeros(3)]), atol=1e-12)


class TestAccuracy:
    def test_polished_points_are_where_the_surfaces_touch(self) -> None:
        """MuJoCo's own contacts are that near, and those of its exact colliders stay as they are."""
        for one, two in PAIRS:
            pair, rng = Pair(one, two), np.random.default_rng(3)
            for _ in range(3):
                pair.approach(rng, one == "plane")
                raw, fine = pair.contacts(exact=False), pair.contacts()
                np.testing.assert_allclose(fine.p, raw.p, atol=2e-5)
                np.testing.assert_allclose(fine.frame[:, :3], raw.frame[:, :3], atol=1e-4)
                np.testing.assert_allclose(fine.gap, raw.gap, atol=1e-8)

    @pytest.mark.parametrize("one", ["sphere", "capsule", "ellipsoid"])
    def test_a_blurred_contact_is_found_again(self, one: str) -> None:
        """Blurred as MuJoCo's contacts are at worst; on ends of capsules, points and normals are corrected together."""
        pair, rng = Pair(one, "ellipsoid"), np.random.default_rng(4)
        for _ in range(10):
            pair.approach(rng, plane=False)
            at, d = pair.contacts(), pair.data
            tilt = turn(1e-5 * rng.normal(size=3))
            p, frame = at.p[0] + 1e-6 * rng.normal(size=3), (at.frame[0].reshape(3, 3) @ tilt.T).ravel()
            gap = refine_contact(pair.geoms, pair.hulls, at.geom[0], d.geom_xpos, d.geom_xmat, p, frame, at.gap[0])
            # Newton squares an error of 1e-5 relative to the shapes twice: what is left is rounding.
            np.testing.assert_allclose(p, at.p[0], rtol=0.0, atol=1e-13)
            np.testing.assert_allclose(frame[:3], at.frame[0, :3], rtol=0.0, atol=1e-12)
            np.testing.assert_allclose(gap, at.gap[0], rtol=0.0, atol=1e-13)


class TestSizes:
    @pytest.mark.parametrize(("one", "two"), [pair for pair in PAIRS if "mesh" not in pair])
    def test_a_contact_moves_with_the_sizes_of_its_shapes(self, one: str, two: str) -> None:
        pair, rng, checked = Pair(one, two), np.random.default_rng(7), 0
        for _ in range(3):
            pair.approach(rng, one == "plane")
            at = pair.contacts()
            for i, side in itertools.product(range(len(at.gap)), range(2)):
                g = int(at.geom[i, side])
                for k in range(SIZES.get((one, two)[g], 0)):
                    ours, reference = by_size(pair, at, i, side, k), size_differences(pair, at, i, g, k)
                    if ours is not None and reference is not None:
                        np.testing.assert_allclose(ours, reference, atol=10 * TOLERANCE * max(1, np.abs(ours).max()))
                        checked += 1
        assert checked >= 3


def by_size(pair: Pair, at: Contacts, i: int, side: int, k: int) -> Array | None:
    n, d = at.frame[i, :3], pair.data
    known, D = pair.response(at, i)
    out = np.zeros((3, 3))
    witness = at.p[i] + (side - 0.5) * at.gap[i] * n
    shape_motion(pair.geoms, at.geom[i, side], d.geom_xpos, d.geom_xmat, witness, (1 - 2 * side) * n, out)
    seen = as_seen(D, n)[:, :3] @ out[:, k]
    if side == 0:
        seen = -seen
        seen[:3] += out[:, k]
    return seen if known else None


def size_differences(pair: Pair, at: Contacts, i: int, g: int, k: int) -> Array | None:
    size, ends = pair.model.geom_size[g, k], []
    for sign in (1.0, -1.0):
        pair.model.geom_size[g, k] = size + sign * STEP
        pair.refresh()
        now = pair.contacts()
        if len(now.gap) == len(at.gap):
            j = nearest(now, at.p[i])
            ends.append(np.concatenate([now.p[j], now.frame[j, :3], now.gap[j : j + 1]]))
    pair.model.geom_size[g, k] = size
    pair.refresh()
    pair.contacts()
    return (ends[0] - ends[1]) / (2.0 * STEP) if len(ends) == 2 else None


class TestRandomized:
    @pytest.mark.parametrize(
        ("one", "two"),
        [
            ("plane", "sphere"), ("sphere", "capsule"), ("sphere", "ellipsoid"), ("capsule", "ellipsoid"),
            ("ellipsoid", "ellipsoid"), ("ellipsoid", "cylinder"), ("ellipsoid", "box"), ("ellipsoid", "mesh"),
            ("cylinder", "cylinder"),
        ],
    )  # fmt: skip
    def test_smoothing_vanishes_with_the_square_of_its_scale_on_smooth_shapes(self, one: str, two: str) -> None:
        pair = Pair(one, two)
        pair.approach(np.random.default_rng(1), one == "plane")
        at, d = pair.contacts(), pair.data
        exact, g = pair.response(at, 0)[1][:6], at.geom[0]
        errors = []
        for scale in (1e-3, 1e-4):
            smooth = RandomizedContacts(pair.model, samples=16, scale=scale)
            D = smooth.response((g[0], g[1]), d.geom_xpos[g], d.geom_xmat[g], at.p[0], at.frame[0])
            assert D is not None
            errors.append(D - exact)
        # Opposite samples leave the odd orders of σ/r, r about 0.1 m, and the first is exact: the error is that of the
        # third, but for the fifth, which is smaller by (σ/r)² = 1e-4. Points rounded to 1e-17 m over a step of 1e-4 are
        # an error of 1e-13, next to 1e-9 or more. An error that does not fall with the scale, or points blurred by
        # 1e-6 m, would miss the tolerance by a factor of thousands.
        size = np.abs(errors[0]).max()
        np.testing.assert_allclose(100.0 * errors[1], errors[0], rtol=0.0, atol=1e-2 * size)

    def test_a_vertex_on_a_face_sees_its_neighbours(self) -> None:
        pair = Pair("plane", "box")
        R = turn(np.array([0.6, 0.5, 0.0]))
        lowest = min((R @ (np.array(s) * [0.1, 0.14, 0.18]))[2] for s in itertools.product((-1, 1), repeat=3))
        pair.put(0, np.zeros(3), np.eye(3))
        pair.put(1, np.array([0.0, 0.0, -lowest]), R)
        at, d = pair.contacts(), pair.data
        arguments = ((0, 1), d.geom_xpos[:2], d.geom_xmat[:2], at.p[0], at.frame[0])
        D = RandomizedContacts(pair.model, samples=64, scale=0.3).response(*arguments)
        again = RandomizedContacts(pair.model, samples=64, scale=0.3).response(*arguments)
        assert D is not None
        assert again is not None
        np.testing.assert_array_equal(D, again)
        assert np.isfinite(D).all()
        # exactly, turning moves the touching vertex not at all; on average the box rolls on to others
        assert np.abs(pair.response(at, 0)[1][:2, 3:]).max() < 1e-9
        assert np.abs(D[:2, 3:]).max() > 1e-2
