"""Where the exact motion of a contact is known, differences of the collision detection agree with it."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from tangens.collision.accuracy import set_accuracy
from tangens.collision.contact_rows import GEOM, geom_records
from tangens.collision.differenced import DifferencedContacts
from tangens.collision.motion import contact_response
from tangens.collision.shapes import Hulls, hull_tables


def touching(one: str, two: str, position: str) -> mujoco.MjModel:
    m = mujoco.MjModel.from_xml_string(
        f"""<mujoco><worldbody><geom {one}/>
        <body pos="{position}"><freejoint/><geom {two}/></body></worldbody></mujoco>"""
    )
    set_accuracy(m)
    return m


@pytest.mark.parametrize(
    ("one", "two", "position"),
    [
        ('type="plane" size="1 1 1"', 'type="box" size=".1 .2 .1"', "0 0 0.0999"),
        ('type="box" size=".3 .3 .1"', 'type="sphere" size=".1"', "0.05 0.02 0.1999"),
        ('type="sphere" size=".2"', 'type="capsule" size=".1 .2" zaxis="1 .2 .3"', "0.05 0.02 0.2985"),
    ],
)
def test_they_agree_with_the_exact_motion(one: str, two: str, position: str) -> None:
    assert compare(touching(one, two, position))


def compare(m: mujoco.MjModel, atol: float = 1e-6) -> int:
    """Check all contacts of the reference pose; returns how many there are."""
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    geoms, hulls = geom_records(m, np.zeros(2)).view(GEOM), Hulls(*hull_tables(m))
    for c in range(d.ncon):
        exact = np.zeros((7, 6))
        pair = d.contact.geom[c].astype(np.int64)
        frame = d.contact.frame[c].copy()
        assert contact_response(
            geoms, hulls, pair, d.geom_xpos, d.geom_xmat, d.contact.pos[c].copy(), frame, d.contact.dist[c], exact
        )
        found = DifferencedContacts(m).response(d.qpos, (int(pair[0]), int(pair[1])), c)
        assert found is not None
        across = np.eye(3) - np.outer(frame[:3], frame[:3])  # a spin about the normal is a matter of convention
        np.testing.assert_allclose(found[:3], exact[:3], atol=atol)
        np.testing.assert_allclose(across @ found[3:6], across @ exact[3:6], atol=atol)
        np.testing.assert_allclose(found[6], exact[6], atol=atol)
    return int(d.ncon)


def test_a_roof_is_clipped_along_one_of_its_faces() -> None:
    """Both faces at the ridge are level enough to meet the block; MuJoCo takes the one that is turned less to it."""
    m = mujoco.MjModel.from_xml_string(
        """<mujoco><asset>
        <mesh name="roof" vertex="-1 -1 0  1 -1 0  -1 1 0  1 1 0  -1 .1 .004  1 .1 .004
                                  -1 -1 -1  1 -1 -1  -1 1 -1  1 1 -1"/>
        <mesh name="block" vertex="-.2 -.3 0  .2 -.3 0  -.2 .3 0  .2 .3 0
                                   -.2 -.3 .2  .2 -.3 .2  -.2 .3 .2  .2 .3 .2"/>
        </asset><worldbody><geom type="mesh" mesh="roof"/>
        <body><freejoint/><geom type="mesh" mesh="block"/></body></worldbody></mujoco>"""
    )
    m.qpos0[:] = -0.18320721, 0.16482772, 0.00564077, 0.83629336, -0.0012402, -0.00196707, 0.54827731
    set_accuracy(m)
    assert compare(m, atol=1e-4) == 2  # differences of meshes that overlap are no better


def test_a_contact_that_is_not_there_has_none() -> None:
    m = touching('type="plane" size="1 1 1"', 'type="sphere" size=".1"', "0 0 1")
    assert DifferencedContacts(m).response(m.qpos0, (0, 1), 0) is None


def test_a_contact_that_jumps_has_none() -> None:
    """The rim of a cylinder at an edge of a box, as go1's rotors have it: any turn moves MuJoCo's contact far away."""
    m = touching(
        'type="cylinder" size=".035 .01" pos=".1881 -.079172424 -.034918604"'
        ' quat=".361245775 .919966986 .141661306 -.055626505"',
        'type="box" size=".1881 .04675 .057"',
        "0 0 0",
    )
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    assert d.ncon == 1
    assert DifferencedContacts(m).response(m.qpos0, (0, 1), 0) is None
