"""Torch's global random state, seeded for a while: the caller's own state is back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


@contextmanager
def seeded(number: int) -> Iterator[None]:
    """Draws inside start from `number`, on the CPU and on the GPU in use; outside nothing is as if it had been drawn.

    For what takes no generator: the initialisation of modules, dropout. Whatever can takes one (`core.seeds`).
    """
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    with torch.random.fork_rng([torch.cuda.current_device()] if used else []):
        torch.manual_seed(number)
        yield


def drawn_so_far() -> dict[str, Tensor]:
    """Where the global streams stand, for a checkpoint in the middle of what `seeded` began."""
    used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return {"cpu": torch.get_rng_state(), **({"cuda": torch.cuda.get_rng_state()} if used else {})}


def go_on(state: dict[str, Tensor]) -> None:
    """Draw from where `drawn_so_far` was asked."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.set_rng_state(state["cuda"])
