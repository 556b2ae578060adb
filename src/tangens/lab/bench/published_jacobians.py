"""Times that paper 5 prints, to be read beside ours; other machine, other models of the robots: no ratio is taken.

K. Werling, D. Omens, J. Lee, I. Exarchos, C. K. Liu: "Fast and Feature-Complete Differentiable Physics for Articulated
Rigid Bodies with Contact", Table III (Appendix D): C++ on one core. Atlas has 33 degrees of freedom and 12 contact
points, the half-cheetah 9 and 2, the worm and the catapult 5 and 2. Their "all" by differences is the sum of the five
blocks, each with steps of its own. Table II has other times for "all": 45.8, 8.64, 6.36 and 6.40 times faster than
central differences instead of 87.8, 21.9, 14.9 and 16.5.
"""

from __future__ import annotations

from typing import Any

from tangens.lab.bench.request import row

CITATION = (
    "Werling et al., Fast and Feature-Complete Differentiable Physics for Articulated Rigid Bodies with Contact, "
    "Table III"
)
JACOBIANS, CENTRAL, RIDDERS = (
    "Nimble Jacobians (as published)",
    "Nimble central differences (as published)",
    "Nimble Ridders (as published)",
)

# [ms] analytical, central differences, Ridders: all together, dq/dq, dv/dq, dq/dv, dv/dv, dv/dtau.
TIMES = {
    "half_cheetah": (
        (0.395, 0.0059, 0.254, 0.00358, 0.053, 0.077),
        (8.64, 1.69, 1.874, 1.228, 1.98, 1.87),
        (24.0, 3.17, 7.92, 2.42, 5.63, 5.75),
    ),
    "worm": (
        (0.256, 0.00433, 0.174, 0.00307, 0.0343, 0.040),
        (3.82, 0.732, 0.836, 0.532, 0.872, 0.851),
        (9.727, 1.58, 2.84, 0.81, 2.17, 2.31),
    ),
    "catapult": (
        (0.265, 0.0050, 0.181, 0.0036, 0.035, 0.039),
        (4.36, 0.845, 0.972, 0.574, 1.01, 0.960),
        (12.0, 1.79, 3.71, 0.958, 2.72, 2.85),
    ),
    "atlas": (
        (8.53, 0.0204, 6.75, 0.016, 0.778, 0.981),
        (749.0, 160.0, 161.0, 107.2, 160.0, 161.0),
        (2229.0, 581.0, 581.0, 304.0, 487.0, 524.0),
    ),
}


def rows(system: str, quantities: tuple[str, ...]) -> list[dict[str, Any]]:
    """The paper's times for a system, if it has any; quantities in the order of the table above."""
    return [
        row(system, quantity, tool, 1e3 * ms, None)
        for tool, times in zip((JACOBIANS, CENTRAL, RIDDERS), TIMES.get(system, ()), strict=False)
        for quantity, ms in zip(quantities, times, strict=True)
    ]
