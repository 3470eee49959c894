"""Networks as one would vary them by hand: input side, stem, and family, width and depth of every stage."""

from sartor.spaces.edge.space import Edge

PLUGIN = Edge
