"""An architecture is one option picked for every choice of a space."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sartor.core.errors import BadInput


@dataclass(frozen=True, slots=True)
class Choice:
    """One decision of a space: exactly one of `options` is picked.

    `needs` lists ``(other choice, its options)``: the decision matters only while the other choice
    is at one of those options. Block 3 of a stage, say, needs the stage's depth to be 3 or 4.
    """

    name: str
    options: tuple[str, ...]
    needs: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class Arch:
    """The index of the picked option of every choice, in the order of the space's choices."""

    picks: tuple[int, ...]

    def named(self, choices: Sequence[Choice]) -> dict[str, str]:
        """The readable form: name of the choice -> name of its option; inactive choices are left out."""
        return {c.name: c.options[p] for c, p in zip(choices, self.picks, strict=True) if active(c, self.picks)}

    def check(self, sizes: Sequence[int], where: str) -> None:
        """Refuse an architecture that was read from a file `where` and is none over choices of these sizes."""
        if len(self.picks) != len(sizes) or not all(0 <= p < n for p, n in zip(self.picks, sizes, strict=True)):
            raise BadInput(f"{where} must pick one of {tuple(sizes)} options for every choice, but picks {self.picks}.")


def active(choice: Choice, picks: Sequence[int]) -> bool:
    """Whether the decision has any effect on the network that `picks` describes."""
    return all(picks[other] in allowed for other, allowed in choice.needs)


def hub(choices: Sequence[Choice], i: int) -> tuple[int, tuple[int, ...]] | None:
    """The hub of choice `i`: the other choice that switches it on, and the options that do; None: always active.

    The one rule of what a choice may depend on. A term of a quadratic joins two choices, so that what an option adds
    can be due under one other choice at most; whoever asks for the hub of a choice that needs more is refused here.
    """
    partial = [(o, allowed) for o, allowed in choices[i].needs if len(allowed) < len(choices[o].options)]
    if len(partial) > 1:
        raise BadInput(
            f"a choice may need one other choice, but {choices[i].name} needs {len(partial)}: "
            f"{', '.join(choices[o].name for o, _ in partial)}. Join those into one choice."
        )
    return partial[0] if partial else None


def hubs(choices: Sequence[Choice]) -> tuple[int, ...]:
    """The choices that switch others on: beta of BINAS. Refuses choices that need more than one."""
    return tuple(sorted({found[0] for i in range(len(choices)) if (found := hub(choices, i)) is not None}))


def needed_hubs(choices: Sequence[Choice], what: str) -> tuple[int, ...]:
    """The hubs, for `what` means nothing without any; refused where there are none, never quietly left out."""
    found = hubs(choices)
    if not found:
        raise BadInput(f"{what} needs choices that switch others on, but this space has none. Use the linear one.")
    return found


def canonical(choices: Sequence[Choice], arch: Arch) -> Arch:
    """The same network with every inactive choice at its first option, so that equal networks compare equal."""
    return Arch(tuple(p if active(c, arch.picks) else 0 for c, p in zip(choices, arch.picks, strict=True)))


def from_names(choices: Sequence[Choice], names: Mapping[str, str]) -> Arch:
    """Read the readable form back; a choice that is left out must be inactive."""
    unknown = set(names) - {c.name for c in choices}
    if unknown:
        raise BadInput(f"the architecture names choices that the space does not have: {sorted(unknown)}.")
    picks = []
    for choice in choices:
        option = names.get(choice.name, choice.options[0])
        if option not in choice.options:
            raise BadInput(f"{choice.name} must be one of {', '.join(choice.options)}, but got {option!r}.")
        picks.append(choice.options.index(option))
    missing = [c.name for c in choices if c.name not in names and active(c, picks)]
    if missing:
        raise BadInput(f"the architecture must decide {', '.join(missing)}.")
    return Arch(tuple(picks))


def tag(picks: object) -> str:
    """``network-`` and a hash: the seeds of its training depend on it, so that it stays what it was."""
    return f"network-{hashlib.sha256(repr(picks).encode()).hexdigest()[:8]}"
