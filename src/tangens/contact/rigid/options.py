"""Places of a contact model's numbers in the array that compiled code takes."""

(
    TIMESTEP,
    IMPLICIT,
    CORRECTION,
    CORRECTION_SPEED,
    DAMPING,
    TOLERANCE,
    ITERATIONS,
    SOLVER,
    ROWS,
    MARGIN,
    LAW,
    EXPLORES,
    ARRIVAL,
) = range(13)
