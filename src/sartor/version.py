"""The version, in a file of its own so that any module may import it."""

__version__ = "0.1.0"
