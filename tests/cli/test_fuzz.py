"""A few fuzzed command lines of the many that scripts/fuzz_runs tries: exit code 0 or 2, and never a traceback."""

import lines


def test_forty_fuzzed_command_lines(finished, tmp_path):
    lines.files(tmp_path)
    finished.copy(tmp_path / "run")
    assert lines.wrong(18, 40) == []
