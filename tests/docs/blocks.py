"""The fenced blocks of the site's pages and of the README, and what stands above them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NOT_RUN = "*Not run here: "


@dataclass(frozen=True)
class Block:
    """One fenced block."""

    page: str
    line: int  # of its first line of content
    language: str
    text: str
    above: str  # the paragraph before it

    @property
    def runs(self) -> bool:
        """Whether it can run where tests run; what cannot says so, where readers see it."""
        return not self.above.startswith(NOT_RUN)

    @property
    def file(self) -> str | None:
        """The file that the text above says to save it as."""
        named = re.findall(r"`(\w+\.py)`", self.above)
        return named[-1] if named else None

    def commands(self) -> list[list[str]]:
        """The words of every command, without comments."""
        lines = self.text.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(path: Path) -> list[Block]:
    """All blocks of a page, from its top."""
    found, text = [], path.read_text(encoding="utf-8")
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        before = text[: match.start()]
        above = before.rstrip("\n").rpartition("\n\n")[2]
        line = before.count("\n") + 2
        found.append(Block(str(path.relative_to(ROOT)), line, match[1].split(" ")[0], match[2], above))
    return found
