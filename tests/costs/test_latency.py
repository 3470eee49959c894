"""Structure, arithmetic and caching; nothing here depends on how busy the machine is."""

import json

import numpy as np
import pytest
import torch
from own import Own
from torch import nn

from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.core.units import TIME
from sartor.costs.base import CostTable, Occasion, Price
from sartor.costs.latency import cost
from sartor.costs.latency.cache import PriceBook
from sartor.costs.latency.cost import Latency, as_deployed
from sartor.deploy import probe
from sartor.deploy.runtimes.onnxruntime import OnnxRuntime
from sartor.deploy.timing import Timing
from sartor.spaces.mobile.space import Mobile

pytest.importorskip("onnxruntime")
TASK = Task(10, 8, 1)
IMAGE = (1, 8, 8)
SPACE = Mobile(preset="tiny")
QUICK = Latency(rounds=3, visit_ms=0.3, networks=2, verify_s=0.05)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def table(folder):
    return QUICK.table(SPACE, TASK, cache=folder)


def test_table_prices_every_part_and_whole_networks(table):
    assert set(table.prices) == {p.key for p in SPACE.parts(TASK)}
    assert all(0 <= p.low <= p.value <= p.high for p in table.prices.values())
    assert table.form(SPACE.heaviest) > 2 * table.form(SPACE.smallest) > 0
    assert table.kind is TIME
    assert table.device["runtime"] == "onnxruntime"
    assert table.device["threads"] == 1
    notes = table.calibration
    assert len(notes["networks"]) == len(notes["measured_ms"]) == len(notes["held_out_errors"]) == 4
    assert notes["measured_ms"][1] > 2 * notes["measured_ms"][0]
    assert notes["reference_ms"] > 0
    assert notes["corrections"] == []


def test_form_is_the_intercept_and_the_sum_of_the_prices(table):
    present = [p for p in SPACE.parts(TASK) if all(SPACE.smallest.picks[i] == o for i, o in p.when)]
    total = table.calibration["intercept_ms"] + sum(table.prices[p.key].value for p in present)
    assert table.form(SPACE.smallest) == pytest.approx(total, rel=1e-9)


def test_table_survives_json(table):
    again = CostTable.from_json(json.loads(json.dumps(table.to_json())))
    assert again.prices == dict(table.prices)
    assert again.form(SPACE.heaviest) == table.form(SPACE.heaviest)


def test_second_table_comes_from_the_cache(table, folder):
    ticks = []
    again = QUICK.table(SPACE, TASK, tick=lambda *t: ticks.append(t), cache=folder)
    assert ticks == []  # nothing was built or measured
    assert again.to_json() == table.to_json()


def test_more_rounds_are_not_served_from_fewer(table, folder):
    thorough = Latency(rounds=4, visit_ms=0.0, networks=1)
    ticks = []
    thorough.table(SPACE, TASK, tick=lambda *t: ticks.append(t), cache=folder)
    assert ("latency: measure", 4, 4) in ticks


def test_a_pricing_that_is_killed_again_and_again_comes_to_its_end(tmp_path, monkeypatch):
    """Each attempt makes a few visits more; none that was written down is made again."""
    rng, visits, built = np.random.default_rng(0), [], []

    def time(self, call, seconds):
        visits.append(call)
        if len(visits) % 150 == 0:
            raise KeyboardInterrupt
        return [float(rng.uniform(1, 2))]

    monkeypatch.setattr(OnnxRuntime, "workload", lambda self, model, shape: built.append(shape))
    monkeypatch.setattr(OnnxRuntime, "time", time)
    monkeypatch.setattr("sartor.costs.latency.cache._SAVE_EVERY", -1.0)
    made, kills = None, 0
    while made is None:
        try:
            made = QUICK.table(SPACE, TASK, cache=tmp_path)
        except KeyboardInterrupt:
            kills += 1
            assert len(list(tmp_path.glob("sitting-*.json"))) == 1
            assert kills < 100
    sitting = 1 + len(made.prices) + len({p.in_shape for p in SPACE.parts(TASK)}) + len(made.calibration["networks"])
    assert kills >= 2
    assert len(visits) == QUICK.rounds * sitting + kills
    assert len(built) < sitting * (kills + 1)  # workloads that have all their rounds are not built again
    assert not list(tmp_path.glob("sitting-*.json"))


def test_a_cache_that_cannot_be_written_ends_nothing(tmp_path):
    (tmp_path / "file").write_text("")
    book = PriceBook.open(tmp_path / "file" / "cache", QUICK.identity())
    book.reference_ms = 0.5
    book.save()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 1}', "[" * 100_000])
def test_a_damaged_cache_counts_as_empty(table, folder, tmp_path, text):
    name = next(folder.glob("latency-*.json")).name
    (tmp_path / name).write_text(text)
    book = PriceBook.open(tmp_path, QUICK.identity())
    assert book.prices == {}
    book.reference_ms, book.prices["a"] = 0.5, (Price(1.0, 0.5, 2.0), 7)
    book.save()
    again = PriceBook.open(tmp_path, QUICK.identity())
    assert again.known("a", 7) == Price(1.0, 0.5, 2.0)
    assert again.known("a", 8) is None
    assert again.known("b", 1) is None


@pytest.mark.parametrize("place", ["prices", "identity", "reference"])
def test_a_cache_with_impossible_content_counts_as_empty(table, folder, tmp_path, place):
    file = next(folder.glob("latency-*.json"))
    data = json.loads(file.read_text())
    if place == "prices":
        data["prices"][next(iter(data["prices"]))][0] = -1.0
    elif place == "identity":
        data["identity"]["threads"] = 64
    else:
        data["reference_ms"] = float("nan")
    (tmp_path / file.name).write_text(json.dumps(data))
    assert PriceBook.open(tmp_path, QUICK.identity()).prices == {}


def test_corrected_scales_everything_once_the_network_was_slower(table):
    arch = SPACE.smallest
    predicted = table.form(arch)
    slower = QUICK.correct(table, arch, 1.25 * predicted)
    assert slower.form(arch) == pytest.approx(1.25 * predicted)
    assert slower.form(SPACE.heaviest) == pytest.approx(1.25 * table.form(SPACE.heaviest))
    assert slower.calibration["corrections"][0]["factor"] == pytest.approx(1.25)
    twice = QUICK.correct(slower, arch, 2.5 * predicted)
    assert [c["factor"] for c in twice.calibration["corrections"]] == pytest.approx([1.25, 2.0])
    assert table.calibration["corrections"] == []


def test_corrected_ignores_a_faster_network_and_refuses_nonsense(table):
    predicted = table.form(SPACE.smallest)
    assert QUICK.correct(table, SPACE.smallest, 0.5 * predicted) is table
    faster = QUICK.correct(table, SPACE.smallest, 0.5 * predicted, both_ways=True)
    assert faster.form(SPACE.smallest) == pytest.approx(0.5 * predicted)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(BadInput):
            QUICK.correct(table, SPACE.smallest, wrong)


def test_corrected_adds_what_is_missing_where_the_table_predicts_nothing(table):
    """On a busy machine a tiny network's parts can be priced at nothing: that must not end a run."""
    nothing = CostTable("latency", "time", table.prices, table.form * 0.0)
    assert QUICK.correct(nothing, SPACE.smallest, 0.014).form(SPACE.smallest) == pytest.approx(0.014)


@pytest.mark.parametrize("runtime", ["onnxruntime", "torch"])
def test_measure_gives_a_timing_and_leaves_the_module_alone(runtime, table):
    threads = torch.get_num_threads()
    net = as_deployed(SPACE, SPACE.smallest, TASK).train()
    timing = Latency(runtime=runtime, verify_s=0.05).time(net, IMAGE, table)
    assert net.training
    assert torch.get_num_threads() == threads
    assert 0 < timing.low <= timing.p50 <= timing.high
    assert timing.p50 <= timing.p95
    assert timing.n == len(timing.samples) >= 40
    assert len(timing.rounds) == 20
    assert timing.drift is not None
    assert timing.drift > 0
    assert QUICK.of(net, IMAGE) > 0


def test_torch_runtime_makes_a_table():
    cost = Latency(runtime="torch", rounds=3, visit_ms=0.0, networks=1)
    table = cost.table(SPACE, TASK)
    assert min(table.form(SPACE.heaviest), table.form(SPACE.smallest)) > 0
    assert table.device["runtime"] == "torch"


def test_in_8_bits_parts_have_prices_of_their_own(tmp_path):
    space, small = Own(), QUICK.int8()
    tables = [cost.table(space, TASK, cache=tmp_path) for cost in (QUICK, small)]
    assert [t.precision for t in tables] == ["float32", "int8"]
    assert len(list(tmp_path.glob("latency-*.json"))) == 2  # prices of the two never mix
    one, other = (t.prices for t in tables)
    assert one.keys() == other.keys() and all(one[k] != other[k] for k in one if one[k].value > 0)
    assert [QUICK.in_precision(t.precision) for t in tables] == [QUICK, small]
    assert Latency(runtime="torch").int8() is None


def test_models_that_are_compared_are_timed_in_the_same_rounds(monkeypatch):
    seen, cost = [], Latency(verify_s=0.02, visit_ms=0.0)
    visit = OnnxRuntime.time
    monkeypatch.setattr(OnnxRuntime, "time", lambda self, call, s: (seen.append(call), visit(self, call, s))[1])
    found = cost.times({"one": nn.Conv2d(1, 4, 1), "other": nn.Conv2d(1, 4, 1)}, IMAGE)
    assert [len(t.rounds) for t in found.values()] == [20, 20]
    assert seen[:3] == seen[3:6] and len(set(map(id, seen))) == 3  # one, other, reference; and again
    assert found["one"].reference_ms == found["other"].reference_ms


def test_what_the_machine_was_like_is_told_with_what_it_took(monkeypatch):
    states = iter([{"mhz": 2000.0 - n, "slowed": 0.0} for n in range(100)])
    monkeypatch.setattr(probe, "state", lambda cores: next(states))
    told = Latency(verify_s=0.02, visit_ms=0.0, moments=1).measure(nn.Conv2d(1, 4, 1), IMAGE).details
    assert told["conditions"] == {"mhz": [1921.0, 2000.0], "slowed": [0.0, 0.0]}  # before and after 40 times
    monkeypatch.setattr(probe, "state", lambda cores: {})
    assert "conditions" not in Latency(verify_s=0.02, visit_ms=0.0).measure(nn.Conv2d(1, 4, 1), IMAGE).details


def test_a_batch_is_part_of_the_identity():
    assert Latency(batch=4).identity() != QUICK.identity()
    assert Latency(rounds=50).identity() == QUICK.identity()


@pytest.mark.parametrize(
    "options",
    [
        {"runtime": "tensorrt"},
        {"device": "tpu"},
        {"device": "cuda"},
        {"threads": 0},
        {"batch": 0},
        {"rounds": 1},
        {"networks": 0},
        {"verify_s": 0.0},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(BadInput):
        Latency(**options)


def test_missing_file_is_refused(tmp_path):
    with pytest.raises(BadInput, match="no such file"):
        QUICK.time(tmp_path / "none.onnx", IMAGE)
    (tmp_path / "bad.onnx").write_bytes(b"not a model")
    with pytest.raises(BadInput, match="ONNX"):
        QUICK.time(tmp_path / "bad.onnx", IMAGE)
    with pytest.raises(BadInput, match="module"):
        Latency(runtime="torch").time(tmp_path / "bad.onnx", IMAGE)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_cuda_without_a_gpu_is_refused():
    with pytest.raises(BadInput, match="GPU"):
        Latency(runtime="torch", device="cuda").table(SPACE, TASK)


def test_cheap_and_dear_archs_are_ordered(table):
    deep = Arch((2, 0, 0, 0, 0) * 5)
    assert table.form(SPACE.smallest) < table.form(deep) < table.form(SPACE.heaviest)


@pytest.mark.parametrize(("limit", "most", "looks"), [(None, 4, 1), (1.2, 4, 1), (1.0, 4, 3), (1.0, 2, 2), (1.0, 1, 1)])
def test_a_network_over_its_limit_waits_for_a_machine_as_fast_as_for_the_table(monkeypatch, limit, most, looks):
    """A machine that is a tenth slower is waited for only where that decides, and not after the last look."""
    moments = iter([(1.1, 1.10), (1.08, 1.08), (0.99, 1.0)])
    monkeypatch.setattr(cost, "_PAUSE", 0.0)

    def time(self, model, in_shape, table=None):
        p50, drift = next(moments)
        return Timing(p50, p50, p50, p50, 1, drift, drift)

    monkeypatch.setattr(Latency, "time", time)
    said = []
    found = Latency(moments=most).measure(nn.Identity(), (3, 8, 8), Occasion(limit=limit, say=said.append))
    assert len(said) == looks - 1
    assert found.value == (1.1, 1.08, 0.99)[looks - 1]


def test_nobody_waits_for_a_better_moment_where_there_is_no_time_for_it(monkeypatch):
    moments, asked = iter([(1.1, 1.5), (1.0, 1.4), (0.9, 1.3)]), []
    monkeypatch.setattr(cost, "_PAUSE", 0.0)

    def time(self, model, in_shape, table=None):
        p50, drift = next(moments)
        return Timing(p50, p50, p50, p50, 1, drift, drift)

    def wait(seconds):
        asked.append(seconds)
        return len(asked) < 2

    monkeypatch.setattr(Latency, "time", time)
    found = Latency(verify_s=0.2).measure(nn.Identity(), (3, 8, 8), Occasion(say=lambda _: None, wait=wait))
    assert (found.value, asked) == (1.0, [0.2, 0.2])
