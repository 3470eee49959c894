import pytest
import torch

from sartor.engine.distill import feature_loss


def test_feature_loss_sums_the_stages_errors():
    ones, zeros = torch.ones(2, 3), torch.zeros(2, 3)
    assert feature_loss([ones, 2 * ones], [zeros, zeros]).item() == pytest.approx((1 + 4) / 50)
