"""The packed cache: made as fast as the decoder, read far faster, taken up after a kill, with little memory.

A synthetic folder of JPEGs of 256 pixels, 200 different ones under many names. First a making that is killed after a
quarter and taken up, and the memory that it takes. Then, in turns, the decoder alone on some images and the whole
making, of which the ratios' medians are told: others on the machine come and go. Then what every run does, a look at
up to 10,000 images in their order for their mean (from the disk), and epochs in random order: decoding, and from the
cache (from the system's memory, where that holds it).

    python benchmarks/cache.py --count 200000 --folder /data/synthetic
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from _record import record
from PIL import Image

from sartor.data import cache, packing
from sartor.data.augment import statistics
from sartor.data.decode import in_order, workers
from sartor.data.files import Decoded, open_files
from sartor.data.picture import square
from sartor.data.sources.base import Wish
from sartor.data.sources.folder import list_folder

SIDE, DISTINCT = 256, 200


def synthetic(folder: Path, count: int) -> Path:
    """So many JPEGs in ten classes, smooth pictures with some noise, as photographs compress."""
    rng, held = np.random.default_rng(0), []
    for n in range(min(DISTINCT, count)):
        coarse = Image.fromarray(rng.integers(0, 255, (12, 12, 3)).astype(np.uint8)).resize((SIDE, SIDE), 3)
        noisy = np.asarray(coarse, np.int16) + rng.normal(0, 6, (SIDE, SIDE, 3)).astype(np.int16)
        path = folder / f"first-{n}.jpg"
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, quality=88)
        held.append(path.read_bytes())
        path.unlink()
    for n in range(count):
        path = folder / f"class{n % 10}" / f"{n:07}.jpg"
        path.parent.mkdir(exist_ok=True)
        if not path.exists():
            path.write_bytes(held[n % len(held)])
    return folder


class Memory(threading.Thread):
    """The most memory of this process that is no file's, in MiB above what it was."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.before, self.most, self.stop = self.now(), 0.0, threading.Event()

    @staticmethod
    def now() -> float:
        """In MiB."""
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("RssAnon")).split()[1]) / 1024

    def run(self) -> None:
        """Look again and again."""
        while not self.stop.wait(0.05):
            self.most = max(self.most, self.now() - self.before)


def opened(folder: Path):
    return open_files(list_folder(folder), Wish(SIDE), 0)


class Watch:
    """Seconds on the wall and of all cores together, which tell what others on the machine take."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.monotonic(), time.process_time()

    def told(self, what: str, count: int) -> dict[str, float]:
        """Images a second, and milliseconds of a core for each."""
        wall, cpu = time.monotonic() - self.wall, time.process_time() - self.cpu
        return {f"{what}_images_per_second": count / wall, f"{what}_core_ms_per_image": 1000 * cpu / count}


def decoding(paths) -> dict[str, float]:
    """The decoder alone."""
    watch = Watch()
    with ThreadPoolExecutor(workers()) as pool:
        for _ in in_order(pool, lambda path: square(path, SIDE), paths):
            pass
    return watch.told("decoder", len(paths))


def epoch(images, count: int, what: str) -> dict[str, float]:
    """In random order, batches of 256."""
    rng, whole = np.random.default_rng(1), -(-count // len(images))
    order = np.concatenate([rng.permutation(len(images)) for _ in range(whole)])[:count]
    watch = Watch()
    for start in range(0, len(order), 256):
        images.pixels(order[start : start + 256])
    return watch.told(what, len(order))


def resumed(given, folder: Path, kept: Path) -> tuple[int, int, float]:
    """How many images were decoded when a making was killed, how many then were to do, and the memory of these."""
    child = subprocess.Popen(
        [sys.executable, __file__, "--child", "--folder", str(given.folder), "--count", str(given.count)]
    )
    while not (state := list(kept.glob("images/*/states"))) or np.fromfile(state[0], np.uint8).sum() < given.count / 4:
        time.sleep(0.1)
    child.send_signal(signal.SIGKILL)
    child.wait()
    done, todo, memory = int((np.fromfile(state[0], np.uint8) > 0).sum()), [], Memory()
    memory.start()
    open_files(list_folder(folder), Wish(SIDE, tick=lambda what, n, total: todo.append(total - n)), 0)
    memory.stop.set()
    return done, todo[0] + packing._CHUNK, memory.most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--folder", type=Path, default=Path("runs/cache-benchmark"))
    parser.add_argument("--decoded", type=int, default=1000, help="images that the decoder alone is timed with")
    parser.add_argument("--rounds", type=int, default=5, help="of the decoder, the making, the decoder")
    parser.add_argument("--name", default="cache")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    cache.LEAST, cache._SHARE = 1, 0.95
    folder, kept = given.folder / f"photos-{given.count}", given.folder / "cache"
    os.environ["SARTOR_CACHE"] = str(kept)
    if given.child:
        opened(folder)
        return
    paths = list_folder(synthetic(folder, given.count)).paths
    shutil.rmtree(kept, ignore_errors=True)

    killed, left, memory = resumed(given, folder, kept)
    told, shares, by_cores = {}, [], []
    for _ in range(given.rounds):
        shutil.rmtree(kept)
        before, watch = decoding(paths[: given.decoded]), Watch()
        images = opened(folder)
        made, after = watch.told("making", given.count), decoding(paths[: given.decoded])
        told = made | {name: (before[name] + after[name]) / 2 for name in before}
        shares.append(told["making_images_per_second"] / told["decoder_images_per_second"])
        by_cores.append(told["decoder_core_ms_per_image"] / told["making_core_ms_per_image"])
    decoded = Decoded(lambda i: square(paths[i], SIDE), (3, SIDE), images.labels, images.class_names,
                      name="decoded", digest="", threads=workers())  # fmt: skip
    told |= epoch(decoded, min(given.count, given.decoded), "epoch_decoding")
    watch = Watch()
    statistics(images, np.arange(given.count))
    told |= watch.told("look_for_the_mean", min(given.count, 10_000))
    told |= epoch(images, 3 * given.count, "epoch_from_cache")
    again = epoch(decoded, min(given.count, given.decoded), "epoch_decoding")
    told |= {name: (told[name] + again[name]) / 2 for name in again}

    results = {
        "images": given.count, "side": SIDE, "threads": workers(), "load_average": os.getloadavg(), **told,
        "making_share_of_decoder": float(np.median(shares)),
        "making_share_of_decoder_by_cores": float(np.median(by_cores)),
        "all_shares": shares, "all_shares_by_cores": by_cores,
        "reading_times_faster": told["epoch_from_cache_images_per_second"] / told["epoch_decoding_images_per_second"],
        "reading_times_faster_by_cores":
            told["epoch_decoding_core_ms_per_image"] / told["epoch_from_cache_core_ms_per_image"],
        "memory_beyond_the_map_mib": memory, "killed_after": killed, "left_to_do_then": left,
    }  # fmt: skip
    for name, value in results.items():
        print(f"{name:<40} {value:,.2f}" if isinstance(value, float) else f"{name:<40} {value}")
    record(given.name, results)


if __name__ == "__main__":
    main()
