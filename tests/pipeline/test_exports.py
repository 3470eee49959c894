"""The folder that is handed on: forms that agree with model.onnx, a card whose snippets run."""

import html
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

import sartor
from sartor.core.errors import BadInput, MissingDependency, SartorError
from sartor.core.registry import RUNTIMES
from sartor.deploy.module import Deployed, evaluating
from sartor.deploy.quantise import quantised
from sartor.deploy.runtimes.litert import LiteRt
from sartor.pipeline.publish import publish
from sartor.runs.directory import Run
from sartor.runs.schema import ExportFile, Preprocessing

pytest.importorskip("openvino")
pytest.importorskip("ai_edge_litert")
FORMS = ("openvino", "litert", "torchscript")
OWN = """
import shutil
from dataclasses import dataclass
from sartor.deploy.runtimes.onnxruntime import OnnxRuntime

@dataclass(frozen=True, kw_only=True)
class Mine(OnnxRuntime.__mro__[1]):
    form, imports = "renamed", "import onnxruntime"
    call = 'logits = onnxruntime.InferenceSession("{file}").run(None, {"image": pixels})[0]'

    def version(self):
        return "7"

    def prepare(self, model, pixels):
        return OnnxRuntime(batch=self.batch).prepare(model, pixels)

    def convert(self, source, net, example, folder):
        folder.mkdir()
        return [shutil.copyfile(source, folder / "mine.onnx")]
"""


@pytest.fixture(scope="module")
def run(finished, tmp_path_factory):
    path = finished.copy(tmp_path_factory.mktemp("exports") / "run")
    sartor.export(path, to=FORMS, quiet=True)
    return path


def test_every_form_agrees_and_is_verified(run):
    told, certificate = Run(run).load(ExportFile), sartor.load(run).certificate
    assert set(told.forms) == set(FORMS)
    data = certificate["data"]
    every = certificate["accuracy"]["test_images"] + data["train"] + data["validation"]
    assert told.images == min(100, every) > certificate["accuracy"]["test_images"]
    assert all(form.difference < 1e-3 and form.bytes > 1000 for form in told.forms.values())
    assert certificate["exports"]["forms"]["litert"]["difference"] == told.forms["litert"].difference
    lines = {line.what: line.state for line in sartor.verify(run).lines}
    assert "differs" not in lines.values()
    assert lines["export: litert and model.onnx, the same probabilities"] == "verified"
    file = run / "export/litert/model.tflite"
    content = file.read_bytes()
    file.write_bytes(content + b"x")
    broken = [line.what for line in sartor.verify(run).lines if line.state == "differs"]
    assert broken == ["hashes of the stage 'exports'"]
    file.write_bytes(content)


def test_every_runtime_agrees_on_a_hundred_images(run):
    images = np.random.default_rng(0).integers(0, 256, (100, 1, 8, 8)).astype(np.float32)
    result = sartor.load(run)
    told, task = Run(run).load(Preprocessing).normalisation, result.task
    net, file = Deployed(result.model, told.mean, told.std), run / "model/model.onnx"
    with evaluating(net):
        expected = task.probabilities(net(torch.from_numpy(images)).numpy())
    assert np.ptp(expected, axis=0).max() > 0.05  # it tells these images apart
    for name in RUNTIMES.names():
        runtime = RUNTIMES[name](batch=100)
        found = task.probabilities(runtime.run(file if runtime.exported else net, images))
        assert np.abs(found - expected).max() < 1e-3, name


def test_the_snippets_of_the_card_run(run, monkeypatch):
    text = (run / "export/README.md").read_text(encoding="utf-8")
    assert text.startswith("---\npipeline_tag: image-classification\n")
    assert "| links |" in text
    monkeypatch.chdir(run / "export")
    expected = sartor.load(run)._onnx.logits(np.zeros((1, 1, 8, 8), np.float32))
    found = [code for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "logits" in code]
    assert len(found) == 3
    for code in found:
        names = {}
        exec(code, names)
        np.testing.assert_allclose(names["logits"], expected, atol=1e-3)


def test_the_snippets_of_the_report_run(run, monkeypatch):
    page = html.unescape(re.sub(r"<span[^>]*>|</span>", "", (run / "report.html").read_text(encoding="utf-8")))
    expected = sartor.load(run)._onnx.logits(np.zeros((1, 1, 8, 8), np.float32))
    found = [code for code in re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL) if "os.chdir" in code]
    assert len(found) == 3 and page.count("on 60 images") == 3
    for code in found:
        monkeypatch.chdir(run.parent)
        names = {}
        exec(code, names)
        np.testing.assert_allclose(names["logits"], expected, atol=1e-3)


def test_a_runtime_of_ones_own_has_a_form_too(finished, tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    path = finished.copy(tmp_path / "run")
    folder = sartor.export(path, to=["mine:Mine", "openvino"], quiet=True)
    assert set(sartor.load(path).certificate["exports"]["forms"]) == {"renamed", "openvino"}
    text = (folder / "README.md").read_text()
    monkeypatch.chdir(folder)
    names = {}
    exec(re.findall(r"```python\n(import numpy.*?)```", text, re.DOTALL)[0], names)
    assert names["logits"].shape == (1, 3)
    states = [{line.what: line.state for line in sartor.verify(path, trust_code=t).lines} for t in (False, True)]
    assert [s["export: renamed and model.onnx, the same probabilities"] for s in states] == [
        "cannot be checked", "verified"
    ]  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (path / "signature.json").write_text("{}")
    with pytest.raises(BadInput, match="is signed"):
        sartor.export(path, to=["openvino"], quiet=True)


def test_what_is_deployed_in_8_bits_is_exported_in_8_bits(finished, tmp_path):
    path = finished.copy(tmp_path / "run")
    images = np.random.default_rng(0).integers(0, 256, (32, 1, 8, 8)).astype(np.float32)
    (path / "model/model_int8.onnx").write_bytes(quantised(path / "model/model.onnx", images))
    sartor.export(path, to=["openvino", "litert"], quiet=True)
    told = Run(path).load(ExportFile).forms
    assert {name: form.precision for name, form in told.items()} == {"openvino": "int8", "litert": "float32"}
    assert (path / "export/openvino/model.bin").stat().st_size < (path / "model/model.onnx").stat().st_size / 2
    assert "openvino, in int8" in (path / "export/README.md").read_text()
    assert told["openvino"].difference < 0.05


def test_the_hubs_folder_is_whole_and_goes_up(run, monkeypatch):
    """Up to the upload, which a stand-in for the hub's client takes."""
    sent = {}

    class Api:
        def create_repo(self, name, *, private, exist_ok):
            assert exist_ok
            return f"https://huggingface.co/{name}" + ("?private" if private else "")

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            sent[repo_id] = {
                p.relative_to(folder_path).as_posix(): p for p in Path(folder_path).rglob("*") if p.is_file()
            }

    client = ModuleType("huggingface_hub")
    client.HfApi = Api
    monkeypatch.setitem(sys.modules, "huggingface_hub", client)
    assert publish(run, "hf://ada/links", private=True) == "https://huggingface.co/ada/links?private"
    files = sent["ada/links"]
    assert {"README.md", "certificate.json", "model.onnx", "predict.py", "labels.json", "litert/model.tflite"} <= {
        *files
    }
    assert files["README.md"].read_text(encoding="utf-8").startswith("---\npipeline_tag: image-classification\n")
    assert files["weights.safetensors"].read_bytes() == (run / "model/weights.safetensors").read_bytes()
    assert sartor.verify(run).holds
    monkeypatch.setattr(Api, "upload_folder", lambda self, **given: (_ for _ in ()).throw(OSError("no route")))
    with pytest.raises(SartorError, match=r"hub could not be uploaded to hf://ada/links: no route. Log in"):
        publish(run, "hf://ada/links")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    (run / "hub/README.md").unlink()
    with pytest.raises(MissingDependency, match=r"sartor\[hub\]"):
        publish(run, "hf://ada/links")
    assert (run / "hub/README.md").is_file()  # to be uploaded by hand
    for wrong in ("ada/links", "hf://ada", "hf://ada/b/c", "https://huggingface.co/ada/links"):
        with pytest.raises(BadInput, match="hf://USER/NAME"):
            publish(run, wrong)


def test_what_cannot_be_exported_changes_nothing(run, monkeypatch):
    before = sorted(p.name for p in (run / "export").rglob("*"))
    with pytest.raises(BadInput, match="litert, openvino, torchscript"):
        sartor.export(run, to=["tflite"])
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingDependency, match=r"sartor\[openvino\]"):
        sartor.export(run, to=["openvino"], quiet=True)
    monkeypatch.setattr(LiteRt, "run", lambda self, model, pixels: np.zeros((len(pixels), 3)))
    with pytest.raises(SartorError, match="a probability differs"):
        sartor.export(run, to=["litert"], quiet=True)
    assert sorted(p.name for p in (run / "export").rglob("*")) == before
    assert sartor.verify(run).holds
