"""From what a person has (`digits`, a path, an object in Python) to images: every data source is asked in turn."""

from __future__ import annotations

import contextlib
import inspect
from pathlib import Path

from sartor.core.errors import BadInput, SartorError, nearest
from sartor.core.registry import SOURCES, load
from sartor.data.base import Images, Tick, shown, silent
from sartor.data.naming import OBJECT, is_code
from sartor.data.sources.arrays import check_side
from sartor.data.sources.base import SIDES, Source, Wish

_ARCHIVES = (".gz", ".bz2", ".xz", ".7z", ".rar", ".zst")
_PICKLES = (".pkl", ".pickle", ".pt", ".pth")


def open_data(
    given: object, image: int | None = None, tick: Tick = silent, largest: int = SIDES[-1], whole: bool = False
) -> Images:
    """Open `given`, with images of `image` x `image` pixels; None keeps an array's size and chooses that of photos.

    The size chosen for photos follows their own sizes, up to `largest`. Names such as `digits` go before folders called
    so; write ``./digits`` for the folder. ``package.module:name`` is called, if it can be, and what it gives is opened.
    `whole` says that no splits will be drawn.
    """
    wish = Wish(check_side(image), largest, tick, whole)
    if isinstance(given, str) and not given.strip():
        raise BadInput("data must be named, but the name is empty: give a folder (. is this one), or a name as digits.")
    if isinstance(given, str) and given.startswith(OBJECT):
        raise BadInput(f"the images were {given}. Give it again as `data`.")
    if is_code(given):
        given = _made(load(str(given)), str(given), image)
    if isinstance(given, Images):
        if image not in (None, given.task.image):
            raise BadInput(f"{given.name} is open already, with a side of {given.task.image} pixels, not {image}.")
        return given
    kinds: list[Source] = sorted((SOURCES[name]() for name in SOURCES.names()), key=lambda kind: kind.general)
    accepted = "; ".join(kind.accepts for kind in kinds)
    offers = [given, Path(given).expanduser()] if isinstance(given, str) else [given]
    try:
        for offer in offers:
            if isinstance(offer, Path) and not _exists(offer):
                raise BadInput(
                    f"{shown(offer)!r} is neither a name nor an existing path{_like(offer)}. Data may be {accepted}."
                )
            for kind in kinds:
                if kind.takes(offer):
                    return kind.open(offer, wish)
    except PermissionError as error:
        raise BadInput(f"{given} must be readable, but there is no permission. Change its permissions.") from error
    raise _refusal(offers[-1], accepted)


def _made(found: object, reference: str, image: int | None) -> object:
    """What a reference stands for: a function or class is called, with the side of the images if it asks for it."""
    if not callable(found) or isinstance(found, Images):
        return found
    try:
        asks = "image" in inspect.signature(found).parameters
        return found(image=image) if asks else found()
    except SartorError:
        raise
    except Exception as error:  # the user's code: whatever it raises is about the input
        raise BadInput(f"{reference} must give images and labels when called, but raised {error!r}.") from error


def _like(path: Path) -> str:
    """Names of data, and what lies beside the path that is missing, that look like it."""
    names = [n for source in SOURCES.names() if SOURCES[source]().takes(n := source.replace("_", "-"))]
    with contextlib.suppress(OSError):
        names += [shown(p) for p in path.parent.iterdir() if not p.name.startswith(".")]
    return nearest(shown(path), names)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except PermissionError:
        raise
    except (OSError, ValueError) as error:  # names too long, or with a zero byte
        raise BadInput(f"{str(path)[:100]!r} is no usable path: {error}.") from error


def _refusal(given: object, accepted: str) -> BadInput:
    """Why nobody opens `given`."""
    if not isinstance(given, Path):
        return BadInput(f"data must be {accepted}; but is a {type(given).__name__}.")
    ending = given.suffix.lower()
    if ending in _ARCHIVES:
        return BadInput(
            f"{shown(given)} is an archive that is not read in place. Unpack it, or make it a .zip or .tar."
        )
    if ending in _PICKLES:
        return BadInput(
            f"{shown(given)} is a pickle, which is not loaded because unpickling can run any code. Save the arrays "
            "with numpy.savez_compressed(path, x=images, y=labels)."
        )
    return BadInput(f"data must be {accepted}; but {shown(given)} is another file.")
