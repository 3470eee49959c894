"""The model card of an exported network, in the form that Hugging Face reads: a pure function of the run's files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from sartor.core.views import told
from sartor.report.files import Files
from sartor.report.sections.headline import cautions
from sartor.runs.schema import Certificate, ExportedForm, ExportFile, Preprocessing


def card(path: Path, exported: ExportFile | None = None) -> str:
    """README.md: front matter, what it is, how to use it, how good, what it costs, what it is not for.

    `exported` are forms that are about to be written.
    """
    files = Files.open(path)
    certificate, spec = files.certificate, files.own(Preprocessing)
    exported = exported or files.own(ExportFile)
    assert certificate is not None and spec is not None
    lines = [*_front(files.name, certificate), *_about(certificate, spec), *_usage(spec, exported)]
    lines += [*_accuracy(certificate, spec), *_costs(certificate), "", "## Limits", ""]
    lines += [f"- {caution}" for caution in cautions(files)]
    lines.append(f"- It knows its {len(spec.labels)} classes and nothing else: every image gets one of them.")
    lines += [
        "",
        "## Provenance",
        "",
        f"- Sartor {certificate.code.sartor}, {certificate.made}, seed {certificate.seed}",
    ]
    lines += [f"- sha256 of {name}: `{value}`" for name, value in certificate.weights.items()]
    lines.append(f"- sha256 of the data ({certificate.data.sha256_of}): `{certificate.data.sha256}`")
    lines += _origin(certificate)
    return "\n".join(lines) + "\n"


def _origin(c: Certificate) -> Iterator[str]:
    """Where its weights come from, and whether these had seen the test images."""
    if c.origin is None:
        return
    data = f", which learnt from {c.origin.data}" if c.origin.data else ""
    yield f"- Its search began with weights learnt elsewhere, {c.origin.given}{data}."
    yield f"- Of the test images: {c.origin.told()}."
    started = c.origin.started
    if started is not None and started.kept == "elsewhere":
        yield f"- {100 * started.weights / started.of:.0f} % of its weights began as those of {started.source}."
    yield from (f"- sha256 of {name}: `{value}`" for name, value in c.origin.weights.items())


def _front(name: str, c: Certificate) -> Iterator[str]:
    metric = c.accuracy.metric
    yield from ("---", "pipeline_tag: image-classification", "library_name: onnx", "tags:", "- sartor", "- onnx")
    yield from ("metrics:", f"- {json.dumps(metric)}", "model-index:", f"- name: {json.dumps(name)}", "  results:")
    yield from (
        "  - task:",
        "      type: image-classification",
        "    dataset:",
        f"      name: {json.dumps(c.data.name)}",
    )
    yield from (f"      type: {json.dumps(c.data.name)}", "    metrics:", f"    - type: {json.dumps(metric)}")
    yield from (f"      value: {c.accuracy.test / 100:.4f}", "---", "", f"# {name}", "")


def _about(c: Certificate, spec: Preprocessing) -> Iterator[str]:
    data, device = c.data, ", ".join(f"{k} {v}" for k, v in c.device.items())
    yield f"An image classifier ({len(spec.labels)} classes), cut to its budgets and trained by Sartor."
    yield f"Architecture: `{c.string}`."
    if c.views > 1:
        yield f"Views: {told(c.views)}."
    yield ""
    counts = f"{data.train} images to train on, {data.validation} to decide, {c.accuracy.test_images} to test"
    yield f"Data: {data.name}, {counts}."
    yield f"Measured on: {device}."
    yield ""


def _usage(spec: Preprocessing, exported: ExportFile | None) -> Iterator[str]:
    yield from ("## Use", "", f"Input: pixels 0 to 255, float32, {spec.colour}, {spec.image} x {spec.image}")
    yield f"({spec.resize}, S = {spec.image}); the normalisation is inside. Output: {spec.output.meaning}."
    yield ""
    yield from ("```python", "from predict import classify  # beside this file: needs numpy, pillow and onnxruntime")
    yield from ("", 'print(classify(["photo.jpg"]))', "```", "")
    for name, form in exported.forms.items() if exported else ():
        off = f"{form.difference:.1e} from the ONNX file at most, on {exported.images if exported else 0} images"
        yield from (f"{name}, in {form.precision} ({off}):", "")
        if form.call:
            yield from ("```python", *snippet(form, spec), "```", "")


def snippet(form: ExportedForm, spec: Preprocessing) -> Iterator[str]:
    """Python that loads a form in the folder where it lies and calls it."""
    yield from ("import numpy as np", *form.imports.splitlines(), "")
    yield f"pixels = np.zeros((1, {spec.channels}, {spec.image}, {spec.image}), np.float32)  # your images"
    yield from form.call.splitlines()


def _accuracy(c: Certificate, spec: Preprocessing) -> Iterator[str]:
    yield from (
        "## Accuracy",
        "",
        f"Test {c.accuracy.metric}: {c.accuracy.test:.2f} % of {c.accuracy.test_images} images.",
        "",
    )
    if c.precision is not None:
        yield from ("| precision | test | bytes | median call |", "|---|---|---|---|")
        for name, form in (("float32", c.precision.float32), ("int8", c.precision.int8)):
            call = f"{form.timing.p50:.4g} ms" if form.timing else "not measured"
            yield f"| {name} | {form.test_accuracy:.2f} % | {form.bytes} | {call} |"
        yield from ("", f"Deployed: {'int8' if c.precision.used else 'float32'} ({c.precision.why}).", "")
    if c.accuracy.per_class is not None:
        yield from ("| class | right |", "|---|---|")
        for label, value in zip(spec.labels, c.accuracy.per_class, strict=True):
            shown = " ".join(label.split()).replace("|", "\\|")
            yield f"| {shown} | {'no test image' if value is None else f'{value:.1f} %'} |"
        yield ""


def _costs(c: Certificate) -> Iterator[str]:
    yield from ("## Costs", "", "| cost | measured | asked |", "|---|---|---|")
    for name, e in c.costs.items():
        yield f"| {name} | {e.kind.show(e.measured)} | {'' if e.limit is None else e.kind.show(e.limit)} |"
