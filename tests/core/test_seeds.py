import subprocess
import sys

import numpy as np
import torch

from sartor.core.seeds import Seeds


def test_a_stream_is_a_function_of_root_purpose_and_moment():
    assert Seeds(1).rng("a", 2).random() == Seeds(1).rng("a", 2).random()
    keys = [(r, p, *m) for r in (0, 1) for p in ("a", "b") for m in ((), (0,), (1,), (0, 1), (1, 0))]
    draws = {Seeds(r).rng(p, *m).random() for r, p, *m in keys}
    assert len(draws) == len(keys)


def test_a_large_root_is_kept_whole():
    assert Seeds(2**64).number("a") != Seeds(0).number("a")
    assert Seeds(2**40).number("a") != Seeds(0).number("a")


def test_numbers_suit_libraries_that_want_63_bits():
    numbers = [Seeds(0).number("x", k) for k in range(200)]
    assert min(numbers) >= 0
    assert max(numbers) < 2**63
    assert max(numbers) > 2**60


def test_torch_generators_repeat():
    a, b = (torch.rand(3, generator=Seeds(3).torch("x", 1)) for _ in range(2))
    assert torch.equal(a, b)
    assert not torch.equal(a, torch.rand(3, generator=Seeds(3).torch("x", 2)))


def test_streams_are_the_same_in_another_process():
    code = "from sartor.core.seeds import Seeds; print(Seeds(5).number('purpose', 1), Seeds(5).rng('ä').integers(1000))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == [str(Seeds(5).number("purpose", 1)), str(Seeds(5).rng("ä").integers(1000))]


def test_streams_of_neighbouring_moments_are_uncorrelated():
    draws = np.stack([Seeds(0).rng("x", k).standard_normal(2000) for k in range(4)])
    assert np.abs(np.corrcoef(draws) - np.eye(4)).max() < 0.1
