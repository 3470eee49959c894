"""`sartor` in this process, in a folder of its own."""

import sys

import pytest

from sartor.cli.main import main


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Runs of a test must not land in the repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CI", "1")


@pytest.fixture
def sartor(monkeypatch, capsys):
    """`sartor ARGUMENTS` through `main`, in this process: exit code, standard output, standard error."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["sartor", *map(str, arguments)])
        code = 0
        try:
            main()
        except SystemExit as done:
            code = done.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def mine(finished, tmp_path):
    return finished.copy(tmp_path / "mine")


@pytest.fixture
def refused(sartor):
    """Exit code 2 and one clear message without a traceback; the message."""

    def run(*arguments):
        code, out, err = sartor(*arguments)
        assert code == 2, err
        assert out == ""
        assert "Traceback" not in err
        said = [line for line in err.splitlines() if line.startswith("sartor: ")]
        assert len(said) == 1, err
        assert err.rstrip().endswith(said[0])
        return said[0]

    return run
