"""Forward sensitivities: how each state of a trajectory changes with its start, its controls and its scene."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tangens.results import Jacobian

Array = NDArray[np.float64]


class Sensitivities(Mapping[tuple[str, str], Array]):
    """`S["q", "mass"][t]` is ∂q_t/∂mass, in the tangent space of q_t: shape (T+1, nv, *shape of the input).

    By "q" and "v", the initial state is meant; by "u" and "tau" those of every step, shape (T+1, nv, T, size).
    """

    def __init__(
        self, blocks: dict[str, Array], converged: bool, determinate: bool, find_others: Callable[[], bool]
    ) -> None:
        self._blocks = blocks  # by input, stacked over q and v: (T+1, 2, nv, ...)
        self.converged = converged
        """Whether every step converged."""
        self._determinate, self._find_others = determinate, find_others

    @cached_property
    def unique(self) -> bool:
        """Whether every v⁺ was the only one that the laws allow, see `Jacobian.unique`."""
        return self._determinate and not self._find_others()

    def __getitem__(self, key: tuple[str, str]) -> Array:
        output, name = key
        if output not in ("q", "v") or name not in self._blocks:
            raise KeyError(f"there is no block {key!r}; there is q and v by {', '.join(self._blocks)}")
        return self._blocks[name][:, ("q", "v").index(output)]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return ((output, name) for name in self._blocks for output in ("q", "v"))

    def __len__(self) -> int:
        return 2 * len(self._blocks)


def carry_forward(
    jacobians: Iterator[Jacobian], steps: int, nv: int, shapes: Mapping[str, Sequence[int]],
    find_others: Callable[[], bool],
) -> Sensitivities:  # fmt: skip
    """Chain the Jacobians of all steps: X_{t+1} = A_t X_t + B_t, with B_t the direct effect of an input on step t."""
    blocks = {name: np.zeros((steps + 1, 2, nv, *shape)) for name, shape in shapes.items()}
    flat = {name: block.reshape(steps + 1, 2 * nv, -1) for name, block in blocks.items()}
    for row, name in enumerate(("q", "v")):
        if name in flat:
            flat[name][0, row * nv : (row + 1) * nv] = np.eye(nv)
    converged = determinate = True
    for t, J in enumerate(jacobians):
        A = np.block([[J["q", "q"], J["q", "v"]], [J["v", "q"], J["v", "v"]]])
        for name, X in flat.items():
            X[t + 1] = A @ X[t]
            if name in ("q", "v"):
                continue
            direct = np.concatenate([J["q", name], J["v", name]]).reshape(2 * nv, -1)
            width = direct.shape[1]
            first = t * width if name in ("u", "tau") else 0
            X[t + 1][:, first : first + width] += direct
        converged, determinate = converged and J.solver.converged, determinate and J.determinate
    return Sensitivities(blocks, converged, determinate, find_others)
