"""Tabular benchmarks: reading, joining, limits."""

import gzip

import numpy as np
import pytest

from sartor.bench.nasbench101 import fingerprints, live_vertices
from sartor.bench.tables import read_table
from sartor.core.arch import Arch
from sartor.core.errors import BadInput
from sartor.spaces.mobile.space import Mobile
from sartor.spaces.nasbench1shot1.space import NasBench1Shot1
from sartor.spaces.nasbench201.space import NasBench201

SPACE = NasBench201()
CELLS = [SPACE.describe(Arch(p)) for p in [(0,) * 6, (3,) * 6, (1, 2, 3, 4, 0, 1)]]


def write(path, lines):
    text = "\n".join(lines) + "\n"
    path.write_bytes(gzip.compress(text.encode())) if path.suffix == ".gz" else path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_reads_strings_numbers_and_gaps(tmp_path, name):
    path = write(tmp_path / name, ["index,arch,acc,note", *(f"{n},{c},{90 + n},x" for n, c in enumerate(CELLS[:2]))])
    table = read_table([path], SPACE)
    assert table.picks.tolist() == [[0] * 6, [3] * 6]
    assert table.column("acc").tolist() == [90, 91]
    assert table.row(Arch((3,) * 6)) == 1
    assert table.row(Arch((2,) * 6)) is None
    with pytest.raises(BadInput, match="no numeric column 'note'; it has index, acc"):
        table.column("note")


def test_joins_by_index_and_limits(tmp_path):
    main = write(tmp_path / "m.csv", ["index,arch,acc", *(f"{n},{c},{90 + n}" for n, c in enumerate(CELLS))])
    more = write(tmp_path / "h.csv", ["index,ms,acc", "2,5,1", "0,1,1"])
    table = read_table([main, more], SPACE)
    np.testing.assert_array_equal(table.column("ms"), [1, np.nan, 5])
    assert table.column("acc").tolist() == [90, 91, 92]  # the first file's own
    assert table.inside({"ms": 4.0}).tolist() == [True, False, False]
    with pytest.raises(BadInput, match=r"the least ms is 1"):
        table.inside({"ms": 0.5})


def test_a_column_a_choice(tmp_path):
    space = Mobile()
    arch = space.sample(np.random.default_rng(0))
    names = {c.name: c.options[p] for c, p in zip(space.choices, arch.picks, strict=True)}
    path = write(tmp_path / "c.csv", [",".join([*names, "y"]), ",".join([*names.values(), "1.5"])])
    assert read_table([path], space).row(arch) == 0


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["index,arch"], "line of names"),
        (["arch,acc", "nonsense,1"], "line 2: a NAS-Bench-201 cell must be written"),
        (["cell,acc", "x,1"], "there must be a column arch"),
        (["arch,acc", f"{CELLS[0]},1,2"], "as many values each"),
        (["arch,acc", CELLS[0]], "as many values each"),
    ],
)
def test_other_files_are_refused(tmp_path, lines, message):
    with pytest.raises(BadInput, match=message):
        read_table([write(tmp_path / "t.csv", lines)], SPACE)


def test_unreadable_files_are_refused(tmp_path):
    (tmp_path / "t.csv.gz").write_bytes(b"not gzip")
    with pytest.raises(BadInput, match="must be a CSV file"):
        read_table([tmp_path / "t.csv.gz"], SPACE)
    with pytest.raises(BadInput, match="must be a CSV file"):
        read_table([tmp_path / "absent.csv"], SPACE)
    with pytest.raises(BadInput, match="at least one CSV"):
        read_table([], SPACE)


def test_the_benchmark_itself(test_data):
    files = [test_data / "nasbench201/nasbench201.csv.gz", test_data / "nasbench201_hw/latency_27_devices.csv.gz"]
    table = read_table(files, SPACE)
    assert len(table) == 15_625
    assert table.column("cifar10_test_200").max() == pytest.approx(94.3733, abs=1e-4)
    assert 0 < table.inside({"raspi4": 10.0}).sum() < 15_625


@pytest.mark.parametrize(("variant", "graphs"), [("S1", 802), ("S2", 3212), ("S3", 16452)])
def test_nasbench101_as_a_table_of_1shot1(variant, graphs, test_data):
    """The numbers of unique pruned graphs in the subset are those its README counts."""
    table = read_table([test_data / "nasbench101_subset/nasbench101_subset.npz"], NasBench1Shot1(variant=variant))
    assert len(np.unique(table.column("index"))) == graphs
    assert 85 < table.column("test").max() < 94.4
    with pytest.raises(BadInput, match="nasbench1shot1"):
        read_table([test_data / "nasbench101_subset/nasbench101_subset.npz"], SPACE)


def test_fingerprints_know_isomorphic_graphs():
    """Renumbered vertices, same number; another label or edge, another; a matrix each as one for all."""
    rng = np.random.default_rng(0)
    matrix, labels = np.triu(rng.integers(2, size=(7, 7)), 1), rng.integers(6, size=(1, 7))
    number = fingerprints(matrix, labels)
    for _ in range(5):
        order = rng.permutation(7)
        assert fingerprints(matrix[np.ix_(order, order)], labels[:, order]) == number
    many = np.repeat(labels, 6, 0)
    many[np.arange(6), np.arange(6)] = 7
    found = fingerprints(matrix, many)
    assert len({*found.tolist(), int(number[0])}) == 7
    assert fingerprints(np.stack([matrix] * 6), many).tolist() == found.tolist()
    assert fingerprints(matrix.T.copy(), labels) != number


def test_loose_ends_are_pruned():
    chain = np.zeros((4, 4), np.int64)
    chain[0, 1] = chain[1, 3] = chain[0, 2] = 1  # vertex 2 leads nowhere
    assert live_vertices(chain) == [0, 1, 3]
    assert live_vertices(np.zeros((3, 3), np.int64)) == []
