"""Measured latency: timing of parts, calibration on whole networks, the price cache."""

from sartor.costs.latency.cost import Latency

PLUGIN = Latency
