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
    graph: Any
    given: list[Tensor]
    made: Any


@dataclass(eq=False)
class Repeated(Generic[Made]):
    """`function(tensors)`, replayed on CUDA devices wherever it is called again with equal shapes and an equal `key`.

    What it returns after a replay is overwritten by the next one. It must be a function of the tensors, of what `key`
    says, and of tensors that stay where they are (weights); random numbers may come from the device's default
    generator. Work that cannot be recorded runs as it is.
    """

    function: Callable[[Sequence[Tensor]], Made]
    device: torch.device
    _key: Any = None
    _calls: int = 0
    _recording: _Recording | None = None
    _able: bool = True
    _aside: Any = field(default=None, repr=False)

    def __call__(self, tensors: Sequence[Tensor], key: Hashable = None) -> Made:
        """The function's value, by replay where there is something to replay."""
        if self.device.type != "cuda" or not self._able:
            return self.function(tensors)
        key = (key, tuple((t.shape, t.stride(), t.dtype) for t in tensors))
        if key != self._key:
            self.forget()
            self._key = key
        if self._recording is not None:
            for mine, given in zip(self._recording.given, tensors, strict=True):
                mine.copy_(given.detach())
            self._recording.graph.replay()
            made: Made = self._recording.made
            return made
        self._calls += 1
        return self._record(tensors) if self._calls > _FIRST else self._beside(tensors)

    def forget(self) -> None:
        """Let the recording and its memory go."""
        self._recording, self._key, self._calls = None, None, 0

    def _beside(self, tensors: Sequence[Tensor]) -> Made:
        """As it is, on another stream: autograd remembers the stream that a weight was first used on, and the default
        one cannot take part in a recording.
        """
        if self._aside is None:
            self._aside = torch.cuda.Stream(self.device)
        main = torch.cuda.current_stream(self.device)
        self._aside.wait_stream(main)
        with torch.cuda.stream(self._aside):
            made = self.function(tensors)
        main.wait_stream(self._aside)
        return made

    def _record(self, tensors: Sequence[Tensor]) -> Made:
        given = [t.detach().clone(memory_format=torch.preserve_format) for t in tensors]
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads may read images meanwhile, and page-lock memory for them.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                made = self.function(given)
        except RuntimeError as error:
            if not isinstance(error, torch.OutOfMemoryError) and _NOT_ABLE not in str(error):
                raise
            self._able = False  # a second copy of all activations has no room, or the work waits for the device
            self.forget()
            torch.cuda.empty_cache()
            return self.function(tensors)
        self._recording = _Recording(graph, given, made)
        graph.replay()
        return made
