"""`sartor verify`: honest runs pass, and every planted forgery is found, with all hashes renewed as a forger would."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
import tiny
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import sartor
from sartor.cli.main import app
from sartor.core.errors import RunError
from sartor.costs.macs import Macs
from sartor.pipeline import order
from sartor.runs.certificate import certificate
from sartor.runs.codec import to_file
from sartor.runs.directory import Run, sha256, write_json
from sartor.runs.progress import Reporter

OLD = Path(__file__).parents[1] / "golden/old_run.zip"
DATA, HERE = "needs --data", "needs --here"


@pytest.fixture(autouse=True, scope="module")
def counted_once():
    """What a network of the same layers needs is counted for the first test only."""
    known, count = {}, Macs.of

    def of(self, module, shape):
        key = repr(module), shape
        if key not in known:
            known[key] = count(self, module, shape)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Macs, "of", of)
        yield


def edit(run, name, change):
    """A JSON file after `change` of its contents."""
    data = json.loads((run / name).read_text(encoding="utf-8"))
    change(data)
    write_json(run / name, data)


def renew(run, certified=True):
    """What a careful forger does: the certificate made again from the files, and every hash renewed."""

    def hashes(stages):
        for entry in stages.values():
            if isinstance(entry, dict):
                entry["files"] = {n: sha256(run / n) for n in entry["files"] if (run / n).is_file()}

    edit(run, "stages.json", hashes)
    if certified:
        write_json(run / "certificate.json", to_file(certificate(Run(run), Run(run))))
        edit(run, "stages.json", hashes)


# forgeries: what is changed, and the line that finds it ---------------------------------------------


def certificate_says(way, value):
    def change(run):
        def put(data):
            for key in way[:-1]:
                data = data[key]
            data[way[-1]] = value

        edit(run, "certificate.json", put)

    return change


def says(name, *way, value):
    def put(data):
        for key in way[:-1]:
            data = data[key]
        data[way[-1]] = value(data[way[-1]]) if callable(value) else value

    return lambda run: edit(run, name, put)


def both(*changes):
    return lambda run: [change(run) for change in changes]


def swapped(labels):
    return [labels[1], labels[0], *labels[2:]]


def labels(*names):
    def change(run):
        for name in names:
            if name == "labels.txt":
                path = run / "model/labels.txt"
                path.write_text("\n".join(swapped(path.read_text().splitlines())) + "\n")
            elif name == "labels.json":
                write_json(run / "model/labels.json", swapped(json.loads((run / "model/labels.json").read_text())))
            else:
                key = "classes" if name in ("splits.json", "evaluation.json") else "labels"
                edit(run, name, lambda data, key=key: data.update({key: swapped(data[key])}))

    return change


ALL_LABELS = ("labels.txt", "labels.json", "model/preprocessing.json", "splits.json", "evaluation.json")


def faster(run):
    def change(data):
        entry = data["costs"]["latency"]
        entry["measured"] /= 100
        for key in ("p50", "p95", "low", "high"):
            entry["timing"][key] /= 100
        entry["timing"]["rounds"] = [ms / 100 for ms in entry["timing"]["rounds"]]

    edit(run, "verify.json", change)


def weights(*names):
    def change(run):
        for name in names:
            tensors = {n: t * 1.5 if t.dtype.is_floating_point else t for n, t in load_file(run / name).items()}
            header = {"format": "pt"}
            if "trained" in name:
                from safetensors import safe_open

                with safe_open(run / name, "pt") as stream:
                    header = stream.metadata()
            save_file(tensors, run / name, metadata=header)

    return change


def graph(run):
    path = run / "model/model.onnx"
    model = onnx.load(str(path))
    tensor = next(t for t in model.graph.initializer if t.name.endswith("classifier.weight"))
    tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor)[::-1].copy(), tensor.name))
    path.write_bytes(model.SerializeToString())


def another_solution(run):
    """The cheapest of the frontier, as if it were the best."""
    points = json.loads((run / "frontier.json").read_text())
    learnt = Run(run).load(sartor.runs.schema.ScoreFile)
    arch = sartor.Arch(tuple(points["picks"][0]))

    def change(data):
        score = learnt.score(arch)
        data["solution"] |= {"picks": list(arch.picks), "score": score, "bound": score, "gap": 0.0, "proven": True}
        data["architecture"] = arch.named(learnt.choices)
        data["string"] = points["strings"][0]
        data["predicted"] = {n: values[0] for n, values in points["costs"].items()}

    edit(run, "solution.json", change)


def price(name, form):
    def change(data):
        part = next(k for k, p in data["prices"].items() if p[0] > 0)
        data["prices"][part] = [v / 2 for v in data["prices"][part]]
        if form:
            data["form"]["constant"] -= 1000.0

    return lambda run: edit(run, f"costs/{name}.json", change)


def correction(run):
    table = json.loads((run / "costs/latency.json").read_text())
    table["form"]["constant"] += 1.0
    write_json(run / "latency.json", table)
    edit(run, "stages.json", lambda stages: stages["solve"]["files"].update({"latency.json": ""}))


def foreign(run):
    with_old = run.parent / "elsewhere"
    shutil.unpack_archive(OLD, with_old)
    shutil.copyfile(with_old / "certificate.json", run / "certificate.json")


def empty_lists(run):
    edit(run, "stages.json", lambda stages: [e.update(files={}) for e in stages.values() if isinstance(e, dict)])


def overlap(run):
    edit(run, "splits.json", lambda data: data["train"].append(data["test"][0]))


def higher(data):
    data["solution"] |= {"score": data["solution"]["score"] + 5, "bound": data["solution"]["bound"] + 5}


def without_point(data):
    for key in ("cost", "score", "picks", "strings"):
        del data[key][1]
    for values in data["costs"].values():
        del values[1]


class Forgery(NamedTuple):
    change: Callable[[Path], object]
    line: str  # the one that finds it
    certified: bool = True  # whether the certificate is made again from the forged files
    needs: str | None = None


FORGERIES = {
    "accuracy, in the certificate": Forgery(
        certificate_says(["accuracy", "test"], 99.99), "certificate: accuracy", certified=False),
    "accuracy, no share of the images": Forgery(says("training.json", "test_accuracy", value=99.99), "test accuracy"),
    "accuracy, but not the confusions": Forgery(
        both(says("training.json", "test_accuracy", value=100.0), says("evaluation.json", "value", value=100.0)),
        "its confusions give the accuracy"),
    "accuracy, everywhere": Forgery(
        both(says("training.json", "test_accuracy", value=100.0), says("evaluation.json", "value", value=100.0),
             says("evaluation.json", "confusion", value=[[0, 0, 9]]), says("evaluation.json", "right", value="ff80")),
        "test accuracy", needs=DATA),
    "accuracy, but not which images are right": Forgery(
        both(says("training.json", "test_accuracy", value=100.0), says("evaluation.json", "value", value=100.0),
             says("evaluation.json", "confusion", value=[[0, 0, 9]])), "as many images right as by its confusions"),
    "an image that is neither right nor wrong": Forgery(says("evaluation.json", "right", value="ffx0"), "files: eval"),
    "views, in the decision": Forgery(says("solution.json", "views", value=6), "the views of solution.json"),
    "views, inside the model too": Forgery(
        both(says("solution.json", "views", value=6), says("model/preprocessing.json", "views", value=6)),
        "same logits"),
    "the temperature": Forgery(says("evaluation.json", "reliability", "temperature", value=3.0), "the temperature"),
    "a class": Forgery(says("evaluation.json", "per_class", 0, value=100.0), "class by class"),
    "metric": Forgery(says("training.json", "metric", value="mean average precision"), "what is measured"),
    "latency, in the certificate": Forgery(
        certificate_says(["costs", "latency", "measured"], 1e-3), "certificate: costs", certified=False),
    "latency, the value": Forgery(
        says("verify.json", "costs", "latency", "measured", value=1e-3), "median of its calls"),
    "latency, a round": Forgery(
        says("verify.json", "costs", "latency", "timing", "rounds", value=lambda r: [1e-3] * len(r)),
                         "between its rounds"),
    "latency, everywhere": Forgery(faster, "latency on this machine", needs=HERE),
    "params": Forgery(says("verify.json", "costs", "params", "measured", value=80e3), "params counted again"),
    "macs": Forgery(both(says("verify.json", "costs", "macs", "measured", value=1e5),
                  says("verify.json", "costs", "macs", "predicted", value=1e5),
                  says("solution.json", "predicted", "macs", value=1e5)), "model.onnx: macs counted again"),
    "memory": Forgery(says("verify.json", "costs", "memory", "measured", value=1e3), "memory counted again"),
    "a budget": Forgery(both(says("solution.json", "budgets", "params", value=95e3),
                      says("verify.json", "costs", "params", "limit", value=95e3)), "the params budget"),
    "a budget that was broken": Forgery(says("verify.json", "costs", "params", "limit", value=1e3),
                                 "asked, and whether it holds"),
    "labels.json": Forgery(labels("labels.json"), "labels.json: the labels"),
    "labels.txt": Forgery(labels("labels.txt"), "labels.txt: the labels"),
    "preprocessing.json": Forgery(labels("model/preprocessing.json"), "preprocessing.json: the classes"),
    "labels of the model": Forgery(labels(*ALL_LABELS[:3]), "preprocessing.json: the classes"),
    "labels, everywhere": Forgery(labels(*ALL_LABELS), "data: its classes", needs=DATA),
    "weights of another training": Forgery(
        weights("model/weights.safetensors", "model/trained.safetensors"), "same logits"),
    "weights, the exported alone": Forgery(weights("model/weights.safetensors"), "weights that were trained"),
    "model.onnx of another training": Forgery(graph, "same logits"),
    "normalisation": Forgery(both(says("splits.json", "mean", value=[99.0]),
                           says("model/preprocessing.json", "normalisation", "mean", value=[99.0])),
                      "same logits"),
    "a solution that is not optimal": Forgery(another_solution, "proof: nothing inside"),
    "a higher score": Forgery(lambda run: edit(run, "solution.json", higher), "the score of its network"),
    "a proof that was none": Forgery(says("solution.json", "solution", "bound", value=lambda b: b + 5),
                              "bound, gap and proof"),
    "another score function": Forgery(says("score.json", "score", "constant", value=lambda c: c + 5),
                               "the score of its network"),
    "a counted price": Forgery(price("params", False), "costs/params.json"),
    "a counted price with its sums": Forgery(price("params", True), "costs/params.json: every price"),
    "a measured price": Forgery(price("latency", False), "costs/latency.json: the sum"),
    "a correction that is not listed": Forgery(correction, "corrected as it lists"),
    "the frontier, a point less": Forgery(lambda run: edit(run, "frontier.json", without_point), "every optimal"),
    "the frontier, a score": Forgery(says("frontier.json", "score", 0, value=99.0), "score of every network"),
    "another space": Forgery(says("model/arch.json", "space", "preset", value="other"), "the space of config"),
    "a certificate from elsewhere": Forgery(foreign, "certificate: ", certified=False),
    "lists without files": Forgery(empty_lists, "hashes of the stage", certified=False),
    "test images that were trained on": Forgery(overlap, "no image in two splits"),
    "other data": Forgery(says("splits.json", "digest", value="0" * 64), "data: its digest", needs=DATA),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_found(finished, tmp_path, name):
    change, line, certified, needs = FORGERIES[name]
    run = finished.copy(tmp_path / "run")
    change(run)
    if name != "lists without files":
        renew(run, certified)
    more = {DATA: {"data": str(finished.data)}, HERE: {"here": True}}.get(needs, {})
    if needs:
        assert sartor.verify(run).holds, "found without: say so in the list above"
    found = sartor.verify(run, **more)
    wrong = [entry.what for entry in found.lines if entry.state == "differs"]
    assert any(line in what for what in wrong), wrong


def test_there_are_thirty():
    assert len(FORGERIES) >= 30


# honest runs ------------------------------------------------------------------------------------------


def differing(found):
    return [line for line in found.lines if line.state == "differs"]


def test_an_honest_run_and_its_further_budget_pass(finished, tmp_path):
    found = sartor.verify(finished.run, data=str(finished.data))
    assert differing(found) == []
    assert {line.what for line in found.lines if line.state == "cannot be checked"} <= {"latency on this machine"}
    run = finished.copy(tmp_path / "run")
    cut = sartor.solve(run, params="60K", quiet=True).path
    found = sartor.verify(cut)
    assert differing(found) == []
    assert json.loads((cut / "certificate.json").read_text())["search"].keys() >= {"score.json", "costs/params.json"}
    edit(run, "score.json", lambda data: data.update(unit="points"))
    assert any("search" in line.what for line in differing(sartor.verify(cut)))


def test_a_run_of_an_older_sartor_passes_as_far_as_it_can_be_checked(tmp_path):
    shutil.unpack_archive(OLD, tmp_path / "old")
    found = sartor.verify(tmp_path / "old")
    assert differing(found) == []
    unknown = [line.found for line in found.lines if line.state == "cannot be checked"]
    assert any("older Sartor did not list" in why and "labels.json" in why for why in unknown)


def test_the_same_fit_does_not_print_what_was_edited(finished, tmp_path):
    run = finished.copy(tmp_path / "run")
    says("training.json", "test_accuracy", value=99.99)(run)
    renew(run)
    with pytest.raises(RunError, match=r"does not hold what it claims: training\.json: test accuracy"):
        order.fit(tiny.given(finished.data, tiny.BUDGETS), run, Reporter(silent=True))


def test_the_command_line_says_what_differs(finished, tmp_path):
    run = finished.copy(tmp_path / "run")
    certificate_says(["seed"], 7)(run)
    renew(run, certified=False)
    done = CliRunner().invoke(app, ["verify", str(run)])
    assert done.exit_code == 2
    assert "differs            certificate: seed as config.toml says: expected 0; 7" in done.stdout
    assert "verified           proof: nothing inside the budgets scores more" in done.stdout
    done = CliRunner().invoke(app, ["verify", str(run), "--json"])
    assert json.loads(done.stdout)["holds"] is False


# signatures -------------------------------------------------------------------------------------------


def invoke(*arguments):
    return CliRunner().invoke(app, [*map(str, arguments)])


def test_a_signed_certificate_is_known_by_its_key(finished, tmp_path, monkeypatch):
    run, mine, theirs = finished.copy(tmp_path / "run"), tmp_path / "mine", tmp_path / "theirs"
    for key in (mine, theirs):
        assert invoke("sign", "--new-key", key).exit_code == 0
        assert key.stat().st_mode & 0o777 == 0o600
    assert "not overwritten" in str(invoke("sign", "--new-key", mine).exception)
    assert any("no signature.json" in str(x.found) for x in sartor.verify(run, signed_by=f"{mine}.pub").lines)
    assert invoke("sign", run, "--key", mine).exit_code == 0
    assert sartor.verify(run, signed_by=f"{mine}.pub").holds
    assert not sartor.verify(run, signed_by=f"{theirs}.pub").holds
    for wrong in (mine, finished.data, tmp_path / "none"):  # a private key, no key at all
        with pytest.raises(sartor.BadInput, match="must be a PEM file with a public Ed25519 key"):
            sartor.verify(run, signed_by=wrong)
    assert "private Ed25519 key" in str(invoke("sign", run, "--key", f"{mine}.pub").exception)
    assert "either" in str(invoke("sign", run).exception)
    # a forger without the key: consistent, and still found
    edit(run, "env.json", lambda data: data.update(gpu="a faster one"))
    renew(run)
    assert sartor.verify(run).holds
    assert not sartor.verify(run, signed_by=f"{mine}.pub").holds
    import sartor.core.errors as errors

    monkeypatch.setattr(errors, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(sartor.MissingDependency, match=r"sartor\[sign\]"):
        sartor.verify(run, signed_by=f"{mine}.pub")
