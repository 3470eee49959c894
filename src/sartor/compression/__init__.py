"""Compression of a given network to a budget: BayesNAS's structural compression (arXiv:1905.04919, Algorithm 3)."""
