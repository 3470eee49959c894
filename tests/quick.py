"""What a process that a test starts finds around it."""

import os
from pathlib import Path


def environment():
    """One thread, no terminal, and the modules of this folder."""
    paths = filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))
    return {**os.environ, "OMP_NUM_THREADS": "1", "CI": "1", "PYTHONPATH": os.pathsep.join(paths)}
