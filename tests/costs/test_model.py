"""Prices of parts that were not timed: a planted law is found again, and the table says what it timed."""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
import torch

from sartor.core.task import Task
from sartor.costs.base import distinct
from sartor.costs.latency.cost import Latency, as_deployed
from sartor.costs.latency.model import Model, Traits, designed
from sartor.costs.layers import count
from sartor.deploy.runtimes.base import Runtime
from sartor.spaces.edge.space import Edge

TASK = Task(3, 32, 1)


@pytest.fixture(scope="module")
def traits():
    """Of the parts of two frames at a few widths."""
    found, space = {}, Edge(frames=("r24_s1_x3", "r32_s2_x3"), widths=(8, 16, 48), heads=(0, 256))
    for key, part in distinct(list(space.parts(TASK))).items():
        if part.kind:
            with torch.device("meta"):
                found[key] = Traits.of(part, count(part.build(), part.in_shape))
    return found


def planted(traits):
    """Milliseconds by a law of its own: rates, a factor for every kind, a bend in width, and a little noise."""
    rng = np.random.default_rng(0)
    kinds = {kind: np.exp(rng.normal(0, 0.3)) for kind in sorted({t.kind for t in traits.values()})}
    rates = np.array([0.02, 0.05, 0.02, 0.01, 0.1, 0.2])
    return {
        key: float(kinds[t.kind] * t.work @ rates * np.exp(0.1 * np.sin(t.place[3]) + rng.normal(0, 0.01)))
        for key, t in traits.items()
    }


def test_a_designed_sample_tells_the_prices_of_all_others(traits):
    law = planted(traits)
    sample = designed(traits, 100)
    assert len(sample) == len(set(sample)) < len(traits) / 2
    for kind in {t.kind for t in traits.values()}:
        mine = [k for k in sample if traits[k].kind == kind]
        assert len(mine) >= min(6, sum(t.kind == kind for t in traits.values()))
        heaviest = max((k for k in traits if traits[k].kind == kind), key=lambda k: traits[k].work.sum())
        assert heaviest in mine
    model = Model([traits[k] for k in sample], [law[k] for k in sample])
    others = [k for k in traits if k not in set(sample)]
    prices = model.prices([traits[k] for k in others])
    errors = np.abs([p.value / law[k] - 1 for p, k in zip(prices, others, strict=True)])
    assert np.median(errors) < 0.03
    assert np.quantile(errors, 0.95) < 0.15
    assert np.mean([p.low <= law[k] <= p.high for p, k in zip(prices, others, strict=True)]) > 0.9
    assert np.median(errors) < 4 * np.median(model.errors)  # what it says of itself is about right


def test_parts_that_take_no_measurable_time_do_no_harm(traits):
    keys = list(traits)[:40]
    prices = Model([traits[k] for k in keys], [0.0] * len(keys)).prices([traits[k] for k in keys])
    assert all(np.isfinite([p.low, p.value, p.high]).all() and 0 < p.value < 0.01 for p in prices)


@dataclass(frozen=True, kw_only=True)
class Planted(Runtime):
    """A device that takes what a law says, and a call besides."""

    exported: ClassVar[bool] = False

    def version(self):
        return "1"

    def prepare(self, model, pixels):
        layers = count(model, pixels.shape[1:]).layers
        ms = 0.01 + sum(n.macs * (5e-8 if n.grouped else 2e-8) + 2e-8 * n.outputs + 1e-3 for n in layers)
        return partial(float, ms)

    def time(self, call, seconds):
        return [call()]


def test_a_table_times_some_parts_of_every_kind_and_predicts_networks_from_all(tmp_path):
    space, task = Edge(frames=("r16_s1_x3",), widths=(8, 16, 48), heads=(0,)), Task(3, 16, 1)
    cost = Latency(runtime="test_model:Planted", rounds=3, networks=10, sample=1)
    table = cost.table(space, task, cache=tmp_path)
    parts, notes = distinct(list(space.parts(task))), table.calibration
    assert set(table.prices) == set(parts)
    assert notes["timed_parts"] + notes["inferred_parts"] == len(parts)
    assert notes["inferred_parts"] > len(parts) / 3
    assert 0 < notes["inferred_median_error"] < 0.05
    assert notes["spearman"] > 0.98
    assert notes["held_out_median_error"] < 0.02
    assert all(0 <= p.low <= p.value <= p.high for p in table.prices.values())
    arch = space.sample(np.random.default_rng(3))
    measured = cost.time(as_deployed(space, arch, task), (1, 16, 16)).p50
    assert table.form(arch) == pytest.approx(measured, rel=0.1)
    ticks = []
    again = cost.table(space, task, tick=lambda *t: ticks.append(t), cache=tmp_path)
    assert ticks == []
    assert again.to_json() == table.to_json()
