"""The certificate: what was asked, what was delivered, and how anyone can check it."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

from sartor.core.config import read_toml
from sartor.runs.codec import decode
from sartor.runs.directory import Run, sha256
from sartor.runs.schema import (
    Accuracy,
    AuditFile,
    Certificate,
    Code,
    DataIdentity,
    Environment,
    ExportFile,
    OriginFile,
    Proof,
    QuantisedFile,
    ScoreFile,
    SolutionFile,
    SplitsFile,
    TrainingFile,
    VerifyFile,
    ancestry,
)
from sartor.version import __version__

_WEIGHTS = ("model/model.onnx", "model/weights.safetensors", "model/model_int8.onnx", "model/tuned.onnx")
MADE_OF_THEM = ("certificate", "report", "compare", "exports")  # stages after what a certificate vouches for


def certificate(base: Run, cut: Run) -> Certificate:
    """A pure function of a run directory's files: the search's (`base`) and one budget's (`cut`)."""
    verified, solution, training = cut.load(VerifyFile), cut.load(SolutionFile), cut.load(TrainingFile)
    score, data, solved = base.load(ScoreFile), base.load(SplitsFile), solution.solution
    both = cut.load(QuantisedFile) if (cut.path / QuantisedFile.NAME).is_file() else None
    small = both.int8 if both and both.used else None  # what is deployed is what is certified
    origin = base.load(OriginFile) if (base.path / OriginFile.NAME).is_file() else None
    return Certificate(
        fits=verified.fits,
        budgets={n: e for n, e in verified.costs.items() if e.limit is not None},
        costs=verified.costs,
        accuracy=Accuracy(
            test=small.test_accuracy if small else training.test_accuracy,
            test_images=len(data.test),
            validation=training.val_accuracy,
            before_fine_tuning=training.inherited_val_accuracy,
            metric=training.metric,
            balanced=small.balanced_accuracy if small else training.balanced_accuracy,
            per_class=small.per_class if small else training.per_class,
            unseen=small.unseen_accuracy if small else training.unseen_accuracy,
            one_view=None if small else training.one_view_accuracy,
        ),
        score=Proof(
            method=score.method,
            unit=score.unit,
            value=solved.score,
            bound=solved.bound,
            gap=solved.gap,
            proven_optimal=solved.proven,
            solver=solved.solver,
        ),
        ranking=score.quality,
        architecture=solution.architecture,
        string=solution.string,
        corrections=solution.corrections,
        data=DataIdentity(
            name=data.name,
            sha256=data.digest,
            sha256_of=data.digest_of,
            train=len(data.train),
            validation=len(data.val),
            skipped=len(data.skipped),
        ),
        weights={f: sha256(cut.path / f) for f in _WEIGHTS if (cut.path / f).is_file()},
        code=Code(__version__, code_hash()),
        device=verified.device,
        environment=base.load(Environment),
        seed=decode(int, read_toml(base.path / "config.toml").get("seed"), "config.toml: seed"),
        made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        audit=base.load(AuditFile).findings if (base.path / AuditFile.NAME).is_file() else None,
        precision=both,
        exports=cut.load(ExportFile) if "exports" in cut.stages() else None,
        files=_listed(cut),
        search=None if base.path == cut.path else _listed(base, ("data", "costs", "search")),
        origin=ancestry(None, origin, training.started),
        views=solution.views,
    )


def _listed(run: Run, only: tuple[str, ...] | None = None) -> dict[str, str]:
    """The hashes of all files of its stages, or of some; not of what is made of them."""
    stages = {n: s for n, s in run.stages().items() if n not in MADE_OF_THEM and (only is None or n in only)}
    return {name: known for stage in stages.values() for name, known in stage.files.items()}


def code_hash() -> str:
    """A sha256 over Sartor's own source files: the same code gives the same hash wherever it is installed."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
