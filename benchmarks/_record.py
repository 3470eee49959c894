"""The header of every benchmark's result file: on what, with what and when it was measured.

Parts that came back from another machine are written down here under that machine's header: ``SARTOR_MEASURED`` names
any record that was made there. Who wrote them down, and when, stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
# The parts of src/sartor that decide a result, by the beginning of its name, beside its script.
DEPENDS = {
    "binas_optimisers": ("solvers",),
    "binas_": ("predictors", "methods/binas"),
    "xnas_cifar10": ("methods/xnas", "methods/mixture.py"),
    "xnas_step": ("methods/mixture.py", "spaces/cells"),
    "xnas_depth": ("spaces/cells/genotype.py",),
    "xnas_": ("methods/xnas/experts.py",),
    "nasi_proxies": ("proxies",),
    "nasi_": ("methods/nasi.py", "engine/curvature/kernel.py"),
    "bayesnas_algorithm3": ("compression", "engine/curvature/recursive.py"),
    "bayesnas_lenet": ("compression", "engine/curvature/recursive.py"),
    "bayesnas_": ("methods/bayesnas", "spaces/switches.py"),
    "bayes_hessians": ("engine/curvature",),
    "compress_": ("compression", "engine/curvature/recursive.py"),
    "tables_": ("tables", "predictors"),
}


def parser(about: str | None) -> argparse.ArgumentParser:
    """A command line that knows ``--help`` and refuses what it does not know: every script has one."""
    return argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)


def record(name: str, results: dict[str, Any], path: Path | None = None) -> Path:
    """Write ``benchmarks/results/<name>.json``, or `path`: hardware, versions, date, commit and `results`."""
    here = header()
    if measured := os.environ.get("SARTOR_MEASURED"):
        there = json.loads(Path(measured).read_text())
        here = {k: there[k] for k in here} | {"collected": {"date": here["date"], "commit": here["commit"]}}
    data = {"name": name, **here, "results": results}
    path = path or ROOT / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, indent=2) + "\n")
    part.replace(path)
    return path


def header() -> dict[str, Any]:
    """When, of which commit, on what and with what."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "hardware": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "memory_gb": _memory(),
            "platform": platform.platform(),
            "gpu": _gpu(),
        },
        "versions": {"python": platform.python_version()} | _versions("numpy", "scipy", "torch", "sartor"),
    }


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpu() -> str | None:
    """The GPU, where there is one; torch is not loaded for the sake of its name."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    found = subprocess.run(
        [tool, "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    return found.stdout.partition("\n")[0].strip() or None if found.returncode == 0 else None


def _memory() -> float | None:
    info = Path("/proc/meminfo")
    if not info.exists():
        return None
    return round(int(info.read_text().split("MemTotal:")[1].split()[0]) / 2**20, 1)


def _versions(*packages: str) -> dict[str, str]:
    """From the installed metadata, so that nothing is imported for the sake of its version."""
    found = {}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str | None:
    """The commit measured, with ``+`` where files of the package or scripts, also new ones, differ from it."""
    scripts = ("../src", "*.py", "../reproduce/*.py")
    try:
        return _git("rev-parse", "HEAD").strip() + ("+" if _git("status", "--porcelain", "--", *scripts) else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def changed(name: str, commit: str) -> list[str]:
    """The files that decide a result, its script too, and that are no longer what they were at its commit."""
    parts = next((parts for start, parts in DEPENDS.items() if name.startswith(start)), ())
    scripts = [f"../{folder}/{name}.py" for folder in ("benchmarks", "reproduce")]
    where = [*(f"../src/sartor/{part}" for part in parts), *scripts]
    found = _git("diff", "--name-only", commit.rstrip("+"), "HEAD", "--", *where).split()
    return [path.removeprefix("src/sartor/") for path in found]


def mark() -> None:
    """Say in every result which files that decide it have changed since; what was run again is unmarked by that."""
    for path in sorted((ROOT / "results").glob("*.json")):
        data = json.loads(path.read_text())
        if data.get("commit"):
            data.pop("stale", None)
            if found := changed(data["name"], data["commit"]):
                data["stale"] = {"looked_at": _git("rev-parse", "HEAD").strip(), "changed": found}
            path.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    parser(__doc__).parse_args()
    mark()
