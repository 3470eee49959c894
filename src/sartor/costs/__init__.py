"""Costs: what a part of a network costs, and the table that prices every network of a space."""
