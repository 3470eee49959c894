"""Fashion-MNIST, by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, final

from sartor.core.errors import BadInput
from sartor.data.base import Images
from sartor.data.sources.base import Source, Wish
from sartor.data.sources.idx import open_idx

FOLDER = Path("/usr/share/datasets/fashion-mnist")
CLASSES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot")


@final
class FashionMnist(Source):
    """Fashion-MNIST where the Debian package dataset-fashion-mnist installs it."""

    accepts: ClassVar[str] = "the name 'fashion-mnist'"

    def takes(self, given: object) -> bool:
        """Its name."""
        return isinstance(given, str) and given == "fashion-mnist"

    def open(self, given: Any, wish: Wish) -> Images:
        """The package's IDX files."""
        if not FOLDER.is_dir():
            raise BadInput(
                f"fashion-mnist must be installed in {FOLDER}, but is not. Install the Debian package with "
                "'apt install dataset-fashion-mnist', or give the folder that holds its IDX files."
            )
        return open_idx(FOLDER, wish.image, name="fashion-mnist", classes=CLASSES)


PLUGIN = FashionMnist
