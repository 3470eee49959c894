import numpy as np
import pytest

torch = pytest.importorskip("torch")

from binas_mlp import MLP  # noqa: E402

from sartor.core.arch import Choice  # noqa: E402
from sartor.core.errors import BadInput  # noqa: E402
from sartor.core.quadratic import Limit, Quadratic  # noqa: E402
from sartor.predictors.base import Fitted  # noqa: E402
from sartor.solvers.evolution import Settings, evolve  # noqa: E402
from sartor.solvers.frank_wolfe import search  # noqa: E402
from sartor.solvers.relaxed import Groups  # noqa: E402

CHOICES = (
    Choice("depth", ("1", "2", "3")),
    Choice("block1", ("p", "q", "r")),
    Choice("block2", ("p", "q", "r"), ((0, (1, 2)),)),
    Choice("block3", ("p", "q", "r"), ((0, (2,)),)),
)
SIZES = (3,) * 4
SMALL = MLP(width=48, layers=2, epochs=60, dropout=0.0)


def measured(picks):
    """Not a quadratic: a saturating function of one."""
    inner = picks[:, 0] + 0.8 * picks[:, 1] - 0.5 * (picks[:, 0] > 0) * picks[:, 2] + (picks[:, 0] > 1) * picks[:, 3]
    return 70 + 5 * np.tanh(inner - 1)


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    picks = rng.integers(3, size=(500, 4))
    state = torch.get_rng_state()
    model = SMALL.fit(picks, measured(picks), CHOICES, rng)
    assert torch.equal(torch.get_rng_state(), state)  # training leaves the caller's randomness alone
    return model


def test_learns_what_is_not_quadratic(fitted):
    picks = np.random.default_rng(1).integers(3, size=(300, 4))
    assert isinstance(fitted, Fitted)
    error = np.mean((fitted.batch(picks) - measured(picks)) ** 2)
    assert error < 0.05 * np.var(measured(picks))


def test_inactive_choices_never_count(fitted):
    shallow = np.random.default_rng(1).integers(3, size=(50, 4))
    shallow[:, 0] = 0
    other = shallow.copy()
    other[:, 2:] = 2 - other[:, 2:]
    np.testing.assert_array_equal(fitted.batch(shallow), fitted.batch(other))


def test_gradient_is_right_and_vertices_agree(fitted):
    rng = np.random.default_rng(0)
    groups = Groups(SIZES)
    picks = rng.integers(3, size=(5, 4))
    for row, value in zip(picks, fitted.batch(picks), strict=True):
        assert fitted.value_and_gradient(groups.one_hot(row))[0] == pytest.approx(value)
    zeta, step = np.concatenate([rng.dirichlet(np.ones(3)) for _ in SIZES]), 1e-6
    value, gradient = fitted.value_and_gradient(zeta)
    slope = [(fitted.value_and_gradient(zeta + step * e)[0] - value) / step for e in np.eye(12)]
    np.testing.assert_allclose(gradient, slope, atol=1e-3)


def test_searched_by_frank_wolfe_and_by_evolution_inside_a_budget(fitted):
    cost = Quadratic(SIZES, 0.0, {i: np.arange(3.0) for i in range(4)})
    limits = (Limit("latency", cost, 4.0),)
    every = np.stack(np.unravel_index(np.arange(81), SIZES), 1)
    best = fitted.batch(every[cost.batch(every) <= 4]).max()
    rng = np.random.default_rng(0)
    picks, walks = search(fitted.value_and_gradient, fitted.batch, SIZES, limits, rng, starts=4)
    assert cost.batch(picks[None])[0] <= 4
    assert all((np.diff(w.values) > 0).all() for w in walks)
    assert fitted.batch(picks[None])[0] >= best - 0.2
    found = evolve(fitted.batch, SIZES, limits, rng, Settings(iterations=10))
    assert found.score == pytest.approx(best)


def test_same_seed_same_predictor():
    picks = np.random.default_rng(0).integers(3, size=(60, 4))
    quick = MLP(width=8, layers=1, epochs=3)
    one, two = (quick.fit(picks, measured(picks), CHOICES, np.random.default_rng(5)).batch(picks) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_options_are_checked():
    with pytest.raises(BadInput, match="held_out"):
        MLP(held_out=0.0)
    with pytest.raises(BadInput, match="at least 10 samples"):
        MLP().fit(np.zeros((3, 4), int), np.zeros(3), CHOICES, np.random.default_rng(0))
