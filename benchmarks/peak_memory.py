"""Is the counted peak of activations what ONNX Runtime takes? Ten networks, the process's own memory watched.

The kernel's high-water mark is set back after a first call (/proc/self/clear_refs), so that its rise during the next is
what that call took beyond what was there before: with ONNX Runtime's blocked layout, which pads channels to 16 and
reorders, and with the plain one.
"""

import os
import sys
from functools import partial

import numpy as np
from _record import record

SPACES_USED, SIDE, EACH = ("mobile", "edge"), 224, 5


def networks():
    """Random networks of two spaces, by name; as deployed."""
    from sartor.core.registry import SPACES
    from sartor.core.task import Task
    from sartor.costs.latency.cost import as_deployed

    task, rng = Task(10, SIDE, 3), np.random.default_rng(0)
    for name in SPACES_USED:
        space = SPACES[name]().fitted(task)
        for k in range(EACH):
            arch = space.sample(rng)
            yield f"{name} {k}", partial(as_deployed, space, arch, task)


def one(net) -> dict:
    """Counted, and taken."""
    import onnxruntime

    from sartor.costs.peak import Peak
    from sartor.deploy.module import INPUT, onnx_graph

    graph, found = onnx_graph(net, (3, SIDE, SIDE), 1), {"counted_bytes": Peak().of(net, (3, SIDE, SIDE))}
    levels = onnxruntime.GraphOptimizationLevel
    for name, level in (("blocked", levels.ORT_ENABLE_ALL), ("plain", levels.ORT_ENABLE_EXTENDED)):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.enable_cpu_mem_arena, options.log_severity_level = 1, False, 3
        options.graph_optimization_level = level
        found[f"{name}_bytes"] = taken(onnxruntime.InferenceSession(graph, options), INPUT)
        found[f"{name}_ratio"] = found[f"{name}_bytes"] / found["counted_bytes"]
    return found


def taken(session, name: str) -> float:
    """Bytes beyond those at rest."""
    feed = {name: np.random.default_rng(0).random((1, 3, SIDE, SIDE), np.float32) * 255}
    for _ in range(3):
        session.run(None, feed)
    found = []
    for _ in range(5):
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")
        before = status("VmRSS")
        session.run(None, feed)
        found.append(status("VmHWM") - before)
    return float(np.median(found))


def status(field: str) -> int:
    """Bytes, as the kernel counts them for this process."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main() -> None:
    # Memory that is freed must go back to the kernel at once, which is settled when a process starts.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "OMP_NUM_THREADS": "1"}
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, __file__], env)
    results = {}
    for name, build in networks():
        results[name] = one(build())
        print(name, results[name])
    print(record("peak_memory", results))


if __name__ == "__main__":
    main()
