"""docs/papers.md: its tables are what the presets and the results say, and `thorough` is what they say."""

import papers
import pytest
import tiny

from sartor.pipeline import options
from sartor.pipeline.context import open_context
from sartor.runs.progress import Reporter


def test_the_pages_tables_are_those_that_the_script_writes():
    page = papers.PAGE.read_text(encoding="utf-8")
    assert papers.render(page) == page


@pytest.mark.parametrize(
    ("method", "space", "expected"),
    [
        ("binas", "mobile", {"method.estimator": "paper", "method.passes": 10, "method.warmup": 0.0, "method.clip": 0.0,
                             "train.augment": "strong", "train.teacher": True, "train.images": "train"}),
        ("xnas", "darts", {"space.cells": 20, "space.channels": 36, "space.search_cells": 8, "train.drop_path": 0.2,
                           "train.auxiliary": 0.4, "train.cycles": 5, "train.power": 10.0, "train.images": "all"}),
        ("nasi", "darts_reduced", {"method.steps": 100, "method.batch": 64, "method.redraw": 0, "space.cells": 20}),
        ("bayesnas", "darts", {"method.batch": 18, "method.last_lr": 0.1, "space.channels": 36, "train.epochs": 600}),
    ],
)  # fmt: skip
def test_thorough_runs_the_papers_schedule(tmp_path, method, space, expected):
    """As a run would have it, not as the presets are listed; what is given by hand stays."""
    asked = {"data": str(tiny.npz(tmp_path)), "effort": "thorough", "method": method, "space": space}
    run = open_context(options.from_mapping(asked), tmp_path / "run", Reporter(silent=True))
    groups = {"method": run.method, "space": run.space, "train": run.train}
    found = {name: getattr(groups[name.split(".")[0]], name.split(".")[1]) for name in expected}
    assert found == expected
    given = {**asked, "train": {"epochs": 3}}
    assert open_context(options.from_mapping(given), tmp_path / "given", Reporter(silent=True)).train.epochs == 3
