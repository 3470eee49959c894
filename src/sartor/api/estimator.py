"""A classifier of images as scikit-learn has classifiers: in pipelines, in grids, under `cross_val_score`."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sartor.api.result import Result, load
from sartor.api.run import Amount, Device, Effort, Group, Precision
from sartor.core.errors import BadInput, RunError, require
from sartor.runs.directory import Run
from sartor.runs.schema import SplitsFile

require("sklearn", "sklearn")
from sklearn.base import BaseEstimator, ClassifierMixin  # noqa: E402 - the message above says what to install
from sklearn.utils.multiclass import check_classification_targets  # noqa: E402
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d  # noqa: E402

if TYPE_CHECKING:
    from sartor.deploy.runtimes.base import Runtime
    from sartor.methods.base import Method
    from sartor.solvers.base import Solver
    from sartor.spaces.base import Space

Pixels = NDArray[np.uint8]
_TAKEN = ".taken"  # a file in the folder of a fit


def _free(folder: Path, digest: str) -> bool:
    """Whether a folder is nobody's, which it then is no more, or holds an unfinished run of the images, left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "config.toml").exists():
        with contextlib.suppress(FileExistsError):
            (folder / _TAKEN).open("x").close()  # several processes fit at a time
            return True
    try:
        run = Run(folder)
        with run.locked():
            return not run.done("certificate") and run.load(SplitsFile).digest == digest
    except RunError:
        return False


class SartorClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc] # scikit-learn has no types
    """The best network inside the budgets for arrays of images; the options are those of `sartor.fit`.

    Images are (N, H, W), (N, H, W, 1 or 3) or (N, 1 or 3, H, W), or (N, features) where a row is a square image, grey
    or of three colours in its last place, as scikit-learn flattens them. Values of another type than uint8 are scaled
    so that those of the training images span 0 to 255.

    Each `fit` makes a run directory: `out`, or `out-2`, `out-3` where that is another fit's, or, without `out`, one
    that lives as long as the classifier; `result_` opens it. A fit of the same images that was interrupted goes on.
    What `predict` needs is in `model_`, the bytes of an ONNX file, so that a fitted classifier can be copied and
    stored. With `quiet` nothing is printed; the run's log.txt tells the rest.
    """

    def __init__(
        self,
        *,
        latency: Amount | Mapping[str, Amount] | None = None,
        params: Amount | None = None,
        macs: Amount | None = None,
        memory: Amount | None = None,
        budgets: Mapping[str, Amount] | None = None,
        method: str | Group | Method | type[Method] | None = None,
        space: str | Group | Space | type[Space] | None = None,
        costs: Any = None,
        solver: str | Group | Solver | type[Solver] | None = None,
        runtime: str | Runtime | type[Runtime] | None = None,
        target: str | Mapping[str, str] | None = None,
        start: str | Path | None = None,
        precision: Precision | None = None,
        time: str | float | None = None,
        effort: Effort | None = None,
        device: Device | None = None,
        threads: int | None = None,
        batch: int | None = None,
        image: int | None = None,
        seed: int | None = None,
        val: float | None = None,
        test: float | None = None,
        train: Group | None = None,
        devices: int | None = None,
        nodes: int | None = None,
        logger: str | None = None,
        out: str | Path | None = None,
        quiet: bool = True,
    ) -> None:
        for name, value in locals().items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.non_deterministic = True  # with a time the machine decides how long is trained
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Search, train and export; a fifth of the images and more is kept aside to decide and to test by."""
        from sartor.data.sources.arrays import from_arrays
        from sartor.deploy.export import deployed_file
        from sartor.pipeline.options import from_mapping
        from sartor.pipeline.order import fit
        from sartor.runs.progress import Reporter

        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        array = check_array(X, allow_nd=True, dtype=None)
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        check_consistent_length(array, labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        self.n_features_in_ = int(np.prod(array.shape[1:]))
        self.range_ = (0.0, 255.0) if array.dtype == np.uint8 else (float(array.min()), float(array.max()))
        names = [str(c) for c in self.classes_.tolist()]
        images = from_arrays(self._pixels(array), numbers, classes=names, name="arrays", image=self.image)
        given = {k: v for k, v in self.get_params(deep=False).items() if k not in ("out", "quiet") and v is not None}
        limits = {name: given.pop(name) for name in ("latency", "params", "macs", "memory") if name in given}
        values = {"data": images, "budgets": limits | dict(given.pop("budgets", {})), **given}
        if "start" in values:
            values["start"] = str(values["start"])
        self.run_ = fit(from_mapping(values), self._folder(images.digest()), Reporter(silent=self.quiet))
        self.certificate_ = self.result_.certificate
        self.model_ = deployed_file(self.run_).read_bytes()
        return self

    @property
    def result_(self) -> Result:
        """The run of the last `fit`, while its folder is there."""
        check_is_fitted(self)
        return load(self.run_, trust_code=True)

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of every image."""
        chances = self.predict_proba(X)
        return np.asarray(self.classes_[chances.argmax(1)])

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """Of every image, the probability of every class in the order of `classes_`, calibrated."""
        from sartor.core.task import Task
        from sartor.data.sources.arrays import as_tensor, fit_square
        from sartor.deploy.export import OnnxModel

        check_is_fitted(self)
        array = check_array(X, allow_nd=True, dtype=None)
        if np.prod(array.shape[1:]) != self.n_features_in_:
            raise BadInput(
                f"X has {int(np.prod(array.shape[1:]))} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input: images of the size that it was trained on."
            )
        model = OnnxModel(self.model_)
        pixels = fit_square(as_tensor(self._pixels(array), "X"), model.shape[-1]).numpy()
        parts = [model.logits(pixels[n : n + 256]) for n in range(0, len(pixels), 256)]
        return Task(len(self.classes_), model.shape[-1], model.shape[0]).probabilities(
            np.concatenate(parts) / np.float32(model.temperature)
        )

    def _pixels(self, array: NDArray[Any]) -> Pixels:
        """Values 0 to 255, rows folded to squares."""
        if array.ndim == 2:
            side, grey = int(np.sqrt(array.shape[1])), int(np.sqrt(array.shape[1] / 3))
            if side * side != array.shape[1] and 3 * grey * grey != array.shape[1]:
                raise BadInput(
                    f"rows must be square images, grey or of three colours, but have {array.shape[1]} features. Give "
                    "images as (N, H, W) or (N, H, W, 3)."
                )
            array = array.reshape((-1, side, side) if side * side == array.shape[1] else (-1, grey, grey, 3))
        if array.dtype == np.uint8:
            return array
        low, high = self.range_
        self._check_values(array, low, high)
        return np.rint((array.astype(np.float64).clip(low, high) - low) * (255 / ((high - low) or 1))).astype(np.uint8)

    def _check_values(self, array: NDArray[Any], low: float, high: float) -> None:
        """Refuse values of another scale than the training images', which would all become about the same."""
        values = array.astype(np.float64)
        fractions = low == 0 and high == 255 and values.min() >= 0 and values.max() <= 1 and (values % 1 > 0).any()
        if fractions or np.mean((values < low) | (values > high)) > 0.5:
            raise BadInput(
                f"X must have values like those of the training images, {low:g} to {high:g}, but they range from "
                f"{values.min():g} to {values.max():g}. Scale them as those were."
            )

    def _folder(self, digest: str) -> Path:
        """A folder of this fit's own: a new one, or that of an interrupted fit of the same images."""
        if self.out is not None:
            first = Path(self.out)
            names = (first.with_name(f"{first.name}-{n}") for n in count(2))
            return next(folder for folder in chain([first], names) if _free(folder, digest))
        folder = Path(tempfile.mkdtemp(prefix="sartor-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return folder / "run"

    def _repr_html_(self) -> str:
        """In a notebook: the result, once there is one."""
        shown: str = self.result_._repr_html_() if hasattr(self, "run_") else super()._repr_html_()
        return shown
