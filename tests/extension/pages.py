"""A page of docs/extend, done as it stands: its plug-in in a folder of its own, its commands, its Python."""

import re
import shlex
import subprocess
from pathlib import Path

import quick

PAGES = Path(__file__).parents[2] / "docs" / "extend"


def blocks(page: str, language: str) -> list[str]:
    """The blocks of a page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.DOTALL)


def write(page: str, folder: Path, name: str) -> Path:
    """The plug-in, a page's first block, as a file outside the package."""
    path = folder / name
    path.write_text(blocks(page, "python")[0], encoding="utf-8")
    return path


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`sartor` in that folder, as a person would run it."""
    return quick.run(["-m", "sartor", *arguments], folder)


def commands(page: str, folder: Path) -> None:
    """Every command of the page."""
    for line in "".join(blocks(page, "bash")).splitlines():
        done = command(folder, *shlex.split(line)[1:])
        assert done.returncode == 0, done.stderr


def python(page: str, folder: Path) -> str:
    """What the page's further blocks print, in a process of their own: the plug-in is only in the current folder."""
    done = quick.run(["-c", "\n".join(blocks(page, "python")[1:])], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout
