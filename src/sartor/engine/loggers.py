"""Where the curves of a training go beside the run's own files: thin loggers behind Lightning Fabric's interface.

A metric is named ``phase/metric`` and its step is the epoch. Nothing is opened before the first value; a run that goes
on after it was killed goes on in the same curves.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lightning_fabric.loggers.logger import Logger

from sartor.core.errors import BadInput, nearest, require

AUTO, NONE = "auto", "none"  # TensorBoard where it is installed; nowhere
_PROJECT = "sartor"


class Curves(Logger):
    """A place for the curves of the run at `path`; `package` is what it needs, an extra of the same name."""

    package: str

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def name(self) -> str:
        """Of the project."""
        return _PROJECT

    @property
    def version(self) -> str:
        """Of the run."""
        return self.path.name

    @abstractmethod
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """The values of one epoch of one phase."""

    def log_hyperparams(self, *given: Any, **named: Any) -> None:
        """Left out: config.toml has all options."""


class TensorBoard(Curves):
    """RUN/tensorboard, a folder a phase; likewise in the folder of a further budget."""

    package = "tensorboard"

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Written and closed at once; what a killed run wrote of this epoch and later ones is taken back."""
        from torch.utils.tensorboard import SummaryWriter

        for phase in dict.fromkeys(name.rpartition("/")[0] for name in metrics):
            place, _, own = phase.rpartition("/")  # a further budget has a folder of its own
            with SummaryWriter(str(self.path / place / "tensorboard" / own), purge_step=step) as writer:
                for name, value in metrics.items():
                    if name.rpartition("/")[0] == phase:
                        writer.add_scalar(name.rpartition("/")[2], value, step)


class MLflow(Curves):
    """A run of the experiment `sartor`, where MLFLOW_TRACKING_URI says."""

    package = "mlflow"

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """The id of MLflow's run is kept in RUN/mlflow_run."""
        client, kept = require("mlflow", "mlflow").MlflowClient(), self.path / "mlflow_run"
        if not kept.exists():
            known = client.get_experiment_by_name(self.name)
            experiment = client.create_experiment(self.name) if known is None else known.experiment_id
            kept.write_text(client.create_run(experiment, run_name=self.version).info.run_id, encoding="utf-8")
        for name, value in metrics.items():
            client.log_metric(kept.read_text(encoding="utf-8"), name, value, step=step)


class Wandb(Curves):
    """A run of the project `sartor` on Weights & Biases; WANDB_MODE=offline keeps it here."""

    package = "wandb"

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Every phase has its own epochs, so the epoch is a value and not the run's step."""
        wandb = require("wandb", "wandb")
        if wandb.run is None:
            key = hashlib.sha256(str(self.path.resolve()).encode()).hexdigest()[:16]
            wandb.init(project=self.name, name=self.version, dir=str(self.path), id=key, resume="allow")
        phases = dict.fromkeys(name.rpartition("/")[0] for name in metrics)
        wandb.log({**metrics, **{f"{phase}/epoch": step for phase in phases}})


LOGGERS: Mapping[str, type[Curves]] = {cls.package: cls for cls in (TensorBoard, MLflow, Wandb)}


def check_logger(name: str) -> str:
    """The name itself, where there is such a logger and its package."""
    names = (*LOGGERS, NONE, AUTO)
    if name not in names:
        raise BadInput(f"the logger must be one of {', '.join(names)}, but got {name!r}{nearest(name, names)}.")
    if name in LOGGERS:
        require(name, name)
    return name


def made_loggers(name: str, path: Path) -> list[Curves]:
    """What Fabric is given for the run at `path`."""
    if name == AUTO:
        name = TensorBoard.package if find_spec(TensorBoard.package) else NONE
    return [] if name == NONE else [LOGGERS[name](path)]
