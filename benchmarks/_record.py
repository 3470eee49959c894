"""The header of every benchmark's result file: on what, with what and when it was measured."""

from __future__ import annotations

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


def record(name: str, results: dict[str, Any]) -> Path:
    """Write ``benchmarks/results/<name>.json``: hardware, versions, date, commit and `results`."""
    data = {
        "name": name,
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
        "results": results,
    }
    path = ROOT / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(data, indent=2) + "\n")
    part.replace(path)
    return path


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
    """The commit measured, with ``+`` where tracked files of the package differ from it."""
    try:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "../src"], cwd=ROOT, check=False)
    except (OSError, subprocess.CalledProcessError):
        return None
    return commit.stdout.strip() + ("+" if changed.returncode else "")
