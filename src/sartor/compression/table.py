"""Layer by layer: what the compression left, with multiply-accumulates and milliseconds before and after."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from sartor.compression.cut import Narrowing
from sartor.compression.given import Given
from sartor.compression.graph import inputs
from sartor.compression.structures import is_depthwise, layers
from sartor.deploy.targets.base import Build
from sartor.deploy.timing import interleaved, polished
from sartor.pipeline.cut import chosen
from sartor.runs.schema import BaselineFile, CompressionFile, TrainingFile, VerifyFile

_ROUNDS, _VISIT = 9, 0.002  # of the timing: rounds, seconds a visit


def layer_table(cut: Narrowing) -> list[str]:
    """Write compression.json."""
    job, run, plan = cut.context, cut.run, cut.space.plan(chosen(cut.run))
    before, after = _layers(job, cut.given().cpu()), _layers(job, cut.trained())
    times = _times(job, [*before.values(), *after.values()])
    rows: list[dict[str, Any]] = []
    for name, old in before.items():
        new = after.get(name)
        rows.append(
            {
                "layer": name,
                "kind": _kind(old[0]),
                "before": _entry(job, *old, times),
                "after": _entry(job, *new, times) if new is not None else None,
            }
        )
    totals = {
        when: {key: float(sum(r[when][key] for r in rows if r[when])) for key in ("weights", "nonzero", "macs", "ms")}
        for when in ("before", "after")
    }
    baseline, verified, training = run.load(BaselineFile), run.load(VerifyFile).costs, run.load(TrainingFile)
    run.record(CompressionFile, {
        "layers": rows, "totals": totals, "gone": list(plan.gone),
        "pixels": {layer: len(index) for layer, index in plan.selected.items()},
        "network": {n: {"kind": e.kind.to_json(), "before": e.measured, "after": verified[n].measured}
                    for n, e in baseline.costs.items()},
        "accuracy": {"before": baseline.test_accuracy, "after": training.test_accuracy,
                     "val_before": baseline.val_accuracy, "val_after": training.val_accuracy},
    })  # fmt: skip
    return ["compression.json"]


Placed = tuple[nn.Module, tuple[int, ...]]


def _layers(job: Given, net: nn.Module) -> dict[str, Placed]:
    """Every layer with the shape of its input; a layer that selects pixels counts with those it reads."""
    shapes, _ = inputs(net, job.example())
    found: dict[str, Placed] = {}
    for name, layer in layers(net).items():
        if name in shapes:
            shape = shapes[name]
            found[name] = (layer, (*shape[:-1], layer.in_features) if isinstance(layer, nn.Linear) else shape)
    return found


def _entry(job: Given, layer: Any, shape: Any, times: dict[str, float]) -> dict[str, Any]:
    weight = layer.weight
    outputs, entries = weight.shape[0], shape[-1] if isinstance(layer, nn.Linear) else shape[0]
    return {
        "in": int(entries),
        "out": int(outputs),
        "weights": int(weight.numel()),
        "nonzero": int((weight != 0).sum()),
        "macs": job.costs["macs"].of(_plain(layer), shape),
        "ms": times[_key(layer, shape)],
    }


def _plain(layer: Any) -> nn.Module:
    """The layer without its selection of inputs, which is no multiply-accumulate."""
    if type(layer) in (nn.Linear, nn.Conv2d):
        same: nn.Module = copy.deepcopy(layer)
        return same
    plain = nn.Linear(layer.in_features, layer.out_features, layer.bias is not None)
    plain.load_state_dict({k: v for k, v in layer.state_dict().items() if k != "inputs"})
    return plain


def _times(job: Given, placed: list[Placed]) -> dict[str, float]:
    """Milliseconds of every distinct layer alone under the deployment runtime, less those of doing nothing."""
    distinct = {_key(layer, shape): (layer, shape) for layer, shape in placed}
    builds: dict[str, Build] = {}
    for key, (layer, shape) in distinct.items():
        builds[key] = (partial(_plain, layer), shape)
        builds[f"idle {shape}"] = (nn.Identity, shape)
    with job.run.reporter.bar("timing layers", _ROUNDS) as bar, job.runtime().stopwatch(builds) as watch:
        rng = np.random.default_rng(0)
        times = polished(interleaved(watch, list(builds), _ROUNDS, _VISIT, rng, bar.to))
    return {
        k: max(0.0, float(np.median(times[k])) - float(np.median(times[f"idle {s}"]))) for k, (_, s) in distinct.items()
    }


def _key(layer: Any, shape: tuple[int, ...]) -> str:
    return f"{_kind(layer)} {tuple(layer.weight.shape)} {getattr(layer, 'stride', '')} {shape}"


def _kind(layer: nn.Module) -> str:
    if isinstance(layer, nn.Linear):
        return "linear"
    assert isinstance(layer, nn.Conv2d)
    size = "x".join(map(str, layer.kernel_size))
    return f"{'depthwise' if is_depthwise(layer) else 'conv'} {size}"
