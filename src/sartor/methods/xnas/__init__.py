"""XNAS (arXiv:1906.08031): experts with exponentiated gradients and wipe-out."""

from sartor.methods.xnas.method import XNAS

PLUGIN = XNAS
