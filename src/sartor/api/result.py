"""What a fit returns and `load` opens: the chosen network with everything known about it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sartor.core.arch import Arch
from sartor.core.errors import BadInput, RunError
from sartor.core.task import MultiLabel, Task
from sartor.runs.codec import decode, encode, to_file
from sartor.runs.directory import Run, read_file, refuse_links
from sartor.runs.schema import Certificate, FrontierFile, Preprocessing, ScoreFile, SolutionFile
from sartor.solvers.base import Frontier

if TYPE_CHECKING:
    from torch import nn

    from sartor.costs.base import CostTable


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

    @cached_property
    def arch(self) -> Arch:
        """The chosen architecture."""
        self._checked("solve")
        return self._run.load(SolutionFile).arch

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
        """The trained PyTorch network; its input is normalised images (see preprocessing.json)."""
        from sartor.compression.given import reopen

        self._checked("export")
        return reopen(self.path, trusted=self._trusted)

    def predict(self, images: str | Path | Sequence[str | Path] | np.ndarray) -> list[dict[str, Any]]:
        """Classes with probabilities, best first, from the exported model; of several labels an image, all above half.

        `images` are files, or pixels 0..255 as an array (N, C, S, S).
        """
        if isinstance(images, (str, Path)):
            images = [images]
        if not len(images):
            return []
        found: list[dict[str, Any]] = []
        logits = self._onnx.logits(self._pixels(images))
        if logits.shape[1:] != (len(self.labels),):
            raise RunError(f"{self.path}/model: {len(self.labels)} labels do not fit outputs of {logits.shape[1:]}.")
        for row in self.task.probabilities(logits):
            chances = {self.labels[k]: float(row[k]) for k in np.argsort(-row)}
            found.append({"label": next(iter(chances)), "probabilities": chances})
            if isinstance(self.task, MultiLabel):
                found[-1]["labels"] = [label for label, chance in chances.items() if chance > 0.5]
        return found

    def explain(self) -> dict[str, Any]:
        """Why: what every design decision adds to the score and costs, with errors, and rules in plain words.

        ``shadow_prices``: along the frontier, what one more unit of the first budget would buy.
        """
        from sartor.insight.explain import explain, shadow_prices
        from sartor.insight.factors import drawn
        from sartor.spaces.drawing import Drawing

        self._checked("solve")
        Run(self._search).done("search")
        path = self._search / ScoreFile.NAME
        learnt, given = read_file(path, ScoreFile).checked(path), self._run.load(SolutionFile).drawing
        self.arch.check(learnt.score.sizes, str(self.path / SolutionFile.NAME))
        costs = {name: table.form.around(self.arch) for name, table in self.tables.items()}
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
        return self.path if (self.path / ScoreFile.NAME).is_file() else self.path.parent.parent

    @cached_property
    def _onnx(self) -> Any:
        from sartor.deploy.export import OnnxModel

        self._checked("export")
        return OnnxModel(self.path / "model/model.onnx")

    def _pixels(self, images: Sequence[str | Path] | np.ndarray) -> np.ndarray:
        side, channels = self.preprocessing.image, self.preprocessing.channels
        if isinstance(images, np.ndarray):
            if images.ndim != 4 or images.shape[1:] != (channels, side, side):
                raise BadInput(f"images must have shape (N, {channels}, {side}, {side}), but have {images.shape}.")
            return images
        from sartor.data.picture import Unusable, square

        decoded = []
        for name in images:
            if not Path(name).is_file():
                raise BadInput(f"{name} must be an image file, but there is no such file.")
            try:
                decoded.append(np.asarray(square(Path(name), side, channels), np.float32))
            except Unusable as error:
                raise BadInput(f"{name} must be a readable image, but {error}.") from error
        return np.stack(decoded)

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
