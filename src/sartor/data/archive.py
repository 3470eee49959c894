"""Files inside zip and tar archives, read in place: nothing is unpacked.

A zip and a plain tar are read member by member, from any thread. A compressed tar has no way to its middle: its images
are kept in memory as they are in the file, if that has room for them.
"""

from __future__ import annotations

import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from sartor.core.errors import BadInput
from sartor.data.base import shown

ZIPS, TARS = (".zip",), (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_LARGEST = 256 << 20  # bytes of one member; a picture has less
# What reading damaged archives raises.
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError)


@dataclass(frozen=True, slots=True)
class Inside:
    """A file in an archive; as a path it lies below the archive."""

    archive: Path
    name: str
    size: int
    changed: int  # a checksum or a time, to know it again by
    read: Callable[[], bytes] = field(compare=False, repr=False)

    def __fspath__(self) -> str:
        return str(self.archive / self.name)


def is_archive(path: Path) -> bool:
    """By its name."""
    return path.name.lower().endswith((*ZIPS, *TARS)) and path.is_file()


def members(path: Path, memory: int) -> Iterator[Inside]:
    """Every file in an archive, in its order; of a compressed tar at most so many bytes are held in `memory`."""
    try:
        yield from _zipped(path) if path.name.lower().endswith(ZIPS) else _tarred(path, memory)
    except BROKEN as error:
        raise BadInput(f"{shown(path)} must be a sound archive, but: {error}. Make or fetch it again.") from error


def _zipped(path: Path) -> Iterator[Inside]:
    archive = zipfile.ZipFile(path)  # left open: its members are read later, and from several threads
    for entry in archive.infolist():
        if not entry.is_dir() and 0 < entry.file_size <= _LARGEST:
            yield Inside(path, entry.filename, entry.file_size, entry.CRC, partial(archive.read, entry))


def _tarred(path: Path, memory: int) -> Iterator[Inside]:
    plain = path.suffix.lower() == ".tar" and not _is_compressed(path)
    handle = os.open(path, os.O_RDONLY) if plain else -1  # likewise left open
    with tarfile.open(path, "r:" if plain else "r|*") as archive:
        for entry in archive:
            if not entry.isreg() or not 0 < entry.size <= _LARGEST:
                continue
            if plain:
                read: Callable[[], bytes] = partial(os.pread, handle, entry.size, entry.offset_data)
            else:
                memory -= entry.size
                if memory < 0:
                    raise BadInput(
                        f"{shown(path)} is a compressed tar of more than fits in memory, and can only be read from its "
                        "beginning. Make it a plain .tar or a .zip: images are compressed already."
                    )
                file = archive.extractfile(entry)
                read = partial(bytes, file.read() if file else b"")
            yield Inside(path, entry.name.removeprefix("./"), entry.size, int(entry.mtime), read)


def _is_compressed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(6).startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ"))
