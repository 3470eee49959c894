"""How to load the network, check it and make it again."""

from __future__ import annotations

import json
import shlex
from typing import Any

from sartor.report.files import Files
from sartor.report.text import Html, esc, typed

_ONNX = """\
import json
import numpy as np
import onnxruntime
from PIL import Image, ImageOps

folder = {model}
labels = json.load(open(folder + "labels.json", encoding="utf-8"))
session = onnxruntime.InferenceSession(folder + "model.onnx", providers=["CPUExecutionProvider"])

image = ImageOps.exif_transpose(Image.open("photo.jpg")).convert("{mode}")
image = ImageOps.fit(image, ({side}, {side}), Image.Resampling.BICUBIC)  # {resize}
pixels = np.asarray(image, np.float32){transpose}[None]  # {layout}, values {low} to {high}; {where}
logits = session.run(None, {{"{name}": pixels}})[0][0]
probabilities = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
print(labels[probabilities.argmax()], probabilities.max())"""

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
    spec = files.own("model/preprocessing.json")
    snippets = [("Python, with Sartor", _filled(_SARTOR, files, {}))]
    if spec:
        snippets += [("Plain ONNX Runtime", _onnx(files, spec)), ("PyTorch", _torch(files, spec))]
    snippets.append(("Command line", Html(f"sartor predict {here(files, 'sh')} photo.jpg")))
    return {
        "snippets": snippets, "spec": _spec(spec) if spec else [],
        "again": Html(_again(files)), "identity": _identity(files),
    }  # fmt: skip


def _filled(text: str, files: Files, values: dict[str, Any]) -> Html:
    """A snippet with escaped values and the folder, which is the only HTML in it."""
    safe = {k: esc(v) for k, v in values.items()}
    return Html(esc(text).format(here=here(files, "py"), model=here(files, "py", inside="/model/"), **safe))


def _onnx(files: Files, spec: Any) -> Html:
    colour = int(spec["channels"]) == 3
    inside = bool(spec["normalisation"]["in_graph"])
    return _filled(_ONNX, files, {
        "mode": "RGB" if colour else "L", "side": int(spec["image"]), "resize": spec["resize"],
        "transpose": ".transpose(2, 0, 1)" if colour else "[None]", "layout": spec["input"]["layout"],
        "low": spec["input"]["range"][0], "high": spec["input"]["range"][1], "name": spec["input"]["name"],
        "where": "the model normalises them itself" if inside else "then normalise: see below",
    })  # fmt: skip


def _torch(files: Files, spec: Any) -> Html:
    norm = spec["normalisation"]
    rounded = {k: [round(float(v), 4) for v in norm[k]] for k in ("mean", "std")}
    return _filled(_TORCH, files, {**rounded, "channels": int(spec["channels"]), "side": int(spec["image"])})


def _spec(spec: Any) -> list[tuple[str, str]]:
    norm = spec["normalisation"]
    numbers = ", ".join(f"({m:.2f}, {s:.2f})" for m, s in zip(norm["mean"], norm["std"], strict=True))
    where = "inside the ONNX graph" if norm["in_graph"] else "to be done before the model"
    low, high = spec["input"]["range"]
    return [
        ("image", f"{spec['image']} × {spec['image']} pixels, {spec['colour']}"),
        ("resize", f"{spec['resize']} (S = {spec['image']})"),
        ("input", f"“{spec['input']['name']}”, {spec['input']['type']}, {spec['input']['layout']}, {low} to {high}"),
        ("normalisation", f"(mean, deviation) a channel: {numbers}; {where}"),
        ("output", f"“{spec['output']['name']}”: {spec['output']['meaning']}"),
    ]


def _again(files: Files) -> str:
    """The commands that make the same result again, from the recorded configuration."""
    command = f"sartor fit --config {here(files, 'sh', up=True, inside='/config.toml')} --out again"
    if files.is_cut:
        budgets = files.own("solution.json")["budgets"].items()
        words = " ".join(f"--{esc(n)} {esc(typed(v, files.kinds.get(n, 'count')))}" for n, v in budgets)
        command += f"\nsartor solve again {words}"
    return command


def _identity(files: Files) -> list[tuple[str, str]]:
    """Hashes, versions, seed and device: from the certificate, or from the search's own files without one."""
    certificate = files.own("certificate.json") or {}
    config = files.searched("config.toml") or {}
    env = certificate.get("environment") or files.searched("env.json") or {}
    data, code = certificate.get("data") or {}, certificate.get("code") or {}
    device = certificate.get("device") or {}
    rows = [
        ("certified", certificate.get("made")), ("seed", config.get("seed")), ("effort", config.get("effort")),
        ("method", (config.get("method") or {}).get("name")), ("space", (config.get("space") or {}).get("name")),
        ("data sha256", data.get("sha256")),
        *((f"{name} sha256", value) for name, value in (certificate.get("weights") or {}).items()),
        ("Sartor", f"{code['sartor']}, code sha256 {code['sha256']}" if code else env.get("sartor")),
        ("Python", env.get("python")), ("system", env.get("platform")), ("GPU", env.get("gpu")),
        ("packages", ", ".join(f"{n} {v}" for n, v in (env.get("packages") or {}).items() if v)),
        ("measured on", ", ".join(f"{k} {v}" for k, v in device.items())),
    ]  # fmt: skip
    return [(name, str(value)) for name, value in rows if value not in (None, "")]
