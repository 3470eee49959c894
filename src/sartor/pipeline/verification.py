"""`sartor verify`: everything that a finished run claims, checked again from its directory.

Hashes and cross-references need the files alone. The decision is proven again, the network is counted again from the
ONNX file and from PyTorch, and both must give the same logits. With the data the test accuracy is measured again from
the ONNX file, and on request the latency on this machine. A measured time or accuracy that all files agree on is a
claim that only these two can refute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.config import read_toml
from sartor.core.errors import BadInput, RunError, SartorError
from sartor.core.registry import COSTS, cost_of
from sartor.costs.base import Cost, Occasion
from sartor.data.base import Images, Index
from sartor.data.naming import refuse_code
from sartor.data.open import open_data
from sartor.deploy.count import counted
from sartor.deploy.export import INT8, TUNED, OnnxModel, as_described, deployed_file, read_safetensors
from sartor.deploy.module import evaluating
from sartor.deploy.quantise import farthest
from sartor.engine import checkpoint
from sartor.pipeline import proof, references
from sartor.pipeline.exports import MOST, form_maker
from sartor.pipeline.proof import Decision
from sartor.pipeline.quantising import LOSS
from sartor.pipeline.rebuild import space_of
from sartor.runs.directory import Run, refuse_links, search_of
from sartor.runs.schema import (
    ExportFile,
    ModelFile,
    Preprocessing,
    QuantisedFile,
    SolutionFile,
    SplitsFile,
    TrainingFile,
    Verified,
    VerifyFile,
)
from sartor.runs.signature import signed
from sartor.runs.verification import Folders, Line, Verification, certified, close, each, hashes, same, unknown
from sartor.spaces.base import Shape, Space

_TOLERANCE = 1e-3  # of the largest logit: what may differ between two runtimes
_AUTOCAST = 5e-2  # likewise, where accuracy was measured in half precision
_SLOWER = 2.0  # times slower than certified, on the same device, that still agree
_HALF = 5e-3  # of an accuracy in percent: what other logits in the last digits may turn over
_STEP = 0.51  # of a quantised weight: rounding


@dataclass(frozen=True)
class Ask:
    """What to check besides the directory itself."""

    data: object = None
    here: bool = False
    signed_by: Path | None = None  # a public key
    trusted: bool = False  # whether code that the files name may be imported
    recount: bool = True  # every price of every counted part: seconds, where a space has hundreds
    seconds: float = 60.0  # for proving the optimum again


def folders(path: Path) -> Folders:
    """A finished run, or one of its further budgets with the search that it belongs to."""
    path = Path(path)
    if not path.is_dir():
        raise RunError(f"{path} must be a run directory made by `sartor fit`, but there is no such folder.")
    refuse_links(path)
    if not (path / "solution.json").is_file():
        raise RunError(f"{path} holds no finished network. Run `sartor fit` with --out {path} to its end.")
    base = Run.open(search_of(path))
    return Folders(base, base if base.path == path else Run(path))


def verify(path: Path, network: Callable[[], nn.Module], ask: Ask, space: Space | None = None) -> Verification:
    """All checks of one directory; `network` rebuilds its network, `space` is where it was chosen from, if at hand."""
    f = folders(path)
    d = Decision(f)
    lines = [*signed(f.cut, ask.signed_by), *each("hashes", partial(hashes, f))]
    lines += each("certificate.json", partial(certified, f))
    for check in (references.budgets, references.measured, references.trained, references.evaluated,
                  references.model, references.compressed, references.compared):  # fmt: skip
        lines += each(f"files: {check.__name__}", partial(check, d))
    lines += each("proof", partial(_proof, d, space, ask))
    lines += each("model.onnx", partial(_onnx, f))
    lines += each("model_int8.onnx", partial(_quantised, f))
    built: list[nn.Module] = []
    lines += each("the rebuilt network", partial(_rebuilt, f, network, built))
    lines += each("export", partial(_exported, f, ask))
    if ask.data is not None:
        lines += each("test accuracy", partial(_accuracy, f, ask.data))
    else:
        lines.append(unknown("test accuracy, from model.onnx", "it needs the images: give --data"))
    lines += each("costs on this machine", partial(_here, f, d, built, ask))
    return Verification(str(path), tuple(lines))


def _proof(d: Decision, space: Space | None, ask: Ask) -> Iterator[Line]:
    described = d.f.cut.load(ModelFile)
    if space is None and described.space is not None:
        try:
            space = space_of(described, ask.trusted)
        except SartorError as error:
            yield unknown("the space", str(error))
    if space is not None and space.sizes != d.learnt.score.sizes:
        yield Line("the space has the choices of score.json", "differs", str(space.sizes), str(d.learnt.score.sizes))
        return
    rules, line = proof.rules_of(d, space)
    yield line
    if space is not None:
        names = [(c.name, c.options, c.needs) for c in space.choices]
        yield same(
            "score.json: the choices of the space", names, [(c.name, c.options, c.needs) for c in d.learnt.choices]
        )
        yield same("solution.json: the description of its network", space.describe(d.solution.arch), d.solution.string)
    yield from proof.prices(d, space, d.f.base.load(SplitsFile).task, ask.recount)
    yield from proof.optimum(d, rules, ask.seconds)
    yield from proof.trade_offs(d, rules)


# the network -------------------------------------------------------------------------------------


def _shape(f: Folders) -> Shape:
    task = f.cut.load(ModelFile).task
    return (task.channels, task.image, task.image)


def _onnx(f: Folders) -> Iterator[Line]:
    """The file's input, and its own count of what it costs."""
    path, costs = f.cut.path / "model/model.onnx", f.cut.load(VerifyFile).costs
    yield same("model.onnx: the images that it takes", _shape(f), OnnxModel(path).shape)
    found = counted(path)
    if found is None:
        yield unknown("model.onnx: counted again", "it has operators that are not counted here")
        return
    ranges = {"macs": (found.macs, found.macs)}
    ranges |= {name: (b * found.least, b * found.most) for name, b in (("params", 1), ("memory", 4))}
    for name, (least, most) in ranges.items():
        if name not in costs or _precision(costs[name]) != "float32":
            continue
        told, what = costs[name].measured, f"model.onnx: {name} counted again"
        if least <= told <= most:
            yield Line(what, "verified")
        elif most < told:  # no budget is broken by it, and the logits are compared below
            yield unknown(what, f"it has {most:.9g} of {told:.9g}: an exporter leaves out what nothing reads")
        else:
            yield Line(what, "differs", f"{least:.9g} to {most:.9g}", f"{told:.9g}")


def _precision(entry: Verified) -> str:
    """That a cost is told in."""
    return str((entry.device or {}).get("precision", "float32"))


def _quantised(f: Folders) -> Iterator[Line]:
    """The 8-bit file against the other one, whose weights it must have up to rounding, and against quantised.json."""
    path, told = f.cut.path / INT8, f.cut.path / QuantisedFile.NAME
    decided = f.cut.load(SolutionFile)
    if not told.is_file():
        yield from [same("model_int8.onnx: what quantised.json tells of", False, True)] if path.is_file() else []
        if decided.precision is not None:
            yield same("solution.json: the precision that is deployed", decided.precision, "float32")
        return
    both = f.cut.load(QuantisedFile)
    yield same("quantised.json: which file is deployed", both.used, path.is_file())
    if f.base is f.cut:
        asked = read_toml(f.base.path / "config.toml").get("precision")
        yield same("quantised.json: the precision of config.toml", asked, both.asked)
    small = decided.precision in (None, "int8")  # older runs decide after the training alone
    good = both.faster and both.lost <= LOSS and all(one.faster for one in decided.compared.values())
    wanted = small and (both.asked == "int8" or good)
    yield same("quantised.json: int8 only where it is faster and as accurate, or asked for", wanted, both.used)
    if decided.precision is not None:
        deployed = "int8" if both.used else "float32"
        yield same("solution.json: the precision that is deployed", decided.precision, deployed)
    float_accuracy = f.cut.load(TrainingFile).test_accuracy
    yield close("quantised.json: the test accuracy of training.json", float_accuracy, both.float32.test_accuracy, _HALF)
    if path.is_file():
        yield same("model_int8.onnx: the images that it takes", _shape(f), OnnxModel(path).shape)
        plain = f.cut.path / (TUNED if (f.cut.path / TUNED).is_file() else "model/model.onnx")
        off, what = farthest(plain, path), f"model_int8.onnx: every weight is that of {plain.name}, rounded"
        yield Line(what, "verified") if off <= _STEP else Line(what, "differs", f"within {_STEP} steps", f"{off:.3g}")


def _rebuilt(f: Folders, network: Callable[[], nn.Module], built: list[nn.Module]) -> Iterator[Line]:
    """The PyTorch network with the run's weights: counted, and the same function as the ONNX file."""
    try:
        net = network()
    except BadInput as error:
        if "is code named by a file" in str(error):
            yield unknown("the rebuilt network", str(error))
            return
        raise
    shape, path = _shape(f), f.cut.path / "model/model.onnx"
    deployed = as_described(net, f.cut.load(Preprocessing))
    built.append(deployed)
    for name, entry in f.cut.load(VerifyFile).costs.items():
        if name in COSTS.names() and COSTS[name].again():
            cost: Cost = COSTS[name]().in_precision(_precision(entry))
            again = cost.measure(deployed, shape, Occasion(deployed_file(f.cut.path))).value
            yield close(f"the rebuilt network: {name} counted again", again, entry.measured)
    images = np.random.default_rng(0).integers(0, 256, (4, *shape)).astype(np.float32)
    try:
        with evaluating(deployed):
            expected = deployed(torch.from_numpy(images)).numpy()
    except RuntimeError as error:  # a network for other images than those that the files tell of
        raise RunError(f"arch.json's network does not take images of {shape}: {error}.") from error
    found = OnnxModel(path).logits(images)
    near = found.shape == expected.shape and np.isfinite(found).all()
    off = float(np.abs(found - expected).max()) if near else np.inf
    most = _TOLERANCE * max(float(np.abs(expected).max()), 1e-6)
    what = "model.onnx and weights.safetensors: the same logits"
    yield Line(what, "verified") if off <= most else Line(what, "differs", f"at most {most:.3g} apart", f"{off:.3g}")
    mine, theirs = read_safetensors(f.cut.path / "model/weights.safetensors")[0], _trained(f)
    equal = mine.keys() == theirs.keys() and all(torch.equal(mine[n], theirs[n]) for n in mine)
    yield same("weights.safetensors: the weights that were trained", True, equal)


def _trained(f: Folders) -> dict[str, Tensor]:
    found = checkpoint.load(f.cut.path / "model/trained.safetensors")
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def _exported(f: Folders, ask: Ask) -> Iterator[Line]:
    """The forms for other runtimes: what they claim, and again on random images. TorchScript holds code: not loaded."""
    if "exports" not in f.cut.stages():
        return
    told, task = f.cut.load(ExportFile), f.cut.load(ModelFile).task
    images = np.random.default_rng(0).integers(0, 256, (4, *_shape(f))).astype(np.float32)
    for name, form in told.forms.items():
        most, source = MOST.get(form.precision, 0.0), INT8 if form.precision == "int8" else "model/model.onnx"
        what = f"export: {name} and {Path(source).name}, the same probabilities"
        yield same(f"export.json: {name} differs by less than {most}", True, form.difference < most)
        if form.runtime is not None and ":" in form.runtime and not ask.trusted:
            yield unknown(what, f"{form.runtime} is code that a file names: --trust-code")
            continue
        kind = form_maker(form.runtime if form.runtime and ":" in form.runtime else name)
        if kind.code:
            yield unknown(what, "it holds code, which is not loaded here; its hash is checked")
            continue
        expected = task.probabilities(OnnxModel(f.cut.path / source).logits(images))
        found = task.probabilities(kind(batch=4).run(f.cut.path / form.files[0], images))
        off = float(np.abs(found - expected).max())
        yield Line(what, "verified") if off < most else Line(what, "differs", f"less than {most}", f"{off:.3g}")


# measured again ----------------------------------------------------------------------------------


def _accuracy(f: Folders, data: object) -> Iterator[Line]:
    """The test images through the ONNX file; what hangs on rounding may differ."""
    splits = f.base.load(SplitsFile)
    images = open_data(data, splits.task.image)
    yield same("data: its digest", splits.digest, images.digest())
    yield same("data: its classes", splits.classes, images.class_names)
    index = np.asarray(splits.test, np.int64)
    if images.task != splits.task or not len(index) or index.min() < 0 or index.max() >= len(images):
        yield Line("data: the test images", "differs", f"{splits.task}, {len(index)} images", str(images.task))
        return
    told = {"model.onnx": f.cut.load(TrainingFile).test_accuracy}
    if (f.cut.path / INT8).is_file():
        told["model_int8.onnx"] = f.cut.load(QuantisedFile).int8.test_accuracy
    for name, share in told.items():
        yield _again(f, name, share, images, index)


def _again(f: Folders, name: str, told: float, images: Images, index: Index) -> Line:
    """What one exported file gets right."""
    splits, model = f.base.load(SplitsFile), OnnxModel(f.cut.path / "model" / name)
    logits = torch.from_numpy(model.logits_of(images, index))
    found = splits.task.measure(logits, torch.from_numpy(images.labels[index]))
    half = read_toml(f.base.path / "config.toml").get("device") == "cuda"
    rough = half or name != "model.onnx"  # another processor may round 8 bits otherwise
    near = (_AUTOCAST if rough else _TOLERANCE) * float(logits.abs().max())
    room = 0.5
    if splits.task.metric == "accuracy":
        first, second = logits.topk(2).values.T
        room = 100.0 * int((first - second <= near).sum()) / len(index)
    what = f"test {splits.task.metric}, from {name} on {len(index)} images"
    fine = abs(found - told) <= room + 1e-6
    return Line(what, "verified") if fine else Line(what, "differs", f"{found:.4f} %", f"{told:.4f} %")


def _here(f: Folders, d: Decision, built: list[nn.Module], ask: Ask) -> Iterator[Line]:
    """Every measured cost on this machine, beside what the certificate says."""
    told = f.cut.load(VerifyFile)
    options = read_toml(f.base.path / "config.toml").get("costs", {})
    for name, entry in told.costs.items():
        if entry.on_device is False:
            yield unknown(f"{name} on its device", "it was predicted by the device's profile, not measured")
        if entry.timing is None:
            continue
        target = str(options.get(name, {}).get("target", "local"))
        what = f"{name} on {'this machine' if target == 'local' else target}"
        if ask.here and not ask.trusted and target != "local":
            yield unknown(what, "a machine that a file names is asked only where you trust it: --trust-code")
            continue
        if not ask.here or not built or name not in d.tables:
            yield unknown(what, "it is measured anew with --here" if not ask.here else "the network was not rebuilt")
            continue
        if not ask.trusted:
            refuse_code(options)
        cost: Cost = COSTS.make(cost_of(name), {k: v for k, v in options.get(name, {}).items() if k != "name"})
        cost = cost.in_precision(d.tables[name].precision)
        found = cost.measure(built[0], _shape(f), Occasion(deployed_file(f.cut.path), d.tables[name]))
        yield _beside(what, cost, entry.measured, found.value, dict(d.tables[name].device), found.details)


def _beside(what: str, cost: Cost, then: float, now: float, device: dict[str, object], details: object) -> Line:
    show = cost.kind.show
    both = f"{show(now)} here, {show(then, like=now)} certified"
    here = cost.identity()
    other = sorted(k for k in here.keys() & device.keys() if here[k] != device[k])
    drift = details.get("timing", {}).get("drift") if isinstance(details, dict) else None
    if other:
        return unknown(what, f"{both}; another device: {', '.join(other)} differ")
    if now > _SLOWER * then * max(1.0, drift or 1.0):
        return Line(what, "differs", show(now), show(then, like=now))
    if now > _SLOWER * then:
        return unknown(what, f"{both}; this machine is {drift:.2f} times slower than then, for everything")
    return Line(what, "verified", found=both)
