import json

import numpy as np
import pytest

from sartor.core.arch import Choice
from sartor.core.errors import RunError
from sartor.core.registry import SPACES
from sartor.runs.codec import decode
from sartor.spaces.drawing import Aspect, Drawing, Edge, Stage, default


@pytest.mark.parametrize("name", SPACES.names())
def test_a_drawing_is_plain_data_about_what_there_is(name):
    space = SPACES[name]()
    drawing = space.draw(space.sample(np.random.default_rng(0)))
    assert decode(Drawing, json.loads(json.dumps(drawing.to_json())), "drawing") == drawing
    known = {o for c in space.choices for o in c.options}
    assert set(drawing.options) <= known
    assert all(len(values) == len(drawing.aspects) for values in drawing.options.values())
    for stage in drawing.stages:
        assert {*stage.blocks, stage.blocks[0] if stage.depth is None else stage.depth} <= set(
            range(len(space.choices))
        )
    for graph in drawing.graphs:
        assert all(0 <= e.source < e.target < len(graph.nodes) and e.target >= graph.inputs for e in graph.edges)
    for grid in drawing.grids:
        assert all(r < len(grid.rows) and c < len(grid.columns) for r, c in grid.filled)


def test_mobile_says_what_its_blocks_differ_by():
    space = SPACES["mobile"]()
    drawing = space.draw(space.heaviest)
    assert drawing.stages[1] == Stage("Stage 2", (6, 7, 8, 9), 5)
    words = [a.text(v) for a, v in zip(drawing.aspects, drawing.options["e6_k5_se"], strict=True)]
    assert words == ["×6", "5×5", "with"]


def test_cells_are_graphs_with_the_operations_as_labels():
    space = SPACES["nasbench201"]()
    arch = space.read("|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|")
    (graph,) = space.draw(arch).graphs
    assert graph.edges == (Edge(0, 1, "nor_conv_3x3"), Edge(1, 2, "skip_connect"), Edge(2, 3, "avg_pool_3x3"))


def test_choices_alone_tell_stages_where_there_are_any():
    block = Choice("a.block", ("x", "y"), ((0, (1,)),))
    assert default((Choice("a.depth", ("1", "2")), block)).stages == (Stage("a", (1,), 0),)
    assert default((Choice("a.inputs", ("0+1", "0+2")), block)) == Drawing()
    mobile = SPACES["mobile"]()
    assert [s.blocks for s in default(mobile.choices).stages] == [s.blocks for s in mobile.draw(mobile.heaviest).stages]


def test_what_is_no_drawing_is_refused():
    with pytest.raises(RunError, match=r"drawing\.stages\.0\.title is missing"):
        decode(Drawing, {"stages": [{}]}, "drawing")
    with pytest.raises(RunError, match=r"drawing\.aspects\.0\.shows must be one of 'height', 'tone'"):
        decode(Drawing, {"aspects": [{"name": "width", "shows": "smell"}]}, "drawing")
    assert Aspect("width").text(1.5) == "1.5"
