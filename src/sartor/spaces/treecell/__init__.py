"""PyramidNets whose blocks may all differ (BayesNAS's proxyless space)."""

from sartor.spaces.treecell.space import TreeCells

PLUGIN = TreeCells
