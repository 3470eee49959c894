"""What a fit returns and `load` opens: the chosen network with everything known about it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sartor.core.arch import Arch
from sartor.core.errors import BadInput, RunError, nearest
from sartor.core.task import Labels, MultiLabel, Task
from sartor.runs.codec import decode, encode, to_file
from sartor.runs.directory import Run, read_file, refuse_links, search_of
from sartor.runs.schema import Certificate, EvaluationFile, FrontierFile, Preprocessing, ScoreFile, SolutionFile
from sartor.solvers.base import Frontier

if TYPE_CHECKING:
    from torch import nn

    from sartor.costs.base import CostTable
    from sartor.data.base import Images


_BATCH = 64  # images that are decoded and classified at a time


class Result:
    """A finished run, or one of its further budgets (``runs/a/cuts/latency-3ms``)."""

    def __init__(self, path: str | Path, trust_code: bool = False) -> None:
        self.path, self._trusted = Path(path), trust_code
        if not self.path.is_dir():
            raise RunError(f"{self.path} must be a run directory made by `sartor fit`, but there is no such folder.")
        if not (self.path / "solution.json").is_file():
            raise RunError(
                f"{self.path} holds no finished network. Run `sartor fit` with --out {self.path} to its end."
            )
        refuse_links(self.path)
        self._run = Run(self.path)

    def __repr__(self) -> str:
        return f"Result({str(self.path)!r})"

    def _repr_html_(self) -> str:
        """In a notebook: certificate, frontier, confusion matrix."""
        from sartor.report.notebook import frame

        return frame(self.path)

    @cached_property
    def arch(self) -> Arch:
        """The chosen architecture."""
        return self.solution.arch

    @cached_property
    def solution(self) -> SolutionFile:
        """The decision: the chosen network, its costs as predicted, its score and the bound that proves it."""
        self._checked("solve")
        return self._run.load(SolutionFile)

    @cached_property
    def certificate(self) -> dict[str, Any]:
        """What was asked, delivered, measured and proven, as plain data."""
        return to_file(self.certified)

    @cached_property
    def certified(self) -> Certificate:
        """What was asked, delivered, measured and proven."""
        self._checked("certificate")
        return self._run.load(Certificate)

    @cached_property
    def frontier(self) -> Frontier:
        """Every optimal trade-off."""
        return Frontier.from_json(encode(self.trade_offs))

    @cached_property
    def trade_offs(self) -> FrontierFile:
        """The frontier as data: every point with all its costs and its architecture."""
        self._checked("solve")
        if FrontierFile.NAME not in self._run.stages()["solve"].files:
            raise RunError(f"{self.path} has no frontier: the budget of a compression decides its rounds.")
        return self._run.load(FrontierFile)

    @cached_property
    def tables(self) -> dict[str, CostTable]:
        """The cost tables of the search."""
        from sartor.costs.base import CostTable

        Run(self._search).done("costs")
        return {p.stem: read_file(p, CostTable) for p in sorted((self._search / "costs").glob("*.json"))}

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The classes' names, in the order of the model's outputs."""
        return self.preprocessing.labels

    @cached_property
    def task(self) -> Task:
        """What the network is for: classes, one or several labels an image, the images' shape."""
        known = self.preprocessing
        return known.task or Task(len(known.labels), known.image, known.channels)

    @cached_property
    def model(self) -> nn.Module:
        """The trained PyTorch network; it takes normalised images, one view of each (see preprocessing.json)."""
        from sartor.compression.given import reopen

        self._checked("export")
        return reopen(self.path, trusted=self._trusted)

    def predict(self, images: str | Path | Sequence[str | Path] | np.ndarray) -> list[dict[str, Any]]:
        """Classes with probabilities, best first, from the exported model; of several labels an image, all above half.

        `images` are files, folders of them at any depth, or pixels 0..255 as an array (N, C, S, S). A file of a folder
        that cannot be read has an ``error`` instead.
        """
        self._checked("export")  # a damaged model is told before a missing image
        if isinstance(images, np.ndarray):
            return [self._answer(row) for row in self.probabilities(self._checked_pixels(images))]
        found: list[dict[str, Any]] = []
        for start in range(0, len(listed := self._listed(images)), _BATCH):
            read = [(name, self._read(name, inside)) for name, inside in listed[start : start + _BATCH]]
            pixels = [given for _, given in read if not isinstance(given, str)]
            rows = iter(self.probabilities(np.stack(pixels)) if pixels else ())
            for name, given in read:
                told = {"error": given} if isinstance(given, str) else self._answer(next(rows))
                found.append({"image": str(name), **told})
        return found

    def probabilities(self, pixels: np.ndarray) -> np.ndarray:
        """What the exported model says of pixels 0..255, float32 (N, C, S, S): a row of probabilities an image."""
        parts = [self._onnx.logits(pixels[n : n + _BATCH]) for n in range(0, len(pixels), _BATCH)]
        logits = np.concatenate(parts) if parts else np.zeros((0, len(self.labels)), np.float32)
        if logits.shape[1:] != (len(self.labels),):
            raise RunError(f"{self.path}/model: {len(self.labels)} labels do not fit outputs of {logits.shape[1:]}.")
        return self.task.probabilities(np.asarray(logits / self._onnx.temperature, np.float32))

    def _answer(self, row: np.ndarray) -> dict[str, Any]:
        chances = {self.labels[k]: float(row[k]) for k in np.argsort(-row)}
        told: dict[str, Any] = {"label": next(iter(chances)), "probabilities": chances}
        if isinstance(self.task, MultiLabel):
            told["labels"] = [label for label, chance in chances.items() if chance > 0.5]
        return told

    @cached_property
    def evaluation(self) -> EvaluationFile:
        """What the network gets right of the test images: classes, confusions, calibration, the worst mistakes."""
        kind = EvaluationFile.deployed(self.path)
        self._checked("train" if kind is EvaluationFile else "export")
        return self._run.load(kind).checked(self.path / kind.NAME)

    def evaluate(self, data: object) -> EvaluationFile:
        """The same of other images with labels, by the exported model.

        `data` as for `fit`; its own test images where it brings some (``test/`` beside ``train/``), else all of it.
        Its classes must be among the model's.
        """
        from torch import from_numpy

        from sartor.data.open import open_data
        from sartor.engine.judgement import judged, reliability

        images = open_data(data, self.task.image, whole=True)
        truth = from_numpy(self._numbered(images))
        index = np.arange(len(images)) if images.test is None else images.test
        parts = [self._onnx.logits(images.pixels(index[n : n + _BATCH]).numpy()) for n in range(0, len(index), _BATCH)]
        logits, divisor = from_numpy(np.concatenate(parts)), self._onnx.temperature
        trust = reliability(self.task, logits, logits / divisor, truth[index], divisor, "the run")
        return judged(logits, truth[index], images, index, self.task, self.labels, trust)

    def _numbered(self, images: Images) -> Labels:
        """The labels of other images as this model numbers its classes."""
        if images.task.kind != self.task.kind or images.task.channels != self.task.channels:
            wanted, given = (f"{t.kind} images of {t.channels} channels" for t in (self.task, images.task))
            raise BadInput(f"{images.name} must hold {wanted}, as the model was trained on, but holds {given}.")
        strange = [name for name in images.class_names if name not in self.labels]
        if strange:
            near = nearest(strange[0], self.labels)
            raise BadInput(
                f"{images.name} must hold classes of the model, but has {', '.join(map(repr, strange[:5]))}{near}. "
                f"The model knows {', '.join(self.labels[:20])}."
            )
        where = np.array([self.labels.index(name) for name in images.class_names], np.int64)
        if images.labels.ndim == 1:
            return where[images.labels]
        rows = np.zeros((len(images), len(self.labels)), np.float32)
        rows[:, where] = images.labels
        return rows

    def explain(self) -> dict[str, Any]:
        """Why: what every design decision adds to the score and costs, with errors, and rules in plain words.

        ``shadow_prices``: along the frontier, what one more unit of the first budget would buy.
        """
        from sartor.insight.explain import explain, shadow_prices
        from sartor.insight.factors import drawn
        from sartor.spaces.drawing import Drawing

        given = self.solution.drawing
        Run(self._search).done("search")
        path = self._search / ScoreFile.NAME
        learnt = read_file(path, ScoreFile).checked(path)
        self.arch.check(learnt.score.sizes, str(self.path / SolutionFile.NAME))
        costs = {name: table.form.around(self.arch) for name, table in self.tables.items() if table.form.sums}
        drawing = decode(Drawing, given or {}, f"{SolutionFile.NAME}: drawing")
        found = explain(learnt.explained.around(self.arch), learnt.choices, costs, parse=drawn(drawing))
        return {**found, "shadow_prices": shadow_prices(self.frontier)}

    @cached_property
    def preprocessing(self) -> Preprocessing:
        """What happens to an image before the exported network, and what its outputs mean."""
        self._checked("export")
        return self._run.load(Preprocessing)

    @property
    def _search(self) -> Path:
        """The folder of the search: this one, or that which this is a further budget of."""
        return search_of(self.path)

    @cached_property
    def _onnx(self) -> Any:
        from sartor.deploy.export import OnnxModel, deployed_file

        self._checked("export")
        return OnnxModel(deployed_file(self.path))

    def _checked_pixels(self, images: np.ndarray) -> np.ndarray:
        side, channels = self.preprocessing.image, self.preprocessing.channels
        if images.ndim != 4 or images.shape[1:] != (channels, side, side):
            raise BadInput(f"images must have shape (N, {channels}, {side}, {side}), but have {images.shape}.")
        return images

    def _listed(self, images: str | Path | Sequence[str | Path]) -> list[tuple[Path, bool]]:
        """Every image file that was named, or that a named folder holds, and which of the two."""
        from sartor.data.sources.folder import images_under

        found: list[tuple[Path, bool]] = []
        for path in map(Path, [images] if isinstance(images, (str, Path)) else images):
            if path.is_dir():
                inside = sorted(images_under(path, None, []), key=os.fsencode)
                if not inside:
                    raise BadInput(f"{path} must hold images, but none was found in it. Check the path.")
                found += [(file, True) for file in inside]
            elif path.is_file():
                found.append((path, False))
            else:
                raise BadInput(f"{path} must be an image file or a folder of them, but there is no such file.")
        return found

    def _read(self, path: Path, inside: bool) -> np.ndarray | str:
        """The pixels of an image; of a broken file inside a folder the reason, where a named one is refused."""
        from sartor.data.picture import Unusable, square

        try:
            return np.asarray(square(path, self.preprocessing.image, self.preprocessing.channels), np.float32)
        except Unusable as error:
            if inside:
                return str(error)
            raise BadInput(f"{path} must be a readable image, but {error}.") from error

    def _checked(self, stage: str) -> None:
        """Refuse files that are missing or were changed after they were written."""
        if not self._run.done(stage):
            raise RunError(f"{self.path} is not finished: the stage '{stage}' is missing. Run the same command again.")


def load(path: str | Path, trust_code: bool = False) -> Result:
    """Open a finished run directory.

    It is data: where its files name code from outside Sartor (a space of one's own, the factory of a compressed
    network), `Result.model` imports that only if `trust_code` says that it may.
    """
    return Result(path, trust_code)
