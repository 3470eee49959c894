"""What leaves a run: one ONNX file with the normalisation inside, weights as safetensors, labels, preprocessing.

Nothing here is a pickle, so a model folder from elsewhere can be opened safely.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from sartor.core.errors import BadInput, RunError, SartorError, require
from sartor.core.task import Task
from sartor.data import picture
from sartor.data.base import Images, Index
from sartor.deploy.module import INPUT, OUTPUT, Deployed, evaluating, onnx_graph, session
from sartor.deploy.views import viewed
from sartor.runs.directory import atomic, write_json
from sartor.runs.schema import Preprocessing
from sartor.runs.stopping import patiently
from sartor.version import __version__

__all__ = [
    "Deployed",
    "OnnxModel",
    "INT8",
    "TUNED",
    "as_described",
    "deployed_file",
    "metadata_of",
    "export_onnx",
    "load_weights",
    "matching",
    "preprocessing",
    "read_safetensors",
    "save_weights",
    "write_labels",
    "write_predict",
    "write_preprocessing",
]

Floats = NDArray[np.float32]
INT8 = "model/model_int8.onnx"  # there only if it is what is deployed
TUNED = "model/tuned.onnx"  # what that is the rounding of, where the network was trained further for it
_BATCH = 256  # images that are in memory at once
_TOLERANCE = 1e-3  # relative to the largest logit; float32 rounding is near 1e-6


def export_onnx(model: Deployed, task: Task, path: str | Path, metadata: Mapping[str, str] | None = None) -> float:
    """Write `model` as one ONNX file with a dynamic batch, and check it against PyTorch on random images.

    Returns the largest absolute difference between the two runtimes' logits. A difference that
    rounding cannot explain is an error, and then no file appears.
    """
    path = Path(path)
    shape = (task.channels, task.image, task.image)
    graph = onnx_graph(model, shape)
    try:
        error = _difference(model, graph, task)
    except SartorError:  # a trace may hold what changes with the batch
        graph = onnx_graph(model, shape, trace=False)
        error = _difference(model, graph, task)
    with atomic(path) as tmp:
        tmp.write_bytes(_with(graph, metadata or {}))
    return error


def metadata_of(task: Task, names: Sequence[str], **more: str) -> dict[str, str]:
    """What a model file says of itself: what goes in, what comes out, who made it, and what identifies it (`more`)."""
    return {
        "labels": json.dumps(list(names), ensure_ascii=False), "task": task.kind, "output": task.output,
        "input": f"{task.channels} x {task.image} x {task.image} pixels, 0 to 255", "precision": "float32",
        "sartor": __version__, **more,
    }  # fmt: skip


def metadata_in(path: Path) -> dict[str, str]:
    """What a model file says of itself."""
    onnx = require("onnx", "onnx")
    return {p.key: p.value for p in onnx.load(str(path), load_external_data=False).metadata_props}


def tell(path: Path, **more: str) -> None:
    """Let a model file say more of itself."""
    told = metadata_in(path) | more
    with atomic(path) as tmp:
        tmp.write_bytes(_with(path.read_bytes(), told))


def _with(graph: bytes, metadata: Mapping[str, str]) -> bytes:
    """The model with its metadata, in the order of their names."""
    onnx = require("onnx", "onnx")
    model = onnx.load_model_from_string(graph)
    onnx.helper.set_model_props(model, dict(sorted(metadata.items())))
    return bytes(model.SerializeToString())


def _difference(model: Deployed, graph: bytes, task: Task) -> float:
    """The largest difference of logits at batches of one and of three random images."""
    run, rng, worst = session(graph), np.random.default_rng(0), 0.0
    for batch in (1, 3):
        shape = (batch, task.channels, task.image, task.image)
        images = rng.integers(0, 256, shape).astype(np.float32)
        with evaluating(model):
            tensor = torch.from_numpy(images).to(model.get_buffer("scale").device)
            expected = model(tensor).cpu().numpy()
        got = run.run([OUTPUT], {INPUT: images})[0]
        if got.shape != expected.shape or not np.isfinite(got).all():
            raise SartorError(f"the exported graph gives logits of shape {got.shape}, or not finite ones.")
        error, scale = float(np.abs(got - expected).max()), float(np.abs(expected).max())
        if error > _TOLERANCE * max(scale, 1e-6):
            raise SartorError(
                f"onnxruntime's logits must equal PyTorch's up to {_TOLERANCE:g} of the largest, {scale:g}, "
                f"but differ by {error:g}. Nothing was exported."
            )
        worst = max(worst, error)
    return worst


def save_weights(model: nn.Module, path: str | Path, metadata: Mapping[str, str] | None = None) -> None:
    """Write every parameter and buffer to a safetensors file, with text `metadata` in its header."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    with atomic(Path(path)) as tmp:
        save_file(tensors, str(tmp), metadata=dict(metadata or {}) | {"format": "pt"})


def load_weights(model: nn.Module, path: str | Path) -> dict[str, str]:
    """Load a safetensors file into `model`: the same names, shapes and types exactly. Returns its metadata.

    The model is changed only when the whole file fits it.
    """
    tensors, metadata = matching(model, path)
    model.load_state_dict(tensors)
    return metadata


def matching(model: nn.Module, path: str | Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and metadata of a safetensors file that fits `model`; one that does not is refused."""
    tensors, metadata = read_safetensors(Path(path))
    wanted = model.state_dict()
    missing, unknown = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
    if missing or unknown:
        raise BadInput(
            f"{path} must hold exactly this network's tensors, but lacks {_few(missing)} and adds {_few(unknown)}."
        )
    for name, tensor in tensors.items():
        target = wanted[name]
        if tensor.shape != target.shape or tensor.dtype != target.dtype:
            raise BadInput(
                f"{name} in {path} must be {target.dtype} of shape {tuple(target.shape)}, "
                f"but is {tensor.dtype} of shape {tuple(tensor.shape)}."
            )
    return tensors, metadata


def read_safetensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Every tensor of a safetensors file by name, and its metadata."""
    from safetensors import SafetensorError, safe_open

    try:
        # A signal inside would come out as a broken file.
        with patiently(), safe_open(str(path), framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, dict(file.metadata() or {})  # noqa: SIM118
    except FileNotFoundError as error:
        raise RunError(f"{path} is missing.") from error
    except (SafetensorError, OSError, ValueError, RuntimeError, TypeError) as error:
        raise RunError(
            f"{path} must be a complete safetensors file, but is damaged or something else: {error}"
        ) from error


def _few(names: Sequence[str], most: int = 3) -> str:
    return (
        ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "") if names else "none"
    )


def as_described(net: nn.Module, told: Preprocessing) -> Deployed:
    """A run's network with all that preprocessing.json says to be inside the model."""
    return Deployed(viewed(net, told.views, told.image), told.normalisation.mean, told.normalisation.std).eval()


def preprocessing(task: Task, mean: Sequence[float], std: Sequence[float]) -> dict[str, Any]:
    """What happens to an image before the network, in words and numbers, for preprocessing.json."""
    return {
        "task": task.to_json(),
        "image": task.image,
        "channels": task.channels,
        "colour": {1: "greyscale", 3: "RGB"}.get(task.channels, f"{task.channels} channels"),
        "resize": "shorter side to S, centre crop",
        "input": {"name": INPUT, "type": "float32", "layout": "BCHW", "range": [0, 255]},
        "output": {"name": OUTPUT, "meaning": task.output},
        "normalisation": {"mean": list(mean), "std": list(std), "in_graph": True},
    }


def write_preprocessing(
    path: str | Path, task: Task, mean: Sequence[float], std: Sequence[float], names: Sequence[str], views: int = 1
) -> None:
    """Write preprocessing.json, with the classes in the order of the logits, and the label files beside it."""
    told = {"format": Preprocessing.FORMAT, **preprocessing(task, mean, std), "labels": list(names), "views": views}
    write_json(Path(path), told)
    write_labels(Path(path).parent, names)


def write_predict(path: str | Path) -> None:
    """Write predict.py: how an image becomes pixels, and what the model beside it says of them, without Sartor."""
    with atomic(Path(path)) as tmp:
        tmp.write_text(Path(picture.__file__).read_text(encoding="utf-8"), encoding="utf-8")


def write_labels(folder: str | Path, names: Sequence[str]) -> None:
    """Write the classes in the order of the logits: labels.json, exact, and labels.txt, one a line."""
    folder = Path(folder)
    write_json(folder / "labels.json", list(names))
    with atomic(folder / "labels.txt") as tmp:
        tmp.write_text("".join(" ".join(name.splitlines()) + "\n" for name in names), encoding="utf-8")


def deployed_file(run: Path) -> Path:
    """The file of a run's folder that is deployed: in 8 bits where that was decided."""
    return run / INT8 if (run / INT8).is_file() else run / "model/model.onnx"


class OnnxModel:
    """An exported network, ready to classify: pixels 0..255 in, logits out; the task makes probabilities of them."""

    def __init__(self, path: str | Path | bytes, threads: int = 1) -> None:
        if isinstance(path, bytes):  # the file's content, of one's own
            self.path, self._session = Path("the model"), session(path, threads)
        else:
            self.path = Path(path)
            _refuse_external_data(self.path)
            self._session = session(self.path, threads)
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        if len(inputs) != 1 or len(outputs) != 1 or len(inputs[0].shape) != 4 or inputs[0].type != "tensor(float)":
            raise BadInput(
                f"{self.path} must take one float32 image batch (B, C, S, S) and give one output; export it again."
            )
        self._input = inputs[0].name
        self.shape: tuple[int, ...] = tuple(inputs[0].shape[1:])  # (C, S, S)
        self.temperature = _temperature(self._session.get_modelmeta().custom_metadata_map, self.path)

    def logits_of(self, images: Images, index: Index) -> Floats:
        """The logits of some images of a data set, batch by batch."""
        parts = np.split(index, range(_BATCH, len(index), _BATCH))
        return np.concatenate([self.logits(images.pixels(part).numpy()) for part in parts])

    def logits(self, images: ArrayLike) -> Floats:
        """The logits (B, classes) of images (B, C, S, S) with values 0..255."""
        batch = np.asarray(images)
        if batch.ndim != 4 or batch.shape[1:] != self.shape or not len(batch):
            wanted = ", ".join(map(str, self.shape))
            raise BadInput(f"images must have the shape (B, {wanted}) with B >= 1, but have {batch.shape}.")
        if batch.dtype.kind not in "uif":
            raise BadInput(f"images must be numbers from 0 to 255, but are of type {batch.dtype}.")
        pixels = np.ascontiguousarray(batch, np.float32)
        if not np.isfinite(pixels).all() or pixels.min() < 0 or pixels.max() > 255:
            raise BadInput(f"pixels must lie in 0..255, but range from {pixels.min():g} to {pixels.max():g}.")
        out: Floats = self._session.run(None, {self._input: pixels})[0]
        return out


def _temperature(metadata: Mapping[str, str], path: Path) -> float:
    """What the logits are divided by before they become probabilities: 1 where the file does not say."""
    text = metadata.get("temperature", "1")
    with contextlib.suppress(ValueError):
        if 0 < float(text) < float("inf"):
            return float(text)
    raise BadInput(f"{path}: the temperature in its metadata must be a number above 0, but is {text!r}.")


def _refuse_external_data(path: Path) -> None:
    """A model whose weights point at other files of the disk is none that Sartor wrote."""
    onnx = require("onnx", "onnx")
    if not path.is_file():
        raise BadInput(f"{path} must be an ONNX file, but there is no such file.")
    try:
        model = onnx.load(str(path), load_external_data=False)
    except Exception as error:  # protobuf's parser raises several unrelated types
        raise BadInput(f"{path} must be an ONNX model, but cannot be read as one.") from error
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        raise BadInput(f"{path} must hold its weights itself, but refers to other files.")
