"""Whether a run's network is better than what could have been trained instead, or only luckier."""

from __future__ import annotations

import math

from sartor.runs.schema import CompareFile, Contestant

_SURE = 1.959964  # standard errors of a 95 % interval
_FAIR = 0.8  # shares of a time that count as equal


def ranked(c: CompareFile) -> list[Contestant]:
    """All networks that were trained, the best first; of equals the run's own."""
    trained = [e for e in (c.own, *c.rivals) if e.accuracy is not None]
    return sorted(trained, key=lambda e: -(e.accuracy or 0.0))


def luck(c: CompareFile, one: Contestant, other: Contestant) -> float | None:
    """The least difference in points that chance alone seldom gives (95 %).

    Both networks see the same images, so what counts are those that only one of them gets right (matched pairs, half an
    image added to each of the four cells: Agresti and Min 2005). Where that is not known, they count as two shares of
    as many images, which is on the careful side. A metric that is no share of images has no such formula.
    """
    if c.metric != "accuracy" or not c.test_images:
        return None
    if (apart := (one.apart or other.apart) if c.own in (one, other) else None) is not None:
        alone, beside, count = apart[0] + 0.5, apart[1] + 0.5, c.test_images + 2
        return 100 * _SURE * math.sqrt(alone + beside - (alone - beside) ** 2 / count) / count
    shares = [(e.accuracy or 0.0) / 100 for e in (one, other)]
    # Nobody right or wrong on all images is not certainty: Agresti and Caffo's two more of either kind.
    rough = [(s * c.test_images + 1) / (c.test_images + 2) for s in shares]
    return 100 * _SURE * math.sqrt(sum(s * (1 - s) / (c.test_images + 2) for s in rough))


def verdict(c: CompareFile) -> list[str]:
    """In plain words: who is best, by how many points, and whether that is more than luck."""
    rivals = [e for e in ranked(c) if e is not c.own]
    if c.own.accuracy is None or not rivals or rivals[0].accuracy is None:
        return ["Nothing else fits these budgets, so there was nothing to compare with."]
    best, ahead = rivals[0], c.own.accuracy - rivals[0].accuracy
    who = f"{best.name} ({best.network})" if best.network and not best.searched else best.name
    chance = luck(c, c.own, best)
    words = f"{abs(ahead):.1f} points {'more' if ahead >= 0 else 'less'} than the best of the others, {who}"
    if abs(ahead) < 0.05:
        words = f"as much as the best of the others, {who}"
    found = [f"The network of this run reaches {c.own.accuracy:.1f} %, {words}."]
    if chance is not None and abs(ahead) < chance:
        found.append(
            f"With {c.test_images} test images, differences of up to {chance:.1f} points are luck: neither is "
            "shown to be better."
        )
    elif chance is not None:
        found.append(f"That is more than the luck of {c.test_images} test images ({chance:.1f} points).")
    return found + _times(c, ahead, chance, len(rivals))


def _times(c: CompareFile, ahead: float, chance: float | None, rivals: int) -> list[str]:
    """Whether all had the same time, and only then whether the search was worth it; less time and more is a proof."""
    own = (c.own.seconds or 0.0) + c.inherited_seconds
    fair = {1: c.seconds >= _FAIR * own, -1: c.seconds <= own / _FAIR}
    found = []
    if not all(fair.values()):
        searched = f", after {c.inherited_seconds:.0f} s of search whose weights it inherited"
        found.append(
            f"The others were trained for {c.seconds:.0f} s each, the network of this run for "
            f"{c.own.seconds or 0.0:.0f} s{searched if c.inherited_seconds else ''}. "
            f"Equal times: --time {own * rivals:.0f}s."
        )
    if chance is not None and abs(ahead) >= chance and fair[1 if ahead > 0 else -1]:
        found.append(f"The search was {'' if ahead > 0 else 'not '}worth it here.")
    return found
