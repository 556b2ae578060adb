"""The soft-minimum contact model of paper 3: contact without a solver, twice differentiable everywhere."""
