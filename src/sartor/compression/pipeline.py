"""The order of a compression's stages, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from torch import nn

from sartor.compression import stages
from sartor.compression.given import Job, fingerprint, open_job
from sartor.compression.options import Options
from sartor.compression.stages import Cut
from sartor.compression.table import layer_table
from sartor.core import config
from sartor.core.errors import RunError
from sartor.pipeline.context import environment
from sartor.runs.certificate import certificate
from sartor.runs.directory import atomic, write_json
from sartor.runs.progress import Reporter


def compress(options: Options, out: Path, reporter: Reporter | None = None, module: nn.Module | None = None) -> Path:
    """A network and budgets in, a smaller certified network out; the same call resumes after a crash."""
    reporter = reporter or Reporter()
    job = open_job(options, out, reporter, module)
    run, cut = job.run, Cut(job)
    with run.locked():
        record(job)
        run.stage("data", lambda: stages.data(job), f"data: {job.images.name}, {len(job.splits.train)} train images")
        if run.read("splits.json")["digest"] != job.images.digest():
            raise RunError(
                f"{options.data} has changed since {run.path} was begun. Restore it, or choose another --out."
            )
        run.stage("baseline", lambda: stages.baseline(job), "baseline: the given network, counted and timed")
        if not run.done("rounds"):
            stages.check(cut)
        run.stage("rounds", lambda: stages.rounds(cut), "rounds: training under the sparse prior, pruning")
        _finish(cut)
    return run.path


def _finish(cut: Cut) -> None:
    from sartor.pipeline.order import report, until_it_fits

    run = cut.run
    until_it_fits(cut, stages, "the most relevant network", "the smaller network")
    run.stage("layers", lambda: layer_table(cut), "layers: before and after")
    if not run.done("certificate"):
        run.save(certificate(run, run))
        run.finish("certificate", ["certificate.json"], 0.0)
    if not (run.path / "report.html").is_file():
        report(run.path, run)


def record(job: Job) -> None:
    """Write config.toml and env.json, or refuse a directory that belongs to another configuration."""
    run, values = job.run, {"kind": "compression", **job.options.to_mapping(), "given_sha256": fingerprint(job.net)}
    text = config.write_toml(values)
    path = run.path / "config.toml"
    if path.exists():
        changes = config.differences(config.read_toml(path), config.read_toml_text(text))
        if changes:
            raise RunError(f"{run.path} holds a run with other options: {'; '.join(changes)}. Choose another --out.")
        return
    write_json(run.path / "env.json", environment(cast(Any, job)))  # of which it reads the engine
    with atomic(path) as tmp:
        tmp.write_text(text, encoding="utf-8")
