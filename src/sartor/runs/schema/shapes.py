"""Shapes of values that several files have."""

from collections.abc import Mapping

Ints = tuple[int, ...]
Floats = tuple[float, ...]
Epoch = Mapping[str, float | None]  # an epoch's losses and speed
Device = Mapping[str, str | int | float | None]  # what measured values depend on
