"""What a process that a test starts finds around it, and how `sartor` is started many times without loading it anew."""

import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from pathlib import Path

_LOADED = ("torch", "lightning_fabric", "scipy.optimize", "sartor.cli.main", "sartor.pipeline.order")
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(list(_LOADED))


def environment():
    """One thread, no terminal, and the modules of this folder."""
    paths = filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))
    return {**os.environ, "OMP_NUM_THREADS": "1", "CI": "1", "PYTHONPATH": os.pathsep.join(paths)}


def start(words, out, err, folder=None):
    """`python WORDS` as a process of its own in `folder`, its output in two files.

    It is forked from a process that has loaded torch and Sartor and done nothing else: seconds less for each.
    """
    process = _FORKS.Process(target=_run, args=(list(map(str, words)), str(out), str(err), folder, environment()))
    process.start()
    return process


def run(words, folder):
    """The same to its end, as `subprocess.run` tells it."""
    out, err = folder / ".stdout", folder / ".stderr"
    process = start(words, out, err, folder)
    process.join(250)
    process.kill()  # where it has not ended
    process.join()
    return subprocess.CompletedProcess(words, process.exitcode, *(p.read_text(encoding="utf-8") for p in (out, err)))


def _run(words, out, err, folder, env):
    """In the new process: what `python WORDS` does."""
    for number, path in ((1, out), (2, err)):
        with open(path, "wb") as file:
            os.dup2(file.fileno(), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits deafness to Ctrl-C
    os.environ.clear()
    os.environ.update(env)
    sys.modules["torch"].set_num_threads(1)
    if folder is not None:
        os.chdir(folder)
    sys.path.insert(0, os.getcwd())
    kind, what, *rest = words
    sys.argv = [what, *rest]
    if kind == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(compile(what, "<string>", "exec"), {"__name__": "__main__"})
