import pytest
import torch

from sartor.engine.distill import feature_loss, imitation_loss, label_loss


def test_label_loss_is_smoothed_cross_entropy():
    logits, labels = torch.randn(4, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 0])
    target = torch.full((4, 3), 0.1 / 3) + 0.9 * torch.eye(3)[labels]
    expected = -(target * logits.log_softmax(1)).sum(1).mean()
    assert label_loss(logits, labels, 0.1).item() == pytest.approx(expected.item(), rel=1e-6)


def test_imitation_is_the_divergence_of_the_student_from_the_teacher():
    generator = torch.Generator().manual_seed(1)
    student, teacher = torch.randn(5, 4, generator=generator), torch.randn(5, 4, generator=generator)
    p, q = teacher.softmax(1), student.softmax(1)
    assert imitation_loss(student, teacher).item() == pytest.approx((p * (p / q).log()).sum(1).mean().item(), rel=1e-5)
    assert imitation_loss(teacher, teacher).item() == pytest.approx(0, abs=1e-6)


def test_feature_loss_sums_the_stages_errors():
    ones, zeros = torch.ones(2, 3), torch.zeros(2, 3)
    assert feature_loss([ones, 2 * ones], [zeros, zeros]).item() == pytest.approx((1 + 4) / 50)
