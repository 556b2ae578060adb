"""Places of a contact model's numbers in the array that compiled code takes."""

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
) = range(9)
