import json

import pytest

from sartor.core.errors import BadInput
from sartor.spaces.cells.genotype import PUBLISHED, Cell, Genotype, read

# A cell of BayesNAS: several operations on one edge, nodes of any in-degree.
MANY = Cell(
    (
        (("sep_conv_5x5", 1), ("sep_conv_5x5", 0), ("max_pool_3x3", 0), ("avg_pool_3x3", 0), ("skip_connect", 0)),
        (("max_pool_3x3", 1), ("skip_connect", 1)),
        (("skip_connect", 1), ("max_pool_3x3", 0)),
        (("avg_pool_3x3", 2),),
    )
)
EVERY = {**PUBLISHED, "many": Genotype(MANY, PUBLISHED["XNAS"].reduce)}


@pytest.mark.parametrize("name", EVERY)
def test_both_forms_read_back(name):
    genotype = EVERY[name]
    assert Genotype.from_json(json.loads(json.dumps(genotype.to_json()))) == genotype
    assert Genotype.from_text(genotype.to_text()) == genotype


def test_the_customary_form_as_people_write_it():
    text = (
        "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
        "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], "
        "normal_concat=range(2, 6), reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), "
        "('max_pool_3x3', 1), ('max_pool_3x3', 0), ('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], "
        "reduce_concat=[2, 3, 4, 5])"
    )
    assert Genotype.from_text(text) == PUBLISHED["DARTS_V2"]


def test_depths_of_table_4():
    assert PUBLISHED["XNAS"].normal.depth == 1.375
    assert PUBLISHED["DARTS_V2"].normal.depth == 0.625
    assert Cell(((),), (2,)).depth == 0.0


@pytest.mark.parametrize(
    "wrong",
    [
        "__import__('os').system('true')",
        "Genotype(normal=[('sep_conv_3x3', 0)], normal_concat=[2], reduce=[], reduce_concat=[2])",
        "Genotype(normal=[[('conv_9x9', 0)]], normal_concat=[2], reduce=[[('skip_connect', 0)]], reduce_concat=[2])",
        "Genotype(normal=[[('skip_connect', 2)]], normal_concat=[2], reduce=[[('none', 0)]], reduce_concat=[2])",
        "Genotype(normal=[[('skip_connect', 0)]], normal_concat=[7], reduce=[[('none', 0)]], reduce_concat=[2])",
        "Genotype(",
    ],
)
def test_what_is_no_genotype_is_refused(wrong):
    with pytest.raises(BadInput):
        Genotype.from_text(wrong)


def test_what_is_no_genotype_in_json_is_refused():
    for wrong in ({}, {"normal": 1, "reduce": 2}, {"normal": {"nodes": [[3]], "concat": [2]}}):
        with pytest.raises(BadInput):
            Genotype.from_json(wrong)


def test_cells_are_read_by_name_and_from_any_of_their_files(tmp_path):
    assert read("xnas") is PUBLISHED["XNAS"]
    for content in (
        json.dumps(EVERY["many"].to_json()),
        EVERY["many"].to_text(),
        json.dumps({"string": EVERY["many"].to_text()}),
    ):
        (tmp_path / "cells").write_text(content)
        assert read(str(tmp_path / "cells")) == EVERY["many"]
    with pytest.raises(BadInput, match="DARTS_V1"):
        read(str(tmp_path / "none"))
