"""Smooth rigid-body dynamics: everything that moves a robot but contact.

`exact` (MuJoCo, Pinocchio, numba) serves one scene at the lowest latency, `smooth` (JAX) batches of them.
"""
