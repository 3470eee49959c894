"""`sartor export`: a finished network in the forms of other runtimes, each held to the ONNX file on real images.

RUN/export is a folder to hand on: the model, its forms, labels, preprocessing, predict.py and a model card. The
normalisation is inside every form; each takes pixels from 0 to 255. A form is in 8 bits where that is deployed and its
runtime computes in these, else in 32. The certificate repeats how far each is from the ONNX file of its precision.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from sartor.core.config import read_toml
from sartor.core.errors import BadInput, RunError, SartorError, nearest
from sartor.core.registry import RUNTIMES
from sartor.core.task import Task
from sartor.data.open import open_data
from sartor.deploy.export import INT8, Deployed, OnnxModel, as_described
from sartor.deploy.runtimes.base import Runtime
from sartor.report.card import card
from sartor.runs.codec import to_file
from sartor.runs.directory import Run, search_of, write_json
from sartor.runs.progress import Reporter
from sartor.runs.schema import Certificate, ExportedForm, ExportFile, Preprocessing, Signature, SplitsFile

MOST = {"float32": 1e-3, "int8": 5e-2}  # by how much a probability may differ: runtimes round to 8 bits elsewhere
_IMAGES = 100
COPIED = ("model.onnx", "model_int8.onnx", "labels.json", "labels.txt", "preprocessing.json", "predict.py")


def export(
    path: Path, to: Sequence[str], network: Callable[[], nn.Module], data: object = None,
    reporter: Reporter | None = None,
) -> Path:  # fmt: skip
    """Write RUN/export with the forms in `to`; refused whole where one of them cannot be, or differs."""
    kinds = {name: form_maker(name) for name in to}
    if not kinds:
        raise BadInput(f"--to must name some of {', '.join(makers())}, but names none.")
    base, run, began = search_of(path), Run(path, reporter), time.monotonic()
    with Run(base).locked():
        _refuse(run)
        told, images = run.load(Preprocessing), _images(Run(base), data)
        task = Run(base).load(SplitsFile).task
        deployed = as_described(network(), told)
        with _folder(run.path) as tmp:
            made = {
                str(kind.form or name): _made(run, task, kind, deployed, images, tmp) for name, kind in kinds.items()
            }
            exported = ExportFile(len(images), made)
            for name in COPIED:
                if (run.path / "model" / name).is_file():
                    shutil.copyfile(run.path / "model" / name, tmp / name)
            write_json(tmp / Path(ExportFile.NAME).name, to_file(exported))
            (tmp / "README.md").write_text(card(run.path, exported), encoding="utf-8")
        folder = run.path / "export"
        written = sorted(p.relative_to(run.path).as_posix() for p in folder.rglob("*") if p.is_file())
        run.finish("exports", written, time.monotonic() - began)
        run.save(replace(run.load(Certificate), exports=exported))
        run.finish("certificate", [Certificate.NAME], run.stages()["certificate"].seconds)
    return folder


def makers() -> dict[str, str]:
    """The forms that come along, and whose runtime makes and runs each."""
    return {str(RUNTIMES[name].form): name for name in RUNTIMES.names() if RUNTIMES[name].form is not None}


def form_maker(name: str, trusted: bool = True) -> type[Runtime]:
    """The runtime of a form: by the form's name, or as ``package.module:Class``."""
    known = makers()
    if name not in known and ":" not in name:
        raise BadInput(
            f"--to must name some of {', '.join(known)}, or a runtime as package.module:Class, but got {name!r}"
            f"{nearest(name, known)}."
        )
    found: type[Runtime] = RUNTIMES.resolve(known.get(name, name), trusted=trusted)
    if found.form is None:
        raise BadInput(f"{name} must be a runtime that has a form of its own (`form`, `convert`), but has none.")
    return found


def _refuse(run: Run) -> None:
    if not run.done("certificate"):
        raise RunError(f"{run.path} must be a finished run, but has no certificate. Run the same `sartor fit` again.")
    if (run.path / Signature.NAME).is_file():
        raise BadInput(
            f"{run.path} is signed, and its certificate would then tell of more: remove {Signature.NAME}, export, and "
            "sign it again."
        )


@contextmanager
def _folder(run: Path) -> Iterator[Path]:
    """A folder that takes the place of RUN/export when it is complete."""
    tmp, folder = Path(tempfile.mkdtemp(prefix=".export.", dir=run)), run / "export"
    old = tmp.with_name(f"{tmp.name}.old")
    try:
        tmp.chmod(0o755)
        yield tmp
        if folder.exists():
            os.replace(folder, old)
        os.replace(tmp, folder)
    finally:
        for left in (tmp, old):
            shutil.rmtree(left, ignore_errors=True)


def _made(
    run: Run, task: Task, kind: type[Runtime], deployed: Deployed, images: np.ndarray[Any, Any], folder: Path
) -> ExportedForm:
    """One form in `folder`, compared with the ONNX file."""
    name, precision = str(kind.form), "int8" if kind.int8 and (run.path / INT8).is_file() else "float32"
    source = run.path / (INT8 if precision == "int8" else "model/model.onnx")
    runtime = kind(batch=len(images))
    files = runtime.convert(source, deployed, images[:1], folder / name)
    expected = task.probabilities(OnnxModel(source).logits(images))
    off = float(np.abs(task.probabilities(runtime.run(files[0], images)) - expected).max())
    if not off < MOST[precision]:
        raise SartorError(f"{name} must agree with {source.name}, but a probability differs by {off:.3g}.")
    run.reporter.say(f"  {name} in {precision}: a probability differs by {off:.1e} at most on {len(images)} images")
    inside = [p.relative_to(folder).as_posix() for p in files]
    return ExportedForm(
        tuple(f"export/{name}" for name in inside), off, runtime.version(), sum(p.stat().st_size for p in files),
        runtime.name, precision, kind.imports, kind.call.replace("{file}", inside[0]),
    )  # fmt: skip


def _images(base: Run, data: object) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A hundred images of the run's data: test images, and where these are fewer, validation and training images."""
    splits = base.load(SplitsFile)
    given = read_toml(base.path / "config.toml").get("data") if data is None else data
    try:
        images = open_data(given, splits.task.image)
    except SartorError as error:
        raise BadInput(f"the images of the run are needed, to compare on them: give --data. {error}") from error
    if images.digest() != splits.digest:
        raise BadInput("the images must be those of the run, but have another digest: give --data.")
    index = np.asarray((*splits.test, *splits.val, *splits.train)[:_IMAGES], np.int64)
    return np.asarray(images.pixels(index).numpy(), np.float32)
