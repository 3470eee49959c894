import re
from pathlib import Path

import torch

import sartor
from sartor.engine.seeding import seeded


def test_draws_start_from_the_seed_and_the_callers_state_comes_back():
    torch.manual_seed(7)
    wanted = torch.rand(3)
    before = torch.random.get_rng_state()
    with seeded(7):
        assert torch.equal(torch.rand(3), wanted)
        with seeded(8):
            assert not torch.equal(torch.rand(3), wanted)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_an_error_inside_gives_the_state_back_too():
    before = torch.random.get_rng_state()
    try:
        with seeded(1):
            torch.rand(1)
            raise ValueError
    except ValueError:
        assert torch.equal(torch.random.get_rng_state(), before)


def test_nobody_else_seeds_torch_as_a_whole():
    root = Path(sartor.__file__).parent
    found = {str(p.relative_to(root)) for p in root.rglob("*.py") if re.search(r"torch\.manual_seed", p.read_text())}
    assert found == {"engine/seeding.py"}
