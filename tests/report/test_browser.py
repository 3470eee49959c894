"""The report in a real browser: it opens from disk without a network, and its slider picks networks."""

import json
import os
import re
from pathlib import Path

import pytest

from sartor.core import units
from sartor.report.build import build
from sartor.report.sections.frontier import notation

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason=f"{CHROMIUM} is not installed")
ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
OVERFLOWING = """() => [...document.querySelectorAll("main *")]
    .filter(e => !e.closest(".scroll, pre, svg") && e.getBoundingClientRect().right > innerWidth + 1)
    .map(e => e.tagName + "." + e.className).slice(0, 5)"""


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as p:
        running = p.chromium.launch(executable_path=str(CHROMIUM), args=ARGS)
        yield running
        running.close()


@pytest.fixture
def opened(browser):
    """``opened(path, width)`` shows a report; afterwards nothing may have gone wrong or left the machine."""
    pages, problems = [], []

    def show(path, width=1280):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_default_timeout(5000)
        page.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda d: (problems.append(f"dialog: {d.message}"), d.dismiss()))
        url = build(path).resolve().as_uri()
        page.on("request", lambda r: problems.append(f"request: {r.url}") if r.url != url else None)
        page.goto(url)
        pages.append(page)
        return page

    yield show
    for page in pages:
        page.close()
    assert problems == []


def slide(page, position):
    page.evaluate("""n => { const s = document.getElementById("budget"); s.value = n === "last" ? s.max : n;
                            s.dispatchEvent(new Event("input", {bubbles: true})); }""", position)  # fmt: skip


def test_the_slider_picks_another_network(opened, fabricate):
    run = fabricate()
    page = opened(run.path)
    seen = set()
    for position in range(len(run.points)):
        slide(page, position)
        drawn = page.inner_text("#architecture")
        lines = drawn.split("\n")
        named = run.points.arch(position).named(run.choices)
        blocks = [o for c, o in named.items() if ".block" in c]
        assert [w for w in lines if re.fullmatch(r"\d×\d", w)] == [f"{o[4]}×{o[4]}" for o in blocks]
        assert [w for w in lines if re.fullmatch(r"×\d", w)] == [f"×{o[1]}" for o in blocks]
        assert lines.count("SE") == sum(o.endswith("_se") for o in blocks)
        budget = page.input_value("#budget-text")
        assert run.points.best(units.parse(budget, "time")) == position
        assert page.inner_text("#cut-options") == f"--latency {budget}"
        seen.add((drawn, budget))
    assert len(seen) == len(run.points)


def test_it_starts_at_the_budget_that_was_asked(opened, fabricate):
    run = fabricate()
    page = opened(run.path)
    assert units.parse(page.input_value("#budget-text"), "time") == pytest.approx(run.generous(), rel=1e-11)
    assert page.input_value("#budget") == str(run.points.best(run.generous()))
    assert page.locator("#architecture .changed").count() == 0
    assert page.locator("#picked .over").count() == 0


def test_keys_move_it_too(opened, fabricate):
    page = opened(fabricate().path)
    before = page.inner_text("#architecture"), page.input_value("#budget-text")
    page.focus("#budget")
    page.keyboard.press("ArrowLeft")
    after = page.inner_text("#architecture"), page.input_value("#budget-text")
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_typed_budget(opened, fabricate):
    run = fabricate()
    page = opened(run.path)
    middle = len(run.points) // 2
    between = (run.points.cost[middle] + run.points.cost[middle + 1]) / 2

    def give(text):
        page.fill("#budget-text", text)
        page.keyboard.press("Enter")

    give(f"{1000 * between:.6f} us")
    assert page.input_value("#budget") == str(middle)
    assert page.is_hidden("#budget-error")
    give("20")
    assert "number with a unit" in page.inner_text("#budget-error")
    give("0.001us")
    assert "the least is" in page.inner_text("#budget-error")
    assert page.input_value("#budget") == str(middle)
    give("5 s")
    assert page.input_value("#budget") == str(len(run.points) - 1)
    assert page.is_hidden("#budget-error")


def test_pointing_into_the_chart(opened, fabricate):
    run = fabricate()
    page = opened(run.path)
    page.locator("#frontier-area").scroll_into_view_if_needed()
    area = page.locator("#frontier-area").bounding_box()
    page.mouse.click(area["x"] + area["width"] - 1, area["y"] + 20)
    assert page.input_value("#budget") == str(len(run.points) - 1)
    page.mouse.click(area["x"] + 1, area["y"] + 20)
    assert page.input_value("#budget") == "0"


def test_commands_name_the_folder_where_the_page_lies(opened, fabricate, tmp_path):
    run = fabricate(name="it's a run")
    cut = run.cut(float(run.points.cost[1]), "cuts/latency-tight")
    quoted = "'" + str(run.path.resolve()).replace("'", "'\\''") + "'"
    page = opened(run.path)
    assert page.inner_text(".cut-line pre").startswith(f"sartor solve {quoted} --latency ")
    page = opened(cut)
    assert page.inner_text(".cut-line pre").startswith(f"sartor solve {quoted} --latency ")
    assert f'sartor.load("{cut.resolve()}")' in page.inner_text("#usage-section")


def test_quantities_are_written_as_on_the_command_line(opened, fabricate):
    page = opened(fabricate().path)
    for kind, values in (
        ("time", (0.05, 0.7, 12.3456, 20_000.0)),
        ("count", (12.0, 146_994.0, 4.1e6)),
        ("bytes", (517_300.0,)),
    ):
        for value in values:
            kind_ = json.dumps(notation(units.KINDS[kind]))
            assert page.evaluate(f"show({value}, {kind_})").replace("µ", "u") == units.show(value, kind)


@pytest.mark.parametrize("generic", [False, True])
def test_it_fits_a_narrow_window(opened, fabricate, generic):
    run = fabricate(generic=generic, classes=[f"class {'x' * 90}{n}" for n in range(3)], skipped=["y" * 200])
    page = opened(run.path, 600)
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") <= 600
    assert page.evaluate(OVERFLOWING) == []
    slide(page, "last")
    assert page.evaluate("document.documentElement.scrollWidth") <= 600


def test_the_data_cannot_run_scripts(opened, fabricate):
    bad = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"
    run = fabricate(name="<img src=x onerror=alert(1)>", classes=(bad, "b"), skipped=(bad,), data=bad, generic=True)
    run.change("score.json", lambda s: s["choices"][0].update(options=["none", bad, "c"], name=bad))
    page = opened(run.path)
    slide(page, 0)
    slide(page, "last")
    assert bad in page.inner_text("#architecture")
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0


def test_a_run_without_a_frontier(opened, fabricate):
    run = fabricate()
    run.change("frontier.json", lambda f: f.update(cost=[], score=[], picks=[], strings=[], costs={}))
    page = opened(run.path)
    assert "interact too much" in page.inner_text("#frontier-section")
