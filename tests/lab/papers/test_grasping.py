"""The grasping plan of paper 1, with a contact model that needs no compilation."""

from __future__ import annotations

from pathlib import Path

import tangens as tg
from tangens.lab.papers.single_level import grasping


def test_the_plan_that_is_drawn_reaches_its_goal(tmp_path: Path) -> None:
    smooth = tg.Smoothed(tg.Ncp(), scale_q=2e-3, scale_v=0.0, samples=8)
    problem = grasping.task(tg.Ncp(), smooth=smooth, gap=2e-4)
    one = grasping.attempt(problem, seed=0)
    assert one.plan.converged
    assert problem.miss(one.motion.q[-1]) <= 1
    assert len(grasping._grasps(one.plan)) == one.plan.regrasps
    assert grasping._plot(problem, one, tmp_path / "grasping.png").exists()
