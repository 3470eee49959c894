"""Accuracy estimators and predictors: from measurements of networks to a quadratic score."""
