"""What several files of a run say of the same thing must be the same: one check for each pair of files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sartor.core.config import read_toml
from sartor.deploy.export import INT8, OnnxModel
from sartor.deploy.timing import interval
from sartor.pipeline.options import share_of
from sartor.pipeline.proof import Decision
from sartor.runs.codec import encode
from sartor.runs.directory import read_json
from sartor.runs.schema import (
    BaselineFile,
    CompareFile,
    CompressionFile,
    EvaluationFile,
    ModelFile,
    Preprocessing,
    QuantisedFile,
    SplitsFile,
    TrainingFile,
    VerifyFile,
    held,
)
from sartor.runs.verification import Line, close, same

_ROUNDING = 1e-6  # of a count of images


def budgets(d: Decision) -> Iterator[Line]:
    """What was asked; a further budget stands in its own files alone."""
    if d.f.base is not d.f.cut:
        return
    asked = read_toml(d.f.base.path / "config.toml").get("budgets", {})
    told = dict(d.solution.budgets)
    yield same(
        "config.toml: budgets of solution.json", sorted(asked) if isinstance(asked, Mapping) else asked, sorted(told)
    )
    before = d.f.base.load(BaselineFile).costs if d.f.compression else {}
    for name, amount in asked.items() if isinstance(asked, Mapping) else ():
        share = isinstance(amount, str) and name in before
        wanted = share_of(name, amount) * before[name].measured if share else amount
        if name in told and isinstance(wanted, int | float):
            yield close(f"config.toml: the {name} budget", wanted, told[name])


def measured(d: Decision) -> Iterator[Line]:
    """verify.json against the tables, the budgets and its own rounds of timing."""
    told, arch = d.f.cut.load(VerifyFile), d.solution.arch
    yield same("verify.json: costs", sorted(d.tables), sorted(told.costs))
    for name in sorted(told.costs.keys() & d.tables.keys()):
        entry, table = told.costs[name], d.tables[name]
        yield close(
            f"verify.json: {name} predicted", d.solution.times.get(name, 1.0) * table.form(arch), entry.predicted
        )
        yield same(f"verify.json: {name} is a {table.kind.name}", encode(table.kind), encode(entry.kind))
        limit = d.solution.budgets.get(name)
        holds = None if limit is None else held(entry.measured, limit, entry.slowed)
        yield same(f"verify.json: {name} asked, and whether it holds", (limit, holds), (entry.limit, entry.holds))
        if entry.slowed is not None:
            before = d.solution.built.get(name)
            yield same(f"verify.json: {name} of the network as built, before its training", before, entry.slowed.before)
        if entry.on_device is False:
            yield close(f"verify.json: {name}, not measured, is what was predicted", entry.predicted, entry.measured)
        if entry.timing is not None:
            t = entry.timing
            low, high = interval(t.rounds) if t.rounds else (t.p50, t.p50)
            yield close(f"verify.json: {name} is the median of its calls", t.p50, entry.measured)
            yield same(f"verify.json: {name} between its rounds", (min(low, t.p50), max(high, t.p50)), (t.low, t.high))
            yield same(f"verify.json: {name}, half of the calls below its 95 %", True, t.p50 <= t.p95)
    fits = all(e.holds is not False for e in told.costs.values())
    yield same("verify.json: every budget holds", (fits, True), (told.fits, fits))


def trained(d: Decision) -> Iterator[Line]:
    """Shares of images are whole numbers of images; the splits are apart."""
    told, splits = d.f.cut.load(TrainingFile), d.f.base.load(SplitsFile)
    yield same("training.json: what is measured", splits.task.metric, told.metric)
    for name, share, images in (
        ("test", told.test_accuracy, splits.test),
        ("validation", told.val_accuracy, splits.val),
    ):
        if share is not None and told.metric == "accuracy":
            right = share * len(images) / 100
            whole = (
                abs(right - round(right)) <= _ROUNDING * max(1, len(images)) and 0 <= right <= len(images) + _ROUNDING
            )
            what = f"training.json: {name} accuracy is a share of {len(images)} images"
            yield Line(what, "verified") if whole else Line(what, "differs", "a whole number of images", f"{right:.6g}")
        elif share is not None:
            yield same(f"training.json: {name} {told.metric} is a percentage", True, 0 <= share <= 100)
    every = [*splits.train, *splits.val, *splits.test]
    yield same("splits.json: no image in two splits", len(every), len(set(every)))


def evaluated(d: Decision) -> Iterator[Line]:
    """evaluation.json against training.json, the splits and the model file; runs before it have none."""
    if not (d.f.cut.path / EvaluationFile.NAME).is_file():
        return
    path, trained, splits = d.f.cut.path / EvaluationFile.NAME, d.f.cut.load(TrainingFile), d.f.base.load(SplitsFile)
    told = d.f.cut.load(EvaluationFile).checked(path)
    yield same("evaluation.json: the test accuracy of training.json", trained.test_accuracy, told.value)
    yield same("evaluation.json: class by class as training.json", trained.per_class, told.per_class)
    yield same("evaluation.json: the classes and test images", (splits.classes, len(splits.test)),
               (told.classes, told.images))  # fmt: skip
    if told.confusion is not None:
        right = sum(n for a, b, n in told.confusion if a == b)
        if told.right is not None:
            bits = bytes.fromhex(told.right)
            known = (sum(byte.bit_count() for byte in bits), len(bits)) == (right, -(-told.images // 8))
            yield same("evaluation.json: as many images right as by its confusions", True, known)
        yield same("evaluation.json: its confusions are all images", told.images, sum(n for *_, n in told.confusion))
        yield close("evaluation.json: its confusions give the accuracy", 100 * right / max(1, told.images), told.value)
    divisor = OnnxModel(d.f.cut.path / "model/model.onnx").temperature
    yield close("model.onnx: the temperature of evaluation.json", told.reliability.temperature, divisor, 1e-5)
    kind, small = EvaluationFile.deployed(d.f.cut.path), d.f.cut.path / INT8
    if kind is not EvaluationFile:
        rounded, form = d.f.cut.load(kind).checked(d.f.cut.path / kind.NAME), d.f.cut.load(QuantisedFile).int8
        yield same(f"{kind.NAME}: what quantised.json says of int8", (form.test_accuracy, form.per_class),
                   (rounded.value, rounded.per_class))  # fmt: skip
        divisor = OnnxModel(small).temperature
        yield close(f"{small.name}: the temperature of {kind.NAME}", rounded.reliability.temperature, divisor, 1e-5)


def model(d: Decision) -> Iterator[Line]:
    """The model folder against the decision, the data and the options."""
    told, pre, splits = d.f.cut.load(ModelFile), d.f.cut.load(Preprocessing), d.f.base.load(SplitsFile)
    options, folder = read_toml(d.f.base.path / "config.toml"), d.f.cut.path / "model"
    yield same("arch.json: the network of solution.json", d.solution.solution.picks, told.picks)
    yield same("arch.json: its network by name", dict(d.solution.architecture), dict(told.architecture))
    yield same("arch.json: its description", d.solution.string, told.string)
    if told.given is None:
        space = {name: value for name, value in (told.space or {}).items() if value is not None}  # which TOML has not
        yield same("arch.json: the space of config.toml", options.get("space"), space)
    else:
        yield same("arch.json: the given network of config.toml", options.get("model"), told.given)
    yield same("arch.json: the task of splits.json", splits.task.to_json(), told.task.to_json())
    yield same("preprocessing.json: the classes of splits.json", splits.classes, pre.labels)
    yield same("preprocessing.json: the views of solution.json", d.solution.views, pre.views)
    yield same("splits.json: as many classes as the task has", splits.task.classes, len(splits.classes))
    yield same("labels.json: the labels of preprocessing.json", list(pre.labels), read_json(folder / "labels.json"))
    lines = [" ".join(name.splitlines()) for name in pre.labels]
    plain = folder / "labels.txt"
    text = plain.read_text(encoding="utf-8", errors="replace") if plain.is_file() else ""
    yield same("labels.txt: the labels of preprocessing.json", "".join(f"{line}\n" for line in lines), text)
    yield same("preprocessing.json: the normalisation of splits.json", (splits.mean, splits.std),
               (pre.normalisation.mean, pre.normalisation.std))  # fmt: skip
    shape = (splits.task.image, splits.task.channels)
    yield same("preprocessing.json: the images of splits.json", shape, (pre.image, pre.channels))
    if pre.task is not None:
        yield same("preprocessing.json: the task of splits.json", splits.task.to_json(), pre.task.to_json())


def compressed(d: Decision) -> Iterator[Line]:
    """Before and after, as the given network and the delivered one have it."""
    if not d.f.compression:
        return
    told, before, after = d.f.cut.load(CompressionFile), d.f.cut.load(BaselineFile), d.f.cut.load(VerifyFile)
    for name, change in told.network.items():
        costs = before.costs.get(name), after.costs.get(name)
        amounts = tuple(None if cost is None else cost.measured for cost in costs)
        yield same(f"compression.json: {name} before and after", amounts, (change.before, change.after))
    trained = d.f.cut.load(TrainingFile)
    yield same("compression.json: accuracy before and after", (before.test_accuracy, trained.test_accuracy),
               (told.accuracy.before, told.accuracy.after))  # fmt: skip


def compared(d: Decision) -> Iterator[Line]:
    """The run's own network in its comparison."""
    if (d.f.cut.path / CompareFile.NAME).is_file():
        own, costs = d.f.cut.load(CompareFile).own, d.f.cut.load(VerifyFile).costs
        accuracy = d.f.cut.load(TrainingFile).test_accuracy
        yield same("compare.json: the accuracy of this run", accuracy, own.accuracy)
        yield same("compare.json: the costs of this run", {n: e.measured for n, e in costs.items()}, dict(own.costs))
