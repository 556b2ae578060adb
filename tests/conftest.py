"""One setting for all tests: JAX computes in double precision, as the tolerances of the tests assume."""

import jax

jax.config.update("jax_enable_x64", True)
