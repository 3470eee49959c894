"""What the pages speak of, small: photos, files of one's own, runs; and how work of minutes is cut short.

`stand_in` lets every command and call go as far as the work itself and then gives a finished tiny run; `shortened` does
the work, with one epoch of everything.
"""

import csv
import dataclasses
import gzip
import itertools
import json
import shutil
import zipfile
from pathlib import Path

import tiny
from PIL import Image

import sartor
from sartor.api import run as api
from sartor.compression import order as compression
from sartor.core.arch import Arch
from sartor.core.registry import COSTS
from sartor.core.units import DURATION
from sartor.costs.params import Params
from sartor.data import open as opening
from sartor.pipeline import compare, context, options, order
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.runs.schema import CompareFile, VerifyFile
from sartor.spaces.nasbench201.space import NasBench201

SHORT = {
    "trials": {"networks": 6, "epochs": 1, "rungs": 1, "processes": 1}, "binas": tiny.QUICK["method"],
    "xnas": {"epochs": 1}, "darts": {"epochs": 1}, "bayesnas": {"rounds": 1, "epochs": 1, "strength": 1.0},
    "nasi": {"steps": 2, "nu_networks": 3, "batch": 4},
}  # fmt: skip
NETWORK = """
from torch import nn

def make(classes, channels):
    layers = [nn.Conv2d(channels, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, classes))
"""


def photos(folder: Path) -> None:
    """Sixty images in three classes, every fifth of them for the test; the same as a zip and as a CSV."""
    x, y = tiny.arrays()
    rows = []
    for n, (image, label) in enumerate(zip(x, y, strict=True)):
        part = "test" if n // 3 % 5 == 0 else "train"
        path = folder / "photos" / part / tiny.CLASSES[label] / f"{n}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).convert("RGB").save(path)
        rows.append((path.relative_to(folder), tiny.CLASSES[label], part))
    with zipfile.ZipFile(folder / "photos.zip", "w") as archive:
        for path, _, _ in rows:
            archive.write(folder / path, path)
    with (folder / "labels.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("file", "labels", "split"), *rows])
    shutil.copytree(folder / "photos", folder / "many-photos")
    (folder / "new").mkdir()
    for name in ("cat.jpg", "photo.jpg", "new/1.jpg"):
        Image.fromarray(x[0]).convert("RGB").resize((40, 30)).save(folder / name)


def tables(folder: Path) -> None:
    """A network to compress, people's tables of measured networks, and a tabular benchmark."""
    (folder / "my").mkdir()
    (folder / "my/net.py").write_text(NETWORK)
    depth, block = ["2", "3", "4"], ["e3_k3", "e3_k3_se", "e6_k5"]
    inner = f'[[choices]]\nname = "stage1.block3"\noptions = {json.dumps(block)}\n'
    needs = 'active_when = {"stage1.depth" = ["3", "4"]}\n'
    outer = f'[[choices]]\nname = "stage1.depth"\noptions = {json.dumps(depth)}\n'
    (folder / "space.toml").write_text(outer + inner + needs + outer.replace("stage1", "stage2"))
    rows = [("stage1.depth", "stage1.block3", "stage2.depth", "top1", "pixel_ms")]
    for d, b, e in itertools.product(depth, block, depth):
        if d != "2" or b == block[0]:
            rows.append((d, "" if d == "2" else b, e, 70 + int(d) + len(b) / 9 + int(e), 2 * int(d) + len(b) / 4))
    for name in ("samples.csv", "held_out.csv"):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows(rows)
    prices = {"options": {"stage1.depth": {d: int(d) for d in depth}, "stage1.block3": {b: len(b) for b in block}}}
    (folder / "lut.json").write_text(json.dumps({"unit": "ms", **prices}))
    (folder / "params.json").write_text(json.dumps({"unit": "M", "constant": 0.1, **prices}))
    space = NasBench201()
    with gzip.open(folder / "nasbench201.csv.gz", "wt") as file:
        file.write("index,arch,cifar10_test_200\n")
        for n, picks in enumerate(itertools.product((1, 2, 3), repeat=6)):
            file.write(f"{n},{space.describe(Arch(picks))},{50 + sum(picks)}\n")


class Runs:
    """Runs that were there before the page's first command: a fit into one of them begins anew."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.given = {folder / "runs" / name for name in ("a", "photos", "big")}
        for path in self.given:
            shutil.copytree(source, path)

    def make_room(self, out: Path, data: object) -> None:
        """As for a person who begins here; the same command twice goes on, as it should."""
        out = Path(out).absolute()
        if out in self.given or out == options.default_folder(data).absolute():
            shutil.rmtree(out, ignore_errors=True)
            self.given.discard(out)


def shortened(patch, runs: Runs) -> None:
    """All of the work, with one epoch of everything instead of minutes, and two rivals in a comparison."""
    fit, compress, compared, groups = order.fit, compression.compress, compare.compare, compare.groups

    def costs(asked):
        timed = {n for n in (*asked.costs, *asked.budgets) if n.partition("@")[0] == "latency"}
        coarse = {n: asked.costs.get(n, options.Plug("latency")) for n in timed}
        more = {n: dataclasses.replace(p, options={**tiny.COARSE, **p.options}) for n, p in coarse.items()}
        return {**asked.costs, **more}

    def short_fit(asked, out, reporter=None):
        runs.make_room(out, asked.data)
        name = asked.method.given if isinstance(asked.method.given, str) else ""
        quick = {k: v for k, v in SHORT.get(name, {}).items() if k != "name"}
        method = dataclasses.replace(asked.method, options={**quick, **asked.method.options})
        train = {**tiny.QUICK["train"], **asked.train_options}
        short = dataclasses.replace(asked, time=None, effort="quick", method=method, train_options=train,
                                    costs=costs(asked))  # fmt: skip
        return fit(short, out, reporter)

    def short_compress(asked, out, *more):
        short = dataclasses.replace(asked, effort="quick", rounds=1, epochs=1, pretrain=1, costs=costs(asked),
                                    train_options={"epochs": 1, **asked.train_options})  # fmt: skip
        return compress(short, out, *more)

    def short_compare(path, duration=None, *more):
        return compared(path, "8s", *more)

    patch.setattr(order, "fit", short_fit)
    patch.setattr(compression, "compress", short_compress)
    patch.setattr(compare, "compare", short_compare)
    patch.setattr(compare, "groups", lambda *given: groups(*given)[:2])  # of what could be trained instead


def stand_in(patch, runs: Runs, finished: tiny.Finished) -> None:
    """What would train, or time networks, is checked as far as that; then a finished run stands for its result."""
    open_data, verify, made_cost = opening.open_data, api.verify, options.Fit.made_cost

    def copied(out):
        if not (out / "certificate.json").exists():
            shutil.copytree(finished.run, out, dirs_exist_ok=True)
        return out

    def fit(asked, out, reporter=None):
        runs.make_room(out, asked.data)
        context.open_context(asked, out / "context", Reporter(silent=True))  # opens the images, makes method and space
        return copied(Path(out))

    def solve(path, budgets, reporter=None, **more):
        own = {name: amount for name, amount in options.per_target(budgets).items() if name in COSTS.names()}
        limits = options.parse_budgets(own)
        assert budgets
        if own != options.per_target(budgets):  # of a cost, or a target, of one's own
            return copied(Path(path) / "cuts/own")
        return copied(Path(path) / "cuts" / order.slug(limits, {n: COSTS[n]() for n in limits}))

    def compress(asked, out, *more):
        open_data(asked.data, asked.image)
        return copied(Path(out))

    def compared(path, duration=None, timm=(), reporter=None, trust_code=False):
        if duration is not None:
            DURATION.parse(duration, "the time")
        run = Run(Path(path))
        own, kinds = compare._contestant(run, "this run", searched=True), run.load(VerifyFile).costs
        run.save(CompareFile(
            budgets=compare._budgets(run), axis="latency", kinds={n: e.kind for n, e in kinds.items()}, seconds=1.0,
            metric="accuracy", inherited_seconds=0.0, test_images=9, own=own, rivals=(),
        ))  # fmt: skip
        run.finish("compare", [CompareFile.NAME], 1.0)
        return run.path

    def grey(given, *more, **how):
        found = open_data(given, *more, **how)
        return open_data(finished.data, *more, **how) if how.get("whole") else found  # images that the run knows

    def verified(run, data=None, here=False, **more):
        if data is not None:
            open_data(data)
        return verify(run, **more)

    for owner, name, value in (
        (order, "fit", fit), (order, "solve", solve), (compression, "compress", compress),
        (compare, "compare", compared), (opening, "open_data", grey), (api, "verify", verified),
        (sartor, "verify", verified),
        (options.Fit, "made_cost", lambda self, plug: made_cost(self, plug) and Params()),
    ):  # fmt: skip
        patch.setattr(owner, name, value)
