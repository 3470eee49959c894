"""Whole plain networks at many sizes: what a person would train instead of searching."""

from sartor.spaces.plain.space import Plain

PLUGIN = Plain
