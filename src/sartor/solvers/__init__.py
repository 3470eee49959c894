"""Solvers: the best architecture inside all the budgets, with a proof where there is one. Never imports torch."""
