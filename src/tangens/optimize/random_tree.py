"""A rapidly exploring random tree for manipulation: smooth gradients choose its steps, and measure its distances.

Nodes are configurations at rest. A subgoal for the object is drawn, or the goal itself taken, and the tree grows
towards it from the node that needs the fewest commands, by the metric of `Manipulation`. A *push* is the command that
should bring the object nearest to the subgoal; its child is where the simulator says it leads, and pushes go on while
they help. Sometimes a *regrasp* comes first: the fingers retract, move through free space, and approach the object
elsewhere. Several subgoals are pursued at once, each in its lane: some contact models simulate many steps at the cost
of a few.

While the tree grows, only the arrival of a new grasp is simulated. Ways through free space are looked for when a node
is at the goal, and it counts once the simulator has followed all commands that lead there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tangens.errors import OptionError, SolverError
from tangens.optimize.manipulation import Local, Manipulation
from tangens.optimize.monitor import Callback, Monitor, Rules, bar, check_count
from tangens.optimize.result import Outcome
from tangens.optimize.transfer import Transfer
from tangens.results import Trajectory
from tangens.state import State

Array = NDArray[np.float64]

# A push helps if it brings the object nearer to the subgoal by this many tolerances.
_PROGRESS = 0.1
# A regrasp that moves the object by more tolerances than this was no free motion.
_DISTURBANCE = 0.05


class Edge(NamedTuple):
    """How a plan gets from one configuration to the next."""

    kind: str
    """"push", or "regrasp": the fingers retract, move and approach while the object rests."""
    commands: Array
    """Commands one after the other, shape (k, nu), each held for the problem's `hold` steps."""


@dataclass(frozen=True, repr=False)
class Plan(Outcome):
    """What leads to the goal; empty if that was not reached. `x` are all commands, `cost` is the miss in tolerances."""

    q: Array
    """Configurations from the start on, shape (edges + 1, nq)."""
    edges: tuple[Edge, ...]
    """What leads from each to the next."""
    nodes: int
    """Size of the tree."""

    @property
    def regrasps(self) -> int:
        """How often the fingers let go."""
        return sum(edge.kind == "regrasp" for edge in self.edges)

    def __repr__(self) -> str:
        return f"Plan(miss={self.cost:.3g}, {len(self.edges)} edges, {self.nodes} nodes, {self.message})"


def contact_rrt(
    problem: Manipulation,
    *,
    max_iterations: int = 1000,
    time_budget: float = np.inf,
    goal_bias: float = 0.5,
    regrasp: float = 0.5,
    pushes: int = 20,
    clearance: float = 0.01,
    seed: int = 0,
    callback: Callback | None = None,
    progress: bool = False,
) -> Plan:
    """Plan how to move an object to its goal.

    The history has the least miss so far as the cost, in tolerances, an infinite gradient, and the number of nodes as
    evaluations. Without a time budget, the plan depends on its arguments alone.

    Args:
        problem: what to move, and where to.
        max_iterations: iterations before it gives up; in each, all lanes try an edge.
        time_budget: seconds after which no iteration is begun.
        goal_bias: share of subgoals that are the goal itself.
        regrasp: share of subgoals that are begun with a new grasp, if the problem can draw some.
        pushes: most pushes towards one subgoal.
        clearance: how far fingers stay away from everything while they change their grasp [m].
        seed: of the random numbers, at least 0.
        callback: called with each entry of the history and the configuration nearest to the goal; it stops the search
            by returning True.
        progress: show a bar on the terminal.

    """
    if not isinstance(problem, Manipulation):
        raise OptionError(f"expected a tangens.optimize.Manipulation; got {type(problem).__name__}")
    for name, share in (("goal_bias", goal_bias), ("regrasp", regrasp)):
        if not 0 <= share <= 1:
            raise OptionError(f"{name}={share!r} must be a number from 0 to 1")
    if not np.isfinite(clearance) or clearance <= 0:
        raise OptionError(f"clearance={clearance!r} must be a positive number")
    check_count("seed", seed)
    check_count("pushes", pushes, least=1)
    rng = np.random.default_rng(seed)
    tree = _Tree(problem, clearance)
    lanes = [_Lane(problem.start, None, 0)] * problem.lanes
    with bar(progress, max_iterations, "miss") as show:
        monitor = Monitor(Rules(max_iterations, time_budget=time_budget), callback, show)
        arrived = tree.arrived(rng)
        while not monitor.record(tree.q[tree.best], tree.misses[tree.best], np.inf, len(tree.q)) and not arrived:
            fresh = [lane.node is None or not lane.left for lane in lanes]
            goals = rng.random(len(lanes)) < goal_bias
            anew = (rng.random(len(lanes)) < regrasp) & (problem.grasp is not None)
            for i in np.flatnonzero(fresh):
                target = problem.goal if goals[i] else problem.sample(rng)
                lanes[i] = _Lane(target, None, pushes)
            lanes = tree.grow(lanes, anew, rng)
            arrived = tree.arrived(rng)
    if arrived:
        monitor.stop("the goal is reached", converged=True)
    return tree.plan(monitor)


def replay(problem: Manipulation, plan: Plan, *, momentum: bool = False) -> Trajectory:
    """The motion of a plan, step by step.

    Args:
        problem: the problem, or one that differs, to see what the plan does there.
        plan: its commands are followed.
        momentum: let velocities live on from one command to the next. The plan takes them for zero.

    """
    return _motion(problem, plan.x, momentum)


def _motion(problem: Manipulation, commands: Array, momentum: bool = False) -> Trajectory:
    simulator, at_rest = problem.simulator, np.zeros(problem.simulator.scene.nv)
    controls = np.repeat(commands, problem.hold, axis=0)
    if momentum:
        return simulator.rollout(State(problem.start, at_rest), controls)
    pieces, q = list[Trajectory](), problem.start
    for first in range(0, len(controls), problem.hold):
        pieces.append(simulator.rollout(State(q, at_rest), controls[first : first + problem.hold]))
        q = pieces[-1].q[-1]
    return Trajectory(
        np.concatenate([problem.start[None], *(piece.q[1:] for piece in pieces)]),
        np.concatenate([at_rest[None], *(piece.v[1:] for piece in pieces)]),
        controls,
        np.zeros((len(controls), len(at_rest))),
        tuple(step for piece in pieces for step in piece.steps),
    )


class _Lane(NamedTuple):
    """A subgoal, the node that came nearer to it last, and how many pushes towards it are left."""

    target: Array
    node: int | None
    left: int


class _Attempt(NamedTuple):
    """An edge that may be added to the tree."""

    node: int
    edge: Edge
    q: Array
    """Where its last command begins."""


class _Tree:
    """Configurations, how each was reached, and what can be reached from there."""

    def __init__(self, problem: Manipulation, clearance: float) -> None:
        self._problem = problem
        limits = problem.lower, problem.upper
        self._transfer = Transfer(
            problem.simulator.scene, problem.fingers, *limits, clearance=clearance, stride=2 * problem.reach
        )
        self.q: list[Array] = []
        self.misses: list[float] = []
        self.best = 0
        self._parents: list[int] = []
        self._edges: list[Edge | None] = []
        self._local: list[Local] = []
        self._failures: list[int] = []
        self._lost: list[bool] = []  # nodes that turned out to be out of reach
        self._found: tuple[Array, list[Edge]] = (problem.start[None], [])
        stay = problem.start[problem.fingers]
        (root,) = problem.expand(problem.start[None], stay[None])
        if root is None:
            raise SolverError("the simulator fails at the start")
        self._add(problem.start, root[1], 0, None)

    # ------------------------------------------------------------------ growth

    def grow(self, lanes: list[_Lane], anew: NDArray[np.bool_], rng: np.random.Generator) -> list[_Lane]:
        """Try one edge in each lane; those whose node is None begin, with another grasp if `anew` says so."""
        attempts = list[_Attempt | None]()
        taken = {lane.node for lane in lanes}  # lanes of one subgoal that push from one node would do the same
        for lane, regrasps in zip(lanes, anew, strict=True):
            if lane.node is not None and not self._lost[lane.node]:
                attempts.append(self._push(lane.node, lane.target))
            elif regrasps:
                attempts.append(self._regrasp(self._closest(lane.target), rng))
            else:
                node = self._nearest(lane.target, taken)
                taken.add(node)
                attempts.append(self._push(node, lane.target))
        made = [attempt for attempt in attempts if attempt is not None]
        if not made:
            return [lane._replace(node=None) for lane in lanes]
        q, u = np.array([attempt.q for attempt in made]), np.array([attempt.edge.commands[-1] for attempt in made])
        children = iter(self._problem.expand(q, u))
        return [
            lane._replace(
                node=None if attempt is None else self._judged(attempt, next(children), lane.target),
                left=lane.left - 1,
            )
            for lane, attempt in zip(lanes, attempts, strict=True)
        ]

    def _closest(self, target: Array) -> int:
        """The node whose object is closest to where it is in `target`."""
        apart = np.linalg.norm(self._problem.offsets(np.array(self.q), target), axis=1)
        return int(np.where(self._lost, np.inf, apart).argmin())

    def _nearest(self, target: Array, taken: set[int | None]) -> int:
        """The node that needs the fewest commands; those whose pushes have failed seem further away."""
        offsets = self._problem.offsets(np.array(self.q), target)
        squared = np.einsum("ni,nij,nj->n", offsets, np.array([local.metric for local in self._local]), offsets)
        squared = np.where(self._lost, np.inf, squared * (1.0 + np.array(self._failures)) ** 2)
        free = [node for node in range(len(self.q)) if node not in taken and not self._lost[node]]
        return free[int(squared[free].argmin())] if free else int(squared.argmin())

    def _push(self, node: int, target: Array) -> _Attempt:
        command = self._problem.command(self.q[node], self._local[node], target)
        return _Attempt(node, Edge("push", command[None]), self.q[node])

    def _regrasp(self, node: int, rng: np.random.Generator) -> _Attempt | None:
        """Another grasp of the object where it is, if fingers can let go of the one and approach the other."""
        problem, q = self._problem, self.q[node].copy()
        if problem.grasp is None:
            return None
        grasp = problem.grasp(rng, q.copy())
        if grasp is None or (grasp < problem.lower).any() or (grasp > problem.upper).any():
            return None
        away, back = (self._transfer.retracted(q, fingers, rng) for fingers in (q[problem.fingers], grasp))
        if away is None or back is None:
            return None
        q[problem.fingers] = back
        return _Attempt(node, Edge("regrasp", np.stack([back, grasp])), q)

    def _judged(self, attempt: _Attempt, child: tuple[Array, Local] | None, target: Array) -> int | None:
        """Add a child that is of use; its number, or None."""
        if child is not None:
            q = np.stack([attempt.q, child[0]])
            if attempt.edge.kind == "push":
                before, after = np.linalg.norm(self._problem.offsets(q, target), axis=1)
                useful = after < before - _PROGRESS
            else:
                useful = np.abs(self._problem.offsets(q[:1], q[1])).max() < _DISTURBANCE
            if useful:
                return self._add(*child, attempt.node, attempt.edge)
        if attempt.edge.kind == "push":
            self._failures[attempt.node] += 1
        return None

    def _add(self, q: Array, local: Local, parent: int, edge: Edge | None) -> int:
        self.q.append(q)
        self.misses.append(self._problem.miss(q))
        self._parents.append(parent)
        self._edges.append(edge)
        self._local.append(local)
        self._failures.append(0)
        self._lost.append(False)
        node = len(self.q) - 1
        if self.misses[node] < self.misses[self.best]:
            self.best = node
        return node

    # ------------------------------------------------------------------ the way to the goal

    def arrived(self, rng: np.random.Generator) -> bool:
        """Whether the simulator gets to the goal by following all commands to the best node."""
        while self.misses[self.best] <= 1:
            followed = self._followed(self.best, rng)
            self.misses[self.best] = np.inf if followed is None else self._problem.miss(followed[0][-1])
            if followed is not None and self.misses[self.best] <= 1:
                self._found = followed
                return True
            self.best = int(np.argmin(self.misses))
        return False

    def plan(self, monitor: Monitor) -> Plan:
        """What leads to the goal; nothing at all if it was not reached."""
        q, edges = self._found
        outcome = _commands(self._problem, edges), self._problem.miss(q[-1]), tuple(monitor.history)
        return Plan(*outcome, monitor.converged, monitor.message, q, tuple(edges), len(self.q))

    def _lose(self, node: int) -> None:
        """Give up a node to which no way was found, and all that come after it."""
        self._lost[node], self.misses[node] = True, np.inf
        for child in range(node + 1, len(self.q)):
            if self._lost[self._parents[child]]:
                self._lost[child], self.misses[child] = True, np.inf

    def _followed(self, node: int, rng: np.random.Generator) -> tuple[Array, list[Edge]] | None:
        """Configurations and edges from the start to a node, as the simulator follows them; None if it cannot."""
        nodes, edges = [node], list[Edge]()
        while (edge := self._edges[nodes[-1]]) is not None:
            nodes.append(self._parents[nodes[-1]])
            if edge.kind == "regrasp":
                path = self._transfer.path(self.q[nodes[-1]], edge.commands[-1], rng)
                if path is None:
                    self._lose(nodes[-2])
                    return None
                edge = Edge("regrasp", path)
            edges.append(edge)
        edges.reverse()
        ends = self._problem.hold * np.cumsum([0, *(len(edge.commands) for edge in edges)])
        try:
            motion = _motion(self._problem, _commands(self._problem, edges))
        except SolverError:
            return None
        if not all(report.converged for report in motion.solver):
            return None
        return motion.q[ends], edges


def _commands(problem: Manipulation, edges: list[Edge]) -> Array:
    return np.concatenate([np.zeros((0, len(problem.fingers))), *(edge.commands for edge in edges)])
