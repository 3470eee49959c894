"""The command line: its surface, its messages and its exit codes. Run this file as a script to renew the golden one."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import typer
from lines import commands
from PIL import Image

from sartor.api.result import load
from sartor.cli import show
from sartor.cli.main import _first_process, app
from sartor.core.errors import BadInput
from sartor.core.registry import COSTS
from sartor.data.open import open_data
from sartor.pipeline.options import Options
from sartor.runs.directory import read_file
from sartor.runs.schema import FrontierFile
from sartor.version import __version__

FIRST = {
    "alone": ({}, True),
    "torchrun": ({"RANK": "1", "LOCAL_RANK": "0", "GROUP_RANK": "1"}, False),
    "Fabric's own processes": ({"LOCAL_RANK": "1"}, False),
    "Fabric's own, on the second machine": ({"NODE_RANK": "1", "LOCAL_RANK": "0"}, False),
    "srun": ({"SLURM_PROCID": "3", "SLURM_LOCALID": "0"}, False),
    "the first of srun": ({"SLURM_PROCID": "0"}, True),
}
GOLDEN = Path(__file__).parents[1] / "golden/cli.json"


@pytest.mark.parametrize("who", FIRST)
def test_only_the_first_process_prints_the_result(who, monkeypatch):
    for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in FIRST[who][0].items():
        monkeypatch.setenv(name, value)
    assert _first_process() is FIRST[who][1]


def photos(folder, classes=2, count=4):
    for k in range(classes):
        (folder / f"class {k}").mkdir(parents=True)
        for n in range(count):
            Image.new("RGB", (12, 12), (40 * n, 90 * k, 7)).save(folder / f"class {k}" / f"{n}.png")
    return folder


# surface ----------------------------------------------------------------------------------------


def surface():
    return {
        name: {"arguments": [p.name for p in command.params if p.param_type_name == "argument"],
               "options": sorted(o for p in command.params if p.param_type_name == "option" for o in p.opts)}
        for name, command in commands(typer.main.get_command(app))
    }  # fmt: skip


def test_the_surface_is_the_one_written_down():
    expected = json.loads(GOLDEN.read_text())
    assert surface() == expected, "an intended change of the command line: python tests/test_cli.py writes it down"


def test_every_command_that_prints_results_takes_json():
    assert all("--json" in found["options"] for found in surface().values())


@pytest.mark.parametrize("command", [[], *([name] for name in sorted(typer.main.get_command(app).commands))])
def test_help_says_what_every_option_does(sartor, command):
    code, out, err = sartor(*command, "--help")
    assert code == 0
    assert err == ""
    root = typer.main.get_command(app)
    for p in (root.commands[command[0]] if command else root).params:
        assert p.name == "help" or p.help, f"{command} {p.name} has no help"
    assert "Usage" in out


def test_the_version_is_printed(sartor):
    assert sartor("--version") == (0, f"{__version__}\n", "")


def test_help_begins_with_what_most_people_want(sartor):
    listed = sartor("--help")[1].partition("Commands:")[2].split("\n")
    names = [line.split()[0] for line in listed if line.startswith("  ") and line[2] != " "]
    assert names[:2] == ["fit", "predict"]
    assert set(names) == set(typer.main.get_command(app).commands)


def test_the_shell_completes_names(sartor, monkeypatch):
    shell = {"_SARTOR_COMPLETE": "complete_bash", "COMP_WORDS": "sartor fit --method x", "COMP_CWORD": "3"}
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    assert sartor()[1].split() == ["xnas"]


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [(["fitt"], "fit"), (["fit", "digitz"], "digits"), (["fit", "digits", "--method=bina"], "binas"),
     (["fit", "digits", "--budget=parms=2M"], "params"), (["fit", "digits", "--effort=quikc"], "quick"),
     (["fit", "digits", "--set=method.pases=3", "--method=binas"], "passes")],
)  # fmt: skip
def test_a_name_that_is_none_is_answered_with_the_nearest(refused, arguments, meant):
    assert re.search(rf"[Dd]id you mean .?{meant}", refused(*arguments))


# bad input --------------------------------------------------------------------------------------


@pytest.mark.parametrize("budget", ["20", "-5ms", "0ms", "fast", "", "5 furlongs", "1e999ms", "nan"])
def test_a_budget_that_is_none_is_refused(refused, finished, tmp_path, budget):
    message = refused("fit", finished.data, f"--latency={budget}", "--out", tmp_path / "run")
    assert "the latency budget" in message
    assert not (tmp_path / "run").exists()


def test_another_cut_without_a_budget_is_refused_with_the_options_there_are(refused, finished):
    assert "latency, macs, memory, params" in refused("solve", finished.run)


def test_an_impossible_latency_names_the_least_before_any_training(refused, finished, tmp_path):
    out = tmp_path / "run"
    tiny.prepare(finished, tiny.given(finished.data, {"latency": "1us"}), out)
    message = refused(*tiny.arguments(finished.data, out, "--latency=1us"))
    assert "latency <= 1 us cannot be met" in message
    assert "the least any network of this space needs is" in message
    assert not (out / "search").exists()


def test_of_several_budgets_the_impossible_one_is_named(refused, mine):
    message = refused("solve", mine, "--latency=1s", "--params=1K", "--macs=1G")
    assert "params <= 1 K cannot be met" in message
    assert not (mine / "cuts").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: p / "none", "existing path"),
        (lambda p: p, "sub-folder"),
        (lambda p: photos(p / "one", classes=1), "at least two classes"),
        (lambda p: photos(p / "few", count=1), "at least 3"),
        (lambda p: "fashion", "existing path"),
        (lambda p: "x" * 5000, "usable path"),
    ],
    ids=["missing", "empty", "one class", "one image", "no name", "long name"],
)
def test_data_that_cannot_be_used_are_refused(refused, tmp_path, make, message):
    (tmp_path / "data").mkdir()
    assert message in refused("fit", make(tmp_path / "data"), "--params=1M", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method=magic"], "no method named 'magic'; available: "),
        (["--space=outer"], "no space named 'outer'; available: "),
        (["--effort=heroic"], "must be one of quick, standard, thorough"),
        (["--device=tpu"], "must be one of cpu, cuda"),
        (
            ["--runtime=tflite"],
            "no runtime named 'tflite'; did you mean litert; available: litert, ",
        ),
        (["--threads=0"], "threads must be at least 1"),
        (["--threads=many"], "--threads"),
        (["--seed=-1"], "seed at least 0"),
        (["--devices=0"], "devices"),
        (["--image=4"], "image side"),
        (["--set=nonsense"], "--set takes name=value"),
        (["--set==3"], "--set takes name=value"),
        (["--set=colour=red"], "no option colour"),
        (["--set=method.colour=red"], "method has no option colour"),
        (["--set=method=3"], "method"),
        (["--method=binas", "--set=method.passes=many"], "method.passes must be of type int"),
        (["--method=binas", "--set=method.held_out=1"], "held_out"),
        (["--set=budgets=3"], "budgets must be a group"),
        (["--set=budgets.colour=3ms"], "no budget named colour"),
        (["--set=seed.x=3"], "seed"),
        (["--set=space.widths=abcde"], "space.widths must be a list"),
        (["--set=train.augment=wild"], "train.augment must be one of"),
        (["--set=train.epochs=-1"], "epochs must be at least 0"),
        (["--config=none.toml"], "none.toml"),
        (["--colour=red"], "--colour"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_options_that_make_no_sense_are_refused(refused, finished, tmp_path, arguments, message):
    if arguments == ["--set=seed.x=3"]:
        arguments = ["--seed=1", *arguments]
    assert message in refused("fit", finished.data, "--params=1M", "--out", tmp_path / "run", *arguments)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "content", ["budgets = 3\n", "method = 3\n", "[train]\nlr = 'x'\n", "= 3", "a = " + "[" * 9999]
)
def test_a_strange_config_file_is_refused(refused, finished, tmp_path, content):
    (tmp_path / "c.toml").write_text(content)
    assert refused("fit", finished.data, "--params=1M", "--config", tmp_path / "c.toml", "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["solve", "frontier", "predict", "report"])
@pytest.mark.parametrize("place", ["none", "empty", "file"])
def test_a_run_from_elsewhere_is_refused(refused, tmp_path, command, place):
    path = tmp_path / place
    if place == "empty":
        path.mkdir()
    elif place == "file":
        path.write_text("text")
    more = {"solve": ["--params=1M"], "predict": ["x.png"]}.get(command, [])
    assert str(path) in refused(command, path, *more)


@pytest.mark.parametrize(
    ("command", "name"),
    [("predict", "model/model.onnx"), ("predict", "model/preprocessing.json"), ("frontier", "frontier.json"),
     ("solve", "score.json"), ("solve", "costs/params.json"), ("solve", "config.toml"), ("frontier", "stages.json")],
)  # fmt: skip
@pytest.mark.parametrize("damage", ["truncated", "malicious"])
def test_a_damaged_file_is_refused_by_name(refused, mine, command, name, damage):
    content = (mine / name).read_bytes()
    (mine / name).write_bytes(content[: len(content) // 2] if damage == "truncated" else b"[" * 200_000)
    more = {"solve": ["--params=60K"], "predict": [mine / "x.png"]}.get(command, [])
    assert name in refused(command, mine, *more)


def test_an_output_folder_that_is_a_file_is_refused(refused, finished, tmp_path):
    (tmp_path / "file").write_text("")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        assert str(out) in refused("fit", finished.data, "--params=1M", "--out", out)


def test_missing_files_to_predict_are_named(refused, finished, tmp_path):
    assert "none.png" in refused("predict", finished.run, tmp_path / "none.png")


# results ----------------------------------------------------------------------------------------


def test_list_names_every_plugin(sartor):
    code, out, _ = sartor("list", "--json")
    found = json.loads(out)
    assert code == 0
    assert {"binas", "random"} <= set(found["methods"])
    assert "mobile" in found["spaces"]
    more = {"peak", "sram", "flash", "size", "energy"}
    assert {"latency", "params", "macs", "memory"} | more == set(found["costs"])
    assert "HC-A" in found["zoo"]
    code, out, _ = sartor("list")
    assert code == 0
    assert all(name in out for name in [*found["methods"], *found["solvers"], *found["zoo"]])


def test_zoo_gives_the_published_counts(sartor, refused):
    code, out, _ = sartor("zoo", "HC-A", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["params"], found["macs"]) == (5_260_232, 224_227_936)
    assert "HC-A" in refused("zoo", "HC-Z")
    for wrong in ("--classes=0", "--image=-1", "--channels=x"):
        refused("zoo", "HC-A", wrong)
    fewer = json.loads(sartor("zoo", "HC-A", "--json", "--classes=10", "--image=32", "--channels=1")[1])
    assert fewer["params"] < 5_260_232
    cells = json.loads(sartor("zoo", "DARTS_V2", "--channels", "36", "--json")[1])
    assert (cells["params"], cells["channels"], cells["image"]) == (3_349_342, 36, 32)
    assert "Genotype(normal=" in sartor("zoo", "xnas")[1]
    assert json.loads(sartor("zoo", "bayesnas-0.01", "--json")[1])["params"] == 2_575_702


def test_frontier_as_a_table_and_as_data(sartor, finished):
    code, out, _ = sartor("frontier", finished.run, "--json")
    found = json.loads(out)
    assert code == 0
    assert found == json.loads((finished.run / "frontier.json").read_text())
    assert found["format"] == 2
    code, few, _ = sartor("frontier", finished.run)
    code, every, _ = sartor("frontier", finished.run, "--all")
    assert code == 0
    rows = {name: text.splitlines()[1:-1] for name, text in (("few", few), ("every", every))}
    assert len(rows["few"]) <= 26
    assert len(rows["few"]) <= len(rows["every"]) == len(found["cost"])
    assert max(map(len, [*few.splitlines(), *every.splitlines()])) <= 80
    assert len({row.rpartition("…")[0] for row in rows["few"]}) == len(rows["few"])  # what all begin with is left out


def test_a_frontier_of_many_costs_fits_the_terminal(finished, monkeypatch):
    monkeypatch.setattr(show.console, "width", 80)
    points = read_file(finished.run / "frontier.json", FrontierFile)
    kind, values = points.kinds["params"], points.costs["params"]
    names = [f"cost{n}" for n in range(9)]
    wide = replace(points, costs={**points.costs, **dict.fromkeys(names, values)},
                   kinds={**points.kinds, **dict.fromkeys(names, kind)})  # fmt: skip
    made, last = show.frontier(wide, {}, 5)
    with show.console.capture() as captured:
        show.console.print(made)
    assert max(map(len, captured.get().splitlines())) <= 80
    assert "cost8" in last
    assert "architecture" in captured.get()


def test_predict_as_a_table_and_as_data(sartor, finished, tmp_path):
    Image.fromarray(tiny.arrays(1)[0][0]).save(tmp_path / "ß [x].png")
    code, out, _ = sartor("predict", finished.run, "ß [x].png", "--json")
    (found,) = json.loads(out)
    assert code == 0
    assert found["image"] == "ß [x].png"
    assert found["label"] in tiny.CLASSES
    code, out, _ = sartor("predict", finished.run, "ß [x].png", "--top=2")
    assert code == 0
    assert sum(name in out for name in tiny.CLASSES) == 2
    assert "ß [x].png" in out


def test_predict_takes_folders_and_bears_a_broken_file_in_one(sartor, refused, finished, tmp_path):
    x = tiny.arrays(70)[0]
    (tmp_path / "all/inner").mkdir(parents=True)
    for n, image in enumerate(x):  # more than are classified at a time
        Image.fromarray(image).save(tmp_path / ("all/inner" if n % 2 else "all") / f"{n}.png")
    (tmp_path / "all/broken.png").write_bytes(b"")
    found = json.loads(sartor("predict", finished.run, "all", "--json")[1])
    assert len(found) == 71
    assert [e for e in found if "error" in e] == [{"image": "all/broken.png", "error": "an empty file"}]
    entry = next(e for e in found if e["image"] == "all/inner/1.png")
    (alone,) = json.loads(sartor("predict", finished.run, "all/inner/1.png", "--json")[1])
    assert entry["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-5)  # batches round
    assert "an empty file" in sartor("predict", finished.run, "all")[1]
    assert "empty file" in refused("predict", finished.run, "all/broken.png")
    (tmp_path / "none").mkdir()
    assert "must hold images" in refused("predict", finished.run, "none")


def test_eval_of_other_images_agrees_with_the_run(sartor, refused, finished, tmp_path):
    found = json.loads(sartor("eval", finished.run, finished.data, "--json")[1])
    assert (found["images"], found["counts"]) == (60, [20, 20, 20])
    assert found["value"] == pytest.approx(sum(found["per_class"]) / 3)
    told, splits = (json.loads((finished.run / f"{n}.json").read_text()) for n in ("evaluation", "splits"))
    x, y = tiny.arrays()
    rows = splits["test"]
    np.savez(tmp_path / "test.npz", x=x[rows], y=y[rows], classes=np.array(tiny.CLASSES))
    again = json.loads(sartor("eval", finished.run, "test.npz", "--json")[1])
    assert (again["value"], again["confusion"]) == (told["value"], told["confusion"])
    assert again["reliability"]["temperature"] == pytest.approx(told["reliability"]["temperature"], rel=1e-5)
    code, out, _ = sartor("eval", finished.run, "test.npz")
    assert code == 0
    assert f"accuracy {told['value']:.2f} % on 9 images (95 %: " in out
    assert " taken for " in out
    assert "must hold classes of the model" in refused("eval", finished.run, "digits")


def test_eval_takes_a_folder_of_one_class_with_one_image(finished, tmp_path):
    result = load(finished.run)
    (tmp_path / "photos" / tiny.CLASSES[2]).mkdir(parents=True)
    Image.fromarray(tiny.arrays(3)[0][2]).convert("RGB").save(tmp_path / "photos" / tiny.CLASSES[2] / "1.png")
    with pytest.raises(BadInput, match="1 channels, as the model was trained on, but holds single-label images of 3"):
        result.evaluate(tmp_path / "photos")
    assert len(open_data(tmp_path / "photos", 8, whole=True)) == 1


def test_fit_again_and_solve_print_the_certificate(sartor, finished, mine):
    arguments = tiny.arguments(finished.data, mine, "--latency=50ms", "--params=150K")
    code, out, err = sartor(*arguments, "--json")
    assert code == 0
    assert json.loads(out) == json.loads((mine / "certificate.json").read_text())
    assert "done before" in err
    code, out, _ = sartor(*arguments)
    assert code == 0
    assert "50 ms" in out
    assert str(mine / "report.html") in out
    code, out, _ = sartor("solve", mine, "--params=60K", "--no-train")
    assert code == 0
    assert "the same command without --no-train goes on from here" in out
    assert not (mine / "cuts/params-60K/training.json").exists()
    decided = json.loads((mine / "cuts/params-60K/solution.json").read_text())
    assert decided["predicted"]["params"] <= 60e3
    assert json.loads(sartor("solve", mine, "--params=60K", "--no-train", "--json")[1]) == decided  # done before
    code, out, _ = sartor("solve", mine, "--params=60K", "--json")
    assert code == 0
    assert json.loads(out)["budgets"]["params"]["measured"] <= 60e3
    assert json.loads((mine / "cuts/params-60K/solution.json").read_text()) == decided
    code, out, _ = sartor("frontier", mine / "cuts/params-60K", "--json")
    assert code == 0
    assert json.loads(out)["axis"] == "params"


def test_method_and_its_options_go_together(sartor, finished, mine):
    """--method binas beside --set method.x: both count, and nothing differs from the run that is there."""
    arguments = tiny.arguments(
        finished.data, mine, "--latency=50ms", "--params=150K", "--method=binas", "--space=mobile"
    )
    assert sartor(*arguments)[0] == 0


def test_a_config_file_gives_the_same_run(sartor, finished, mine, tmp_path):
    code, out, err = sartor("fit", "--config", mine / "config.toml", "--out", mine, "--json")
    assert code == 0, err
    assert json.loads(out)["fits"]


def test_report_is_written_anew(sartor, mine):
    (mine / "report.html").unlink()
    code, out, _ = sartor("report", mine, "--json")
    assert code == 0
    assert Path(json.loads(out)["report"]).is_file()


def test_measure_prices_every_part(sartor, refused, tmp_path):
    sets = [f"--set={name}={value}" for name, value in tiny.COARSE.items()]
    arguments = ("measure", "--image=8", "--channels=1", "--classes=3", "--runtime=torch", "--quiet", *sets)
    code, out, err = sartor(*arguments, "--json", f"--out={tmp_path / 'table.json'}")
    assert code == 0, err
    found = json.loads(out)
    assert found["kind"] == "time"
    assert all(value > 0 or low == 0 for value, low, high in found["prices"].values())
    assert json.loads((tmp_path / "table.json").read_text()) == found
    for wrong in (["--runtime=tflite"], ["--image=2"], ["--space=outer"], ["--threads=0"], ["--classes=0"]):
        refused("measure", *wrong)


def test_measure_prices_any_cost_and_times_under_the_runtime_that_a_fit_deploys_under(sartor):
    task = ("measure", "--space=own:Own", "--image=8", "--channels=1", "--classes=3", "--quiet", "--json")
    code, out, err = sartor(*task, *(f"--set={name}={value}" for name, value in tiny.COARSE.items()))
    assert code == 0, err
    assert json.loads(out)["device"]["runtime"] == Options.runtime
    for cost in [name for name in COSTS.names() if name != "latency"]:
        code, out, err = sartor(*task, f"--cost={cost}")
        assert code == 0, err
        assert json.loads(out)["cost"] == cost


# as a process of its own ------------------------------------------------------------------------


def process(*arguments, **options):
    command = [sys.executable, "-m", "sartor", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)


def test_a_process_ends_with_the_same_codes_and_messages(finished, tmp_path):
    bad = process("fit", finished.data, "--latency=20", cwd=tmp_path)
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("sartor: the latency budget '20' has no unit")
    assert bad.stderr.count("\n") == 1
    good = process("zoo", "BI-F", "--json", cwd=tmp_path)
    assert good.returncode == 0
    assert json.loads(good.stdout)["params"] == 8_169_568
    assert good.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_no_command_shows_the_help(tmp_path):
    done = process(cwd=tmp_path)
    assert "Usage" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_closed_pipe_is_no_traceback(tmp_path):
    command = f"{sys.executable} -m sartor list --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "Traceback" not in done.stderr


def test_names_that_no_terminal_can_show_end_nothing(finished, tmp_path):
    name = os.fsdecode(b"b\xffd.png")
    Image.fromarray(tiny.arrays(1)[0][0]).save(tmp_path / "x.png")
    os.rename(tmp_path / "x.png", tmp_path / name)
    done = process("predict", finished.run, name, "--json", cwd=tmp_path, env={**os.environ, "LC_ALL": "C.UTF-8"})
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["image"] == name


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps(surface(), indent=1) + "\n")
