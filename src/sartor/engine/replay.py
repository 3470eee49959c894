"""Work that repeats, launched as one CUDA graph instead of kernel by kernel.

A supernet's step is thousands of small kernels, and starting them takes the host longer than running them takes the
GPU. A step whose shapes are the same as the last one's is therefore recorded once and then replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Made = TypeVar("Made")
_FIRST = 2  # calls that run kernel by kernel before one is recorded: libraries set themselves up in them
_NOT_ABLE = "captur"  # stands in what PyTorch and CUDA say about work that cannot be recorded


@dataclass(eq=False)
class _Recording:
    """What is known of one set of shapes."""

    calls: int = 0
    graph: Any = None
    given: list[Tensor] = field(default_factory=list)
    made: Any = None


@dataclass(eq=False)
class Repeated(Generic[Made]):
    """`function(tensors, key)`, replayed on CUDA devices where it is called again with equal shapes and an equal key.

    What it returns after a replay is overwritten by the next one. It must be a function of the tensors, of the key, and
    of tensors that stay where they are (weights); random numbers may come from the device's default generator. Work
    that cannot be recorded runs as it is. Recordings hold memory: the last `keep` are kept.
    """

    function: Callable[[Sequence[Tensor], Any], Made]
    device: torch.device
    keep: int = 1
    _known: dict[Hashable, _Recording] = field(default_factory=dict)
    _able: bool = True
    _aside: Any = None

    def __call__(self, tensors: Sequence[Tensor], key: Hashable = None) -> Made:
        """The function's value, by replay where there is something to replay."""
        if self.device.type != "cuda" or not self._able:
            return self.function(tensors, key)
        signature = (key, tuple((t.shape, t.stride(), t.dtype) for t in tensors))
        known = self._known.pop(signature, None) or _Recording()
        while len(self._known) >= self.keep:
            del self._known[next(iter(self._known))]
        self._known[signature] = known  # the last one used is the last one to go
        known.calls += 1
        if known.graph is not None:
            for mine, given in zip(known.given, tensors, strict=True):
                mine.copy_(given.detach())
            known.graph.replay()
            made: Made = known.made
            return made
        return self._record(tensors, key, known) if known.calls > _FIRST else self._beside(tensors, key)

    def forget(self) -> None:
        """Let the recordings and their memory go."""
        self._known.clear()

    def _beside(self, tensors: Sequence[Tensor], key: Hashable) -> Made:
        """As it is, on another stream: autograd remembers the stream that a weight was first used on, and the default
        one cannot take part in a recording.
        """
        if self._aside is None:
            self._aside = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        main = torch.cuda.current_stream(self.device)
        self._aside.wait_stream(main)
        with torch.cuda.stream(self._aside):
            made = self.function(tensors, key)
        main.wait_stream(self._aside)
        return made

    def _record(self, tensors: Sequence[Tensor], key: Hashable, known: _Recording) -> Made:
        given = [t.detach().clone(memory_format=torch.preserve_format) for t in tensors]
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may read images meanwhile, and page-lock memory for them.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                made = self.function(given, key)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and _NOT_ABLE not in str(error):
                raise
            self._able = False  # a second copy of all activations has no room, or the work waits for the device
            self.forget()
            torch.cuda.empty_cache()
            # The generator believes that it is still being recorded; its clone does not.
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())
            return self.function(tensors, key)
        known.graph, known.given, known.made = graph, given, made
        graph.replay()
        return made
