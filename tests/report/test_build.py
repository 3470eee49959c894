"""The report as text: self-contained, escaped, the same every time, and whole when parts of the run are missing."""

import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from schemas import FILES, example, required

from sartor.core import units
from sartor.core.arch import Arch, Choice, canonical
from sartor.core.errors import MissingDependency, RunError
from sartor.core.quadratic import Quadratic
from sartor.report import figures
from sartor.report.build import SECTIONS as SECTION_MAKERS
from sartor.report.build import build
from sartor.report.files import Files
from sartor.report.sections.decisions import effects, prices
from sartor.report.sections.headline import cautions
from sartor.report.sections.network import legend, looks
from sartor.report.text import Unit, option, seconds, signed, wilson
from sartor.runs import schema
from sartor.runs.codec import encode
from sartor.spaces.drawing import Aspect, Drawing

SECTIONS = ("headline", "frontier", "network", "decisions", "ranking", "timing", "training", "data", "usage")
NASTY = "<script>alert(1)</script>"
NASTY_ATTRIBUTE = "\"'><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """Every tag with its attributes, and the text outside style and script."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words, self._inside = [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.words))


def page_of(path):
    return build(path).read_text(encoding="utf-8")


def test_a_whole_run_has_every_section(fabricate):
    run = fabricate()
    page = page_of(run.path)
    text = Tags(page).text
    for name in SECTIONS:
        assert f'id="{name}-section"' in page
    for word in ("Fits: ", "of 120 test images right", "proven", "Kendall", "Stage 1", "expansion ×6", "400 images/s"):
        assert word in text, word
    assert 'id="architecture"' in page
    assert 'id="budget"' in page
    assert len(page) < 200_000
    assert "sartor compare" in text and "<span" not in text  # no markup that was taken for text


def test_nothing_is_loaded_from_elsewhere(fabricate):
    page = page_of(fabricate().path)
    for tag, attributes_ in Tags(page).tags:
        assert tag not in ("link", "iframe", "img", "object", "embed", "base"), tag
        assert not {"src", "href", "srcset", "action", "data"} & set(attributes_), (tag, attributes_)
        assert not [a for a in attributes_ if a.startswith("on")], (tag, attributes_)
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(", page)
    assert "default-src 'none'" in html.unescape(page)


def test_names_from_the_run_are_never_markup(fabricate):
    choices = (
        Choice(f"edge {NASTY}", ("none", f"conv{NASTY_ATTRIBUTE}", f"</script>{NASTY}")),
        Choice("edge 2", ("none", "skip", "conv")),
    )
    run = fabricate(
        name='<img src=x onerror=alert(1)>"', choices=choices, data=NASTY, classes=(NASTY, NASTY_ATTRIBUTE, "猫", "قط"),
        skipped=(f"{NASTY}.jpg", f"{NASTY_ATTRIBUTE}.png"),
    )  # fmt: skip
    run.change("score.json", lambda s: s.update(unit=NASTY, method=NASTY))
    run.change("certificate.json", lambda c: c["weights"].update({NASTY: NASTY_ATTRIBUTE}))
    run.change("solution.json", lambda s: s.update(string=NASTY))
    page = page_of(run.path)
    tags = Tags(page).tags
    assert [a for t, a in tags if t == "script"] == [{"type": "application/json", "id": "frontier-data"}, {}]
    assert not [t for t, _ in tags if t == "img"]
    assert not [a for _, attributes_ in tags for a in attributes_ if a.startswith("on")]
    assert "猫" in page
    assert NASTY in Tags(page).text  # shown as it is written


def test_the_same_directory_gives_the_same_bytes(fabricate, tmp_path, monkeypatch):
    run = fabricate()
    first = build(run.path).read_bytes()
    run.change("stages.json", lambda s: s.update(report={"files": {}, "seconds": 0.2, "finished": "now"}))
    assert build(run.path).read_bytes() == first
    monkeypatch.chdir(tmp_path)
    assert build(Path("a")).read_bytes() == first
    shutil.copytree(run.path, tmp_path / "elsewhere/a")
    assert build(tmp_path / "elsewhere/a").read_bytes() == first
    assert not list(run.path.glob(".report*"))


def test_a_further_budget_has_its_own_report(fabricate, tmp_path, monkeypatch):
    run = fabricate()
    tight = float(run.points.cost[1])
    cut = run.cut(tight, "cuts/latency-tight")
    page = page_of(cut)
    text = Tags(page).text
    assert f"{int(1e6 * tight):x}" in text  # its own certificate
    assert "search (of the run)" in text
    assert "cuts/latency-tight" in text
    assert f"sartor solve again --latency {tight!r}ms" in text
    assert page != page_of(run.path)
    (cut / "certificate.json").unlink()
    assert "certified" not in Tags(page_of(cut)).text  # and never the run's
    monkeypatch.chdir(cut)
    assert build(Path(".")).exists()


@pytest.mark.parametrize(
    "name",
    [
        "score.json", "splits.json", "env.json", "frontier.json", "verify.json", "training.json", "certificate.json",
        "model/preprocessing.json", "stages.json", "costs/latency.json", "costs/params.json",
    ],
)  # fmt: skip
def test_a_missing_file_costs_its_section_and_no_other(fabricate, name):
    run = fabricate()
    (run.path / name).unlink()
    page = page_of(run.path)
    assert all(f'id="{s}-section"' in page for s in SECTIONS)


def test_a_run_with_a_solution_alone(fabricate):
    run = fabricate()
    for path in run.path.rglob("*.json"):
        if path.name != "solution.json":
            path.unlink()
    text = Tags(page_of(run.path)).text
    assert "Not measured yet" in text


def test_a_method_that_measures_nothing(fabricate):
    run = fabricate()

    def random_method(score):
        score.update(method="random", unit="random number", quality=None, facts={})
        del score["score"]["errors"]

    run.change("score.json", random_method)
    text = Tags(page_of(run.path)).text
    assert "not accuracy" in text
    assert "was not measured" in text
    assert "this score has no standard errors" in text


def test_a_space_of_another_shape(fabricate):
    run = fabricate(generic=True)
    text = Tags(page_of(run.path)).text
    for choice, picked in run.points.arch(run.points.best(run.generous())).named(run.choices).items():
        assert f"{choice} {picked}" in text


def test_an_empty_frontier_is_said(fabricate):
    run = fabricate()
    run.change("frontier.json", lambda f: f.update(cost=[], score=[], picks=[], strings=[], costs={"latency": []}))
    page = page_of(run.path)
    assert "interact too much" in page


def test_weakness_is_said_plainly(fabricate):
    run = fabricate(skipped=("broken.jpg",))
    run.change("score.json", lambda s: s["quality"]["kendall"].update(value=0.1, low=-0.2, high=0.4))

    def busy(verified):
        verified["costs"]["latency"]["timing"].update(drift=1.2, p95=9.0)

    run.change("verify.json", busy)
    run.change("solution.json", lambda s: s.update(corrections=[{"picks": [], "predicted": 0.5, "measured": 0.6}]))
    text = Tags(page_of(run.path)).text.replace("\u00a0", " ")
    for word in ("does not reliably order", "20 % slower", "one call in twenty", "1 network was built", "broken.jpg"):
        assert word in text, word
    assert "1.200" in text  # the correction's factor


def test_room_and_time_that_were_left_are_said(fabricate):
    run = fabricate()

    def measured(share):
        def change(verified):
            for entry in verified["costs"].values():
                if entry.get("limit"):
                    entry["measured"] = share * entry["limit"]

        return change

    def trained(losses):
        return lambda training: training.update(history=[{"loss": loss} for loss in losses])

    def said():
        return " ".join(cautions(Files.open(run.path)))

    run.change("verify.json", measured(0.95))
    run.change("training.json", trained([1.0] * 20))
    assert "budget is used" not in said() and "more time" not in said()
    run.change("verify.json", measured(0.6))
    assert "60\u00a0% of the" in said() and "budget is used" in said() and "scores more" in said()
    run.change("score.json", lambda score: score["facts"].update(most=1e6))
    assert "larger networks could not be tried" in said() and "scores more" not in said()
    for losses in ([0.5] * 3, [2.0 - 0.05 * n for n in range(20)]):
        run.change("training.json", trained(losses))
        assert f"trained for {len(losses)} epochs only" in said()
    run.change("training.json", trained([2.0 - 0.02 * n for n in range(80)]))  # it always falls a little
    assert "epochs only" not in said()


def test_a_rough_order_is_said_too(fabricate):
    run = fabricate()
    run.change("score.json", lambda s: s["quality"]["kendall"].update(value=0.3, low=0.1, high=0.5))
    assert "only roughly (Kendall 0.3)" in Tags(page_of(run.path)).text


def test_over_the_budget_is_no_small_print(fabricate):
    run = fabricate()

    def over(verified):
        verified["fits"] = False
        verified["costs"]["latency"].update(measured=2.0, limit=1.0, holds=False)

    run.change("verify.json", over)
    text = Tags(page_of(run.path)).text
    assert "Over budget" in text
    assert "✗ over" in text
    assert "measures 2 ms where 1 ms was asked" in text


def test_which_budget_holds_the_score_back(fabricate):
    run = fabricate()
    assert "The latency budget binds: " in Tags(page_of(run.path)).text

    def tighter(solution):
        solution["budgets"]["params"] = 1e4
        solution["solution"]["score"] -= 2

    run.change("solution.json", tighter)
    assert "Without the budget on params the best network would score +2.00 %" in Tags(page_of(run.path)).text
    run.cut(100.0)
    assert "does not bind" in Tags(page_of(run.path)).text


def test_rules_of_a_weak_score_come_with_a_warning(fabricate):
    run = fabricate()
    rules, salt = "In stage1, raising kernel from 3 to 5 adds", "grain of salt"
    text = Tags(page_of(run.path)).text
    assert rules in text
    assert salt not in text
    run.change("score.json", lambda s: s["quality"]["kendall"].update(low=-0.1))
    text = Tags(page_of(run.path)).text
    assert rules in text
    assert salt in text


def test_a_damaged_file_is_named(fabricate):
    run = fabricate()
    (run.path / "score.json").write_text('{"method": ', encoding="utf-8")
    with pytest.raises(RunError, match=r"score\.json is damaged"):
        build(run.path)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("frontier.json", "[]", "must be a JSON object"), ("score.json", '{"unit": 3}', "unit must be text"),
        ("verify.json", '{"fits": true, "costs": 1}', "costs must be a JSON object"),
        ("splits.json", "{}", "train is missing"), ("training.json", '{"history": [7]}', "history.0 must be"),
        ("costs/latency.json", '{"kind": null}', "prices"), ("stages.json", '{"data": 1}', "data must be"),
        ("score.json", '{"format": 7}', "has format 7; this Sartor reads up to 2"),
    ],
)  # fmt: skip
def test_foreign_content_is_refused_by_name(fabricate, name, content, said):
    run = fabricate()
    (run.path / name).write_text(content, encoding="utf-8")
    with pytest.raises(RunError) as error:
        build(run.path)
    assert name in str(error.value)
    assert said in str(error.value)


def whole(run):
    """The run with all that any method or a compression records."""
    mixture, switches = (encode(example(k)) for k in (schema.Mixture, schema.Switches))
    switches |= {"dependency": "full", "rounds": [r | {"removed": []} for r in switches["rounds"]]}
    for n, entry in enumerate(switches["posterior"]):
        entry |= {"reads": f"cell.{n}", "feeds": f"cell.{n + 1}"}
    picks = json.loads((run.path / "solution.json").read_text(encoding="utf-8"))["solution"]["picks"]
    trials = [
        encode(replace(example(schema.Trial), picks=tuple(p), rung=r, name=name))
        for p, r, name in ((picks, 0, ""), ([0] * len(picks), 0, "resnet8"), (picks, 1, ""))
    ]
    run.change("score.json", lambda s: s["facts"].update(mixture=mixture, switches=switches, trials=trials))
    compressed = encode(example(schema.CompressionFile))
    compressed["network"] = {"params": {"kind": "count", "before": 2.0, "after": 1.0}}
    compared = encode(example(schema.CompareFile)) | {"axis": "params", "kinds": {"params": "count"}}
    for entry in (compared["own"], *compared["rivals"]):
        entry["costs"] = {"params": 2.0}
    rounds = encode(example(schema.RoundsFile))
    audit, quantised, origin = (encode(example(k)) for k in (schema.AuditFile, schema.QuantisedFile, schema.OriginFile))
    files = {"compression.json": compressed, "rounds.json": rounds, "compare.json": compared, "audit.json": audit,
             "evaluation.json": evaluation(["cat", "dog"]), "quantised.json": quantised,
             "origin.json": origin}  # fmt: skip
    for name, data in files.items():
        (run.path / name).write_text(json.dumps(data), encoding="utf-8")
    return run


def test_every_section_that_applies_is_there(fabricate):
    files = Files.open(whole(fabricate()).path)
    for section in SECTION_MAKERS:
        assert section(files), section.__name__
    bare = Files.open(fabricate("b", generic=True).path)
    assert [s.__name__ for s in SECTION_MAKERS if s(bare) is None] == [
        "compression", "trials", "cells", "switches", "mistakes",
    ]  # fmt: skip


def test_what_was_tried_is_told(fabricate):
    run = whole(fabricate())
    text = Tags(page_of(run.path)).text
    for word in ("What was tried", "2 networks inside the budgets", "1 of them are well-known", "resnet8", "(chosen)"):
        assert word in text, word


READ = [
    k
    for k in FILES
    if k
    not in (
        schema.Environment,
        schema.ModelFile,
        schema.BaselineFile,
        schema.StagesFile,
        schema.TrialsFile,
        schema.Signature,
        schema.ExportFile,
        schema.Int8EvaluationFile,  # read as the other one
    )
]


@pytest.mark.parametrize("kind", READ, ids=lambda k: k.NAME)
def test_every_field_that_is_missing_or_renamed_is_named(fabricate, kind):
    run = whole(fabricate())
    path = run.path / kind.NAME
    data = json.loads(path.read_text(encoding="utf-8"))
    ways = list(required(kind, data))
    assert len(ways) > 3
    for way in ways:
        changed = json.loads(json.dumps(data))
        holder = changed
        for key in way[:-1]:
            holder = holder[key]
        holder[f"{way[-1]}_"] = holder.pop(way[-1])
        path.write_text(json.dumps(changed), encoding="utf-8")
        with pytest.raises(RunError, match=re.escape(f"{kind.NAME}: {'.'.join(map(str, way))} is missing")):
            build(run.path)


def test_what_is_no_run_is_refused(tmp_path, fabricate):
    with pytest.raises(RunError, match="no such folder"):
        build(tmp_path / "nowhere")
    with pytest.raises(RunError, match=r"no config\.toml"):
        build(tmp_path)
    run = fabricate()
    (run.path / "solution.json").unlink()
    with pytest.raises(RunError, match="no chosen network"):
        build(run.path)


def test_a_folder_whose_name_is_not_text(fabricate, tmp_path):
    run = fabricate()
    odd = tmp_path / os.fsdecode(b"run\xff")
    try:
        run.path.rename(odd)
    except OSError:
        pytest.skip("this file system takes only text as names")
    assert b"run?" in build(odd).read_bytes()


def test_torch_is_never_imported():
    code = "import sys, sartor.report.build; sys.exit('torch' in sys.modules or 'jinja2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


def test_without_jinja2_the_extra_is_named(fabricate, monkeypatch):
    run = fabricate()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(MissingDependency, match=r"sartor\[report\]"):
        build(run.path)


def test_the_snippets_are_python(fabricate):
    run = fabricate()
    (run.path / "model/predict.py").touch()
    page = page_of(run.path)
    codes = [html.unescape(re.sub(r"<[^>]+>", "", c)) for c in re.findall(r"<pre><code>(.*?)</code></pre>", page, re.S)]
    python = [c for c in codes if c.startswith("import")]
    assert len(python) == 3
    for code in python:
        compile(code, "snippet", "exec")
    assert any('sys.path.append("a/model/")' in c and "from predict import classify" in c for c in python)
    assert "sartor fit --config a/config.toml --out again" in codes


# the pieces ------------------------------------------------------------------------------------------


def test_effects_add_up_to_the_form(fabricate):
    run = fabricate()
    own = effects(run.score, run.choices, hub=False)
    for n in range(len(run.points)):
        arch = canonical(run.choices, run.points.arch(n))
        named = arch.named(run.choices)
        total = sum(own[i][p] for i, p in enumerate(arch.picks) if run.choices[i].name in named)
        assert run.score.constant + total == pytest.approx(run.score(arch))


def test_a_depth_costs_the_blocks_it_switches_on(fabricate):
    run = fabricate()
    plain, whole = (effects(run.latency, run.choices, hub=h) for h in (False, True))
    assert whole[0][1] - plain[0][1] == pytest.approx(float(plain[2].mean()))
    assert whole[0][0] == plain[0][0]
    np.testing.assert_array_equal(whole[2], plain[2])


def test_prices_that_differ_by_frame_are_those_of_the_chosen_networks_frame(fabricate):
    run = fabricate(generic=True)
    rng = np.random.default_rng(1)
    cases = tuple(
        Quadratic((3, 3, 3), 0.0, {1: rng.uniform(0, 1, 3)}, {(1, 2): rng.uniform(0, 1, (3, 3))}) for _ in "012"
    )
    run.change("costs/latency.json", lambda data: data["form"].update(cases=[case.to_json() for case in cases]))
    files = Files(run.path, run.path)
    form, arch = files.tables["latency"].form, files.solution.arch
    assert form.cases
    (side, width, _), case = prices(files)["latency"], cases[arch.picks[0]]
    own = form.linear[1] + case.linear[1] + case.pairs[1, 2].mean(1)
    np.testing.assert_allclose(width, own)
    moved = [form(Arch((frame, *arch.picks[1:]))) for frame in range(3)]
    np.testing.assert_allclose(np.diff(side), np.diff(moved))
    assert 'id="decisions-section"' in page_of(run.path)


def test_looks_rise_with_what_the_space_calls_height_and_mark_flags():
    aspects = (Aspect("expansion", "height", "×{0:g}"), Aspect("kernel", "tone", "{0:g}×{0:g}"), Aspect("SE", "mark"))
    drawing = Drawing((), aspects, {"a": (3, 3, False), "b": (6, 5, True)})
    drawn = looks(Choice("block", ("a", "b")), drawing)
    assert drawn[0].grow < drawn[1].grow == 1.0
    assert (drawn[0].tone, drawn[1].tone) == (0.0, 1.0)
    assert (drawn[0].mark, drawn[1].mark) == ("", "SE")
    assert [(d.text, d.under) for d in drawn] == [("3×3", "×3"), ("5×5", "×6")]
    assert legend(drawing) == "Tall: more expansion. Strong colour: larger kernel. Capped: SE."
    assert [d.text for d in looks(Choice("block", ("a", "other")), drawing)] == ["a", "other"]


def test_a_run_without_a_drawing_is_drawn_by_its_choices(fabricate):
    run = fabricate()
    run.change("solution.json", lambda s: s.pop("drawing"))
    text = Tags(page_of(run.path)).text
    assert "stage1 2 deep" in text or "stage1 1 deep" in text
    assert "expansion ×" not in text


def test_no_space_is_known_by_name():
    sources = [p.read_text(encoding="utf-8") for p in Path(figures.__file__).parent.rglob("*.py")]
    imported = {m for text in sources for m in re.findall(r"from (sartor\.spaces[\w.]*) import (\w+)", text)}
    assert {name if name != "sartor.spaces" else f"{name}.{what}" for name, what in imported} == {
        "sartor.spaces.drawing"
    }
    assert not [word for word in ("genotype", "treecell", "mobile", "nasbench") for text in sources if word in text]


@pytest.mark.parametrize(("value", "kind"), [(0.7, "time"), (4e6, "count"), (146_994.0, "count"), (588e3, "bytes")])
def test_budgets_as_options_read_back_exactly(value, kind):
    flag, amount = option("latency", value, units.KINDS[kind]).split(" ")
    assert flag == "--latency"
    assert units.parse(amount, kind) == value
    energy = units.Kind("energy", {"uJ": 1e-3, "mJ": 1.0, "J": 1e3})
    assert option("energy", 3.0, energy) == "--budget energy=3mJ"


def test_numbers_for_people():
    assert (signed(0.5), signed(-0.5), signed(-1e-9)) == ("+0.50", "−0.50", "0.00")
    assert (seconds(0.31), seconds(125), seconds(12_000)) == ("0.3 s", "2 min 5 s", "3 h 20 min")
    assert Unit.of([0.004, 0.012], units.TIME).difference(0.0123) == "+12.3 µs"
    assert Unit.of([], units.TIME).difference(0.0) == "0 µs"
    low, high = wilson(0.9, 100)
    assert low < 0.9 < high
    assert wilson(1.0, 10)[1] == pytest.approx(1.0)


@pytest.mark.parametrize("values", [[1.0], [0.0, 0.0], [-3.0, 5.0], [1e-6, 2e-6], [1e9, 5e9]])
def test_ticks_lie_inside_and_are_few(values):
    scale = figures.Scale.around(values)
    ticks = scale.ticks()
    assert 1 <= len(ticks) <= 8
    assert all(scale.low - 1e-9 * abs(scale.low) <= t <= scale.high * (1 + 1e-9) + 1e-12 for t in ticks)


def test_another_metric_is_called_by_its_name(fabricate):
    run = fabricate()
    run.change("training.json", lambda t: t.update(metric="mean average precision"))
    text = Tags(page_of(run.path)).text
    assert "90.0 % mean average precision on 120 test images" in text
    assert "test images right" not in text


def test_rules_speak_of_what_the_space_says_its_options_differ_by(fabricate):
    run = fabricate()
    run.change("solution.json", lambda s: s["drawing"]["aspects"][1].update(name="window"))
    assert "In stage1, raising window from 3 to 5 adds" in Tags(page_of(run.path)).text


# where it errs -----------------------------------------------------------------------------------


def evaluation(classes, picture=""):
    """evaluation.json of two images of every class, the first of each class taken for the next class."""
    count = len(classes)
    confusion = sorted([[k, k, 1] for k in range(count)] + [[k, (k + 1) % count, 1] for k in range(count)])
    trust = {"temperature": 1.5, "fitted_on": "validation", "images": [4, 6], "promised": [0.5, 0.9],
             "kept": [0.4, 0.8], "error": 10.0, "promised_scaled": [0.45, 0.82], "kept_scaled": [0.4, 0.8],
             "error_scaled": 3.2}  # fmt: skip
    mistake = {"name": NASTY, "truth": [0], "said": [1], "chance": 0.97, "picture": picture}
    return {"metric": "accuracy", "value": 50.0, "images": 2 * count, "classes": classes, "counts": [2] * count,
            "per_class": [50.0] * count, "confusion": confusion, "reliability": trust,
            "mistakes": [mistake]}  # fmt: skip


def put(run, data):
    (run.path / "evaluation.json").write_text(json.dumps(data), encoding="utf-8")


def test_the_page_shows_confusions_mistakes_and_calibration(fabricate):
    run = fabricate(classes=(NASTY, "dog"))
    assert "mistakes-section" not in page_of(run.path)  # a run before evaluation.json
    picture = base64.b64encode(b"\xff\xd8\xff picture").decode()
    put(run, evaluation([NASTY, "dog"], picture))
    page = page_of(run.path)
    tags = Tags(page)
    assert NASTY not in page
    (image,) = (a for name, a in tags.tags if name == "img")
    assert image["src"] == f"data:image/jpeg;base64,{picture}"
    assert "dog 97 %" in tags.text
    assert f"is {NASTY}" in tags.text
    assert "off by 10.0 points" in tags.text
    assert "temperature of 1.5" in tags.text
    assert "img-src data:;" in html.unescape(page)


@pytest.mark.parametrize("picture", ["", "x", base64.b64encode(b"<svg onload=alert(1)>").decode(), '"><script>'])
def test_a_picture_that_is_none_is_left_out(fabricate, picture):
    run = fabricate()
    put(run, evaluation(["cat", "dog"], picture))
    assert "<img" not in page_of(run.path)


def test_of_many_classes_those_that_are_confused_most_are_shown(fabricate):
    names = [f"class {k}" for k in range(30)]
    run = fabricate(classes=names)
    data = evaluation(names)
    data["confusion"] = [e if e[0] != 29 else [29, e[1], 9] for e in data["confusion"]]
    put(run, data)
    page = page_of(run.path)
    assert "The 10 classes that are confused least are left out." in page
    assert "<th scope=row>class 29</th>" in page
