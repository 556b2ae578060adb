"""Speed, always as a ratio against a peer measured in the same run."""

from __future__ import annotations

from tangens.lab.bench import dynamics, gradients, jacobians, manifold, single_level, soft, start
from tangens.lab.bench.request import Bench, BenchRequest

__all__ = ["BENCHES", "Bench", "BenchRequest"]

BENCHES: dict[str, Bench] = {
    "dynamics": Bench(dynamics.run, in_parts=False),
    "gradients": Bench(gradients.run, peers=gradients.PEERS, default_peers=gradients.DEFAULT_PEERS),
    "jacobians": Bench(
        jacobians.run, peers=jacobians.PEERS, default_peers=jacobians.DEFAULT_PEERS, table=jacobians.table
    ),
    "manifold": Bench(manifold.run, table=manifold.table),
    "single-level": Bench(single_level.run, table=single_level.table),
    "soft": Bench(soft.run),
    "start": Bench(start.run, table=start.table, in_parts=False, on_one_core=False),
}
"""By name."""
