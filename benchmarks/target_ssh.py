"""A target over SSH: ten budgets as measured there, a connection that is cut, and the device's profile without it.

The loop is that of `sartor fit` without the training: solve, build, measure there; over the budget, correct the table
and solve again. At the end all ten are exported and the files measured there afresh. Without `--target` an OpenSSH
server of its own on the loopback interface is the target, with two threads on pinned cores, and its connection is cut
once while the space is priced.

    python benchmarks/target_ssh.py [--target ssh://user@host] [--threads 2]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
from _record import ROOT, record
from budget_kept import made_up_score
from latency_table import TASKS

from sartor.core.arch import Arch
from sartor.core.errors import Infeasible
from sartor.core.quadratic import Limit
from sartor.costs.base import Occasion
from sartor.costs.latency.cost import Latency, as_deployed
from sartor.deploy.export import export_onnx
from sartor.runs.directory import write_json
from sartor.solvers import cheapest, solve
from sartor.solvers.base import Problem
from sartor.spaces.mobile.space import Mobile

_CUT = 600_000  # bytes, in the midst of the models


def best(score, table, budget):
    """The optimum inside the budget; where the table says that there is none, its cheapest network, to be measured."""
    try:
        return solve(Problem(score, (Limit("latency", table.form, high=budget),))).arch
    except Infeasible:
        return cheapest(table.form).arch


def fitting(cost, space, task, score, table, budget):
    """The best network that was measured within the budget, and every try before it."""
    image, tries = (task.channels, task.image, task.image), []
    for _ in range(12):
        arch = best(score, table, budget)
        found = cost.measure(as_deployed(space, arch, task), image, Occasion(table=table, limit=budget))
        tries.append({"predicted_ms": table.form(arch), "measured_ms": found.value, "high_ms": found.high})
        if found.high <= budget:
            break
        table = cost.correct(table, arch, max(found.high, 1.001 * budget))
    return arch, tries


def asked(cost, space, task, score, table, away, folder):
    """A row for each of ten budgets from tightest to loosest: the least and the heaviest network, measured again."""
    image = (task.channels, task.image, task.image)
    ends = (as_deployed(space, Arch(tuple(picks)), task) for picks in table.calibration["networks"][:2])
    least, most = (cost.measure(net, image, Occasion(table=table)).value for net in ends)
    budgets = np.geomspace(1.1 * least, most, 10).tolist()
    chosen = [fitting(cost, space, task, score, table, b) for b in budgets]
    rows = []
    for n, (budget, (arch, tries)) in enumerate(zip(budgets, chosen, strict=True)):
        file = folder / f"{n}.onnx"
        export_onnx(as_deployed(space, arch, task), task, file)
        found = cost.measure(as_deployed(space, arch, task), image, Occasion(file, table, budget))
        kept, same = found.value <= budget, best(score, away, budget) == best(score, table, budget)
        rows.append({
            "asked_ms": budget, "tries": tries, "predicted_ms": tries[-1]["predicted_ms"], "measured_ms": found.value,
            "kept": bool(kept), "picks": list(arch.picks), "offline_alike": bool(same),
        })  # fmt: skip
        print(
            f"asked {budget:7.4f} ms, predicted {tries[-1]['predicted_ms']:7.4f}, measured there {found.value:7.4f} "
            f"({len(tries)} tries): {'kept' if kept else 'BROKEN'}; its profile decides "
            f"{'alike' if same else 'OTHERWISE'}",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--preset", default="small", choices=TASKS)
    parser.add_argument("--machine", default="by itself", help="who else computed on it meanwhile, for the record")
    options, load = parser.parse_args(), [os.getloadavg()[0]]
    sys.path.insert(0, str(ROOT.parent / "tests/targets"))
    import sshd

    with tempfile.TemporaryDirectory() as name:
        folder, keys = Path(name), Path(name) / "sshd"
        keys.mkdir()
        with nullcontext() if options.target else sshd.server(keys) as server:
            address = options.target or f"{server.address}&cores={','.join(map(str, range(options.threads)))}"
            cost, space = Latency(target=address, threads=options.threads), Mobile(preset=options.preset)
            task, begun = TASKS[options.preset], time.monotonic()
            if server is not None:
                cost.identity()
                server.link(f"cut {_CUT}")
            table = cost.table(space, task, cache=folder)
            seconds, connections = time.monotonic() - begun, None
            if server is not None:
                connections = (keys / "log").read_text().count("Accepted")
                print(f"priced in {seconds:.0f} s over {connections} connections, one of which was cut")
            write_json(folder / "board.json", {**table.to_json(), **cost.profile(folder)})
            away = replace(cost, target=str(folder / "board.json")).table(space, task)
            rows = asked(cost, space, task, made_up_score(space, task), table, away, folder)
    load.append(os.getloadavg()[0])
    kept, alike = (sum(r[k] for r in rows) for k in ("kept", "offline_alike"))
    print(f"{kept} of {len(rows)} budgets kept; the profile decided alike {alike} times")
    print(record("target_ssh", {
        "machine": options.machine, "load_before_and_after": load,
        "device": dict(table.device), "preset": options.preset, "priced_seconds": round(seconds, 1),
        "connections_while_priced": connections, "conditions": table.calibration["conditions"],
        "held_out_median_error": table.calibration["held_out_median_error"], "kept": kept, "offline_alike": alike,
        "budgets": rows,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
