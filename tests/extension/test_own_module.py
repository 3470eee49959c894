"""A module of one's own, outside the package: through the command line and through Python, up to the report."""

import json

import pages


def test_the_page_runs_as_it_stands(tmp_path):
    path = pages.write("own_module.md", tmp_path, "my_net.py")
    assert len([line for line in path.read_text().splitlines() if line.strip()]) <= 30
    pages.commands("own_module.md", tmp_path)
    run = tmp_path / "runs/mine"
    solution = json.loads((run / "solution.json").read_text())
    assert set(solution["architecture"]) == {"1", "2", "3"}
    assert (run / "model/model.onnx").is_file()
    report = (run / "report.html").read_text()
    assert "MyNet" in report
    printed = pages.python("own_module.md", tmp_path)
    assert printed.startswith("1=")
    assert printed.strip().endswith("Sequential")


def test_its_runs_are_opened_only_when_their_code_is_trusted(tmp_path):
    pages.write("own_module.md", tmp_path, "my_net.py")
    fit = ["fit", "digits", "--space", "my_net:MyNet", "--method", "random", "--params", "5k", "--out", "run"]
    assert pages.command(tmp_path, *fit, "--set", "train.epochs=1", "--quiet").returncode == 0
    refused = pages.command(tmp_path, "solve", "run", "--params", "4k")
    assert refused.returncode == 2
    assert "my_net:MyNet is code" in refused.stderr
    assert "--trust-code" in refused.stderr
    solved = pages.command(tmp_path, "solve", "run", "--params", "4k", "--trust-code", "--quiet")
    assert solved.returncode == 0, solved.stderr
    assert pages.command(tmp_path, "report", "run").returncode == 0
