"""`python -m quick ARGUMENTS` is `sartor ARGUMENTS`, but the network comes out through the tracing exporter.

torch's current exporter, which the product uses, takes ten seconds for the smallest network; the older one takes half
of one and gives the same operators. The shared finished run, the tests of exporting and those that start `sartor`
itself use the product's.
"""

import io
import os
from contextlib import contextmanager
from pathlib import Path

import torch

from sartor.deploy import module

_product = module._captured


def _traced(net, in_shape, batch):
    """A graph with a dynamic batch, by tracing; the product's way where this torch has no other."""
    buffer, names = io.BytesIO(), {"input_names": [module.INPUT], "output_names": [module.OUTPUT]}
    axes = {name: {0: "batch"} for name in (module.INPUT, module.OUTPUT)} if batch is None else None
    example = (module._example(net, batch or 2, in_shape),)
    try:
        torch.onnx.export(net, example, buffer, dynamo=False, opset_version=17, dynamic_axes=axes, **names)
    except (TypeError, ValueError, RuntimeError, AttributeError):
        return _product(net, in_shape, batch)
    return buffer.getvalue()


@contextmanager
def exporter(how=_traced):
    """Graphs come from the tracing exporter; with `how=None` from the product's."""
    before, module._captured = module._captured, how or _product
    try:
        yield
    finally:
        module._captured = before


def environment():
    """For a process that says `import quick` or runs as `python -m quick`."""
    paths = filter(None, (str(Path(__file__).parent), os.environ.get("PYTHONPATH")))
    return {**os.environ, "OMP_NUM_THREADS": "1", "CI": "1", "PYTHONPATH": os.pathsep.join(paths)}


if __name__ == "__main__":
    from sartor.cli.main import main

    with exporter():
        main()
