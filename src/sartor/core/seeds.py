"""Random streams: one root seed, an independent stream for every purpose and moment."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from sartor.core.errors import BadInput

if TYPE_CHECKING:
    import torch


def checked(seed: int) -> int:
    """The seed, which numpy wants to be none below zero."""
    if seed < 0:
        raise BadInput(f"a seed at least 0 is needed, but it is {seed}.")
    return seed


@dataclass(frozen=True, slots=True)
class Seeds:
    """Streams are functions of (root, purpose, moment), so resuming at a moment needs no saved state."""

    root: int

    def __post_init__(self) -> None:
        checked(self.root)

    def rng(self, purpose: str, *moment: int) -> np.random.Generator:
        """A numpy stream; adding a purpose never shifts the others."""
        # A spawn key keeps moments of different lengths apart: plain entropy [a] and [a, 0] would be one stream.
        sequence = np.random.SeedSequence([self.root, zlib.crc32(purpose.encode())], spawn_key=moment)
        return np.random.default_rng(sequence)

    def number(self, purpose: str, *moment: int) -> int:
        """A 63-bit seed for a library that wants an integer."""
        return int(self.rng(purpose, *moment).integers(2**63))

    def torch(self, purpose: str, *moment: int, device: str | torch.device = "cpu") -> torch.Generator:
        """A torch generator on `device`."""
        import torch

        return torch.Generator(device).manual_seed(self.number(purpose, *moment))
