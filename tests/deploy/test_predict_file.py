"""One preprocessing: the report's snippet, `predict` and training see the same pixels in files of every kind."""

import ast
import html
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import sartor
from sartor.core.task import Task
from sartor.data.open import open_data
from sartor.deploy.export import export_onnx, metadata_of, write_predict, write_preprocessing
from sartor.deploy.module import Deployed
from sartor.report.build import build
from sartor.runs.directory import Run

onnx = pytest.importorskip("onnx")
MEAN, STD = (120.0, 110.0, 100.0), (60.0, 50.0, 40.0)


def shapes(width=48, height=36):
    """A picture that changes when it is turned, cut or scaled, as RGB and as numbers from 0 to 1."""
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    parts = [x, y**2, 0.5 + 0.5 * np.sin(9 * x + 4 * y)]
    return Image.fromarray((255 * np.stack(parts, -1)).astype(np.uint8)), (0.7 * x + 0.3 * y**2).astype(np.float32)


def odd_files(folder: Path) -> list[Path]:
    """38 files of real formats: modes, depths, transparency, orientations, sizes."""
    rgb, grey = shapes()
    half = rgb.convert("RGBA")
    half.putalpha(Image.fromarray((255 * grey).astype(np.uint8)))
    palette = rgb.quantize(16)
    sixteen = Image.fromarray((grey * 65535).astype(np.uint16))
    images = {
        "one.png": rgb.convert("1"), "l.png": rgb.convert("L"), "la.png": half.convert("LA"), "p.png": palette,
        "rgb.png": rgb, "rgba.png": half, "sixteen.png": sixteen, "one.tif": rgb.convert("1"),
        "l.tif": rgb.convert("L"),
        "rgb.tif": rgb, "rgba.tif": half, "cmyk.tif": rgb.convert("CMYK"), "p.tif": palette, "sixteen.tif": sixteen,
        "float1.tif": Image.fromarray(grey), "float255.tif": Image.fromarray(grey * 255),
        "float.tif": Image.fromarray(grey * 4 - 1), "int.tif": Image.fromarray((grey * 60000).astype(np.int32)),
        "l.jpg": rgb.convert("L"), "cmyk.jpg": rgb.convert("CMYK"), "large.jpg": rgb.resize((700, 500)),
        "rgb.bmp": rgb, "p.bmp": palette, "l.ppm": rgb.convert("L"), "rgba.tga": half, "p.gif": palette,
        "dot.png": rgb.resize((1, 1)), "column.png": rgb.resize((2, 60)), "row.jpg": rgb.resize((300, 20)),
    }  # fmt: skip
    for name, image in images.items():
        image.save(folder / name)
    for turn in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = turn
        rgb.save(folder / f"turned{turn}.jpg", exif=exif, quality=95)
    palette.save(folder / "clear.png", transparency=3)
    rgb.save(folder / "key.png", transparency=(255, 255, 255))
    rgb.save(folder / "moving.gif", save_all=True, append_images=[rgb.rotate(90)], transparency=0)
    return sorted(p for p in folder.iterdir() if p.is_file())


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """The odd files, twice as a class, for training to read them too."""
    root = tmp_path_factory.mktemp("odd")
    for name in ("a", "b"):
        (root / name).mkdir()
        odd_files(root / name)
    return root


def coloured(folder: Path) -> None:
    """Another network for a finished run, of 24 pixels and three colours, in which every pixel counts."""
    torch.manual_seed(0)
    task, names, model = Task(5, 24, 3), list("abcde"), folder / "model"
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 24 * 24, 5))
    export_onnx(Deployed(net, MEAN, STD), task, model / "model.onnx", metadata_of(task, names, temperature="2.5"))
    write_preprocessing(model / "preprocessing.json", task, MEAN, STD, names)
    write_predict(model / "predict.py")
    run = Run(folder)
    run.finish("export", list(run.stages()["export"].files), 0.0)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_reports_snippet_predict_and_training_agree(finished, photos, tmp_path, channels):
    run = finished.copy(tmp_path / "run")
    if channels == 3:
        coloured(run)
    paths = sorted((photos / "a").iterdir())
    assert len(paths) >= 34
    result = sartor.load(run)
    expected = result.predict(paths)
    if channels == 3:  # training decodes files in colour
        images = open_data(photos, 24)
        index = np.array([images.files.index(f"a/{p.name}") for p in paths])
        assert not images.skipped
        found = result.predict(images.pixels(index).numpy())
        assert [{"image": str(p), **entry} for p, entry in zip(paths, found, strict=True)] == expected
    page = build(run).read_text(encoding="utf-8")
    codes = [html.unescape(re.sub(r"<[^>]+>", "", c)) for c in re.findall(r"<pre><code>(.*?)</code></pre>", page, re.S)]
    (snippet,) = (code for code in codes if "from predict import" in code)
    code = snippet.replace('["photo.jpg"]', repr([str(p) for p in paths]))
    check = "\nassert not {'sartor', 'torch'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code + check], cwd=tmp_path, capture_output=True, text=True, encoding="utf-8",
        env={"PYTHONIOENCODING": "utf-8"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(paths)
    for path, line, entry in zip(paths, lines, expected, strict=True):
        label, _, found = line.partition(" ")
        assert label == entry["label"], path.name
        assert ast.literal_eval(found) == pytest.approx(entry["probabilities"], abs=1e-4), path.name
    assert len({json.dumps(e["probabilities"]) for e in expected}) > 15  # they are told apart


def test_the_reports_other_snippets_run(finished, tmp_path, monkeypatch, capsys):
    """With Sartor, and as a PyTorch module; both say what model.onnx does."""
    run = finished.copy(tmp_path / "run")
    page = build(run).read_text(encoding="utf-8")
    codes = [html.unescape(re.sub(r"<[^>]+>", "", c)) for c in re.findall(r"<pre><code>(.*?)</code></pre>", page, re.S)]
    pixels = np.zeros((1, 8, 8), np.uint8)
    Image.fromarray(pixels[0]).save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    (expected,) = sartor.load(run).predict(["photo.jpg"])
    snippets = [code for code in codes if code.startswith("import sartor")]
    for code in snippets:
        exec(code, {})
    told = capsys.readouterr().out.splitlines()
    assert told[0].partition(" ")[0] == expected["label"]
    logits = sartor.load(run)._onnx.logits(pixels[None].astype(np.float32))
    found = [float(n) for n in re.findall(r"\d\.\d+(?:e-\d+)?", told[1])]
    np.testing.assert_allclose(found, torch.softmax(torch.from_numpy(logits), 1)[0].numpy(), atol=1e-3)
    assert len(snippets) == 2


def test_the_model_file_says_what_it_is_and_nothing_of_the_machine(finished):
    path = finished.run / "model/model.onnx"
    held, proto = path.read_bytes(), onnx.load(path)
    told = {p.key: p.value for p in proto.metadata_props}
    certificate = sartor.load(finished.run).certificate
    assert json.loads(told["labels"]) == ["links", "Mitte", "右"]
    assert told["input"] == "1 x 8 x 8 pixels, 0 to 255"
    assert (told["precision"], told["task"], told["sartor"]) == ("float32", "single-label", sartor.__version__)
    assert told["weights_sha256"] == certificate["weights"]["model/weights.safetensors"]
    assert told["data_sha256"] == certificate["data"]["sha256"]
    heat = sartor.load(finished.run).evaluation.reliability.temperature
    assert float(told["temperature"]) == pytest.approx(heat, rel=1e-5)
    secrets = [Path.home(), Path.cwd(), Path(__file__).parents[2], finished.run, socket.gethostname(), ".py"]
    assert [s for s in secrets if str(s).encode() in held and len(str(s)) > 2] == []
    assert not re.search(rb"/(home|root|usr|tmp|work|Users|var|opt)/", held)
    assert "model/predict.py" in json.loads((finished.run / "stages.json").read_text())["export"]["files"]
