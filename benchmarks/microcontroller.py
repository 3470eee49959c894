"""A microcontroller's budget, 256 KB of working memory and 1 MB of program memory: met by a network for digits and by
one for images of 32 pixels? Counted in int8: activations at the worst moment, weights.

    python benchmarks/microcontroller.py [--time 10min | --epochs 1] [--data images of 32 pixels]

Without `--data` the 32-pixel images are the digits, four times as large. With `--epochs` a random score decides and the
network is trained so long: the count is the same, the accuracy is not to be looked at.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
from _record import record

import sartor

BUDGETS = {"sram": "256KB", "flash": "1MB"}


def enlarged(folder: Path, times: int = 4) -> Path:
    """Digits of 32 pixels, or of eight times as many as said."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    images = np.kron(digits.images / 16 * 255, np.ones((1, times, times))).astype(np.uint8)
    np.savez(folder / "enlarged.npz", x=images[..., None], y=digits.target)
    return folder / "enlarged.npz"


def one(name: str, data: object, folder: Path, time: str, epochs: int | None) -> dict:
    """Fit, and what its certificate and `sartor verify` say."""
    drawn = {
        "method": "random",
        "space": {"name": "mobile", "preset": "small"},
        "effort": "thorough",
        "train": {"epochs": epochs},
    }
    how = {"time": time} if epochs is None else drawn
    result = sartor.fit(data, out=folder / name, budgets=BUDGETS, device="cpu", quiet=True, **how)
    told, checked = result.certificate, sartor.verify(result.path)
    again = {line.what: line.state for line in checked.lines if "counted again" in line.what}
    kept = {n: {k: told["budgets"][n][k] for k in ("limit", "predicted", "measured", "holds")} for n in BUDGETS}
    return {
        "data": told["data"]["name"], "image": result.task.image, "test_accuracy": told["accuracy"]["test"],
        "test_images": told["accuracy"]["test_images"], "how": how, "verified": checked.holds, "again": again,
        "budgets": kept, "costs": {n: told["costs"][n]["measured"] for n in ("params", "macs")},
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--time", default="10min")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--data")
    options, results = parser.parse_args(), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what, data in (("digits", "digits"), ("32 pixels", options.data or str(enlarged(folder)))):
            results[what] = one(what.replace(" ", "_"), data, folder, options.time, options.epochs)
            print(what, results[what], flush=True)
    print(record("microcontroller", results))


if __name__ == "__main__":
    main()
