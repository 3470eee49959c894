"""The contract of a target: the machine that a network is cut for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Target(ABC):
    """A frozen dataclass whose fields say which machine."""

    @abstractmethod
    def identity(self, device: str) -> dict[str, Any]:
        """What the machine is, and that it has the device; refused where it has not."""
