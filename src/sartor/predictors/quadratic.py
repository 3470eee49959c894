"""The learned full quadratic predictor (BINAS, equation 9): every pair of choices."""

from __future__ import annotations

from sartor.predictors.bilinear import FullQuadratic

__all__ = ["FullQuadratic"]
