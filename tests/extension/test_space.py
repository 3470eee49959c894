"""A space outside the package: through the command line and through Python, up to the report."""

import json

import pages


def test_the_page_runs_as_it_stands(tmp_path):
    pages.write("space.md", tmp_path, "my_space.py")
    pages.commands("space.md", tmp_path)
    run = tmp_path / "runs/mine"
    assert set(json.loads((run / "solution.json").read_text())["architecture"]) == {"width", "depth"}
    assert (run / "model/model.onnx").is_file()
    assert (run / "report.html").is_file()
    assert pages.python("space.md", tmp_path).startswith("width=")


def test_methods_that_need_shared_weights_say_so(tmp_path):
    pages.write("space.md", tmp_path, "my_space.py")
    refused = pages.command(
        tmp_path, "fit", "digits", "--space", "my_space:MySpace", "--method", "binas", "--params", "3k"
    )
    assert refused.returncode == 2
    assert "MySpace has no shared weights" in refused.stderr


def test_what_is_no_space_is_refused(tmp_path):
    pages.write("space.md", tmp_path, "my_space.py")
    for given, words in (
        ("my_space:conv", "must be a space"),
        ("my_space:MySpaces", "did you mean MySpace"),
        ("my_spac:MySpace", "there is no module my_spac"),
    ):
        refused = pages.command(tmp_path, "fit", "digits", "--space", given, "--params", "3k")
        assert refused.returncode == 2
        assert words in refused.stderr
