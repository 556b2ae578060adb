"""Settings for all tests."""

import jax
from hypothesis import settings

# The tolerances of the tests assume double precision; the library itself leaves this choice to its users.
jax.config.update("jax_enable_x64", True)

# The first example of a test may wait for a compiler; the same examples on every machine.
settings.register_profile("tangens", deadline=None, derandomize=True)
settings.load_profile("tangens")
