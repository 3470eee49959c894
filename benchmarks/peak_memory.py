"""Is the counted peak of activations what ONNX Runtime takes? Ten networks, the process's own memory watched.

Each network runs in a process of its own. The kernel's high-water mark is set back after a first call
(/proc/self/clear_refs), so that its rise during the next is what that call took beyond what was there before.
"""

import json
import os
import subprocess
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


def one(name: str) -> dict:
    """Counted, and taken."""
    import onnxruntime

    from sartor.costs.peak import Peak
    from sartor.deploy.module import INPUT, onnx_graph

    net = next(build for known, build in networks() if known == name)()
    counted = Peak().of(net, (3, SIDE, SIDE))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.enable_cpu_mem_arena, options.log_severity_level = 1, False, 3
    session = onnxruntime.InferenceSession(onnx_graph(net, (3, SIDE, SIDE), 1), options)
    feed = {INPUT: np.random.default_rng(0).random((1, 3, SIDE, SIDE), np.float32) * 255}
    for _ in range(3):
        session.run(None, feed)
    taken = []
    for _ in range(5):
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")
        before = status("VmRSS")
        session.run(None, feed)
        taken.append(status("VmHWM") - before)
    return {"counted_bytes": counted, "taken_bytes": float(np.median(taken))}


def status(field: str) -> int:
    """Bytes, as the kernel counts them for this process."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main() -> None:
    if len(sys.argv) > 1:
        print(json.dumps(one(sys.argv[1])))
        return
    # Memory that is freed goes back to the kernel at once.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "OMP_NUM_THREADS": "1"}
    results = {}
    for name in (f"{space} {k}" for space in SPACES_USED for k in range(EACH)):
        out = subprocess.run([sys.executable, __file__, name], env=env, capture_output=True, text=True, check=True)
        found = json.loads(out.stdout.splitlines()[-1])
        results[name] = found | {"ratio": found["taken_bytes"] / found["counted_bytes"]}
        print(name, results[name])
    print(record("peak_memory", results))


if __name__ == "__main__":
    main()
