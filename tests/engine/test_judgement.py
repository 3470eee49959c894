"""Outputs judged: a temperature that is known is found, and what is told adds up."""

import base64
import io

import numpy as np
import pytest
import torch
from PIL import Image

from sartor.core.task import MultiLabel, Task
from sartor.data.open import open_data
from sartor.engine.judgement import by_halves, judged, reliability, temperature

NAMES = ("a", "b", "c", "d")


def spoken(n=3000, heat=1.0, seed=0):
    """Logits that are `heat` times too large, with labels drawn from the probabilities that they ought to give."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 4)) * 2
    chances = Task(4, 8).probabilities(logits)
    labels = np.array([rng.choice(4, p=row / row.sum()) for row in chances.astype(float)])
    return torch.from_numpy(logits * heat), torch.from_numpy(labels)


@pytest.mark.parametrize("heat", [0.4, 1.0, 3.0])
def test_a_known_temperature_is_found_and_calibrates(heat):
    task, (logits, labels) = Task(4, 8), spoken(heat=heat)
    found, scaled = by_halves(task, logits, labels)
    assert found == pytest.approx(heat, rel=0.12)
    trust = reliability(task, logits, scaled, labels, found, "x")
    assert trust.error_scaled < 3.5
    assert trust.error_scaled < trust.error or heat == 1.0
    assert sum(trust.images) == len(logits)
    assert (scaled.argmax(1) == logits.argmax(1)).all()


def test_no_image_is_judged_with_a_temperature_that_it_was_part_of():
    task, (logits, labels) = Task(4, 8), spoken(200, 2.0)
    before = by_halves(task, logits, labels)[1]
    other = labels.clone()
    other[::2] = (other[::2] + 1) % 4  # every second label another: their own half's logits must not change
    after = by_halves(task, logits, other)[1]
    assert torch.equal(before[::2], after[::2])
    assert not torch.equal(before[1::2], after[1::2])


def test_where_all_is_right_the_temperature_stays_finite():
    labels = torch.arange(12) % 4
    assert 0.1 < temperature(Task(4, 8), torch.nn.functional.one_hot(labels, 4).double() * 8, labels) < 1.5


def test_several_labels_have_a_temperature_too():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(2000, 4)) * 2
    labels = torch.from_numpy((rng.random((2000, 4)) < 1 / (1 + np.exp(-logits))).astype(np.float32))
    assert temperature(MultiLabel(4, 8), torch.from_numpy(logits * 2.5), labels) == pytest.approx(2.5, rel=0.12)


def test_what_is_told_adds_up_and_the_worst_mistakes_come_first():
    rng = np.random.default_rng(1)
    images = open_data((rng.integers(0, 255, (40, 3, 20, 20)).astype(np.uint8), np.arange(40) % 4))
    logits, labels = torch.from_numpy(rng.normal(size=(40, 4))), torch.from_numpy(images.labels)
    trust = reliability(images.task, logits, logits / 2, labels, 2.0, "x")
    found = judged(logits, labels, images, np.arange(40), images.task, NAMES, trust)
    wrong = (logits.argmax(1) != labels).numpy()
    assert sum(n for *_, n in found.confusion) == found.images == sum(found.counts) == 40
    assert sum(n for *_, n in found.confused()) == wrong.sum() > 16
    assert [n for *_, n in found.confused()] == sorted((n for *_, n in found.confused()), reverse=True)
    chances = [m.chance for m in found.mistakes]
    assert chances == sorted(chances, reverse=True)
    assert len(chances) == 16
    surest = Task(4, 8).probabilities((logits / 2).numpy()).max(1)[wrong].max()
    assert chances[0] == pytest.approx(surest, abs=1e-5)
    assert all(m.truth != m.said for m in found.mistakes)
    assert Image.open(io.BytesIO(base64.b64decode(found.mistakes[0].picture))).size == (20, 20)


def test_mistakes_of_several_labels():
    images = open_data((np.zeros((4, 1, 8, 8), np.uint8) + 9, np.array([[1, 0], [1, 1], [0, 1], [0, 0]])))
    logits, labels = torch.tensor([[4.0, 3.0], [1.0, 1.0], [-1.0, 1.0], [2.0, -1.0]]), torch.from_numpy(images.labels)
    trust = reliability(images.task, logits, logits, labels, 1.0, "x")
    found = judged(logits, labels, images, np.arange(4), images.task, ("a", "b"), trust)
    assert found.confusion is None
    assert [(m.name, m.truth, m.said) for m in found.mistakes] == [("image 0", (0,), (0, 1)), ("image 3", (), (0,))]
