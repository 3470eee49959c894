"""One process and two on this machine: images a second of the final training, one answer, and a rank that is killed.

    python benchmarks/processes.py [--epochs 6] [--pixels 32] [--machine "by itself"]

The same fit (digits, enlarged) is run by one process and by two, which share the cores; then again by two, of which the
second is killed during the final training, and the same command goes on.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from _record import record
from microcontroller import enlarged


def command(data: Path, out: Path, processes: int, epochs: int) -> list[str]:
    """A fit whose length does not depend on the machine's speed."""
    sets = {"train.epochs": epochs, "train.batch": 64, "space.preset": "small"}
    return [
        sys.executable, "-m", "sartor", "fit", str(data), f"--out={out}", "--params=500K", "--method=random",
        "--space=mobile", "--effort=thorough", "--device=cpu", f"--devices={processes}", "--logger=none", "--json",
        *(f"--set={name}={value}" for name, value in sets.items()),
    ]  # fmt: skip


def outcome(run: Path) -> dict:
    """What came out of a run, and how fast its last training was."""
    rates = [row["images_per_second"] for row in json.loads((run / "training.json").read_text())["history"]]
    certificate = json.loads((run / "certificate.json").read_text())
    return {
        "images_per_second": rates, "median": float(np.median(rates[1:])), "fits": certificate["fits"],
        "picks": json.loads((run / "solution.json").read_text())["solution"]["picks"],
        "test_accuracy": certificate["accuracy"]["test"],
    }  # fmt: skip


def killed(words: list[str], run: Path) -> dict:
    """Kill the second rank after the first epoch of the final training; what the other said; then go on."""
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as going:
        while going.poll() is None and not list((run / "search").glob("*.checkpoint.safetensors")):
            time.sleep(0.05)
        children = Path(f"/proc/{going.pid}/task/{going.pid}/children").read_text().split()
        ranks = [int(c) for c in children if b"LOCAL_RANK=1" in Path(f"/proc/{c}/environ").read_bytes()]
        os.kill(ranks[0], signal.SIGKILL)
        told = going.communicate()[1]
    said = [line for line in told.splitlines() if line.startswith("sartor:")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return {"exit": going.returncode, "said": said, "again": done.returncode, **outcome(run)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--pixels", type=int, default=32, help="a multiple of 8")
    parser.add_argument("--machine", default="by itself", help="who else computed on it meanwhile, for the record")
    options, results = parser.parse_args(), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data, load = enlarged(folder, options.pixels // 8), [os.getloadavg()[0]]
        for processes in (1, 2):
            words = command(data, folder / f"of_{processes}", processes, options.epochs)
            subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
            results[f"{processes} processes"] = outcome(folder / f"of_{processes}")
            print(results, flush=True)
        results["killed"] = killed(command(data, folder / "killed", 2, options.epochs), folder / "killed")
        load.append(os.getloadavg()[0])
    one, two, again = results.values()
    alike = {"one_answer": one["picks"] == two["picks"], "resumed_alike": two["picks"] == again["picks"]}
    print(alike, f"two processes: {two['median'] / one['median']:.2f} times the images a second of one")
    about = {"machine": options.machine, "pixels": options.pixels, "load_before_and_after": load}
    print(record("processes", {**about, **alike, **results}))


if __name__ == "__main__":
    main()
