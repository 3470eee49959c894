"""A method outside the package: through the command line and through Python, up to the report."""

import json

import pages


def test_the_page_runs_as_it_stands(tmp_path):
    pages.write("method.md", tmp_path, "my_method.py")
    pages.commands("method.md", tmp_path)
    run = tmp_path / "runs/mine"
    score = json.loads((run / "score.json").read_text())
    assert score["unit"] == "naswot"
    assert score["facts"] == {"networks": 10}
    assert (run / "model/model.onnx").is_file()
    assert "my_method:ByProxy" in (run / "report.html").read_text()
    assert "Arch(picks=" in pages.python("method.md", tmp_path)
