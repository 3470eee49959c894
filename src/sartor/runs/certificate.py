"""The certificate: what was asked, what was delivered, and how anyone can check it."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

from sartor.runs.directory import Run, sha256
from sartor.version import __version__


def certificate(base: Run, cut: Run) -> dict[str, Any]:
    """A pure function of a run directory's files: the search's (`base`) and one budget's (`cut`)."""
    verified, solution, training = cut.read("verify.json"), cut.read("solution.json"), cut.read("training.json")
    score, data, env = base.read("score.json"), base.read("splits.json"), base.read("env.json")
    from sartor.core.config import read_toml

    config = read_toml(base.path / "config.toml")
    solved = solution["solution"]
    return {
        "fits": verified["fits"],
        "budgets": {n: e for n, e in verified["costs"].items() if "limit" in e},
        "costs": verified["costs"],
        "accuracy": {
            "test": training["test_accuracy"], "test_images": len(data["test"]),
            "validation": training["val_accuracy"], "before_fine_tuning": training["inherited_val_accuracy"],
        },
        "score": {
            "method": score["method"], "unit": score["unit"], "value": solved["score"], "bound": solved["bound"],
            "gap": solved["gap"], "proven_optimal": solved["proven"], "solver": solved["solver"],
        },
        "ranking": score["quality"],
        "architecture": solution["architecture"],
        "string": solution["string"],
        "corrections": solution["corrections"],
        "data": {
            "name": data["name"], "sha256": data["digest"], "sha256_of": data["digest_of"],
            "train": len(data["train"]), "validation": len(data["val"]), "skipped": len(data["skipped"]),
        },
        "weights": {f: sha256(cut.path / f) for f in ("model/model.onnx", "model/weights.safetensors")},
        "code": {"sartor": __version__, "sha256": code_hash()},
        "device": verified["device"],
        "environment": env,
        "seed": config["seed"],
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }  # fmt: skip


def code_hash() -> str:
    """A sha256 over Sartor's own source files: the same code gives the same hash wherever it is installed."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
