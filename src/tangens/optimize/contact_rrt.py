"""A rapidly exploring random tree for manipulation: smooth gradients choose its steps, and measure its distances.

Nodes are configurations at rest. Each iteration draws a subgoal for the object, or takes the goal itself, and grows the
tree towards it from the node that needs the fewest commands, by the metric of `Manipulation`. A *push* is the command
that should bring the object nearest to the subgoal; its child is where the simulator says it leads, and pushes go on
while they help. Some iterations *regrasp* first: the fingers let go, and take hold elsewhere. Every edge is simulated.
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
    """The way to the node nearest to the goal. `x` are all its commands; `cost` is the miss there, in tolerances."""

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
    goal_bias: float = 0.3,
    regrasp: float = 0.3,
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
        max_iterations: subgoals before it gives up.
        time_budget: seconds after which no iteration is begun.
        goal_bias: share of iterations that take the goal as their subgoal.
        regrasp: share of iterations that begin with a new grasp, if the problem can draw some.
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
    with bar(progress, max_iterations, "miss") as show:
        monitor = Monitor(Rules(max_iterations, time_budget=time_budget), callback, show)
        while not monitor.record(tree.q[tree.best], tree.misses[tree.best], np.inf, len(tree.q)):
            if tree.misses[tree.best] <= 1:
                monitor.stop("the goal is reached", converged=True)
                break
            target = problem.goal if rng.random() < goal_bias else problem.sample(rng)
            anew = problem.grasp is not None and rng.random() < regrasp
            node = tree.regrasped(tree.closest(target), rng) if anew else tree.nearest(target)
            if node is not None:
                tree.push(node, target, pushes)
    return tree.plan(monitor)


def replay(problem: Manipulation, plan: Plan, *, momentum: bool = False) -> Trajectory:
    """The motion of a plan, step by step.

    Args:
        problem: the problem, or one that differs, to see what the plan does there.
        plan: its commands are followed.
        momentum: let velocities live on from one command to the next. The plan takes them for zero.

    """
    at_rest, simulator = np.zeros(problem.simulator.scene.nv), problem.simulator
    controls = np.repeat(plan.x, problem.hold, axis=0)
    if momentum:
        return simulator.rollout(State(problem.start, at_rest), controls)
    pieces, q = [], problem.start
    for first in range(0, len(controls), problem.hold):
        pieces.append(simulator.rollout(State(q, at_rest), controls[first : first + problem.hold]))
        q = pieces[-1].q[-1]
    return Trajectory(
        np.concatenate([problem.start[None], *(piece.q[1:] for piece in pieces)]),
        np.concatenate([at_rest[None], *(piece.v[1:] for piece in pieces)]),
        controls,
        np.zeros((len(controls), len(at_rest))),
        tuple(contacts for piece in pieces for contacts in piece.contacts),
        tuple(report for piece in pieces for report in piece.solver),
    )


class _Tree:
    """Configurations, how each was reached, and what can be reached from there."""

    def __init__(self, problem: Manipulation, clearance: float) -> None:
        self._problem = problem
        self._transfer = Transfer(
            problem.simulator.scene, problem.fingers, problem.lower, problem.upper, clearance
        )
        self.q: list[Array] = []
        self.misses: list[float] = []
        self.best = 0
        self._parents: list[int] = []
        self._edges: list[Edge | None] = []
        self._local: list[Local] = []
        self._failures: list[int] = []
        self._add(problem.start, 0, None)

    def closest(self, target: Array) -> int:
        """The node whose object is closest to where it is in `target`."""
        return int(np.linalg.norm(self._problem.offsets(np.array(self.q), target), axis=1).argmin())

    def nearest(self, target: Array) -> int:
        """The node that needs the fewest commands; those whose pushes have failed seem further away."""
        offsets = self._problem.offsets(np.array([local.centre for local in self._local]), target)
        squared = np.einsum("ni,nij,nj->n", offsets, np.array([local.metric for local in self._local]), offsets)
        return int((squared * (1.0 + np.array(self._failures)) ** 2).argmin())

    def push(self, node: int, target: Array, most: int) -> None:
        """Grow from a node towards a target for as long as that brings the object nearer."""
        problem = self._problem
        for _ in range(most):
            command = problem.command(self._local[node], target)[None]
            try:
                child = problem.move(self.q[node], command)
                before, after = np.linalg.norm(problem.offsets(np.stack([self.q[node], child]), target), axis=1)
                if after > before - _PROGRESS:
                    self._failures[node] += 1
                    return
                node = self._add(child, node, Edge("push", command))
            except SolverError:  # a step that cannot be taken, or not differentiated, leads nowhere
                self._failures[node] += 1
                return
            if self.misses[node] <= 1:
                return

    def regrasped(self, node: int, rng: np.random.Generator) -> int | None:
        """A child of a node with the fingers elsewhere and the object where it was, or None if that failed."""
        problem, q = self._problem, self.q[node]
        if problem.grasp is None:
            return None
        grasp = problem.grasp(rng, q.copy())
        if grasp is None or (grasp < problem.lower).any() or (grasp > problem.upper).any():
            return None
        path = self._transfer.path(q, grasp, rng)
        if path is None:
            return None
        try:
            child = problem.move(q, path)
            if np.abs(problem.offsets(child[None], q)).max() > _DISTURBANCE:
                return None
            return self._add(child, node, Edge("regrasp", path))
        except SolverError:
            return None

    def plan(self, monitor: Monitor) -> Plan:
        """The way to the node nearest to the goal."""
        nodes, edges = [self.best], list[Edge]()
        while (edge := self._edges[nodes[-1]]) is not None:
            edges.append(edge)
            nodes.append(self._parents[nodes[-1]])
        edges.reverse()
        x = np.concatenate([np.zeros((0, len(self._problem.fingers))), *(edge.commands for edge in edges)])
        q = np.array([self.q[node] for node in reversed(nodes)])
        outcome = x, self.misses[self.best], tuple(monitor.history), monitor.converged, monitor.message
        return Plan(*outcome, q, tuple(edges), len(self.q))

    def _add(self, q: Array, parent: int, edge: Edge | None) -> int:
        """Add a node; its number."""
        local = self._problem.linearized(q)
        self.q.append(q)
        self.misses.append(self._problem.miss(q))
        self._parents.append(parent)
        self._edges.append(edge)
        self._local.append(local)
        self._failures.append(0)
        node = len(self.q) - 1
        if self.misses[node] < self.misses[self.best]:
            self.best = node
        return node
