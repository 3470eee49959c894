"""`sartor export`: a finished network in the forms of other runtimes, each held to the ONNX file on real images.

RUN/export is a folder to hand on: the model, its forms, labels, preprocessing, predict.py and a model card. The
normalisation is inside every form; each takes pixels from 0 to 255. Forms are of the network in 32 bits.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sartor.core.config import read_toml
from sartor.core.errors import BadInput, RunError, SartorError, nearest
from sartor.core.registry import RUNTIMES
from sartor.data.open import open_data
from sartor.deploy.export import Deployed, OnnxModel
from sartor.deploy.runtimes.base import Runtime
from sartor.report.card import card
from sartor.runs.directory import Run, atomic, search_of
from sartor.runs.progress import Reporter
from sartor.runs.schema import ExportFile, Preprocessing, SplitsFile

FORMS = {"openvino": "openvino", "litert": "litert", "torchscript": "torch"}  # and whose runtime makes and runs each
MOST = 1e-3  # by how much a probability may differ
_IMAGES = 100
COPIED = ("model.onnx", "model_int8.onnx", "labels.json", "labels.txt", "preprocessing.json", "predict.py")


def export(
    path: Path, to: Sequence[str], network: Callable[[], nn.Module], data: object = None,
    reporter: Reporter | None = None,
) -> Path:  # fmt: skip
    """Write RUN/export with the forms in `to`; refused whole where one of them cannot be, or differs."""
    unknown = [name for name in to if name not in FORMS]
    if unknown or not to:
        known = ", ".join(FORMS)
        raise BadInput(f"--to must name some of {known}, but got {', '.join(to)!r}{nearest(''.join(unknown), FORMS)}.")
    base, run, began = search_of(path), Run(path, reporter), time.monotonic()
    with Run(base).locked():
        if not run.done("certificate"):
            raise RunError(f"{path} must be a finished run, but has no certificate. Run the same `sartor fit` again.")
        told, images = run.load(Preprocessing), _images(Run(base), data)
        task = Run(base).load(SplitsFile).task
        deployed = Deployed(network(), told.normalisation.mean, told.normalisation.std).eval()
        source, folder = run.path / "model/model.onnx", run.path / "export"
        expected = task.probabilities(OnnxModel(source).logits(images))
        made: dict[str, dict[str, Any]] = {}
        with tempfile.TemporaryDirectory(prefix=".export.", dir=run.path) as tmp:
            for name in to:
                runtime: Runtime = RUNTIMES[FORMS[name]](batch=len(images))
                files = runtime.convert(source, deployed, images[:1], Path(tmp) / name)
                off = float(np.abs(task.probabilities(runtime.run(files[0], images)) - expected).max())
                if not off < MOST:
                    raise SartorError(f"{name} must agree with model.onnx, but a probability differs by {off:.3g}.")
                made[name] = {
                    "files": [f"export/{p.relative_to(tmp).as_posix()}" for p in files], "difference": off,
                    "version": runtime.version(), "bytes": sum(p.stat().st_size for p in files),
                }  # fmt: skip
                run.reporter.say(f"  {name}: a probability differs by {off:.1e} at most on {len(images)} images")
            for name in COPIED:
                if (run.path / "model" / name).is_file():
                    shutil.copyfile(run.path / "model" / name, Path(tmp) / name)
            shutil.rmtree(folder, ignore_errors=True)  # all of them are good: now they take the place of older ones
            shutil.copytree(tmp, folder)
        run.record(ExportFile, {"images": len(images), "forms": made})
        with atomic(folder / "README.md") as tmp_card:
            tmp_card.write_text(card(run.path), encoding="utf-8")
        written = sorted(p.relative_to(run.path).as_posix() for p in folder.rglob("*") if p.is_file())
        run.finish("exports", written, time.monotonic() - began)
    return folder


def _images(base: Run, data: object) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Test images of the run's data."""
    splits = base.load(SplitsFile)
    given = read_toml(base.path / "config.toml").get("data") if data is None else data
    try:
        images = open_data(given, splits.task.image)
    except SartorError as error:
        raise BadInput(f"the images of the run are needed, to compare on them: give --data. {error}") from error
    if images.digest() != splits.digest:
        raise BadInput("the images must be those of the run, but have another digest: give --data.")
    return np.asarray(images.pixels(np.asarray(splits.test[:_IMAGES], np.int64)).numpy(), np.float32)
