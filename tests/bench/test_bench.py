"""`sartor bench` and `sartor score` on a table small enough to see through."""

import itertools
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from sartor.cli.main import app
from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.methods.bayesnas.method import BayesNAS
from sartor.methods.nasi import NASI
from sartor.spaces.cells.darts_reduced import DartsReduced
from sartor.spaces.cells.freecells import FreeCells
from sartor.spaces.nasbench1shot1.space import NasBench1Shot1
from sartor.spaces.nasbench201.space import NasBench201
from sartor.spaces.treecell.space import TreeCells

SPACE = NasBench201()
FAST = ["--set=method.steps=2", "--set=method.nu_networks=2", "--set=method.batch=4", "--set=space.sketch_channels=4",
        "--image=8", "--classes=3"]  # fmt: skip


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Every cell of skip, 1x1 and 3x3: the more convolutions the better and the slower."""
    path = tmp_path_factory.mktemp("bench") / "t.csv"
    lines = ["index,arch,acc,ms"]
    for n, picks in enumerate(itertools.product((1, 2, 3), repeat=6)):
        acc = 50 + sum((0, 2, 5)[p - 1] for p in picks)
        lines.append(f"{n},{SPACE.describe(Arch(picks))},{acc},{1 + sum(p - 1 for p in picks)}")
    path.write_text("\n".join(lines) + "\n")
    return path


def invoke(*args):
    done = CliRunner().invoke(app, list(args))
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


def bench(table, *more):
    return json.loads(invoke("bench", f"--table={table}", "--target=acc", "--json", *more))


def test_methods_that_look_rows_up(table):
    means = {}
    for method in ("random", "evolution", "binas"):
        found = bench(table, f"--method={method}", "--seeds=4", "--queries=60")
        assert found["networks"] == 3**6
        assert found["table"] == {"mean": pytest.approx(64.0), "best": 80.0}
        assert [r["seed"] for r in found["runs"]] == [0, 1, 2, 3]
        means[method] = found["mean"]
    assert means["binas"] == 80.0  # an additive table is learnt exactly
    assert means["evolution"] > means["random"] > 64.0


def test_nasi_needs_no_query_and_keeps_the_budget(table):
    found = bench(table, "--method=nasi", "--seeds=2", "--limit=ms=5", *FAST)
    assert found["queries"] == 0
    assert found["networks"] < 3**6
    for run in found["runs"]:
        assert 1 + sum(p - 1 for p in SPACE.read(run["arch"]).picks) <= 5
        assert run["x"]["least"] > 0
    again = bench(table, "--method=nasi", "--seeds=2", "--limit=ms=5", *FAST)
    assert [r["arch"] for r in again["runs"]] == [r["arch"] for r in found["runs"]]


def test_thorough_is_the_papers_search_on_this_space(table):
    found = bench(
        table, "--effort=thorough", "--seeds=1", "--set=method.steps=1", "--set=method.nu_networks=1", *FAST[2:]
    )
    wanted = {"mu": 1.0, "nu": "fixed", "init": "lecun", "parameterisation": "ntk", "redraw": 0, "steps": 1, "batch": 4}
    assert found["effort"] == "thorough"
    assert {k: found["options"][k] for k in wanted} == wanted
    one_shot = NASI.preset_on(NasBench1Shot1, "thorough", 50_000)
    assert (one_shot["mu"], one_shot["nu"], one_shot["nu_scale"]) == (1.0, "adaptive", 10.0)  # 5.1
    assert one_shot["steps"] * one_shot["batch"] == 49_984  # one epoch
    assert NASI(**NASI.preset_on(DartsReduced, "thorough", 50_000)).mu == 2.0  # 5.2
    assert NASI.preset_on(NasBench1Shot1, "standard", 50_000) == {}
    assert BayesNAS.preset_on(TreeCells, "thorough", 50_000)["batch"] == 32  # BayesNAS, 6.2
    assert BayesNAS.preset_on(FreeCells, "thorough", 50_000)["batch"] == 18  # and 6.1


def test_proxies_are_correlated_with_the_target_conditioned_and_not(table):
    found = bench(table, "--proxy=params,flops,ntk_trace", "--samples=12", "--batch=4", "--image=8", "--classes=3",
                  "--set=space.sketch_channels=4")  # fmt: skip
    assert set(found["proxies"]) == {"params", "flops", "ntk_trace", "aggregate"}
    assert found["proxies"]["params"]["all"]["spearman"]["value"] > 0.5
    assert found["proxies"]["params"]["conditioned"]["networks"] < 12
    assert set(found["per_second"]) == {"params", "flops", "ntk_trace"}


def test_readable_output(table):
    text = invoke("bench", f"--table={table}", "--target=acc", "--method=random", "--seeds=2")
    assert "random: acc" in text and "the table: mean 64.000, best 80.000" in text


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--method=magic"], "must be one of nasi, random, evolution, binas"),
        (["--method=random", "--set=method.steps=3"], "has no options and no effort here"),
        (["--method=random", "--effort=thorough"], "has no options and no effort here"),
        (["--effort=most"], "must be one of quick, standard, thorough"),
        (["--proxy=params", "--effort=thorough"], "searches nothing"),
        (["--limit=ms"], "COLUMN=NUMBER"),
        (["--limit=ms=0"], "the least ms is 1"),
        (["--set=train.epochs=3"], "--set takes options of method, space, proxy"),
    ],
)
def test_bad_input_is_refused(table, more, message):
    with pytest.raises(BadInput, match=message):
        bench(table, *more)


def test_score_ranks_random_networks(tmp_path):
    plot = tmp_path / "p.png"
    args = ["score", "noise", "--space=nasbench201", "--proxy=synflow,params", "--samples=6", "--batch=4", "--image=8",
            "--set=space.sketch_channels=4"]  # fmt: skip
    found = json.loads(invoke(*args, "--json", f"--plot={plot}"))
    assert 1 <= len(found["networks"]) <= 6
    totals = [row["aggregate"] for row in found["networks"]]
    assert totals == sorted(totals, reverse=True)
    assert SPACE.read(found["networks"][0]["arch"])
    assert plot.stat().st_size > 1000
    assert "networks a second" in invoke(*args)


def test_score_takes_images(tmp_path):
    x = np.random.default_rng(0).integers(0, 255, (12, 8, 8), dtype=np.uint8)
    np.savez(tmp_path / "d.npz", x=x, y=np.arange(12) % 3)
    found = json.loads(invoke("score", str(tmp_path / "d.npz"), "--space=nasbench201", "--proxy=naswot",
                              "--samples=2", "--batch=4", "--set=space.sketch_channels=4", "--json"))  # fmt: skip
    assert found["batch"] == 4
