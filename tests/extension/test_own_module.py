"""A module of one's own, outside the package: through the command line and through Python, up to the report."""

import json

import pages
import pytest


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the page's plug-in lies and its command has run."""
    made = tmp_path_factory.mktemp("own")
    path = pages.write("own_module.md", made, "my_net.py")
    assert len([line for line in path.read_text().splitlines() if line.strip()]) <= 30
    pages.commands("own_module.md", made)
    return made


def test_the_command_line_ends_with_a_network_and_a_report(folder):
    run = folder / "runs/mine"
    assert set(json.loads((run / "solution.json").read_text())["architecture"]) == {"1", "2", "3"}
    assert (run / "model/model.onnx").is_file()
    assert "my_net:MyNet" in (run / "config.toml").read_text()
    assert "conv3" in (run / "report.html").read_text()


def test_python_takes_an_instance_and_gives_the_users_own_module(folder):
    printed = pages.python("own_module.md", folder)
    assert printed.startswith("1=")
    assert printed.strip().endswith("Sequential")


def test_its_runs_are_opened_only_when_their_code_is_trusted(folder):
    refused = pages.command(folder, "solve", "runs/mine", "--params", "4k")
    assert refused.returncode == 2
    assert "my_net:MyNet is code" in refused.stderr
    assert "--trust-code" in refused.stderr
    solved = pages.command(folder, "solve", "runs/mine", "--params", "4k", "--trust-code", "--quiet")
    assert solved.returncode == 0, solved.stderr
    assert "importing my_net:MyNet" in solved.stderr
