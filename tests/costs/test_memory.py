"""Memory, size and energy: counted by hand, against the exhaustive optimum, and through a whole budget."""

import copy
import itertools
import json
import math
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from own import Own
from torch import nn

import sartor
from sartor.core.arch import Arch
from sartor.core.errors import BadInput, Infeasible
from sartor.core.quadratic import Largest, Quadratic, additive
from sartor.core.registry import COSTS, SPACES
from sartor.core.task import Task
from sartor.costs.base import CostTable, Occasion
from sartor.costs.energy import Counter, Energy
from sartor.costs.flash import Flash
from sartor.costs.latency.cost import as_deployed
from sartor.costs.lifetimes import peak
from sartor.costs.macs import Macs
from sartor.costs.peak import Peak
from sartor.costs.size import Size
from sartor.costs.sram import Sram
from sartor.deploy.memory import held
from sartor.deploy.module import INPUT, onnx_graph
from sartor.deploy.quantise import quantised
from sartor.pipeline import options
from sartor.solvers import solve
from sartor.solvers.base import Problem

TASK = Task(10, 16, 3)


class _Residual(nn.Module):
    """4 channels, widened to 8 and back, and the input again; `late` reads the input once more at the end."""

    def __init__(self, late=False):
        super().__init__()
        self.wide, self.norm, self.back, self.late = nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1), late

    def forward(self, x):
        y = self.back(torch.relu(self.norm(self.wide(x))))
        return torch.cat([x + y, x], 1) if self.late else x + y


def test_the_peak_by_hand():
    pixels = 5 * 5
    assert peak(nn.Sequential(nn.Conv2d(4, 8, 1), nn.BatchNorm2d(8), nn.ReLU()), (4, 5, 5)) == (4 + 8) * pixels
    assert peak(_Residual(), (4, 5, 5)) == (4 + 8 + 4) * pixels  # the sum writes over its first term
    assert peak(_Residual(late=True), (4, 5, 5)) == (4 + 4 + 8) * pixels
    assert peak(nn.Sequential(nn.Flatten(), nn.Linear(100, 3)), (4, 5, 5)) == 103  # a view takes no memory


@pytest.mark.parametrize("name", ["mobile", "edge"])
def test_of_a_chain_the_largest_part_is_the_peak(name):
    space = SPACES[name](**({"widths": (8,)} if name == "edge" else {})).fitted(TASK)
    table, rng = Sram().table(space, TASK), np.random.default_rng(0)
    assert isinstance(CostTable.from_json(table.to_json()).form, Largest)
    for arch in (space.heaviest, space.sample(rng), space.sample(rng)):
        assert table.form(arch) == Sram().of(space.network(arch, TASK), (3, 16, 16))


@pytest.mark.parametrize("name", ["mobile", "plain", "nasbench201"])
def test_the_peak_is_what_the_runtime_reports(name, tmp_path):
    """In the session that is deployed; and what lives at once in one that keeps no memory for later tensors."""
    runtime = pytest.importorskip("onnxruntime")
    task = Task(10, 24, 3)
    space = SPACES[name]().fitted(task)
    net = as_deployed(space, space.sample(np.random.default_rng(0)), task)
    reported, graph = {}, onnx_graph(net, (3, 24, 24))
    for lean in (False, True):
        options = runtime.SessionOptions()
        if lean:
            options.enable_mem_reuse = options.enable_mem_pattern = False
        options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
        run = runtime.InferenceSession(graph, options)
        for _ in range(3):
            run.run(None, {INPUT: np.zeros((1, 3, 24, 24), np.float32)})
        events = json.loads(Path(run.end_profiling()).read_text())
        nodes = [event["args"] for event in events if event["name"].endswith("_kernel_time")]
        if "mem_bytes_requested_in_use" not in nodes[0]:
            pytest.skip("this version of ONNX Runtime does not report memory")
        rest = int(nodes[0]["mem_bytes_requested_in_use"]) - int(nodes[0]["mem_requested_in_use_delta"])
        reported[lean] = max(int(node["mem_bytes_requested_in_use"]) for node in nodes) - rest
    found = Peak().measure(net, (3, 24, 24))
    assert found.value == pytest.approx(reported[False], rel=0.05)
    assert found.details == {"session": "as deployed", "alive": pytest.approx(reported[True], rel=0.05)}
    assert found.value >= found.details["alive"]


def test_the_optimum_inside_a_peak_is_that_of_all_networks():
    rng = np.random.default_rng(1)
    sizes = (2, 3, 3, 2)
    when = [((i, a),) for i in range(4) for a in range(sizes[i])]
    when += [((1, a), (2, b)) for a in range(3) for b in range(3)] + [((0, 1), (2, 1), (3, 0))]
    terms = [(w, float(rng.integers(1, 100))) for w in when]
    table = CostTable("peak", COSTS["peak"].kind, {}, additive(sizes, terms, max))
    score = Quadratic(sizes, 0.0, {i: rng.normal(size=n) for i, n in enumerate(sizes)})
    every = [Arch(p) for p in itertools.product(*map(range, sizes))]
    worst = {a: max(v for w, v in terms if all(a.picks[i] == o for i, o in w)) for a in every}
    assert all(table.form(a) == worst[a] for a in every)
    for high in sorted({*worst.values()}):
        best = max(score(a) for a in every if worst[a] <= high)
        assert solve(Problem(score, (table.limit(high),))).score == pytest.approx(best)
    with pytest.raises(Infeasible):
        solve(Problem(score, (table.limit(min(worst.values()) - 1),)))


def test_flash_size_and_the_table_of_energy(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 9, 5))
    assert Flash().of(net, (3, 5, 5)) == (8 * 27 + 8 * 8) + (8 * 9 * 5 + 5 * 8)
    (tmp_path / "model.onnx").write_bytes(b"1234")
    assert Size().measure(net, (3, 5, 5), Occasion(tmp_path / "model.onnx")).value == 4
    params = sum(p.numel() for p in net.parameters())
    assert Energy(mac_pj=2, byte_pj=3, source="table").of(net, (3, 5, 5)) == pytest.approx(
        (2 * Macs().of(net, (3, 5, 5)) + 3 * 4 * params) * 1e-9
    )


def test_in_8_bits_bytes_are_those_of_the_quantised_network(tmp_path):
    """Before there is a file as after, however alike the weights are that a network begins with."""
    space, images = SPACES["edge"]().fitted(TASK), np.random.default_rng(0).random((8, 3, 16, 16), np.float32) * 255
    net = as_deployed(space, space.sample(np.random.default_rng(1)), TASK).eval()
    shape, trained, files = (3, 16, 16), copy.deepcopy(net), {}
    for value in trained.parameters():
        nn.init.normal_(value, std=0.1)
    for precision, make in (("float32", lambda graph: graph), ("int8", lambda graph: quantised(graph, images))):
        files[precision] = tmp_path / precision
        files[precision].write_bytes(make(onnx_graph(trained, shape)))
        found = {n: COSTS[n]().in_precision(precision) for n in ("size", "peak", "memory", "energy")}
        for name in ("size", "peak"):
            real, before = (found[name].measure(net, shape, Occasion(f)).value for f in (files[precision], None))
            assert before == pytest.approx(real, rel=0.01), (name, precision)
            assert found[name].of(net, shape) == pytest.approx(real, rel=0.35)
        assert all(cost.table(Own(), TASK).precision == precision for cost in found.values())
    small, large = (onnx.load(files[n]).graph.initializer for n in ("int8", "float32"))
    weights = sum(math.prod(t.dims) for t in small if t.data_type == onnx.TensorProto.INT8 and len(t.dims) > 1)
    assert weights < found["memory"].of(net, shape) < 1.2 * weights < sum(len(t.raw_data) for t in large) / 3
    assert found["energy"].of(net, shape) < Energy(source="table").of(net, shape) / 3
    assert {n for n in COSTS.names() if COSTS[n]().int8()} == {*found, "latency"}


def test_energy_by_the_kernels_counter(tmp_path, monkeypatch):
    with pytest.raises(BadInput, match="energy_uj"):
        Energy(source="rapl", rapl=str(tmp_path))
    sockets = [tmp_path / name for name in ("intel-rapl:0", "intel-rapl:1")]
    for socket in (*sockets, tmp_path / "intel-rapl:0:0"):  # the last is a part of the first
        socket.mkdir()
        (socket / "max_energy_range_uj").write_text("1000000")
        (socket / "energy_uj").write_text("0")
    state = {"calls": 0}

    def reading(socket):
        return (999_950 + 70 * state["calls"]) % 1_000_000  # 70 uJ a call, and it begins again at once

    monkeypatch.setattr(Counter, "microjoules", staticmethod(reading))
    counter = Counter(tuple(sockets))
    assert counter.drawn(lambda: state.update(calls=state["calls"] + 1), 0.0) == pytest.approx(0.14)
    cost = Energy(rapl=f"{tmp_path}/intel-rapl:[0-9]", seconds=0.01, runtime="torch")
    assert cost._counter() == counter
    assert cost.measure(nn.Conv2d(1, 1, 1), (1, 2, 2)).details == {"source": "rapl"}
    assert cost.identity()["source"] == "rapl" and cost.identity()["processor"]


def test_the_energy_of_another_machine_is_not_read_from_this_ones_counter(tmp_path):
    (tmp_path / "energy_uj").write_text("0")
    options.from_mapping({"data": "digits", "budgets": {"energy": {"pi": "3mJ"}}, "target": {"pi": "ssh://pi"}})
    away = Energy(rapl=str(tmp_path), target="ssh://pi")
    assert away.measure(nn.Conv2d(1, 1, 1), (1, 2, 2)).details["source"] == "table"
    assert away.identity() == {}
    with pytest.raises(BadInput, match="read on this machine, but the target is ssh://pi"):
        Energy(source="rapl", rapl=str(tmp_path), target="ssh://pi")


def test_budgets_of_a_microcontroller(finished, tmp_path):
    run = finished.copy(tmp_path / "run")
    result = sartor.solve(
        run, budgets={"sram": "4KB", "flash": "60KB", "size": "1MB", "energy": "1J", "peak": "24KB"}, quiet=True
    )
    told = result.certificate["budgets"]
    assert all(told[name]["holds"] for name in ("sram", "flash", "size", "energy", "peak"))
    assert told["peak"]["measured"] == held(result.path / "model/model.onnx", (1, 8, 8)) <= 24_000
    assert told["peak"]["session"]
    assert told["sram"]["predicted"] == told["sram"]["measured"] <= 4000
    assert told["size"]["measured"] == (result.path / "model/model.onnx").stat().st_size
    assert told["energy"]["source"] in ("rapl", "table")
    lines = {line.what: line.state for line in sartor.verify(result.path).lines}
    assert lines["the rebuilt network: sram counted again"] == "verified"
    assert "differs" not in lines.values()
    with pytest.raises(Infeasible, match="sram <= 10 B cannot be met") as refused:
        sartor.solve(run, budgets={"sram": "10B"}, quiet=True)
    decided = sartor.solve(run, budgets={"sram": refused.value.least}, train=False, quiet=True)  # and no less
    assert Sram().of(SPACES["mobile"]().fitted(result.task).network(decided.arch, result.task), (1, 8, 8)) == (
        refused.value.least
    )
