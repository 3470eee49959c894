"""The typed signatures of `import sartor` against the options that they stand for."""

import dataclasses
import inspect

import pytest

import sartor
from sartor.compression.options import Compression
from sartor.core.registry import COSTS
from sartor.pipeline.options import Fit

OWN = {"out", "quiet", "trust_code", *COSTS.names()}  # of the call itself, and budgets by name


@pytest.mark.parametrize(("call", "options"), [(sartor.fit, Fit), (sartor.compress, Compression)])
def test_a_signature_has_exactly_the_options(call, options):
    given = inspect.signature(call).parameters
    fields = {f.name.replace("train_options", "train") for f in dataclasses.fields(options)}
    assert set(given) - OWN == fields
    assert not any(p.kind is inspect.Parameter.VAR_KEYWORD for p in given.values())
    assert all(given[n].default is None for n in fields - {"data", "model"})


def test_what_is_none_of_them_is_refused():
    with pytest.raises(TypeError, match="epochs"):
        sartor.fit("digits", epochs=3)
