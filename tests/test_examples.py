"""The short examples run as they stand; the quick start trains for minutes and is left to people."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize("name", ["own_numbers.py", "zoo.py"])
def test_the_example_runs_and_says_something(name):
    done = subprocess.run([sys.executable, EXAMPLES / name], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) >= 3
