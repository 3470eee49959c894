"""The order of a compression's stages, and nothing else."""

from __future__ import annotations

from pathlib import Path

from torch import nn

from sartor.compression import stages
from sartor.compression.cut import Narrowing
from sartor.compression.given import open_given
from sartor.compression.options import Compression
from sartor.compression.table import layer_table
from sartor.pipeline.order import begin, finish, price, ready
from sartor.runs.progress import Reporter


def compress(
    options: Compression,
    out: Path,
    reporter: Reporter | None = None,
    module: nn.Module | None = None,
    trust_code: bool = False,
) -> Path:
    """A network and budgets in, a smaller certified network out; the same call resumes after a crash."""
    ready(options, out)
    context = open_given(options, out, reporter or Reporter(), module, trust_code)
    run, cut = context.run, Narrowing(context, context.run)
    with run.locked():
        begin(context)
        run.stage("baseline", lambda: stages.baseline(cut), "baseline: the given network, counted and measured")
        if not run.done("rounds"):
            stages.check(cut)
        run.stage("rounds", lambda: stages.rounds(cut), "rounds: training under the sparse prior, pruning")
        price(cut)
        finish(cut, lambda: run.stage("layers", lambda: layer_table(cut), "layers: before and after"))
    return run.path
