"""Experiments of paper 1, *Single-Level Differentiable Contact Simulation*, on contact model `single-level`."""
