"""Linear algebra on one thread: the matrices here are small, and threads that wait for each other take longer.

Beside other work on the machine, OpenBLAS's spinning threads made a decomposition of 500 columns take twenty times as
long as one thread does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from threadpoolctl import threadpool_limits

P = ParamSpec("P")
T = TypeVar("T")


def on_one_thread(function: Callable[P, T]) -> Callable[P, T]:
    """The function with numpy's and scipy's linear algebra kept to one thread while it runs."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        with threadpool_limits(1, user_api="blas"):
            return function(*args, **kwargs)

    return limited
