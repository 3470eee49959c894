"""The cell space of NAS-Bench-201."""

from sartor.spaces.nasbench201.space import NasBench201

PLUGIN = NasBench201
