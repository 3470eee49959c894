"""The look at the images before training: everything planted is found, and nothing that is not there."""

import hashlib
import io
import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from torch import nn

import sartor
from sartor.cli.main import app
from sartor.core.seeds import Seeds
from sartor.core.task import MultiLabel
from sartor.data.alike import Prints
from sartor.data.audit import audit
from sartor.data.open import open_data
from sartor.data.sources.arrays import Arrays, from_arrays
from sartor.data.split import split
from sartor.engine.evaluate import accuracy, outputs
from sartor.engine.network import train_network
from sartor.engine.recipe import Recipe
from sartor.pipeline import training
from sartor.report.build import build
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter

SIDE = 40


def photo(seed, side=SIDE):
    """Something with the detail of a photograph: coarse shapes, fine ones, noise."""
    rng = np.random.default_rng(seed)
    layers = [(rng.normal(size=(n, n)).astype(np.float32), weight) for n, weight in ((4, 90), (9, 50), (20, 25))]
    field = sum(
        weight * rng.uniform(0.5, 1, 3) * np.asarray(Image.fromarray(noise).resize((side, side), 3))[..., None]
        for noise, weight in layers
    )
    return Image.fromarray(np.clip(128 + field + rng.normal(size=(side, side, 3)) * 4, 0, 255).astype(np.uint8))


def encoded(image):
    held = io.BytesIO()
    image.save(held, "JPEG", quality=75)
    return Image.open(held)


COPIES = {
    "exact": lambda image: image.copy(),
    "encoded": encoded,
    "smaller": lambda image: image.resize((SIDE - 3, SIDE - 3), Image.Resampling.LANCZOS),
    "larger": lambda image: image.resize((SIDE + 5, SIDE + 5), Image.Resampling.BICUBIC),
    "brighter": lambda image: image.point(lambda v: min(255, int(v * 1.08))),
    "darker": lambda image: image.point(lambda v: int(v * 0.9)),
}


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Three classes of photographs and one with only a few; copies of every kind where none should be."""
    root = tmp_path_factory.mktemp("photos")

    def save(image, name):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path)

    for k, kind in enumerate(("cat", "dog", "emu", "rare")):
        for n in range(3 if kind == "rare" else 12):
            save(photo(100 * k + n), f"train/{kind}/{n:02}.png")
        for n in range(3):
            save(photo(1000 + 100 * k + n), f"test/{kind}/{n:02}.png")
    for n, (name, change) in enumerate(COPIES.items()):
        save(change(photo(n)), f"train/cat/copy-{name}.png")  # of cat 00 to 05
        save(change(photo(100 + n)), f"test/dog/leak-{name}.png")  # of dog 00 to 05
        save(change(photo(200 + n)), f"train/cat/wrong-{name}.png")  # of emu 00 to 05, called a cat
    save(Image.new("RGB", (SIDE, SIDE)), "train/emu/black.png")
    save(photo(5000, 12), "train/emu/tiny.png")
    save(photo(5001).resize((200, SIDE)), "train/emu/long.png")
    return root


@pytest.fixture(scope="module")
def found(photos):
    return sartor.audit(photos, image=32, quiet=True)


def test_all_that_was_planted_is_found_and_nothing_else(found):
    pairs = {frozenset(m.name for m in g.members) for g in found.groups}
    names = list(COPIES)
    assert pairs == {
        *(frozenset((f"train/cat/{n:02}.png", f"train/cat/copy-{name}.png")) for n, name in enumerate(names)),
        *(frozenset((f"train/dog/{n:02}.png", f"test/dog/leak-{name}.png")) for n, name in enumerate(names)),
        *(frozenset((f"train/emu/{n:02}.png", f"train/cat/wrong-{name}.png")) for n, name in enumerate(names)),
    }
    exact = {m.name for g in found.groups if g.exact for m in g.members}
    assert {n for n in exact if "exact" in n} == {
        "train/cat/copy-exact.png", "test/dog/leak-exact.png", "train/cat/wrong-exact.png",
    }  # fmt: skip
    f = found.findings
    assert (f.exact + f.near, f.leaks, f.contradictions) == (36, 6, 12)
    assert (f.blank, f.enlarged, f.cropped, f.few) == (1, 1, 1, 1)
    assert found.findings.imbalance == pytest.approx(27 / 6)


def test_it_is_told_in_words_and_as_json(photos, found, capsys):
    app(["audit", str(photos), "--image=32", "--quiet"], standalone_mode=False)
    text = capsys.readouterr().out
    assert all(line in text for line in found.lines())
    for words in (
        "one that is trained on: 6, such as train/dog/00.png (dog, train) = test/dog/leak-exact.png (dog, test)",
        "one with other labels: 12, such as",
        "images of one colour, which show nothing: 1",
        "classes with less than 10 images: 1 (rare 6)",
        "32 pixels that the network sees: 1",
        "of which only the middle is seen: 1",
        "18 groups",
    ):
        assert words in text
    app(["audit", str(photos), "--image=32", "--quiet", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["findings"]["leaks"] == 6


def collection(copies, labels=None):
    """24 photographs of two classes, and so many copies of the first ones."""
    pixels = np.stack([np.asarray(photo(n, 32)).transpose(2, 0, 1) for n in (*range(24), *range(copies))])
    y = np.array([*(np.arange(24) % 2), *(np.arange(copies) % 2)]) if labels is None else labels
    return from_arrays(pixels, y)


@pytest.mark.parametrize("seed", range(4))
def test_copies_stay_together_and_the_splits_keep_their_sizes(seed):
    images = collection(10)
    parts = split(images, np.random.default_rng(seed))
    place = {int(i): name for name in ("train", "val", "test") for i in getattr(parts, name)}
    assert sorted(place) == list(range(34))
    assert all(place[n] == place[24 + n] for n in range(10))
    counts = Counter((name, int(images.labels[i])) for i, name in place.items())
    assert [counts[name, k] for name in ("train", "val", "test") for k in (0, 1)] == [11, 11, 3, 3, 3, 3]
    assert audit(images, parts).findings.leaks == 0


def test_copies_with_several_labels_stay_together():
    rng = np.random.default_rng(0)
    labels = (rng.random((30, 3)) < 0.5).astype(np.float32)
    labels[24:] = labels[:6]
    images = collection(6, labels)
    parts = split(images, rng)
    place = {int(i): name for name in ("train", "val", "test") for i in getattr(parts, name)}
    assert all(place[n] == place[24 + n] for n in range(6))
    assert audit(images, parts).findings.contradictions == 0


def test_where_there_are_no_copies_splits_are_what_they_always_were():
    images = open_data("digits")
    parts = split(images, Seeds(0).rng("split"))
    assert hashlib.sha256(json.dumps(parts.to_json()).encode()).hexdigest()[:16] == "9d36d08961649d81"
    found = audit(images, parts)
    assert (found.groups, found.plain) == ((), 1797)  # 8 pixels are too few to call two digits nearly the same
    assert found.lines()[0].startswith("nothing suspicious in 1797 images")


def test_images_that_are_all_the_same_cannot_be_split():
    same = np.broadcast_to(np.asarray(photo(0, 16)).transpose(2, 0, 1), (12, 3, 16, 16))
    with pytest.raises(sartor.BadInput, match="none is left for val and test"):
        split(from_arrays(same, np.arange(12) % 2), np.random.default_rng(0))


def test_prints_taken_while_decoding_are_those_of_the_pixels(photos):
    from sartor.data.files import open_files
    from sartor.data.sources.base import Wish
    from sartor.data.sources.folder import list_folder

    kept, unkept = (open_files(list_folder(photos), Wish(32), memory) for memory in (None, 0))
    assert isinstance(kept, Arrays) and not isinstance(unkept, Arrays)
    assert kept.alike.near.tolist() == unkept.alike.near.tolist()


def test_accuracy_is_also_told_by_class_and_without_leaks(tmp_path):
    job, net = tiny.job(tmp_path), nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    c = SimpleNamespace(feed=job.feed, splits=job.splits, task=job.task, run=job.run, images=job.feed.images)
    plain = training._tested(c, job.run, net, True)
    assert plain["test_accuracy"] == accuracy(net, job.feed, job.splits.test)
    assert "unseen_accuracy" not in plain
    right = {
        k: [accuracy(net, job.feed, np.array([i])) for i in job.splits.test if job.feed.images.labels[i] == k]
        for k in range(3)
    }
    assert plain["per_class"] == pytest.approx([np.mean(right[k]) for k in range(3)])
    assert plain["balanced_accuracy"] == pytest.approx(np.mean(plain["per_class"]))
    leaked = job.splits.test[:4]
    found = audit(job.feed.images, job.splits)
    job.run.save(type(found)(**{**vars(found), "leaks": tuple(leaked.tolist())}))
    assert training._tested(c, job.run, net, False)["unseen_accuracy"] == accuracy(net, job.feed, job.splits.test[4:])


def test_a_run_keeps_the_audit_and_its_report_tells_it(finished, tmp_path):
    run = finished.copy(tmp_path / "run")
    certificate, held = sartor.load(run).certificate, json.loads((run / "audit.json").read_text())
    assert certificate["audit"] == held["findings"]
    assert "audit.json" in json.loads((run / "stages.json").read_text())["data"]["files"]
    assert len(certificate["accuracy"]["per_class"]) == 3
    member = {"image": 0, "name": "<b>", "split": "test", "labels": ["links"]}
    group = {"exact": True, "members": [member, {**member, "image": 1, "split": "train"}]}
    held |= {"leaks": [0], "groups": [group], "findings": {**held["findings"], "leaks": 1}}
    (run / "audit.json").write_text(json.dumps(held))
    training = json.loads((run / "training.json").read_text()) | {"unseen_accuracy": 12.5}
    (run / "training.json").write_text(json.dumps(training))
    page = build(run).read_text(encoding="utf-8")
    assert "trained on: 1, such as &lt;b&gt; (links, test) = &lt;b&gt; (links, train)" in page
    assert "without them: accuracy 12.5\u00a0%" in page
    assert "if all classes count alike" in page
    (run / "audit.json").write_text(json.dumps(held | {"classes": ["links"]}))
    with pytest.raises(sartor.RunError, match="must count the images of 1 classes"):
        build(run)


def test_rare_classes_weigh_as_much_where_that_is_asked_for():
    task, labels = sartor.Task(3, 8), np.repeat([0, 1, 2], (50, 8, 2))
    logits = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    weights = torch.from_numpy(task.balance(labels))
    each = nn.functional.cross_entropy(logits, torch.from_numpy(labels), reduction="none").numpy()
    expected = np.mean([each[labels == k].mean() for k in range(3)])
    assert task.loss(logits, torch.from_numpy(labels), weights=weights).item() == pytest.approx(expected, rel=1e-5)
    many = MultiLabel(2, 8)
    rows = np.array([[1, 1], [0, 1], [0, 1], [0, 0]], np.float32)
    assert many.balance(rows).tolist() == pytest.approx([3, 1 / 3])
    signs = torch.zeros(4, 2)  # every decision undecided: what has a label then weighs as much as what has not
    weighed = many.loss(signs, torch.from_numpy(rows), weights=torch.from_numpy(many.balance(rows))).item()
    assert weighed == pytest.approx(np.log(2) * (3 + 3 + 1 + 1) / 4)


def test_training_takes_the_balance_that_it_is_asked_for(tmp_path):
    job, found = tiny.job(tmp_path / "job"), []
    rare = job.splits.train[(job.feed.images.labels[job.splits.train] != 2) | (np.arange(len(job.splits.train)) < 6)]
    for balance in (False, True):
        torch.manual_seed(0)
        net, run = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), Run(tmp_path / str(balance), Reporter(silent=True))
        recipe = Recipe(epochs=3, batch=16, lr=0.05, augment="none", balance=balance)
        train_network(net, None, recipe, job.feed, replace(job.splits, train=rare), run, "net")
        logits, _ = outputs(net, job.feed, rare)
        found.append(logits.softmax(1)[:, 2].mean().item())
    assert found[1] > 1.1 * found[0]  # the rare class is thought of more


@pytest.mark.parametrize(("channels", "side"), [(3, 32), (1, 15)])
def test_only_equal_images_have_equal_hashes(channels, side):
    rng = np.random.default_rng(0)
    image = rng.integers(0, 250, (channels, side, side)).astype(np.uint8)
    flat = image.reshape(-1)
    changed = [image, image.copy()]
    for _ in range(300):  # two values move by one against each other, often in one column
        place, other = rng.permutation(flat.size // 8 - 1)[:2] * 8 + 7
        more = image.copy()
        more.reshape(-1)[[place, other]] += np.array([1, 255], np.uint8)
        changed.append(more)
    changed += [image.transpose(0, 2, 1), image[:, ::-1], image[:, :, ::-1]]
    exact = Prints.of(np.stack(changed)).exact
    assert exact[0] == exact[1]
    different = len({c.tobytes() for c in changed})
    assert len(set(exact.tolist())) == different
    assert Prints.of(np.stack(changed[:1])).exact[0] == exact[0]  # alone or among others
