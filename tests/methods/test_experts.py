import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from sartor.core.errors import BadInput
from sartor.methods.xnas.experts import Experts, softmax_rewards

T, R = 40, 3


@st.composite
def rewards(draw):
    """(T, N) rewards in [-1, 1]: random, extreme, late bloomers, and adversarial to the current leader."""
    n, seed = draw(st.integers(2, 6)), draw(st.integers(0, 10_000))
    kind = draw(st.sampled_from(["random", "extreme", "late", "drift"]))
    g = torch.Generator().manual_seed(seed)
    noise = 2 * torch.rand(T, n, generator=g, dtype=torch.float64) - 1
    if kind == "extreme":
        return noise.sign()
    if kind == "late":  # one expert is punished as long as possible, then always rewarded
        turn = int(torch.randint(1, T, (1,), generator=g))
        noise = noise.abs()
        noise[:turn, 0], noise[turn:, 0] = -1.0, 1.0
        noise[turn:, 1:] *= -1
        return noise
    return noise if kind == "random" else (noise * 0.2 + torch.linspace(-0.8, 0.8, n)).clamp(-1, 1)


def run(sequence, **options):
    """The algorithm on a fixed sequence, and its linearised regret to the best of all experts, computed afresh."""
    steps, n = sequence.shape
    experts = Experts(1, n, steps, **options)
    own = 0.0
    for r in sequence:
        own += float((experts.log_weights().exp()[0] * r).sum())
        experts.step(r[None])
    return experts, float(sequence.sum(0).max()) - own


@settings(max_examples=60, deadline=None)
@given(rewards(), st.sampled_from([None, 0.05, 0.5]))
def test_lemma_1_the_best_expert_in_hindsight_is_never_wiped_out(sequence, rate):
    experts, _ = run(sequence, rate=rate)
    totals = sequence.sum(0)
    assert float(totals[experts.alive[0]].max()) >= float(totals.max()) - 1e-9


@settings(max_examples=60, deadline=None)
@given(rewards(), st.sampled_from([None, 0.05, 0.5]))
def test_lemma_2_the_aggregated_wipe_out_factor_is_between_1_and_n(sequence, rate):
    experts, _ = run(sequence, rate=rate)
    gamma = float(experts.log_gamma.exp())
    assert 1.0 <= gamma <= sequence.shape[1] + 1e-9  # N itself only where all of them lead together at the end
    assert gamma <= sequence.shape[1] / int(experts.remaining) + 1e-9  # (15)


@settings(max_examples=60, deadline=None)
@given(rewards(), st.sampled_from([None, 0.05, 0.5]), st.booleans())
def test_theorem_1_the_regret_stays_below_its_bound(sequence, rate, wipeout):
    experts, regret = run(sequence, rate=rate, wipeout=wipeout)
    assert regret <= float(experts.regret_bound()) + 1e-9
    assert float(experts.regret) == pytest.approx(regret, abs=1e-9)
    if rate is None:
        assert float(experts.regret_bound()) == pytest.approx(float(experts.tight_bound()))


def test_theorem_1_against_an_adversary_that_punishes_the_leader():
    for n in (2, 5):
        experts = Experts(1, n, T)
        seen = []
        for _ in range(T):
            r = torch.ones(1, n, dtype=torch.float64)
            r[0, experts.logs[0].argmax()] = -1.0
            seen.append(r[0])
            experts.step(r)
        _, regret = run(torch.stack(seen))
        assert regret <= float(experts.regret_bound())


@settings(max_examples=40, deadline=None)
@given(rewards(), st.sampled_from([2, 8]), st.booleans())
def test_theorem_1_holds_for_batches_with_the_wider_range_of_their_rewards(sequence, batch, wipeout):
    steps, n = sequence.shape
    experts = Experts(1, n, steps * batch, wipeout=wipeout)
    own = 0.0
    for r in sequence:
        own += batch * float((experts.log_weights().exp()[0] * r).sum())
        experts.step(r[None], samples=batch)
    assert batch * float(sequence.sum(0).max()) - own <= float(experts.regret_bound()) + 1e-9
    assert float(sequence.sum(0)[experts.alive[0]].max()) >= float(sequence.sum(0).max()) - 1e-9  # lemma 1 too


def test_three_axes_end_where_the_closed_form_ends():
    experts = Experts(1, 3, 120, bound=2.0, rate=0.1, wipeout=False)
    for t in range(120):
        gradient = [0.0, 0.0, 2.0] if t < 30 else [0.0, -1.0, -2.0]
        experts.step(-torch.tensor([gradient], dtype=torch.float64))
    expected = torch.softmax(torch.tensor([0.0, 9.0, 12.0], dtype=torch.float64), 0)
    torch.testing.assert_close(experts.weights(torch.float64)[0].detach(), expected)
    assert [round(v, 4) for v in expected.tolist()] == [0.0, 0.0474, 0.9526]


def test_rewards_are_finite_differences_of_the_loss():
    torch.manual_seed(0)
    branches = nn.ModuleList(nn.Linear(4, 3) for _ in range(5)).double()
    x, y = torch.randn(8, 4, dtype=torch.float64), torch.randint(3, (8,))

    def loss(u):
        return nn.functional.cross_entropy(sum(w * f(x) for w, f in zip(u, branches, strict=True)), y)

    experts = Experts(1, 5, 10, rate=1.0, wipeout=False)
    u = experts.weights(torch.float64)
    loss(u[0]).backward()
    experts.step()
    at, h = torch.full((5,), 0.2, dtype=torch.float64), 1e-6
    for i, e in enumerate(torch.eye(5, dtype=torch.float64)):
        difference = float((loss(at + h * e) - loss(at - h * e)).detach() / (2 * h))
        assert float(experts.logs[0, i]) == pytest.approx(-difference, abs=1e-7)


def test_a_batch_over_replicas_counts_as_its_feedbacks():
    experts = Experts(1, 2, 1000, rate=0.01, wipeout=False)
    experts.step(torch.tensor([[100.0, -0.5]]), samples=10, replicas=3)
    torch.testing.assert_close(experts.logs, torch.tensor([[0.3, -0.05]], dtype=torch.float64))  # 100 clamped to 3
    assert experts.time == 30


def test_wiped_experts_stay_out_and_score_least():
    experts = Experts(2, 3, 10, zeta=0.1)
    for _ in range(6):
        experts.step(torch.tensor([[1.0, 0.9, -1.0], [0.0, 0.0, 0.0]]))
    assert experts.remaining.tolist() == [2, 3]
    assert float(experts.weights().detach()[0, 2]) == 0.0
    before = experts.logs.clone()
    experts.step(torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    assert torch.equal(experts.logs[0, 2], before[0, 2])
    scores = experts.scores()
    assert torch.isfinite(scores).all()
    assert int(scores[0].argmin()) == 2
    torch.testing.assert_close(scores[1], torch.zeros(3, dtype=torch.float64))
    assert 0 <= float(experts.entropy[0]) < float(experts.entropy[1]) == pytest.approx(1.0)


@pytest.mark.parametrize("left", [None, 0.0])
def test_after_the_last_feedback_one_expert_stays_also_of_equals(left):
    """Algorithm 1's threshold keeps all that lead together: of those, the first, with what leaves counted in Gamma."""
    experts = Experts(3, 4, 5)
    rows = [[0.5, 1.0, 1.0, -1.0], [0.0] * 4, [-1.0, 0.2, 0.1, 0.2]]
    for t in range(5):
        assert t == 0 or int(experts.remaining.min()) > 1
        experts.step(torch.tensor(rows), left=left if t == 4 else None)
    assert experts.remaining.tolist() == [1, 1, 1]
    assert experts.alive.double().argmax(1).tolist() == [1, 0, 1]
    assert bool((experts.log_gamma.exp() < 4 + 1e-9).all())
    assert float(experts.log_gamma[1].exp()) == pytest.approx(4.0)  # uniform: three quarters leave at once


def test_softmax_rewards_are_the_gradient_through_the_softmax():
    a = torch.tensor([0.3, -1.0, 0.5], dtype=torch.float64, requires_grad=True)
    g = torch.tensor([0.2, 0.7, -0.4], dtype=torch.float64)
    (torch.softmax(a, 0) @ g).backward()
    torch.testing.assert_close(softmax_rewards(torch.softmax(a.detach(), 0), -g), -a.grad)


def test_state_goes_on_where_it_stopped():
    g = torch.Generator().manual_seed(0)
    sequence = [torch.randn(2, 4, generator=g) for _ in range(8)]
    whole, half, rest = (Experts(2, 4, 8) for _ in range(3))
    for r in sequence:
        whole.step(r)
    for r in sequence[:4]:
        half.step(r)
    rest.load_state_dict(half.state_dict())
    for r in sequence[4:]:
        rest.step(r)
    assert whole.summary() == rest.summary()
    assert torch.equal(whole.scores(), rest.scores())
    with pytest.raises(ValueError, match="shape"):
        Experts(1, 4, 8).load_state_dict(half.state_dict())


def test_what_cannot_be_is_refused():
    for wrong in ({"zeta": 0.0}, {"bound": 0.0}):
        with pytest.raises(BadInput, match="zeta"):
            Experts(1, 2, 10, **wrong)
    with pytest.raises(BadInput, match="backward"):
        Experts(1, 2, 10).step()
    assert math.isfinite(Experts(1, 2, 10).summary()["regret_bound"])
