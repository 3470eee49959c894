"""The header of every benchmark's result file: on what, with what and when it was measured.

Parts that came back from another machine are written down here under that machine's header: ``SARTOR_MEASURED`` names
any record that was made there. Who wrote them down, and when, stands beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
# Of results that were made before they named their script, those that do not begin with its name.
SCRIPTS = {
    "nasi_figure1": "reproduce/nasi_table7.py",
    "nasi_table7": "reproduce/nasi_table7.py",
    "binas_headline": "reproduce/binas_predictors.py",
    "binas_outcomes": "reproduce/binas_predictors.py",
    "fits_": "benchmarks/fit_summary.py",
    "crew": "benchmarks/crew.py",
}
# The parts of src/sartor that decide a result, by the beginning of its name, beside its script and what that imports.
_TRAINED = ("engine", "data/augment.py", "data/auto_augment.py", "data/batches.py", "data/split.py")
_CELLS = ("spaces/cells", "spaces/ops.py")
DEPENDS = {
    "binas_optimisers": ("solvers", "core/quadratic.py", "spaces/mobile"),
    "binas_transitivity": ("predictors", "spaces/nasbench201"),
    "binas_": ("predictors", "methods/binas", "spaces/mobile", *_TRAINED),
    "xnas_cifar10": ("methods/xnas", "methods/darts.py", "methods/mixture.py", *_CELLS, *_TRAINED),
    "xnas_step": ("methods/xnas", "methods/mixture.py", "engine/fit.py", "engine/replay.py", *_CELLS),
    "xnas_depth": ("spaces/cells/genotype.py",),
    "xnas_": ("methods/xnas/experts.py",),
    "nasi_proxies": ("proxies", "engine/curvature/kernel.py", "spaces/nasbench201"),
    "nasi_darts": ("methods/nasi.py", "engine/curvature/kernel.py", *_CELLS, *_TRAINED),
    "nasi_": ("methods/nasi.py", "engine/curvature/kernel.py", "spaces/nasbench201", "spaces/nasbench1shot1"),
    "bayesnas_algorithm3": ("compression", *_TRAINED),
    "bayesnas_lenet": ("compression", "solvers/milp.py", *_TRAINED),
    "bayesnas_treecell": ("methods/bayesnas", "spaces/switches.py", "spaces/treecell", *_TRAINED),
    "bayesnas_": ("methods/bayesnas", "spaces/switches.py", *_CELLS, *_TRAINED),
    "bayes_hessians": ("engine/curvature",),
    "compress_": ("compression", "solvers/milp.py", *_TRAINED),
    "tables_": ("tables", "predictors", "solvers"),
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
    data = {"name": name, "script": _script(), **here, "results": results}
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


def _script() -> str | None:
    """The script that is running, as the repository names it."""
    path = Path(getattr(sys.modules["__main__"], "__file__", None) or "nothing").resolve()
    return path.relative_to(ROOT.parent).as_posix() if path.is_relative_to(ROOT.parent) else None


def script_of(record: dict[str, Any]) -> str | None:
    """The script that made a result: as it says itself, or by its name."""
    if record.get("script"):
        return str(record["script"])
    name = record["name"]
    if found := next((script for start, script in SCRIPTS.items() if name.startswith(start)), None):
        return found
    stems = {p.stem: p for f in ("benchmarks", "reproduce", "scripts") for p in sorted((ROOT.parent / f).glob("*"))}
    fits = [stem for stem, path in stems.items() if name.startswith(stem) and path.is_file()]
    return stems[max(fits, key=len)].relative_to(ROOT.parent).as_posix() if fits else None


def imported(script: str) -> list[str]:
    """A script and what it imports of those beside it, and so on; the keeping of records decides no result."""
    found, waiting = [], [script]
    while waiting:
        path = ROOT.parent / waiting.pop()
        found.append(path.relative_to(ROOT.parent).as_posix())
        names = _IMPORT.findall(path.read_text(encoding="utf-8")) if path.suffix == ".py" and path.is_file() else []
        for folder, name in ((folder, name) for name in names for folder in ("benchmarks", "reproduce")):
            other = f"{folder}/{name}.py"
            if name != "_record" and (ROOT.parent / other).is_file() and other not in (*found, *waiting):
                waiting.append(other)
    return found


_IMPORT = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)


def changed(record: dict[str, Any]) -> list[str] | None:
    """The files that decide a result, its script too, that are no longer what they were at its commit.

    None where this repository does not have the commit, so that nobody can tell.
    """
    commit, script = record["commit"].rstrip("+"), script_of(record)
    try:
        _git("cat-file", "-e", f"{commit}^{{commit}}")
    except subprocess.CalledProcessError:
        return None
    parts = next((parts for start, parts in DEPENDS.items() if record["name"].startswith(start)), ())
    where = [*(f"src/sartor/{part}" for part in parts), *(imported(script) if script else ())]
    found = _git("diff", "--name-only", commit, "HEAD", "--", *(f":/{path}" for path in where)).split()
    return [path.removeprefix("src/sartor/") for path in found] if where else []


def mark() -> None:
    """Say in every result which files that decide it have changed since; what was run again is unmarked by that."""
    for path in sorted((ROOT / "results").glob("*.json")):
        data = json.loads(path.read_text())
        if data.get("commit"):
            data.pop("stale", None)
            found, at = changed(data), {"looked_at": _git("rev-parse", "HEAD").strip()}
            if found is None:
                data["stale"] = {**at, "changed": [], "unknown": ABSENT}
            elif found:
                data["stale"] = {**at, "changed": found}
            path.write_text(json.dumps(data, indent=2) + "\n")


ABSENT = "commit not in this repository"


if __name__ == "__main__":
    parser(__doc__).parse_args()
    mark()
