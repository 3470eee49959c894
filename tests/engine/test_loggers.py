"""Where curves go: the same values for every logger, and a run that goes on goes on in the same curves."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import tiny
from torch import nn

from sartor.core.errors import BadInput, MissingDependency
from sartor.engine.device import Engine
from sartor.engine.fit import Training, fit
from sartor.engine.loggers import LOGGERS, Curves, made_loggers
from sartor.engine.recipe import Recipe
from sartor.pipeline.options import from_mapping

EPOCHS = [{"final/loss": 2.0, "final/accuracy": 10.0}, {"final/loss": 1.5, "final/accuracy": 40.0}]


def logged(name, path):
    """Two epochs, each by a process of its own as far as the logger can tell."""
    for epoch, values in enumerate(EPOCHS, start=1):
        Engine(loggers=made_loggers(name, path)).fabric.log_dict(values, step=epoch)


def test_tensorboard_has_a_folder_a_phase(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    logged("auto", tmp_path)
    found = EventAccumulator(str(tmp_path / "tensorboard/final"))
    found.Reload()
    assert [(e.step, e.value) for e in found.Scalars("loss")] == [(1, 2.0), (2, 1.5)]
    assert [e.value for e in found.Scalars("accuracy")] == [10.0, 40.0]


def test_mlflow_goes_on_in_the_same_run(tmp_path, monkeypatch):
    runs, experiments = {}, {}

    class Client:
        def get_experiment_by_name(self, name):
            return experiments.get(name)

        def create_experiment(self, name):
            experiments[name] = SimpleNamespace(experiment_id="7")
            return "7"

        def create_run(self, experiment, run_name):
            runs[f"{experiment}-{run_name}-{len(runs)}"] = []
            return SimpleNamespace(info=SimpleNamespace(run_id=list(runs)[-1]))

        def log_metric(self, run, name, value, step):
            runs[run].append((name, value, step))

    module = ModuleType("mlflow")
    module.MlflowClient = Client
    monkeypatch.setitem(sys.modules, "mlflow", module)
    logged("mlflow", tmp_path)
    assert runs == {f"7-{tmp_path.name}-0": [(n, v, e) for e, row in enumerate(EPOCHS, 1) for n, v in row.items()]}


def test_wandb_is_told_the_epoch_of_the_phase(tmp_path, monkeypatch):
    module, begun, told = ModuleType("wandb"), [], []
    module.run, module.log = None, told.append
    module.init = lambda **options: (begun.append(options), setattr(module, "run", options))
    monkeypatch.setitem(sys.modules, "wandb", module)
    logged("wandb", tmp_path)
    assert told == [{**row, "final/epoch": epoch} for epoch, row in enumerate(EPOCHS, 1)]
    module.run = None
    logged("wandb", tmp_path)
    assert begun[0] == begun[1]  # another process goes on with the same id
    assert (begun[0]["project"], begun[0]["name"], begun[0]["resume"]) == ("sartor", tmp_path.name, "allow")


def test_a_logger_that_is_not_there_is_refused_before_anything_is_opened(monkeypatch):
    with pytest.raises(BadInput, match=r"tensorboard, mlflow, wandb, none.*'wandbb'"):
        from_mapping({"data": "digits", "logger": "wandbb"})
    for name in LOGGERS:
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingDependency, match=rf"sartor\[{name}\]"):
            from_mapping({"data": "digits", "logger": name})
    chosen = from_mapping({"data": "digits", "logger": "none"})
    assert "logger" not in chosen.to_mapping()  # another one does not make another run
    assert made_loggers("none", "runs/a") == []


class _Unreachable(Curves):
    package = "nowhere"

    def log_metrics(self, metrics, step=None):
        raise OSError(f"no route for {', '.join(metrics)}")


def test_a_service_that_fails_costs_the_curves_and_not_the_training(tmp_path, monkeypatch):
    job, said = tiny.job(tmp_path), []
    monkeypatch.setattr(job.run.reporter, "say", said.append)
    job.engine.fabric._loggers = [_Unreachable(tmp_path)]
    net = job.engine.place(
        nn.Sequential(nn.Flatten(), nn.Linear(job.task.channels * job.task.image**2, job.task.classes))
    )
    recipe = Recipe(epochs=1, batch=12, lr=0.05, augment="light")
    loss = lambda x, y, rng: {"loss": job.task.loss(net(x), y, 0.0)}  # noqa: E731
    history = fit(Training("phase", net, loss, recipe, job.feed, job.splits.train, job.run.sub("cuts/a")))
    assert len(history) == 1
    (told,) = (line for line in said if "curves" in line)
    assert told.startswith("  the curves of epoch 1 could not be logged: no route for cuts/a/phase/loss")
