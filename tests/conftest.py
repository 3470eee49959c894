"""What every test gets: one torch thread, and the folder of real data where there is one."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def one_thread():
    """Tests run several at a time; the number of threads also decides the last bit of a sum."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True, scope="session")
def own_cache():
    """Prices measured for one test must not serve another."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SARTOR_CACHE", "")
        yield


@pytest.fixture(scope="session")
def test_data() -> Path:
    """The shared data sets; tests that need them are skipped where they are not."""
    folder = os.environ.get("SARTOR_TEST_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("SARTOR_TEST_DATA is not set to the folder with the shared data sets")
    return Path(folder)


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """A folder that all workers have in common."""
    root = tmp_path_factory.getbasetemp()
    return root.parent if os.environ.get("PYTEST_XDIST_WORKER") else root


@pytest.fixture(scope="session")
def finished(shared):
    """The data and the run of one tiny fit, made once for all tests and workers; copy it before changing it."""
    import tiny

    return tiny.finished(shared / "finished")
