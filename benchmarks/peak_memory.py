"""Is the counted peak of activations that live at once what ONNX Runtime reports? Networks of eight spaces.

ONNX Runtime's profile says of every operator how many bytes are in use after it (`mem_bytes_requested_in_use`), weights
included: what is in use beyond those before the first operator is compared with the count. Beside it, for those who ask
what else to expect: the same with the session's defaults, which keep memory for later tensors; and from 2 MB on, where
memory comes from the system and not from what lies about, the process's own (the kernel's high-water mark is set back
before a call), which has what operators need while they compute; and what the network's layers count in advance.
"""

import json
import os
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from _record import parser, record

SIDES = {"mobile": 224, "edge": 224, "plain": 224, "nasbench201": 32, "nasbench1shot1": 32, "darts": 32,
         "treecell": 32, "freecells": 32}  # fmt: skip
EACH = 2


def networks():
    """Random networks, by name; as deployed."""
    from sartor.core.registry import SPACES
    from sartor.core.task import Task
    from sartor.costs.latency.cost import as_deployed

    for name, side in SIDES.items():
        task, rng = Task(10, side, 3), np.random.default_rng(0)
        space = SPACES[name]().fitted(task)
        for k in range(EACH):
            yield f"{name} {k}", (3, side, side), partial(as_deployed, space, space.sample(rng), task)


def one(net, shape) -> dict:
    """Counted before it is built and as deployed, reported, and taken."""
    from sartor.costs.peak import Peak
    from sartor.deploy.module import onnx_graph

    graph, counted = onnx_graph(net, shape, 1), Peak().measure(net, shape).details["alive"]
    found = {
        "counted_bytes": counted,
        "reported_bytes": reported(graph, shape),
        "reported_by_default_bytes": reported(graph, shape, lean=False),
        "by_layers_bytes": Peak().of(net, shape),
    }
    if counted > 2e6:
        found["process_bytes"] = taken(graph, shape)
    return found | {k.replace("bytes", "ratio"): round(v / counted, 4) for k, v in found.items() if k[0] != "c"}


def session(graph, lean, **options):
    import onnxruntime

    made = onnxruntime.SessionOptions()
    made.enable_mem_reuse = made.enable_mem_pattern = not lean
    for name, value in (options | {"intra_op_num_threads": 1, "log_severity_level": 3}).items():
        setattr(made, name, value)
    return onnxruntime.InferenceSession(graph, made)


def reported(graph, shape, lean=True) -> int:
    """The most bytes in use after an operator of the second call, beyond those before the first."""
    from sartor.deploy.module import INPUT

    with tempfile.TemporaryDirectory() as folder:
        run = session(graph, lean, enable_profiling=True, profile_file_prefix=f"{folder}/profile")
        for _ in range(2):
            run.run(None, {INPUT: np.zeros((1, *shape), np.float32)})
        events = json.loads(Path(run.end_profiling()).read_text())
    nodes = [e["args"] for e in events if e["name"].endswith("_kernel_time")]
    rest = int(nodes[0]["mem_bytes_requested_in_use"]) - int(nodes[0]["mem_requested_in_use_delta"])
    return max(int(a["mem_bytes_requested_in_use"]) for a in nodes[len(nodes) // 2 :]) - rest


def taken(graph, shape) -> float:
    """Bytes of the process beyond those at rest."""
    from sartor.deploy.module import INPUT

    run, found = session(graph, True, enable_cpu_mem_arena=False), []
    feed = {INPUT: np.random.default_rng(0).random((1, *shape), np.float32) * 255}
    for k in range(8):
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")
        before = status("VmRSS")
        run.run(None, feed)
        found += [status("VmHWM") - before] if k >= 3 else []
    return float(np.median(found))


def status(field: str) -> int:
    """Bytes, as the kernel counts them for this process."""
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def main() -> None:
    parser(__doc__).parse_args()
    # Memory that is freed must go back to the kernel at once, which is settled when a process starts.
    env = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0", "OMP_NUM_THREADS": "1"}
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        os.execve(sys.executable, [sys.executable, __file__], env)
    import onnxruntime

    results = {}
    for name, shape, build in networks():
        results[name] = {"side": shape[-1], **one(build(), shape)}
        print(name, results[name], flush=True)
    print(record("peak_memory", {"onnxruntime": onnxruntime.__version__, "networks": results}))


if __name__ == "__main__":
    main()
