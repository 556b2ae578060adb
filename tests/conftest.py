"""Settings for all tests."""

import hashlib
import os
from pathlib import Path

from hypothesis import settings

# Tests compile much and run little. JAX reads this when it is imported.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1",
)
import jax

# numba does not notice when a function that it inlined from another file changes: keep a cache for each state of the
# sources, wherever the tests are started from. It is read when numba is first imported, which is later.
ROOT = Path(__file__).parents[1]
SOURCES = hashlib.sha1(b"".join(file.read_bytes() for file in sorted((ROOT / "src").rglob("*.py")))).hexdigest()
os.environ.setdefault("NUMBA_CACHE_DIR", str(ROOT / ".cache" / "numba" / SOURCES[:12]))

# The tolerances of the tests assume double precision; the library itself leaves this choice to its users.
jax.config.update("jax_enable_x64", True)

# The first example of a test may wait for a compiler; the same examples on every machine.
settings.register_profile("tangens", deadline=None, derandomize=True)
settings.load_profile("tangens")
