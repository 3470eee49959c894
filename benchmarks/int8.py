"""Finished runs in 32 and in 8 bits: accuracy on the test images, size, and the median call under every runtime here.

python benchmarks/int8.py RUN ...

A run's network is quantised as `--precision auto` would (on training images, in the way that validation images like
best). All forms and runtimes are timed in one sitting, interleaved, one thread and one image a call.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from _record import record

from sartor.core.errors import SartorError
from sartor.core.registry import RUNTIMES
from sartor.deploy.timing import Here, interleaved, interval, polished
from sartor.pipeline.context import reopened
from sartor.pipeline.precision import LOSS, as_int8, shares
from sartor.runs.directory import search_of
from sartor.runs.progress import Reporter

ROUNDS, VISIT = 25, 0.02


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
    """One run."""
    from sartor.api.result import load

    context, _ = reopened(search_of(path), Reporter(), trusted=True)
    source = path / "model/model.onnx"
    found = as_int8(context, source)
    with tempfile.TemporaryDirectory() as folder:
        files = {"float32": source, "int8": Path(folder) / "model_int8.onnx"}
        files["int8"].write_bytes(found.graph)
        made, missing = workloads(files, context.deployed(load(path, trust_code=True).model), context.shape)
        times = polished(interleaved(Here(made), list(made), ROUNDS, VISIT, np.random.default_rng(0)))
        result = {
            "data": context.images.name, "image": context.task.image, "way": str(found.way),
            "validation": {"float32": found.wanted, "int8": found.shares[found.way]},
            "test": {form: shares(context, file, context.splits.test) for form, file in files.items()},
            "test_images": len(context.splits.test),
            "bytes": {form: file.stat().st_size for form, file in files.items()},
            "median_ms": {name: float(np.median(t)) for name, t in times.items()},
            "interval_ms": {name: interval(t) for name, t in times.items()}, "missing": missing,
        }  # fmt: skip
    ms = result["median_ms"]
    faster = ms["onnxruntime int8"] < ms["onnxruntime float32"]
    return result | {
        "lost": result["test"]["float32"] - result["test"]["int8"],
        "auto": "int8" if faster and found.wanted - found.shares[found.way] <= LOSS else "float32",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    results = {}
    for path in given.runs:
        results[path.name] = measured(path)
        print(path, results[path.name])
    print(record("int8", results, given.out))


if __name__ == "__main__":
    main()
