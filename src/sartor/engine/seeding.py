"""Torch's global random state, seeded for a while: the caller's own state is back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Draws inside start from `number`, on the CPU and on the GPU in use; outside nothing is as if it had been drawn.

    For what takes no generator: the initialisation of modules, dropout. Whatever can takes one (`core.seeds`).
    """
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng([torch.cuda.current_device()] if used else []):
        torch.manual_seed(number)
        yield
