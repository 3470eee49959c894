"""A small run directory as the pipeline writes one, made up in milliseconds and without torch."""

import json
from pathlib import Path

import numpy as np
import pytest

from sartor.core.arch import Choice, canonical
from sartor.core.quadratic import Quadratic
from sartor.solvers.frontier import frontier
from sartor.spaces.drawing import Aspect, Drawing, Stage

BLOCKS = ("e3_k3", "e3_k3_se", "e6_k5", "e6_k5_se")
DEVICE = {"device": "cpu", "processor": "A CPU", "threads": 1, "batch": 1, "runtime": "onnxruntime"}


def staged_choices():
    """Two stages of one or two blocks, named as the mobile space names them."""
    found = []
    for s in (1, 2):
        depth = len(found)
        found += [
            Choice(f"stage{s}.depth", ("1", "2")),
            Choice(f"stage{s}.block1", BLOCKS),
            Choice(f"stage{s}.block2", BLOCKS, ((depth, (1,)),)),
        ]
    return tuple(found)


def generic_choices():
    """A space whose choices have no known shape."""
    return tuple(Choice(f"edge {n}", ("none", "skip", "sep conv 3x3")) for n in range(3))


def drawing(choices):
    """As a space with stages would draw its networks; one without lists its choices."""
    if choices[0].name != "stage1.depth":
        return Drawing().to_json()
    stages = (Stage(f"Stage {s + 1}", (3 * s + 1, 3 * s + 2), 3 * s) for s in range(2))
    aspects = (Aspect("expansion", "height", "×{0:g}"), Aspect("kernel", "tone", "{0:g}×{0:g}"),
               Aspect("squeeze-excitation", "mark", short="SE"))  # fmt: skip
    values = ((3, 3, False), (3, 3, True), (6, 5, False), (6, 5, True))
    return Drawing(tuple(stages), aspects, dict(zip(BLOCKS, values, strict=True))).to_json()


def form(choices, rng, low, high, constant):
    """A quadratic in which every choice adds something while it has an effect."""
    linear, pairs = {}, {}
    for i, choice in enumerate(choices):
        values = np.sort(rng.uniform(low, high, len(choice.options)))
        if choice.needs:
            ((other, allowed),) = choice.needs
            table = np.zeros((len(choices[other].options), len(values)))
            table[list(allowed)] = values
            pairs[other, i] = table
        else:
            linear[i] = values
    return Quadratic(tuple(len(c.options) for c in choices), constant, linear, pairs)


def write(folder, name, data):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data, allow_nan=False), encoding="utf-8")


class Fabricated:
    """A run directory and the pieces it was made of; methods write one part each."""

    def __init__(self, path, choices, classes=("cat", "dog"), skipped=(), data="photos"):
        rng = np.random.default_rng(0)
        self.path, self.choices, self.classes = Path(path), choices, list(classes)
        self.skipped, self.data = list(skipped), data
        errors = form(choices, rng, 0.1, 0.2, 0.3)
        score = form(choices, rng, -1, 3, 60.0)
        self.score = Quadratic(score.sizes, score.constant, score.linear, score.pairs, errors)
        self.latency, self.params = form(choices, rng, 0.01, 0.2, 0.05), form(choices, rng, 1e3, 9e4, 5e3) * 1.0
        self.points = frontier(self.score, self.latency)

    def search(self):
        write(self.path, "config.toml", 'data = "photos"\neffort = "quick"\nseed = 7\n\n[method]\nname = "binas"\n')
        write(self.path, "env.json", {"sartor": "0.1.0", "python": "3.11.7", "platform": "Linux", "packages": {},
                                     "gpu": None, "processes": 1, "started": "2026-01-02T03:00:00Z"})  # fmt: skip
        write(self.path, "splits.json", {
            "train": list(range(60)), "val": list(range(60, 80)), "test": list(range(80, 200)),
            "name": self.data, "classes": self.classes, "digest": "d" * 64, "digest_of": "files",
            "task": {"classes": len(self.classes), "image": 16, "channels": 3}, "mean": [1.0] * 3, "std": [2.0] * 3,
            "skipped": [{"name": n, "reason": "an empty file"} for n in self.skipped],
        })  # fmt: skip
        picks = [[0] * len(self.choices), *self.points.picks.tolist()]
        predicted = self.score.batch(picks)
        history = [{"loss": 2.0 / n, "labels": 1.0 / n, "images_per_second": 400.0} for n in (1, 2, 3)]
        spread = {"value": 0.8, "low": 0.7, "high": 0.9}
        write(self.path, "score.json", {
            "method": "binas", "unit": "% accuracy",
            "quality": {"networks": len(picks), "kendall": spread, "spearman": spread, "mse": spread},
            "facts": {
                "history": {"heaviest": history, "multipath": history}, "heaviest_accuracy": 91.0,
                "held_out": {"picks": picks, "predicted": predicted.tolist(), "measured": (predicted - 1).tolist()},
            },
            "choices": [{"name": c.name, "options": c.options, "needs": c.needs} for c in self.choices],
            "score": self.score.to_json(),
        })  # fmt: skip
        measured = (self.latency.batch(picks) * 1.01).tolist()
        calibration = {
            "intercept_ms": 0.01, "scale": 1.0, "errors": [0.0], "held_out_errors": [0.01],
            "held_out_median_error": 0.01, "held_out_worst_error": 0.03, "networks": picks, "measured_ms": measured,
            "reference_ms": 0.04, "rounds": 15, "corrections": [],
        }  # fmt: skip
        for name, kind, table, notes in (
            ("latency", "time", self.latency, calibration), ("params", "count", self.params, {}),
        ):  # fmt: skip
            write(self.path, f"costs/{name}.json", {
                "cost": name, "kind": kind, "device": DEVICE, "calibration": notes, "prices": {},
                "form": table.to_json(),
            })  # fmt: skip
        return self

    def cut(self, latency, where=""):
        """One budget's files, in the run's folder or in one below it."""
        folder = self.path / where
        best = self.points.best(latency)
        arch = canonical(self.choices, self.points.arch(best))
        predicted = {"latency": self.latency(arch), "params": self.params(arch)}
        value = float(self.score(arch))
        write(folder, "solution.json", {
            "budgets": {"latency": latency}, "predicted": predicted, "corrections": [],
            "solution": {"picks": list(arch.picks), "score": value, "bound": value, "gap": 0.0, "proven": True,
                         "solver": "frontier", "seconds": 0.01},
            "architecture": arch.named(self.choices), "string": "ds_r1_k3 cn_r1_k1", "drawing": drawing(self.choices),
        })  # fmt: skip
        canon = [canonical(self.choices, self.points.arch(n)) for n in range(len(self.points))]
        picks = [list(a.picks) for a in canon]
        write(folder, "frontier.json", {
            "axis": "latency", "kind": "time", "complete": True, "cost": self.points.cost.tolist(),
            "score": self.points.score.tolist(), "picks": picks, "strings": ["" for _ in picks],
            "costs": {"latency": self.latency.batch(picks).tolist(), "params": self.params.batch(picks).tolist()},
        })  # fmt: skip
        self._verified(folder, latency, predicted)
        write(folder, "training.json", {
            "history": [{"loss": 1.0, "images_per_second": 99.0}], "seconds": 3.0, "inherited_val_accuracy": 80.0,
            "kept": "trained", "val_accuracy": 92.0, "test_accuracy": 90.0,
        })  # fmt: skip
        self._certified(folder, latency, arch)
        write(folder, "model/preprocessing.json", {
            "image": 16, "channels": 3, "colour": "RGB", "resize": "shorter side to S, centre crop",
            "input": {"name": "image", "type": "float32", "layout": "BCHW", "range": [0, 255]},
            "output": {"name": "logits", "meaning": "logits"}, "labels": self.classes,
            "normalisation": {"mean": [100.0, 110.0, 120.0], "std": [50.0, 51.0, 52.0], "in_graph": True},
        })  # fmt: skip
        stages = ("solve", "train", "verify") if where else ("data", "costs", "search", "solve", "train", "verify")
        write(folder, "stages.json", {s: {"files": {}, "seconds": 1.5, "finished": "x"} for s in stages})
        return folder

    def _certified(self, folder, latency, arch):
        verified, env = (json.loads(p.read_text()) for p in (folder / "verify.json", self.path / "env.json"))
        write(folder, "certificate.json", {
            "fits": True, "budgets": {"latency": verified["costs"]["latency"]}, "costs": verified["costs"],
            "accuracy": {"test": 90.0, "test_images": 120, "validation": 92.0, "before_fine_tuning": 80.0},
            "score": {"method": "binas", "unit": "% accuracy", "value": 1.0, "bound": 1.0, "gap": 0.0,
                      "proven_optimal": True, "solver": "frontier"},
            "ranking": None, "architecture": arch.named(self.choices), "string": "ds_r1_k3 cn_r1_k1", "corrections": [],
            "data": {"name": "photos", "sha256": "d" * 64, "sha256_of": "files", "train": 60, "validation": 20,
                     "skipped": 0},
            "weights": {"model/model.onnx": f"{int(1e6 * latency):x}"}, "code": {"sartor": "0.1.0", "sha256": "c" * 64},
            "device": DEVICE, "environment": env, "seed": 7, "made": "2026-01-02T03:04:05Z",
        })  # fmt: skip

    def _verified(self, folder, latency, predicted):
        time = predicted["latency"] * 0.98
        timing = {"unit": "ms", "p50": time, "p95": time * 1.01, "low": time * 0.99, "high": time * 1.005, "n": 900,
                  "reference_ms": 0.04, "drift": 1.01, "rounds": [time * f for f in (0.99, 1, 1.01, 1)]}  # fmt: skip
        write(folder, "verify.json", {"fits": True, "device": DEVICE, "costs": {
            "latency": {"kind": "time", "predicted": predicted["latency"], "measured": time, "timing": timing,
                        "limit": latency, "holds": True},
            "params": {"kind": "count", "predicted": predicted["params"], "measured": predicted["params"]},
        }})  # fmt: skip

    def change(self, name, edit):
        """Read a file, let `edit` change it in place, write it back."""
        data = json.loads((self.path / name).read_text(encoding="utf-8"))
        edit(data)
        write(self.path, name, data)

    def generous(self):
        """A budget within which two thirds of the frontier lie."""
        return float(self.points.cost[2 * len(self.points) // 3])


@pytest.fixture
def fabricate(tmp_path):
    """``fabricate(name="a", generic=False, **names)`` writes a whole run and returns what it was made of."""

    def make(name="a", generic=False, choices=None, **names):
        choices = choices or (generic_choices() if generic else staged_choices())
        run = Fabricated(tmp_path / name, choices, **names).search()
        run.cut(run.generous())
        return run

    return make
