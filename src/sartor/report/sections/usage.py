"""How to load the network, check it and make it again."""

from __future__ import annotations

import json
import shlex
from typing import Any

from sartor.report.card import snippet
from sartor.report.files import Files
from sartor.report.text import Html, esc, option
from sartor.runs.schema import Environment, ExportedForm, ExportFile, Preprocessing

_ONNX = """\
import sys

sys.path.append({model})
from predict import classify  # a file beside the model: needs numpy, pillow and onnxruntime, no Sartor

for found in classify(["photo.jpg"]):
    print(found["label"], found["probabilities"])"""

_SARTOR = """\
import sartor

result = sartor.load({here})
for found in result.predict(["photo.jpg"]):
    print(found["label"], found["probabilities"])"""

_TORCH = """\
import sartor
import torch

net = sartor.load({here}).model  # an ordinary torch.nn.Module, in evaluation mode
mean = torch.tensor({mean}).view(1, -1, 1, 1)  # of pixels 0 to 255
std = torch.tensor({std}).view(1, -1, 1, 1)
pixels = torch.zeros(1, {channels}, {side}, {side})  # your images, 0 to 255
with torch.no_grad():
    print(net((pixels - mean) / std).softmax(1))"""


def here(files: Files, quote: str, up: bool = False, inside: str = "") -> str:
    """The folder's name as code; the page's script puts in the path where it finds itself (see page.js).

    A report must not depend on where its folder lies, so no path is written into it; `up` means the run's
    folder even on the page of a further budget, `inside` is a path below the folder.
    """
    folder = files.name if up or not files.is_cut else f"{files.name}/cuts/{files.path.resolve().name}"
    shown = shlex.quote(folder + inside) if quote == "sh" else json.dumps(folder + inside, ensure_ascii=False)
    return f'<span class="here" data-quote="{quote}" data-up="{int(up)}" data-inside="{inside}">{esc(shown)}</span>'


def usage(files: Files) -> dict[str, Any]:
    """Snippets to copy, and what identifies this result."""
    spec = files.own(Preprocessing)
    snippets = [("Python, with Sartor", _filled(_SARTOR, files, {}))]
    if (files.path / "model/predict.py").is_file():
        snippets.append(("Plain ONNX Runtime", _filled(_ONNX, files, {})))
    if spec:
        snippets.append(("PyTorch", _torch(files, spec)))
    exported = files.own(ExportFile)
    for name, form in exported.forms.items() if exported and spec else ():
        off = f"a probability differs by {form.difference:.0e} at most on {exported.images if exported else 0} images"
        title = f"{name}, in {form.precision}: {off}"
        if form.call and spec:
            snippets.append((title, _form(files, form, spec)))
    snippets.append(("Command line", Html(f"sartor predict {here(files, 'sh')} photo.jpg")))
    return {
        "snippets": snippets,
        "spec": _spec(spec) if spec else [],
        "commands": Html(_commands(files)),
        "identity": _identity(files),
    }


def _filled(text: str, files: Files, values: dict[str, Any]) -> Html:
    """A snippet with escaped values and the folder, which is the only HTML in it."""
    safe = {k: esc(v) for k, v in values.items()}
    return Html(esc(text).format(here=here(files, "py"), model=here(files, "py", inside="/model/"), **safe))


def _form(files: Files, form: ExportedForm, spec: Preprocessing) -> Html:
    """How a form for another runtime is loaded."""
    inside = Html(here(files, "py", inside="/export/"))
    return Html(f"import os\n\nos.chdir({inside})\n{esc(chr(10).join(snippet(form, spec)))}")


def _torch(files: Files, spec: Preprocessing) -> Html:
    mean, std = ([round(v, 4) for v in values] for values in (spec.normalisation.mean, spec.normalisation.std))
    return _filled(_TORCH, files, {"mean": mean, "std": std, "channels": spec.channels, "side": spec.image})


def _spec(spec: Preprocessing) -> list[tuple[str, str]]:
    norm, given, (low, high) = spec.normalisation, spec.input, spec.input.range
    numbers = ", ".join(f"({m:.2f}, {s:.2f})" for m, s in zip(norm.mean, norm.std, strict=True))
    where = "inside the ONNX graph" if norm.in_graph else "to be done before the model"
    return [
        ("image", f"{spec.image} × {spec.image} pixels, {spec.colour}"),
        ("resize", f"{spec.resize} (S = {spec.image})"),
        ("input", f"“{given.name}”, {given.type}, {given.layout}, {low:g} to {high:g}"),
        ("normalisation", f"(mean, deviation) per channel: {numbers}; {where}"),
        ("output", f"“{spec.output.name}”: {spec.output.meaning}"),
    ]


def _commands(files: Files) -> str:
    """The commands that make the same result again, from the recorded configuration."""
    command = f"sartor fit --config {here(files, 'sh', up=True, inside='/config.toml')} --out again"
    if files.is_cut:
        budgets = files.solution.budgets.items()
        words = " ".join(esc(option(n, v, files.kind(n))) for n, v in budgets)
        command += f"\nsartor solve again {words}"
    return command


def _identity(files: Files) -> list[tuple[str, str]]:
    """Hashes, versions, seed and device: from the certificate, or from the search's own files without one."""
    certificate, config = files.certificate, files.config
    env = certificate.environment if certificate else files.searched(Environment)
    rows: list[tuple[str, Any]] = [
        ("seed", config.seed),
        ("effort", config.effort),
        ("method", config.method.name if config.method else None),
        ("space", config.space.name if config.space else None),
    ]
    if certificate:
        code = certificate.code
        rows += [
            ("certified", certificate.made),
            ("data sha256", certificate.data.sha256),
            *((f"{name} sha256", value) for name, value in certificate.weights.items()),
            ("Sartor", f"{code.sartor}, code sha256 {code.sha256}"),
            ("measured on", ", ".join(f"{k} {v}" for k, v in certificate.device.items())),
        ]
    if env:
        rows += [
            *([] if certificate else [("Sartor", env.sartor)]),
            ("Python", env.python),
            ("system", env.platform),
            ("GPU", env.gpu),
            ("packages", ", ".join(f"{n} {v}" for n, v in env.packages.items() if v)),
        ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]
