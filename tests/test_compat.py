"""The package runs on Python 3.11 to 3.13: nothing newer in its syntax, nothing that newer versions took away."""

import ast
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(p for folder in ("src", "benchmarks", "reproduce", "examples") for p in (ROOT / folder).rglob("*.py"))
GONE = {"asynchat", "asyncore", "cgi", "distutils", "imp", "imghdr", "pipes", "pkg_resources", "smtpd", "telnetlib"}
DEPRECATED = {"utcnow", "utcfromtimestamp", "get_event_loop"}


def test_there_is_something_to_look_at():
    assert len(FILES) > 100


@pytest.mark.parametrize("folder", ["src", "benchmarks", "reproduce", "examples"])
def test_sources_are_of_python_3_11_without_warnings(folder):
    for path in (p for p in FILES if p.is_relative_to(ROOT / folder)):
        text = path.read_text(encoding="utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # an escape like \d: a warning today, an error tomorrow
            compile(text, str(path), "exec")
        tree = ast.parse(text, feature_version=(3, 11))
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
                assert not {n.split(".")[0] for n in names} & GONE, path
            if isinstance(node, ast.Attribute):
                assert node.attr not in DEPRECATED, path
