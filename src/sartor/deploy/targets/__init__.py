"""Targets: where a network is deployed and timed."""
