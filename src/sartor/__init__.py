"""Sartor: networks cut to measure."""

__version__ = "0.1.0"
