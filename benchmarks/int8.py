"""The same latency budget in float32 and with `--precision auto`: accuracy, size, and the median call of every runtime.

    python benchmarks/int8.py --data $SARTOR_TEST_DATA --out runs/int8 [--only digits] [--device cuda]

On CIFAR-10 as far as it is here, 20 classes of Tiny-ImageNet at 32 pixels, and digits: two fits of the same time with
nothing else set by hand, one in float32, one with `auto`, one after the other, or (`--beside`) at once, each on one
half of the cores. Every network delivered is then quantised as `auto` would, and all its forms are timed under all
runtimes that are here in one sitting, interleaved, one thread and one image a call. `room` says, without any training,
how much computation fits into a budget in each precision, as built and timed.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
from _record import record
from PIL import Image

import sartor
from sartor.core.errors import SartorError
from sartor.core.registry import RUNTIMES
from sartor.core.task import Task
from sartor.costs.base import Occasion, cache_folder
from sartor.costs.latency.calibration import fit
from sartor.costs.latency.cost import Latency, as_deployed
from sartor.costs.macs import Macs
from sartor.deploy.timing import InProcess, interleaved, interval, polished
from sartor.pipeline.context import reopened
from sartor.pipeline.quantising import LOSS, as_int8, share
from sartor.runs.directory import search_of
from sartor.runs.progress import Reporter
from sartor.solvers import solve
from sartor.solvers.base import Problem
from sartor.spaces.edge.space import Edge

ROUNDS, VISIT = 25, 0.02
ROOM = (0.15, 0.3, 0.6, 1.2)  # ms
SIDE, TESTED = 32, {"cifar10": 4000, "tinyimagenet20": 2000}
BUDGETS = {"digits": ("0.03ms", "3min"), "tinyimagenet20": ("0.1ms", "8min"), "cifar10": ("0.2ms", "8min")}
PRICING = {"latency": {"sample": 90, "rounds": 8}}


def cifar10(folder: Path):
    """All that is here: 16,000 training images, 4,000 test images."""
    files = [*sorted(folder.glob("*_train_*.npz")), *sorted(folder.glob("*_test_*.npz"))]
    parts = [np.load(file) for file in files]
    return np.concatenate([part["x"] for part in parts]), np.concatenate([part["y"] for part in parts])


def tinyimagenet20(folder: Path):
    """All images, made smaller."""
    x, y, classes = [], [], {}
    for name in ("train_a", "train_b", "val"):
        with zipfile.ZipFile(folder / f"{name}.zip") as archive:
            for entry in sorted(n for n in archive.namelist() if n.lower().endswith((".jpg", ".jpeg"))):
                y.append(classes.setdefault(entry.split("/")[-2], len(classes)))
                with archive.open(entry) as file:
                    x.append(np.asarray(Image.open(file).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BOX)))
    return np.stack(x), np.array(y)


def prepared(name: str, folder: Path, out: Path) -> tuple[str, float | None]:
    """The images, and the share of them that are tested."""
    if name not in TESTED:
        return name, None
    source = out / f"{name}.npz"
    if not source.exists():
        x, y = {"cifar10": cifar10, "tinyimagenet20": tinyimagenet20}[name](folder / name)
        out.mkdir(parents=True, exist_ok=True)
        np.savez(source, x=x, y=y)
    with np.load(source) as known:
        return str(source), TESTED[name] / len(known["y"])


def fitted(name: str, precision: str, given: argparse.Namespace) -> Path:
    """One fit, or what it gave before."""
    source, share = prepared(name, given.data, given.out)
    budget, seconds = BUDGETS[name]
    options = {"latency": budget, "time": seconds, "device": given.device} | ({} if share is None else {"test": share})
    return sartor.fit(source, out=given.out / f"{name}_{precision}", precision=precision, **options).path


def beside(name: str) -> None:
    """Both fits at once, each on cores of its own; what is left to do afterwards is nothing."""
    cores, script = sorted(os.sched_getaffinity(0)), [sys.executable, *sys.argv]
    halves = {"float32": cores[: len(cores) // 2], "auto": cores[len(cores) // 2 :]}
    jobs = []
    for bits, own in halves.items():
        jobs.append(subprocess.Popen([*script, "--only", name, "--fit", bits]))
        os.sched_setaffinity(jobs[-1].pid, own)  # long before it has counted its cores
    ends = [job.wait() for job in jobs]
    if any(ends):
        raise SystemExit(f"a fit of {name} failed")


def told(path: Path) -> dict:
    """What a run's certificate says of the network that it delivers."""
    c = sartor.load(path).certificate
    both, verified = c.get("precision"), c["costs"]["latency"]
    return {
        "network": c["architecture"]["string"] if "string" in c["architecture"] else c["architecture"],
        "deployed": "int8" if both and both["used"] else "float32", "why": both and both["why"],
        "test": c["accuracy"]["test"], "latency_ms": verified["measured"],
        "macs": c["costs"]["macs"]["measured"],
    }  # fmt: skip


def workloads(files, network, shape):
    """Every form under every runtime that is here and can have it; and what is not, and why."""
    made, missing = {}, {}
    for name in RUNTIMES.names():
        runtime = RUNTIMES[name]()
        for form, file in files.items():
            if form == "int8" and not runtime.int8:
                continue
            try:
                made[f"{name} {form}"] = runtime.workload(file if runtime.exported else network, shape)
            except SartorError as error:
                missing[f"{name} {form}"] = str(error)
    return made, missing


def measured(path: Path) -> dict:
    """One run's network in both forms."""
    context, _ = reopened(search_of(path), Reporter(), trusted=True)
    source = path / "model/model.onnx"
    found = as_int8(context, source, context.runtime().weight_bits, context.splits.val[:2000])
    with tempfile.TemporaryDirectory() as folder:
        files = {"float32": source, "int8": Path(folder) / "model_int8.onnx"}
        files["int8"].write_bytes(found.graph)
        made, missing = workloads(files, context.deployed(sartor.load(path, trust_code=True).model), context.shape)
        times = polished(interleaved(InProcess(made), list(made), ROUNDS, VISIT, np.random.default_rng(0)))
        result = {
            "image": context.task.image, "way": str(found.way),
            "validation": {"float32": found.in_float, "int8": found.best},
            "test": {form: share(context, file, context.splits.test) for form, file in files.items()},
            "test_images": len(context.splits.test),
            "bytes": {form: file.stat().st_size for form, file in files.items()},
            "median_ms": {name: float(np.median(t)) for name, t in times.items()},
            "interval_ms": {name: interval(t) for name, t in times.items()}, "missing": missing,
        }  # fmt: skip
    ms = result["median_ms"]
    faster = ms["onnxruntime int8"] < ms["onnxruntime float32"]
    return result | {
        "lost": result["test"]["float32"] - result["test"]["int8"],
        "int8_is_faster": faster,
        "auto": "int8" if faster and found.lost <= LOSS else "float32",
    }


def room() -> dict:
    """The network that computes most inside a budget, by each precision's table, built and timed; the tables' errors.

    Beside its own table, 8 bits are predicted by a line through the other one, from the same networks.
    """
    task, costs = Task(10, SIDE), {"float32": Latency(**PRICING["latency"])}
    space, shape = Edge().fitted(task), (task.channels, SIDE, SIDE)
    costs["int8"] = costs["float32"].int8()
    tables = {name: cost.table(space, task, cache=cache_folder()) for name, cost in costs.items()}
    macs, small = Macs().table(space, task).form, tables["int8"].calibration
    line = fit(tables["float32"].form.batch(small["networks"]).tolist(), small["measured_ms"])
    errors = {name: table.calibration["held_out_median_error"] for name, table in tables.items()}
    found: dict = {
        "held_out_median_error": errors | {"int8 by a line through float32": float(np.median(np.abs(line.left_out)))},
        "calibration_ms": {name: table.calibration["measured_ms"] for name, table in tables.items()},
    }
    for budget in ROOM:
        found[f"{budget} ms"] = {}
        for name, cost in costs.items():
            arch = solve(Problem(macs, (tables[name].limit(budget), *space.rules))).arch
            ms = cost.measure(as_deployed(space, arch, task), shape, Occasion(table=tables[name])).value
            one = found[f"{budget} ms"][name] = {"network": space.describe(arch), "macs": macs(arch), "measured_ms": ms}
            print(budget, name, one)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/int8"))
    parser.add_argument("--only", choices=[*BUDGETS, "room"], action="append")
    parser.add_argument("--device", default="cpu", help="that trains; calls are timed on the CPU")
    parser.add_argument("--budget", action="append", default=[], help="another one, such as cifar10=0.1ms,5min")
    parser.add_argument("--name", default="int8", help="of the result")
    parser.add_argument("--beside", action="store_true", help="both fits of a set at once, on half of the cores each")
    parser.add_argument("--fit", choices=("float32", "auto"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    BUDGETS.update((name, tuple(told.split(","))) for name, told in (entry.split("=") for entry in given.budget))
    results: dict = {"budgets": BUDGETS, "tested": TESTED, "device": given.device, "side_by_side": given.beside}
    wanted = given.only[-1:] if given.fit else given.only or [*BUDGETS, "room"]
    if "room" in wanted:
        record("int8_room", room())
    for name in [n for n in wanted if n != "room"]:
        if given.fit:
            fitted(name, given.fit, given)
            continue
        if given.beside:
            prepared(name, given.data, given.out)
            beside(name)
        runs = {precision: fitted(name, precision, given) for precision in ("float32", "auto")}
        found = results[name] = {
            "budget": BUDGETS[name][0],
            "time": BUDGETS[name][1],
            **{kind: told(path) | {"forms": measured(path)} for kind, path in runs.items()},
        }
        found["gained"] = found["auto"]["test"] - found["float32"]["test"]
        for kind in runs:
            one, forms = found[kind], found[kind]["forms"]
            told_of = f"{name} {BUDGETS[name][0]} {kind}: {one['test']:.2f} % in {one['deployed']}"
            print(f"{told_of}, {one['latency_ms']:.3f} ms")
            print(f"  {one['macs'] / 1e6:.1f} M MACs; both forms: {forms['test']} %, {forms['bytes']} bytes")
            print(f"  {forms['median_ms']} ms")
        record(given.name, results)
    each = [found for found in results.values() if isinstance(found, dict) and "gained" in found]
    if not each:
        return
    lost = [found[kind]["forms"]["lost"] for found in each for kind in ("float32", "auto")]
    print(
        f"auto beats float32 on {sum(f['gained'] > 0 for f in each)} of {len(each)}; int8 loses {max(lost):.2f} at most"
    )


if __name__ == "__main__":
    main()
