"""Settings for all tests, and random robots."""

import os
from pathlib import Path

import mujoco
import numpy as np
import pytest
from hypothesis import settings

# Tests compile much and run little. JAX reads this when it is imported.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 " + os.environ.get("XLA_FLAGS", "")
)
import jax

# What tests compile is kept inside the checkout. JAX's own cache serves functions that tests compile by themselves.
ROOT = Path(__file__).parents[1]
os.environ.setdefault("TANGENS_CACHE_DIR", str(ROOT / ".cache" / "tangens"))
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)

# The tolerances of the tests assume double precision; the library itself leaves this choice to its users.
jax.config.update("jax_enable_x64", True)

# The first example of a test may wait for a compiler; the same examples on every machine.
settings.register_profile("tangens", deadline=None, derandomize=True)
settings.load_profile("tangens")


# Joints of a body; without any it is welded.
_JOINTS = ("hinge", "slide", "ball", "hinge slide", "slide hinge hinge", "")


def _random_model(seed: int) -> mujoco.MjModel:
    """Eight bodies with every kind of joint, in one tree or several; with an even seed, the first one floats."""
    rng, spec = np.random.default_rng(seed), mujoco.MjSpec()
    spec.option.gravity = rng.normal(scale=5, size=3)
    bodies = [spec.worldbody]
    for i in range(8):
        parent = spec.worldbody if i in (0, 4) else bodies[rng.integers(1, len(bodies))]
        body = parent.add_body(pos=rng.normal(scale=0.3, size=3), quat=rng.normal(size=4))
        body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=rng.uniform(0.05, 0.2, 3), pos=rng.normal(scale=0.1, size=3))
        floats = i == 0 and seed % 2 == 0
        for kind in ["free"] if floats else _JOINTS[(i + seed) % len(_JOINTS)].split():
            joint = body.add_joint(type=getattr(mujoco.mjtJoint, f"mjJNT_{kind.upper()}"), armature=0.05)
            if not floats:
                joint.pos, joint.axis = rng.normal(scale=0.1, size=3), rng.normal(size=3)
        bodies.append(body)
    return spec.compile()


@pytest.fixture(params=range(6), ids=lambda seed: f"seed {seed}")
def random_tree(request: pytest.FixtureRequest) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """A random robot, and its data at a random qpos, qvel and qacc."""
    model = _random_model(request.param)
    rng, data = np.random.default_rng(request.param), mujoco.MjData(model)
    mujoco.mj_integratePos(model, data.qpos, rng.normal(size=model.nv), 1.0)
    data.qvel[:] = rng.normal(size=model.nv)
    mujoco.mj_forward(model, data)
    data.qacc[:] = rng.normal(scale=3, size=model.nv)
    return model, data
