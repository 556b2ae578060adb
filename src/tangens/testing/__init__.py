"""Checks that users can run on their own robots: physics against MuJoCo, derivatives against central differences.

`tangens check` and the tests of tangens use the same functions; nothing in a simulation depends on them.
"""

from __future__ import annotations

from tangens.testing.checks import check_gradients, check_physics
from tangens.testing.comparisons import (
    Sample,
    agreement_with_mujoco,
    central_differences,
    contact_agreement,
    gradient_errors,
    parameter_errors,
    random_sample,
    relative_error,
)
from tangens.testing.report import Report

__all__ = [
    "Report",
    "Sample",
    "agreement_with_mujoco",
    "central_differences",
    "check_gradients",
    "check_physics",
    "contact_agreement",
    "gradient_errors",
    "parameter_errors",
    "random_sample",
    "relative_error",
]
