"""report.html from a run directory: everything in one file that needs no network, the same bytes every time."""

from __future__ import annotations

import base64
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sartor.core.errors import RunError, require
from sartor.report.files import Files
from sartor.report.sections.cells import cells
from sartor.report.sections.compare import compare
from sartor.report.sections.compression import compression
from sartor.report.sections.decisions import contributions, decisions, prices
from sartor.report.sections.evidence import data, ranking, timing, training
from sartor.report.sections.frontier import frontier
from sartor.report.sections.headline import headline
from sartor.report.sections.mistakes import mistakes
from sartor.report.sections.network import network
from sartor.report.sections.switches import switches
from sartor.report.sections.trials import trials
from sartor.report.sections.usage import here, usage
from sartor.report.sections.why import why
from sartor.report.text import Html
from sartor.runs.directory import Run, atomic

NAME = "report.html"
_FOLDER = Path(__file__).parent

# A new section is a function here and a block of the same name in page.html, which has their order. One that does not
# apply to a run returns None.
SECTIONS: tuple[Callable[[Files], Any], ...] = (
    headline, compression, compare, trials, frontier, cells, switches,
    decisions, why, ranking, timing, training, mistakes, data, usage,
)  # fmt: skip


def _made(make: Callable[[Files], Any], files: Files) -> Any:
    """A section; files that are each as they should be may still contradict each other."""
    try:
        return make(files)
    except (LookupError, ArithmeticError, ValueError) as error:
        raise RunError(
            f"the files of {files.path} must agree with each other, but those that the report's section "
            f"{make.__name__!r} is made of do not ({error!r}). Run the same command again into a new folder."
        ) from error


def build(path: Path) -> Path:
    """Write report.html into a run directory or a further budget's folder (RUN/cuts/SLUG)."""
    path, start = Path(path), time.monotonic()
    jinja2 = require("jinja2", "report")
    files = Files.open(path)
    sections = {make.__name__: _made(make, files) for make in SECTIONS}
    sections["network"] = network(files, contributions(files), prices(files)) if files.choices else None
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style, script = ((_FOLDER / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    page = environment.get_template("page.html").render(
        **sections,
        name=files.name,
        cut=files.path.resolve().name if files.is_cut else None,
        style=Html(style),
        script=Html(script),
        policy=_policy(script),
        run=Html(here(files, "sh", up=True)),
    )
    target = path / NAME
    with atomic(target) as tmp:
        # A folder's name may hold bytes that are no text; they become question marks rather than an error.
        tmp.write_bytes(page.encode("utf-8", "replace"))
    Run(path).finish("report", [NAME], time.monotonic() - start)
    return target


def _policy(script: str) -> str:
    """A content security policy: no network at all, and no script but the page's own, whatever the data contain."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'"
    )
