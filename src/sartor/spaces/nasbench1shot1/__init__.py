"""The cell spaces of NAS-Bench-1Shot1."""

from sartor.spaces.nasbench1shot1.space import NasBench1Shot1

PLUGIN = NasBench1Shot1
