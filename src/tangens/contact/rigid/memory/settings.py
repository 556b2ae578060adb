"""Places of a contact model's numbers in the array that compiled code takes.

ARRIVAL is the gap below which a body that bounces has arrived; negative, those are left out that are about to bounce;
infinite, nothing bounces.
HORIZON is the time within which gaps may close, of which a step may be a piece; negative, only those count that touch.
WORK is what a step may still cost, in multiplications; compiled code takes from it what it has used.
"""

(
    CORRECTION_SPEED,
    DAMPING,
    TOLERANCE,
    ITERATIONS,
    SOLVER,
    ROWS,
    MARGIN,
    LAW,
    ARRIVAL,
    HORIZON,
    WORK,
) = range(11)
