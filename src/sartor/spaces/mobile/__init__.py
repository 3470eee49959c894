"""The mobile space of BINAS: MobileNetV3-like networks, elastic blocks, multi-path passes."""

from sartor.spaces.mobile.space import Mobile

PLUGIN = Mobile
