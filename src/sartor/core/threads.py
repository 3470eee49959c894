"""How many threads: as many as the machine has cores where a person decides, one for linear algebra.

Its matrices are small here, and threads that wait for each other take longer: beside other work on the machine,
OpenBLAS's spinning threads made a decomposition of 500 columns take twenty times as long as one thread does.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

from sartor.core.errors import BadInput

# Read when torch is loaded. Waiting threads that spin make a step take ten times as long beside other work.
_WAITING = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "KMP_BLOCKTIME": "0"}

P = ParamSpec("P")
T = TypeVar("T")


def bounded(count: int, name: str = "threads") -> int:
    """The number, where this machine has as many cores; far more of them than that end a process without a word."""
    cores = os.cpu_count() or 1
    if not 1 <= count <= cores:
        raise BadInput(f"{name} must be at least 1 and at most {cores}, the cores of this machine, but got {count}.")
    return count


def sleep_while_waiting() -> None:
    """Let threads that wait for others sleep, unless the environment says otherwise or torch is loaded already."""
    for name, value in _WAITING.items():
        os.environ.setdefault(name, value)


def on_one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """The function with numpy's and scipy's linear algebra kept to one thread while it runs."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        with threadpool_limits(1, user_api="blas"):
            return function(*args, **kwargs)

    return limited
