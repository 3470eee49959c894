"""NASI's scripts: what was measured survives a killed run, and the tables are what they say."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def script(monkeypatch):
    """Import a script of reproduce/ as a module."""
    monkeypatch.setattr(sys, "path", [str(ROOT / "reproduce"), str(ROOT / "benchmarks"), *sys.path])

    def load(name):
        return __import__(name)

    return load


def test_lines_are_shared_out_once_and_go_on_where_they_ended(script, tmp_path, monkeypatch):
    data = script("nasi_data")
    monkeypatch.setattr(data, "PARTS", tmp_path)
    keys = list(range(7))
    workers = [data.Lines("t", n, 3) for n in range(3)]
    shares = [w.mine(keys) for w in workers]
    assert sorted(k for share in shares for k in share) == keys
    workers[0].add(key=shares[0][0], values={"a": 1.0})
    workers[1].add(key=shares[1][0], values={"a": float("-inf")})
    with workers[1].path.open("a") as file:
        file.write('{"key": 4, "val')  # killed while writing
    left = sorted(k for w in workers for k in w.mine(keys))
    assert left == [k for k in keys if k not in (shares[0][0], shares[1][0])]
    data.Lines("t", 1, 3).add(key=5, values={"a": 2.0})
    assert sorted(line["key"] for line in data.Lines("t").all()) == sorted((shares[0][0], shares[1][0], 5))


def test_table_correlates_every_draw_with_the_exact_trace(script):
    table7 = script("nasi_table7")
    rng = np.random.default_rng(0)
    exact, other = rng.random(9), rng.random(9)
    names = (*map(str, table7.BATCHES), "labels", "images")
    lines = [
        {"values": {**{n: [e, o] for n in names}, "sum": 2 * e, "exact": e}}
        for e, o in zip(exact.tolist(), other.tolist(), strict=True)
    ]
    found = table7.table(lines, table7.PAPER["S1"])
    expected = (1 + np.corrcoef(exact, other)[0, 1]) / 2  # one draw is the exact trace, one is unrelated
    assert found["sum"]["ours"] == pytest.approx(1.0)
    assert found["labels"]["ours"] == pytest.approx(1.0)  # against the true ones, draw by draw
    assert found["4"]["ours"] == pytest.approx(expected, abs=1e-3)
    assert found["4"]["paper"] == 0.74


def test_batch_norm_written_out_is_batch_norm(script):
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).double(), torch.randn(5, 3, 6, 6).double()
    nn.init.uniform_(net[1].weight)
    expected = net(x)
    script("nasi_table7").plain(net)
    assert not isinstance(net[1], nn.BatchNorm2d)
    torch.testing.assert_close(net(x), expected)


def test_committed_proxies_are_within_five_hundredths_of_the_literature():
    path = ROOT / "benchmarks/results/nasi_proxies_published.json"
    found = json.loads(path.read_text())["results"]
    assert found["cells"] >= 1000
    known = {name: entry for name, entry in found["proxies"].items() if entry["published"] is not None}
    assert len(known) == 7
    assert all(abs(entry["spearman"] - entry["published"]) <= 0.05 for entry in known.values())
    assert found["aggregate"]["held_out"] >= 0.85
