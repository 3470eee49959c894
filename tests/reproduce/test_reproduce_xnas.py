"""The figures of XNAS against what the papers' text and independent calculation say."""

import importlib.util
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def committed(name):
    return json.loads((ROOT / f"benchmarks/results/{name}.json").read_text())["results"]


def script(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"reproduce/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check_toys(found):
    space = found["3d"]
    assert space["experts"] == pytest.approx([5.85e-6, 0.0474, 0.9526], abs=5e-5)
    assert space["z_equals_y_at_step"] == 90
    assert space["descent"]["0.1"] == pytest.approx([0.064, 0.239, 0.698], abs=5e-4)
    last = {rate: axes[2] for rate, axes in space["descent"].items()}
    assert last["0.25"] == pytest.approx(0.45, abs=5e-3)
    assert last["0.3"] == pytest.approx(0.19, abs=5e-3)
    assert last["0.5"] == pytest.approx(0.021, abs=5e-4)
    assert last["1.0"] == pytest.approx(0.0035, abs=5e-5)
    ends = {
        "balanced": (0.99331, 0.86650),
        "quadratic": (0.89968, 0.79391),
        "imbalanced, literal gradient": (0.5, 0.00717),
        "imbalanced, antisymmetric gradient": (0.99331, 0.00771),
    }
    for name, (experts, descent) in ends.items():
        assert found["2d"][name]["experts"] == pytest.approx(experts, abs=5e-6)
        assert found["2d"][name]["descent"] == pytest.approx(descent, abs=5e-6)


def test_toys_end_where_they_should():
    check_toys(script("xnas_toys").results())


def test_regret_is_below_its_bound_below_gradient_descent_and_grows_as_in_figure_8():
    made = script("xnas_regret")
    rows = {key: made.study(*key, runs=100) for key in ((2, 1.0), (8, 1.0), (32, 1.0), (8, 5.0), (32, 5.0))}
    for row in rows.values():
        assert row["experts, equation 4"]["worst_regret_over_bound"] < 1
        assert row["experts"]["regret"] < row["softmax"]["regret"]
    # 300-run values of an independent calculation
    for key, ours, theirs in [((8, 1.0), 24.6, 127), ((8, 5.0), 97.8, 204), ((32, 5.0), 147, 473)]:
        assert rows[key]["experts"]["regret"] == pytest.approx(ours, rel=0.25)
        assert rows[key]["softmax"]["regret"] == pytest.approx(theirs, rel=0.25)
    # Experts grow like ln N at a fixed rate and like its square root at equation 4's; descent, where the paper has the
    # square root of N, like N: short of figure 8, and recorded as that.
    for grown in (made.growth(rows.values()), committed("xnas_regret")["growth"]):
        assert grown["experts"]["of ln N"] == pytest.approx(1.0, abs=0.15)
        assert grown["experts, equation 4"]["of ln N"] == pytest.approx(0.6, abs=0.2)
        assert grown["softmax"]["of N"] == pytest.approx(0.92, abs=0.15)
    # With more experts both grow, gradient descent's faster.
    few, many = rows[8, 5.0], rows[32, 5.0]
    assert (
        1 < many["experts"]["regret"] / few["experts"]["regret"] < many["softmax"]["regret"] / few["softmax"]["regret"]
    )
    assert rows[2, 1.0]["softmax"]["regret"] < rows[8, 1.0]["softmax"]["regret"]
    assert rows[8, 1.0]["experts"]["correct"] > 0.9


def test_depths_of_table_4_where_they_can_be_counted():
    assert committed("xnas_depth") == script("xnas_depth").results()
    counted = {n: r for n, r in committed("xnas_depth").items() if r["counted"] is not None}
    assert set(counted) == {"XNAS", "DARTS", "NASNet", "AmoebaNet-A"}
    assert all(r["counted"] == r["paper"] for r in counted.values())


def test_weight_decay_makes_mixtures_denser():
    study = script("xnas_entropy")
    found = [study.entropy(decay, 400) for decay in (0.0, 3e-2, 3e-1)]
    assert found == sorted(found)
    assert found[-1] > 0.9 > found[0]
    assert study.experts_entropy() < 0.01  # at the horizon one expert is left
