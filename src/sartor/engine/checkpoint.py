"""Training state in one safetensors file: tensors as tensors, the rest as JSON in its header. Never a pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from sartor.core.errors import RunError
from sartor.runs.directory import atomic
from sartor.runs.stopping import patiently


def flatten(tree: Any, tensors: dict[str, Tensor], path: str = "") -> Any:
    """Replace every tensor of a nested structure by a reference; the tensors go into `tensors`."""
    if isinstance(tree, Tensor):
        while path in tensors:  # "a/b" is a key, and a key "b" inside "a"
            path += "'"
        tensors[path] = tree.detach().to("cpu", copy=True).contiguous()
        return {"__tensor__": path}
    if isinstance(tree, Mapping):
        return {"__items__": [[k, flatten(v, tensors, f"{path}/{k}")] for k, v in tree.items()]}
    if isinstance(tree, (list, tuple)):
        return [flatten(v, tensors, f"{path}/{i}") for i, v in enumerate(tree)]
    return tree


def unflatten(tree: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The inverse of `flatten`."""
    if isinstance(tree, dict):
        if "__tensor__" in tree:
            return tensors[tree["__tensor__"]]
        return {k: unflatten(v, tensors) for k, v in tree["__items__"]}
    if isinstance(tree, list):
        return [unflatten(v, tensors) for v in tree]
    return tree


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Write `state` (nested dictionaries and lists of tensors and plain values) atomically."""
    tensors: dict[str, Tensor] = {}
    header = flatten(state, tensors)
    with atomic(path) as tmp:
        save_file(tensors or {"empty": torch.zeros(1)}, tmp, {"state": json.dumps(header)})


def load(path: Path) -> dict[str, Any]:
    """Read what `save` wrote."""
    try:
        # A signal inside would come out as a broken file.
        with patiently(), safe_open(path, "pt") as stream:
            tensors = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118 - not a dict
            header = json.loads((stream.metadata() or {})["state"])
        return dict(unflatten(header, tensors))
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise RunError(f"{path} is damaged ({error}). Delete it to compute it again.") from error
