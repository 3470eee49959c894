"""Sartor's measuring program: one file that runs wherever onnxruntime does, and writes nothing to any disk.

On another machine it arrives on standard input, and after it the requests, a JSON line each; JSON lines go back. It
keeps nothing from one start to the next: whoever asks sends the models again and asks for what is still missing. It
ends with its input, and by itself when nobody has asked for long. Python 3.8 is enough for it.
"""

from __future__ import annotations

import gc
import glob
import json
import os
import platform
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_LEAST_CALLS = 2
_PATIENCE = 300  # seconds without a request
_CPU = "/sys/devices/system/cpu/cpu%d/"
STATES = ("mhz", "celsius", "throttled", "slowed")  # what a machine may tell of itself
_BOARD = "/sys/devices/platform/soc/soc:firmware/get_throttled"  # a Raspberry Pi's flags: the lowest four are of now


def visit(workload: Callable[[], object], seconds: float) -> list[float]:
    """Milliseconds of every call during `seconds`, at least two, after one call that is not recorded."""
    workload()
    samples: list[float] = []
    start = last = time.perf_counter()
    while last - start < seconds or len(samples) < _LEAST_CALLS:
        begin = time.perf_counter()
        workload()
        last = time.perf_counter()
        samples.append((last - begin) * 1e3)
    return samples


def options(threads: int) -> Any:
    """Of a session as networks are deployed: `threads` inside an operator, operators one after another."""
    import onnxruntime as runtime

    made = runtime.SessionOptions()
    made.intra_op_num_threads = threads
    made.inter_op_num_threads = 1
    made.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
    made.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    made.log_severity_level = 3
    return made


def session(source: bytes | str, threads: int) -> Any:
    """An ONNX Runtime session on the CPU."""
    import onnxruntime as runtime

    return runtime.InferenceSession(source, options(threads), providers=["CPUExecutionProvider"])


# the machine -------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    """What it is."""
    system = f"{platform.system()} {platform.machine()}"
    return {"processor": _processor(), "cores": os.cpu_count() or 1, "platform": system}


def _processor() -> str:
    for line in _read("/proc/cpuinfo").splitlines():
        if line.lower().startswith(("model name", "hardware")):
            return line.partition(":")[2].strip()
    return _read("/proc/device-tree/model").strip("\0\n") or platform.processor() or platform.machine()


def weight_bits() -> int:
    """Of int8 weights so that no product overflows: 7 on x86 processors without VNNI, else 8."""
    if platform.machine().lower() not in ("x86_64", "amd64", "i686"):
        return 8
    return 8 if "vnni" in _read("/proc/cpuinfo") else 7


def pinned(threads: int, asked: list[int]) -> list[int]:
    """Keep this process to the cores that were asked for, or to as many of the fastest; which these are."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    speed = {core: (_number(_CPU % core + "cpufreq/cpuinfo_max_freq") or 0, core) for core in allowed}
    cores = asked or sorted(allowed, key=speed.__getitem__)[-threads:]
    if len(cores) < threads or not set(cores) <= set(allowed):
        raise ValueError(f"{threads} threads need as many of the cores {allowed}, but got the cores {cores}")
    os.sched_setaffinity(0, cores)
    return sorted(cores)


def state(cores: list[int]) -> dict[str, float]:
    """Clock, temperature, how often the processor was slowed down and whether it is now, where the system tells."""
    clocks = [_number(_CPU % core + "cpufreq/scaling_cur_freq") for core in cores]
    warm = [_number(path) for path in glob.glob("/sys/class/thermal/thermal_zone*/temp")]
    counts = [_number(path) for path in glob.glob(_CPU.replace("%d", "*") + "thermal_throttle/core_throttle_count")]
    board = _read(_BOARD)
    found = {
        "mhz": max([v / 1e3 for v in clocks if v], default=None),
        "celsius": max([v / 1e3 for v in warm if v], default=None),
        "throttled": sum(v for v in counts if v is not None) if counts else None,  # whichever core it was
        "slowed": float(int(board, 16) & 15) if board else None,
    }
    return {name: value for name, value in found.items() if value is not None}


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _number(path: str) -> float | None:
    try:
        return float(_read(path))
    except ValueError:
        return None


# requests ----------------------------------------------------------------------------------------


class Probe:
    """The models that were sent, and what is asked of them."""

    def __init__(self) -> None:
        self.calls: dict[str, Callable[[], object]] = {}
        self.threads, self.batch = 1, 1
        self.cores: list[int] = []

    def open(self, threads: int, batch: int, cores: list[int]) -> dict[str, Any]:
        """How models are to be called; the answer says what this machine is."""
        self.threads, self.batch, self.cores = threads, batch, pinned(threads, cores)
        import onnxruntime

        facts = {"runtime_version": str(onnxruntime.__version__), "pinned": ",".join(map(str, self.cores))}
        return dict(machine(), weight_bits=weight_bits(), **facts)

    def load(self, name: str, shape: list[int], model: bytes) -> None:
        """A model and a fixed random batch for it."""
        import numpy as np

        run = session(model, self.threads)
        pixels = np.random.default_rng(0).random((self.batch, *shape), np.float32) * 255
        feed = {run.get_inputs()[0].name: pixels}
        self.calls[name] = lambda: run.run(None, feed)

    def visits(self, plan: list[tuple[str, float]]) -> Iterator[dict[str, Any]]:
        """Every call's milliseconds, model after model, and the machine's state before and at the end."""
        before = state(self.cores)
        gc.collect()
        gc.disable()
        for name, seconds in plan:
            yield {"name": name, "ms": [round(ms, 6) for ms in visit(self.calls[name], seconds)]}
        gc.enable()
        yield {"state": [before, state(self.cores)]}


def serve(requests: Any, answers: Any) -> None:
    """Answer until the requests end."""
    probe, wait = Probe(), getattr(signal, "alarm", lambda seconds: 0)
    while True:
        wait(_PATIENCE)
        line = requests.readline()
        if not line:
            return
        asked = json.loads(line)
        lines: Iterable[dict[str, Any]]
        if "open" in asked:
            lines = [{"machine": probe.open(**asked["open"])}]
        elif "load" in asked:
            for name, shape, size in asked["load"]:
                probe.load(name, shape, requests.read(size))
            lines = [{"loaded": len(asked["load"])}]
        else:
            lines = probe.visits(asked["visit"])
        for answer in lines:
            wait(_PATIENCE)
            answers.write(json.dumps(answer).encode() + b"\n")
            answers.flush()


def main() -> None:
    """Serve on standard input and output; whatever else prints, prints to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    answers.write(b'{"sartor": 1}\n')
    answers.flush()
    try:
        serve(sys.stdin.buffer, answers)
    except (BrokenPipeError, KeyboardInterrupt):
        pass
    except Exception as error:  # whoever asked must learn it, whatever it is
        answers.write(json.dumps({"error": type(error).__name__, "why": str(error)[:500]}).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
