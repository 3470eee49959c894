"""Weights from elsewhere: what matches is taken, sliced where widths differ; the head stays new."""

import pickle
import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn

import sartor
from sartor.cli import show
from sartor.cli.show import console
from sartor.core.arch import Choice
from sartor.core.errors import BadInput, RunError
from sartor.data.base import Splits
from sartor.data.open import open_data
from sartor.deploy.export import read_safetensors
from sartor.engine.network import train_network
from sartor.engine.origin import Origin
from sartor.engine.recipe import ELSEWHERE
from sartor.pipeline import ancestry, order, starting, training
from sartor.pipeline.context import open_context
from sartor.pipeline.cut import Start
from sartor.pipeline.final import Final, from_elsewhere
from sartor.report.card import _origin
from sartor.report.files import Files
from sartor.report.sections.headline import cautions, headline
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter
from sartor.runs.schema import Ancestry, ModelFile, OriginFile, SplitsFile, TrainingFile
from sartor.spaces.base import Space


def net(width=8, kernel=3, classes=3):
    return nn.Sequential(
        nn.Conv2d(3, width, kernel),
        nn.BatchNorm2d(width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(width, classes),
    )


def saved(path, given):
    save_file({n: t.contiguous() for n, t in given.state_dict().items()}, path)
    return Origin(str(path))


def test_all_but_the_head_is_taken(tmp_path):
    source, target = net(classes=5), net(classes=5)
    source[1].running_mean += 3.0
    head = target[4].weight.clone()
    taken = saved(tmp_path / "a.safetensors", source).into(target, 5)
    for name in ("0.weight", "0.bias", "1.weight", "1.running_mean"):
        assert torch.equal(target.state_dict()[name], source.state_dict()[name])
    assert torch.equal(target[4].weight, head)
    own = sum(p.numel() for p in target.parameters())
    assert (taken.weights, taken.of, taken.sliced) == (own - 5 * 9, own, 0)
    assert str(taken) == "84.2 % of 285 weights from a.safetensors"
    assert str(replace(taken, weights=9_999, of=10_000)).startswith("99.9 % of")  # the head is new: never all


@pytest.mark.parametrize("width", [4, 12])
def test_of_other_widths_the_first_channels_are_taken(tmp_path, width):
    source, target, both = net(8), net(width), min(8, width)
    before = target[0].weight.clone()
    taken = saved(tmp_path / "a.safetensors", source).into(target, 3)
    assert torch.equal(target[0].weight[:both], source[0].weight[:both])
    assert torch.equal(target[0].weight[both:], before[both:])
    assert taken.sliced == (0 if width == 4 else 6)


@pytest.mark.parametrize(("mine", "theirs"), [(5, 3), (3, 5)])
def test_of_other_kernels_the_middle_is_taken(tmp_path, mine, theirs):
    source, target = net(kernel=theirs), net(kernel=mine)
    saved(tmp_path / "a.safetensors", source).into(target, 3)
    middle = slice(1, 4) if mine == 5 else slice(None), slice(1, 4) if theirs == 5 else slice(None)
    assert torch.equal(target[0].weight[..., middle[0], middle[0]], source[0].weight[..., middle[1], middle[1]])


def test_of_a_run_the_network_that_has_most_is_taken_from(finished):
    origin = Origin(str(finished.run))
    assert {"model/weights.safetensors", "search/supernet.safetensors", "search/teacher.safetensors"} <= set(
        origin.networks
    )
    held = {n: t for n, t in origin.networks["search/teacher.safetensors"].items() if t.is_floating_point()}

    class Like(nn.Module):
        def state_dict(self):
            return {n: torch.zeros_like(t) for n, t in held.items()}

    assert origin.into(Like(), 3).source == "search/teacher.safetensors"


def test_its_own_network_is_found_in_a_space_that_has_it(finished):
    (told,) = Origin(str(finished.run)).told
    assert told == Run(finished.run).load(ModelFile).architecture
    choices = [Choice(name, ("other", option)) for name, option in told.items()]
    (arch,) = Space.alike(SimpleNamespace(choices=choices), told)
    assert arch.picks == (1,) * len(choices)
    assert not Space.alike(SimpleNamespace(choices=choices[1:]), told)
    assert not Space.alike(SimpleNamespace(choices=[Choice(c.name, ("other", "another")) for c in choices]), told)


def test_what_is_no_origin_is_refused_before_anything_is_done(finished, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    whole = saved(Path("whole.safetensors"), net()).path
    Path("half.safetensors").write_bytes(Path(whole).read_bytes()[:-100])
    torch.save(net().state_dict(), "a.pth")
    deep = {f"layer1.0.conv{k}.weight": torch.zeros(8, 8, 1, 1) for k in (1, 2, 3)}  # of a ResNet of bottlenecks
    save_file({"conv1.weight": torch.zeros(8, 3, 3, 3), **deep}, "deep.safetensors")
    save_file({"stem.body": torch.zeros(3)}, "foreign.safetensors")
    for given, words in (
        ("nowhere", "must be a finished run, a safetensors file or timm:NAME, but there is none"),
        ("empty", "but there is none"), ("half.safetensors", "complete safetensors file"),
        ("a.pth", "is a pickle, which is not loaded.*save_file"), ("deep.safetensors", r"--start deep.*layer1\.0"),
    ):  # fmt: skip
        with pytest.raises(BadInput, match=words):
            order.fit(tiny.given(finished.data, {}, start=given), Path("run"), Reporter(silent=True))
        assert Origin.found(given) is None
    foreign = tiny.given(finished.data, {}, start="foreign.safetensors")
    with pytest.raises(BadInput, match=r"none of .* networks tried takes any .*its tensors are called stem\.body"):
        order.fit(foreign, Path("run"), Reporter(silent=True))
    assert not Path("run/config.toml").exists()


def test_another_process_has_the_same_weights(finished, monkeypatch):
    fake = SimpleNamespace(__version__="0", is_model=lambda n: True, create_model=lambda n, pretrained: net())
    monkeypatch.setitem(sys.modules, "timm", fake)
    for given in (str(finished.run), "timm:any"):
        origin = Origin(given)
        again = pickle.loads(pickle.dumps(origin))
        assert again.identity() == origin.identity()
        assert again.networks.keys() == origin.networks.keys()


RANDOM = {"method": "random", "train": {"epochs": 1, "whiten": True}, "costs": {}}


@pytest.fixture(scope="module")
def begun(finished, tmp_path_factory):
    """A fit that starts from a run of the same images with other splits, and how its networks were trained."""
    seen, whitened = {}, {}

    def spied(net, teacher, recipe, feed, splits, run, name, *rest, **more):
        whitened[name.partition("-")[0]] = not next(net.parameters()).requires_grad
        seen[name.partition("-")[0]] = {option: getattr(recipe, option) for option in ELSEWHERE}
        return train_network(net, teacher, recipe, feed, splits, run, name, *rest, **more)

    chosen = tiny.given(finished.data, {"params": "150K"}, start=str(finished.run), seed=1, **RANDOM)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train_network", spied)
        patch.setattr(starting, "train_network", spied)
        path = order.fit(chosen, tmp_path_factory.mktemp("begun") / "run", Reporter(silent=True))
    return SimpleNamespace(path=path, chosen=chosen, seen=seen, whitened=whitened)


def test_a_fit_starts_from_a_run_and_compares_with_a_fresh_start(finished, begun):
    log = (begun.path / "log.txt").read_text()
    assert "networks of this space begin with" in log
    assert "the network starts with" in log
    start, fresh = map(float, re.findall(r"([\d.]+) % (?:of \d+ validation images|with fresh ones)", log))
    better = "elsewhere" if start >= fresh else "fresh"
    assert begun.seen["elsewhere"] == ELSEWHERE
    assert begun.seen["fresh"] == {"first_rate": 1.0, "head_first": 0.0}
    assert begun.seen["network"] == begun.seen[better]
    # What was learnt is not whitened away.
    assert begun.whitened == {"elsewhere": False, "fresh": True, "network": better == "fresh"}
    assert f'start = "{finished.run}"' in (begun.path / "config.toml").read_text()
    told = Run(begun.path).load(TrainingFile).started
    assert (told.kept, round(told.elsewhere_accuracy, 2), round(told.fresh_accuracy, 2)) == (better, start, fresh)


def test_the_test_images_that_it_was_trained_on_are_counted_and_told(finished, begun, capsys):
    images = open_data(str(finished.data))
    mine, theirs = (Run(p).load(SplitsFile) for p in (begun.path, finished.run))
    content = [image.tobytes() for image in images.pixels(np.arange(len(images))).numpy()]
    learnt = {content[i] for i in (*theirs.train, *theirs.val)}
    for name in ("test", "val"):
        expected = [i for i in getattr(mine, name) if content[i] in learnt]
        assert list(getattr(Run(begun.path).load(OriginFile), name)) == expected
        assert len(expected) > 0
    many = len(Run(begun.path).load(OriginFile).test)
    words = f"{many} of them had been trained on by the weights its search began with ({finished.run})"
    result = sartor.load(begun.path)
    assert result.certified.origin.told() == words
    assert words in headline(Files.open(begun.path))["facts"][0]["more"]
    assert any(f"{many} of the {len(mine.test)} test images" in caution for caution in cautions(Files.open(begun.path)))
    console.width, before = 200, console.width
    show.emit(result.certified, False, lambda: show.certificate(begun.path, result.certified))
    console.width = before
    assert words in capsys.readouterr().out
    assert "WARNING" in (begun.path / "log.txt").read_text()
    assert str(result.certified.origin.weights["model/weights.safetensors"]) in "".join(_origin(result.certified))
    assert {line.state for line in sartor.verify(begun.path).lines if "origin" in line.what} == {"verified"}


def test_what_a_run_was_trained_on_is_found_at_other_sides_and_through_other_runs(finished, begun, tmp_path):
    """In another folder and at another side; a run also knows what the run that it started from has seen."""
    rng = np.random.default_rng(0)
    coarse = [Image.fromarray(rng.integers(0, 255, (9, 9, 3)).astype(np.uint8)) for _ in range(40)]
    photos = [np.asarray(image.resize((48, 48), Image.Resampling.BICUBIC)) for image in coarse]

    def made(name, side, wanted):
        images = open_data((np.stack([photos[i] for i in wanted]), np.arange(len(wanted)) % 2), image=side)
        index = np.arange(len(wanted))
        splits = Splits(index[:-12], index[-12:-6], index[-6:])
        context = SimpleNamespace(images=images, splits=splits, run=Run(tmp_path / name, Reporter(silent=True)))
        return images, context

    assert ancestry.record(made("first", 48, range(20))[1]) == [ancestry.SEEN]
    seen = ancestry.Seen.load(tmp_path / "first" / ancestry.SEEN)
    others, _ = made("second", 24, [*range(25, 31), *range(10, 20), *range(30, 35)])
    expected = [k for k, i in enumerate([*range(25, 31), *range(10, 20), *range(30, 35)]) if i < 14]
    assert seen.within(others.prints(), 24).tolist() == expected
    # A run that started from another one has seen what that had.
    mine, known = (ancestry.Seen.load(p / ancestry.SEEN) for p in (begun.path, finished.run))
    assert len(mine.prints.exact) == 2 * len(known.prints.exact)
    assert mine.complete and known.complete


def test_of_weights_whose_images_nobody_tells_nothing_is_claimed(finished, begun, tmp_path):
    source = finished.copy(tmp_path / "older")
    (source / ancestry.SEEN).unlink()
    images = open_data(str(finished.data))
    assert ancestry._seen_by(Origin(str(source)), images, images.prints()).complete  # its splits say it
    other = open_data(tiny.arrays(seed=5))
    assert not ancestry._seen_by(Origin(str(source)), other, other.prints()).complete
    file = Origin(str(source / "model/weights.safetensors"))
    assert not ancestry._seen_by(file, images, images.prints()).complete
    unknown = Ancestry("timm:x", {}, None, False, 0)
    assert "is not known" in unknown.told()
    run = shutil.copytree(begun.path, tmp_path / "run")
    (run / OriginFile.NAME).unlink()  # as an older Sartor left it
    assert "is not known" in headline(Files.open(run))["facts"][0]["more"]


def test_other_weights_under_the_same_name_are_refused(finished, begun, tmp_path):
    source, run = finished.copy(tmp_path / "source"), tmp_path / "run"
    chosen = tiny.given(finished.data, {"params": "150K"}, start=str(source), seed=1, **RANDOM)
    context = open_context(chosen, run, Reporter(silent=True))
    with context.run.locked():
        order.begin(context)
    held = read_safetensors(source / "model/weights.safetensors")[0]
    save_file({n: t + 1 if t.is_floating_point() else t for n, t in held.items()}, source / "model/weights.safetensors")
    with pytest.raises(RunError, match="holds other weights than when"):
        order.fit(chosen, run, Reporter(silent=True))


def test_a_search_that_trained_on_competes_with_its_start_and_not_with_its_training(finished, tmp_path, monkeypatch):
    """A network that the search has trained for long is ahead of a fresh one wherever it began."""
    job = tiny.job(tmp_path)
    origin, arch = Origin(str(finished.run)), job.space.heaviest
    with torch.random.fork_rng():
        torch.manual_seed(1)
        learnt = Start(job.space.network(arch, job.task), inherited=True)
    began = {}

    def spied(net, teacher, recipe, feed, splits, run, name, *rest, **more):
        began[name.partition("-")[0]] = {n: p.detach().clone() for n, p in net.named_parameters()}

    right = {"elsewhere": 0.0, "fresh": 1.0}
    monkeypatch.setattr(starting, "train_network", spied)
    monkeypatch.setattr(starting, "accuracy", lambda *_: right[list(began)[-1]])
    context = SimpleNamespace(
        engine=job.engine, seeds=job.seeds, task=job.task, run=job.run, feed=job.feed, splits=job.splits,
        train=Final(epochs=1),
    )  # fmt: skip
    cut = SimpleNamespace(
        context=context, run=job.run, network=lambda arch: job.space.network(arch, job.task), phase=lambda arch: "x"
    )
    found = starting.begin(cut, origin, arch, learnt, None)
    assert (found.told.kept, found.best, found.start.inherited) == ("fresh", 1.0, False)
    with torch.random.fork_rng():
        torch.manual_seed(job.seeds.number("network"))
        expected = job.space.network(arch, job.task)
    for name, parameter in expected.named_parameters():
        assert torch.equal(began["fresh"][name], parameter)
    origin.into(expected, job.task.classes)
    for name, parameter in expected.named_parameters():
        assert torch.equal(began["elsewhere"][name], parameter)
    right["elsewhere"] = 1.0
    assert starting.begin(cut, origin, arch, learnt, None).start is learnt  # what has learnt most


def test_what_was_given_by_hand_stays_wherever_weights_come_from():
    assert from_elsewhere(Final(epochs=1)).first_rate == ELSEWHERE["first_rate"]
    assert from_elsewhere(Final(epochs=1, fixed=("first_rate",))).first_rate == 1.0
