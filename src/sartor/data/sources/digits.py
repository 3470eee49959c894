"""scikit-learn's handwritten digits, by name."""

from __future__ import annotations

from typing import Any, ClassVar, final

import numpy as np

from sartor.core.errors import require
from sartor.data.base import Images
from sartor.data.sources.arrays import from_arrays
from sartor.data.sources.base import Source, Wish


@final
class Digits(Source):
    """1,797 handwritten digits, 8 x 8, one channel; values 0..16 scaled to 0..255."""

    accepts: ClassVar[str] = "the name 'digits'"

    def takes(self, given: object) -> bool:
        """Its name."""
        return isinstance(given, str) and given == "digits"

    def open(self, given: Any, wish: Wish) -> Images:
        """From scikit-learn's own files."""
        require("sklearn", "digits")
        held = require("sklearn.datasets", "digits").load_digits()
        x = np.rint(np.asarray(held.images) * (255.0 / 16.0)).astype(np.uint8)
        return from_arrays(x, np.asarray(held.target, np.int64), name="digits", image=wish.image)


PLUGIN = Digits
