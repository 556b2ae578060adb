"""Run by Nimble's own Python, without tangens: time forward passes and Jacobians along a trajectory in contact."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import nimblephysics_libs._nimblephysics as nimble  # type: ignore[import-not-found, unused-ignore]
import numpy as np

SETTLING = 0.1  # [s] after the first touch
SPAN = 0.1  # [s] over which the states are spread
LONGEST = 3.0  # [s]
CONTROL = 0.05  # [N, N·m] size of random forces


def load(system: str, files: list[str]) -> Any:
    """The world with the robot on its ground."""
    if system == "half_cheetah":
        return nimble.utils.UniversalLoader.loadWorld(files[0])
    world = nimble.simulation.World()
    world.setGravity([0.0, -9.81, 0.0])
    robot, ground = (world.loadSkeleton(file) for file in files)
    robot.setPosition(0, -0.5 * np.pi)  # the file has z up, the world y
    ground.getBodyNode(0).setFrictionCoeff(1.0)
    return world


def trajectory(world: Any, count: int) -> list[tuple[Any, Any, int]]:
    """States with at least one contact, each with its forces and number of contacts."""
    rng, found = np.random.default_rng(0), []
    touched: int | None = None
    every = max(1, round(SPAN / world.getTimeStep() / count))
    for k in range(round(LONGEST / world.getTimeStep())):
        state, forces = world.getState().copy(), CONTROL * rng.normal(size=world.getNumDofs())
        world.setControlForces(forces)
        world.step()
        contacts = world.getLastCollisionResult().getNumContacts()
        touched = k if touched is None and contacts else touched
        settled = touched is not None and (k - touched) * world.getTimeStep() >= SETTLING
        if contacts and settled and k % every == 0:
            found.append((state, forces, contacts))
        if len(found) == count:
            break
    return found


def main(question: dict[str, Any]) -> dict[str, Any]:
    """Answer the question that tangens put."""
    world = load(question["system"], question["files"])
    states = trajectory(world, question["states"])
    sets = {name: [getattr(nimble.neural.BackpropSnapshot, f) for f in set_] for name, set_ in question["sets"].items()}
    clock = getattr(time, question["clock"])
    forward: list[int] = []
    times: dict[str, list[int]] = {name: [] for name in sets}
    for _ in range(question["passes"]):
        for state, forces, _ in states:
            for name, jacobians in sets.items():
                world.setState(state)
                world.setControlForces(forces)
                start = clock()
                snapshot = nimble.neural.forwardPass(world, True)
                middle = clock()
                for jacobian in jacobians:
                    jacobian(snapshot, world)
                times[name].append(clock() - middle)
                forward.append(middle - start)
    return {
        "forward": forward,
        "sets": times,
        "states": len(states),
        "contacts": float(np.median([n for _, _, n in states])),
        "dofs": world.getNumDofs(),
    }


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
