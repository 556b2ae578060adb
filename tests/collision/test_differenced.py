"""Where the exact motion of a contact is known, differences of the collision detection agree with it."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from tangens.collision.accuracy import sharpen
from tangens.collision.differenced import DifferencedContacts
from tangens.collision.motion import contact_response
from tangens.collision.rows import GEOM, geom_records
from tangens.collision.shapes import Hulls, hull_tables


def touching(one: str, two: str, position: str) -> mujoco.MjModel:
    m = mujoco.MjModel.from_xml_string(
        f"""<mujoco><worldbody><geom {one}/>
        <body pos="{position}"><freejoint/><geom {two}/></body></worldbody></mujoco>"""
    )
    sharpen(m)
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
    m = touching(one, two, position)
    d = mujoco.MjData(m)
    mujoco.mj_forward(m, d)
    assert d.ncon
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
        np.testing.assert_allclose(found[:3], exact[:3], atol=1e-6)
        np.testing.assert_allclose(across @ found[3:6], across @ exact[3:6], atol=1e-6)
        np.testing.assert_allclose(found[6], exact[6], atol=1e-6)


def test_a_contact_that_is_not_there_has_none() -> None:
    m = touching('type="plane" size="1 1 1"', 'type="sphere" size=".1"', "0 0 1")
    assert DifferencedContacts(m).response(m.qpos0, (0, 1), 0) is None
