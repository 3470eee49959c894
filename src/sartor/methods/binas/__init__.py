"""BINAS (arXiv:2110.12399): contributions of every decision, measured in a supernet."""

from sartor.methods.binas.method import BINAS

PLUGIN = BINAS
