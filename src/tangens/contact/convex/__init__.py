"""The convex contact model: impulses that minimise a convex function of velocities (paper 4's rollouts)."""
