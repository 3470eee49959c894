"""Hierarchical automatic relevance determination of switches: lines 3 and 4 of Algorithms 1 and 2 (arXiv:1905.04919).

Every switch has a prior variance s of its own; what counts is gamma, in which the switches that it depends on take part
(equations 6 and 8): it is small as soon as one of them is. All arithmetic is numpy's in double precision.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sartor.spaces.switches import Circuit, Mask

Array = NDArray[np.float64]
Dependency = Literal["full", "zero", "none"]

THRESHOLD = 1 / (2 * math.pi * math.e)  # of gamma: where the entropy is zero; the paper prints 0.0585
_LEAST, _MOST = 1e-12, 1e12  # gamma and s stay between them: the entropy of what is gone must be a number
_KEPT = 1e-6  # the score of what is kept only to keep the network connected


def entropy(gamma: Array) -> Array:
    """``ln(2 pi e gamma) / 2``: that of a Gaussian with variance gamma."""
    return 0.5 * np.log(2 * np.pi * np.e * np.maximum(gamma, _LEAST))


@dataclass(frozen=True)
class Removal:
    """What left in a round, and why: ``entropy``, ``edge`` (zero switch off), ``source`` or ``unread`` (dead nodes)."""

    gone: dict[int, str]
    kept: tuple[int, ...] = ()  # would have left, but the network would not be connected without them


class Relevance:
    """Prior variances of all switches of a circuit, their posterior, and which of them are still on.

    `strength` is lambda_w of every switch. Minimising (16) is minimising ``E_D / lambda_w + sum |omega w|``, so it is
    the Hessian of E_D / lambda_w that stands beside the prior in (17), where the paper prints none: with the mean loss
    over the images as E_D, lambda_w is one over the number of images that the likelihood counts.
    """

    def __init__(self, circuit: Circuit, strength: Array, dependency: Dependency = "full") -> None:
        self.circuit, self.strength, self.dependency = circuit, strength, dependency
        count = len(circuit)
        self.gamma, self.omega, self.s = np.ones(count), np.ones(count), np.ones(count)
        self.mean, self.variance = np.ones(len(circuit.owner)), np.ones(len(circuit.owner))
        self.on: Mask = np.ones(count, bool)
        self.kept: Mask = np.zeros(count, bool)
        self.removed = np.zeros(count, np.int64)  # in which round, from 1; 0: it is still there

    def update(self, w: Array, hessian: Array) -> None:
        """Equations 17 to 20; those of appendix A.3 for switches in several places. `hessian` is E_D's, a place each.

        Negative curvature, which only the exact Hessian has, counts as none: variances are positive.
        """
        owner, count = self.circuit.owner, len(self.circuit)
        h = np.maximum(hessian, 0.0) / self.strength[owner]
        gamma = self.gamma[owner]
        live = self.on[owner]
        self.mean = np.where(live, w, self.mean)
        self.variance = np.where(live, 1 / (1 / gamma + h), self.variance)  # (17), (A.3.2)
        # (18), (A.3.9): (gamma - C) / gamma^2 is h / (1 + gamma h), which does not cancel.
        bent = np.bincount(owner, h / (1 + gamma * h), count)
        self.omega = np.where(self.on, np.sqrt(bent), self.omega)
        size = np.sqrt(np.bincount(owner, self.mean**2, count))
        ratio = size / np.maximum(self.omega, _LEAST)
        self.s = np.where(self.on, np.clip(ratio, 0.0, _MOST), self.s)  # (19), (A.3.8)
        self.gamma = np.where(self.on, self._gamma(), self.gamma)  # (20)

    def _gamma(self) -> Array:
        """Equation 8, and 6 with the ^-1 of (A.2.14): information flows only if every switch on its way is on."""
        s = np.where(self.on, self.s, 0.0)
        with np.errstate(divide="ignore"):
            inverse = 1 / s
            for i, switch in enumerate(self.circuit.switches):
                before = self.circuit.predecessors[i]
                if self.dependency != "none" and switch.zero is not None:
                    inverse[i] += 1 / s[switch.zero]
                if self.dependency == "full" and before is not None:
                    inverse[i] += 1 / s[list(before)].sum()
        return np.clip(1 / inverse, _LEAST, _MOST)

    @property
    def entropy(self) -> Array:
        """Of every switch; what left keeps the one that it left with."""
        return entropy(self.gamma)

    def prune(self, round_: int) -> Removal:
        """Line 4: off goes what has no positive entropy, and with it what carries no information any more."""
        before = self.on.copy()
        self.on = before & (self.gamma > THRESHOLD)
        gone = {int(i): "entropy" for i in np.flatnonzero(before & ~self.on)}
        if self.dependency != "none":
            left = self.circuit.alive(self.on) if self.dependency == "full" else self._ruled()
            gone |= {int(i): self._reason(int(i)) for i in np.flatnonzero(self.on & ~left)}
            self.on = left
        kept = self._reconnect(before)
        gone = {i: why for i, why in gone.items() if i not in kept}
        self.removed[list(gone)] = round_
        self.kept[list(kept)] = True
        # Where nothing flows any more there is no variance left either.
        self.gamma[[i for i, why in gone.items() if why != "entropy"]] = _LEAST
        return Removal(gone, tuple(kept))

    def _ruled(self) -> Mask:
        """Without the dependency on predecessors: edges whose zero switch is off go, and empty edges' switches."""
        switches = self.circuit.switches
        left = self.on & np.array([s.zero is None or bool(self.on[s.zero]) for s in switches])
        ruling = {s.zero for i, s in enumerate(switches) if left[i]}
        return np.array([left[i] and (s.feeds is not None or i in ruling) for i, s in enumerate(switches)], bool)

    def _reason(self, i: int) -> str:
        switch = self.circuit.switches[i]
        if switch.zero is not None and not self.on[switch.zero]:
            return "edge"
        return "source" if switch.reads not in self.circuit.reached(self.on) else "unread"

    def _reconnect(self, before: Mask) -> list[int]:
        """For every required output that is cut off, the way from an input whose weakest switch is strongest."""
        found: list[int] = []
        for nodes in self.circuit.severed(self.on):
            best: dict[str, tuple[float, tuple[int, ...]]] = dict.fromkeys(self.circuit.inputs, (math.inf, ()))
            for node in self.circuit.order:
                for i in self.circuit.feeding.get(node, ()):
                    switch = self.circuit.switches[i]
                    if before[i] and switch.reads in best:
                        pair = (i,) if switch.zero is None else (switch.zero, i)
                        weakest, way = best[switch.reads]
                        value = min(weakest, *(float(self.gamma[k]) for k in pair))
                        best[node] = max(best.get(node, (0.0, ())), (value, way + pair))
            _, way = max(best.get(node, (0.0, ())) for node in sorted(nodes))
            found += [k for k in way if not self.on[k]]
            self.on[found] = True
        return sorted(set(found))

    def score(self) -> Array:
        """What a switch adds to the score: its entropy; a trifle where it is kept for the connection alone."""
        return np.where(self.on & self.kept, np.maximum(self.entropy, _KEPT), self.entropy)

    def state_dict(self) -> dict[str, Any]:
        """For checkpoints: lists of numbers."""
        return {name: getattr(self, name).tolist() for name in _STATE}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Read what `state_dict` gave."""
        for name in _STATE:
            setattr(self, name, np.asarray(state[name], getattr(self, name).dtype))


_STATE = ("gamma", "omega", "s", "mean", "variance", "on", "kept", "removed")
