"""What a task says of outputs, against what the formulas say."""

import numpy as np
import pytest
import torch

from sartor.core.errors import RunError
from sartor.core.task import MultiLabel, Task, average_precision
from sartor.runs.codec import decode, encode

ONE, MANY = Task(4, 8), MultiLabel(4, 8, 1)


def drawn(seed, *shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_the_loss_of_one_label_is_smoothed_cross_entropy():
    logits, labels = drawn(0, 4, 4), torch.tensor([0, 1, 2, 0])
    target = torch.full((4, 4), 0.1 / 4) + 0.9 * torch.eye(4)[labels]
    expected = -(target * logits.log_softmax(1)).sum(1).mean()
    assert ONE.loss(logits, labels, 0.1).item() == pytest.approx(expected.item(), rel=1e-6)


def test_the_loss_of_several_labels_is_smoothed_binary_cross_entropy_over_all_of_them():
    logits, labels = drawn(0, 5, 4), (drawn(1, 5, 4) > 0).float()
    p, target = logits.sigmoid(), labels * 0.9 + 0.05
    expected = -(target * p.log() + (1 - target) * (1 - p).log()).sum(1).mean()
    assert MANY.loss(logits, labels, 0.1).item() == pytest.approx(expected.item(), rel=1e-5)


def test_imitation_is_the_divergence_of_the_student_from_the_teacher():
    student, teacher = drawn(1, 5, 4), drawn(2, 5, 4)
    p, q = teacher.softmax(1), student.softmax(1)
    assert ONE.imitation(student, teacher).item() == pytest.approx((p * (p / q).log()).sum(1).mean().item(), rel=1e-5)
    p, q = teacher.sigmoid(), student.sigmoid()
    each = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    assert MANY.imitation(student, teacher).item() == pytest.approx(each.sum(1).mean().item(), rel=1e-5)
    for task in (ONE, MANY):
        assert task.imitation(teacher, teacher).item() == pytest.approx(0, abs=1e-6)


def test_outcomes_of_every_image():
    logits = torch.tensor([[3.0, 1, -1, -2], [-1, 2, 1, -3]])
    assert ONE.right(logits, torch.tensor([0, 2])).tolist() == [True, False]
    labels = torch.tensor([[1.0, 1, 0, 0], [1, 1, 0, 0]])
    assert MANY.right(logits, labels).tolist() == [1.0, 0.5]
    p = logits.double().sigmoid()
    expected = torch.where(labels > 0, p, 1 - p).log().mean(1)
    torch.testing.assert_close(MANY.likelihood(logits, labels), expected)
    torch.testing.assert_close(
        ONE.likelihood(logits, torch.tensor([0, 2])).exp(), logits.double().softmax(1)[[0, 1], [0, 2]]
    )


def test_average_precision_is_scikit_learns_also_with_ties():
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    for levels in (2, 5, 1000):
        scores, truth = rng.integers(levels, size=50).astype(np.float32), rng.random(50) < 0.3
        assert average_precision(scores, truth) == pytest.approx(metrics.average_precision_score(truth, scores))


def test_a_label_that_no_image_has_does_not_count_in_the_metric():
    labels = torch.zeros(6, 4)
    labels[:3, 0] = 1
    logits = torch.arange(6.0).flip(0)[:, None].expand(6, 4)
    assert MANY.measure(logits, labels) == 100.0
    assert MANY.measure(-logits, labels) < 60.0
    assert MANY.measure(logits, torch.zeros(6, 4)) == 0.0


def test_probabilities_are_the_softmax_or_every_logits_sigmoid_without_overflow():
    logits = np.array([[1000.0, 0, -1000, 2]], np.float32)
    np.testing.assert_allclose(ONE.probabilities(logits), [[1, 0, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(MANY.probabilities(logits), [[1, 0.5, 0, 1 / (1 + np.exp(-2))]], atol=1e-6)


def test_a_task_is_read_back_and_one_of_an_older_run_has_one_label_an_image():
    for task in (ONE, MANY):
        again = decode(Task, encode(task), "x: ")
        assert again == task and type(again) is type(task)
    assert decode(Task, {"classes": 4, "image": 8, "channels": 3}, "x: ") == ONE
    with pytest.raises(RunError, match="regression"):
        decode(Task, {"classes": 4, "image": 8, "kind": "regression"}, "x: ")
