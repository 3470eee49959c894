"""What a network is for: how many classes, and images of which shape."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Task:
    """`classes` outputs for images of ``channels x image x image`` pixels."""

    classes: int
    image: int
    channels: int = 3
