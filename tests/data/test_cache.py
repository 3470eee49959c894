"""Decoded images on the disk: the same as decoded anew, taken up after a kill, and never of files that changed."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
import quick
from PIL import Image

from sartor.data import cache as kept
from sartor.data import files
from sartor.data.files import Mapped, open_files
from sartor.data.sources.base import Wish
from sartor.data.sources.folder import list_folder


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """40 photos in two classes, one of them broken; small lists are cached here too."""
    monkeypatch.setenv("SARTOR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(kept, "LEAST", 10)
    rng = np.random.default_rng(0)
    for n in range(40):
        path = tmp_path / "photos" / f"class{n % 2}" / f"{n}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (30, 40, 3)).astype(np.uint8)).save(path)
    (tmp_path / "photos/class1/3.jpg").write_bytes(b"")
    return tmp_path / "photos"


def opened(photos, memory=0, seen=None):
    return open_files(list_folder(photos), Wish(16, tick=lambda what, done, total: seen and seen(done)), memory)


@pytest.mark.parametrize("memory", [1, 1 << 60])  # what no memory could hold is written past it
def test_what_is_kept_equals_what_is_decoded(photos, monkeypatch, memory):
    monkeypatch.setattr(kept, "machine_memory", lambda: memory)
    first, again, held = opened(photos), opened(photos), opened(photos, None)
    monkeypatch.setenv("SARTOR_CACHE", "")
    plain, every = opened(photos), np.arange(39)
    assert isinstance(first, Mapped)
    assert plain.kept_in is None
    assert first.kept_in == held.kept_in
    for images in (first, again, held):
        assert (images.pixels(every) == plain.pixels(every)).all()
        assert images.skipped == plain.skipped
        assert (images.files, images.labels.tolist()) == (plain.files, plain.labels.tolist())
        assert np.array_equal(images.sizes, plain.sizes)
        assert np.array_equal(images.alike.near, plain.alike.near)
    assert first.digest() == again.digest() == plain.digest()
    assert held.digest_of == "pixels"
    assert first.pixels(np.array([5, 2])).tolist() == plain.pixels(np.array([5, 2])).tolist()


def test_images_of_whole_pages_come_straight_from_the_disk(photos, monkeypatch):
    monkeypatch.setattr(kept, "machine_memory", lambda: 1)
    monkeypatch.setattr(kept, "_AT_ONCE", 5 * 3 * 64 * 64)
    rows, listing, wish = np.random.default_rng(0).permutation(39), list_folder(photos), Wish(64)
    found = open_files(listing, wish, 0).pixels(rows)
    monkeypatch.setenv("SARTOR_CACHE", "")
    assert (found == open_files(listing, wish, 0).pixels(rows)).all()


def test_memory_is_used_again_once_nobody_has_it(photos, monkeypatch):
    monkeypatch.setattr(kept, "_AT_ONCE", 5 * 3 * 16 * 16)  # five images: several threads read a batch
    images, rng, held = opened(photos), np.random.default_rng(0), []
    monkeypatch.setenv("SARTOR_CACHE", "")
    plain = opened(photos)
    for _ in range(20):
        rows = rng.permutation(39)[:23]
        held.append((rows, images.pixels(rows)[3:, 1]))  # a part of a batch is a reason to keep all of it
        places = {part.untyped_storage().data_ptr() for _, part in held}
        assert len(places) == len(held)
        assert all((part == plain.pixels(rows)[3:, 1]).all() for rows, part in held)
        held = held[-3:]
    ever = {part.untyped_storage().data_ptr() for _, part in held}
    for _ in range(10):
        ever.add(images.pixels(np.arange(23)).data_ptr())
    assert len(ever) <= 5  # three that are held, and two in turn


def test_another_process_gets_the_place_and_not_the_pixels(photos):
    images = opened(photos)
    sent = pickle.dumps(images)
    assert len(sent) < images.pixels(np.arange(39)).nbytes / 2
    assert (pickle.loads(sent).pixels(np.arange(39)) == images.pixels(np.arange(39))).all()


@pytest.mark.parametrize(
    ("path", "root"),
    [("/a/b/c.jpg", "/a"), ("/ab/c.jpg", "/a"), ("/a/b/../c..jpg", "/a"), ("c.jpg", "."), ("x/y.jpg", "x")],
)
def test_a_file_is_known_by_its_way_from_the_root(path, root):
    assert files._below(Path(path), Path(root)) == os.path.relpath(path, root)


def test_nothing_is_decoded_twice(photos, monkeypatch):
    opened(photos)

    def refuse(*arguments):
        raise AssertionError("decoded again")

    monkeypatch.setattr("sartor.data.files.sized", refuse)
    assert len(opened(photos)) == 39


def test_a_changed_file_makes_another_cache(photos):
    before = opened(photos)
    path = photos / "class0/0.jpg"
    Image.new("RGB", (30, 30), "red").save(path)
    after = opened(photos)
    assert before.kept_in != after.kept_in
    where = after.files.index("class0/0.jpg")
    assert (after.pixels(np.array([where]))[0, 0] > 200).all()
    assert opened(photos, None).kept_in == after.kept_in


def test_what_was_killed_in_the_middle_is_taken_up(photos, monkeypatch):
    code = f"""
    import os, signal
    from pathlib import Path
    from sartor.data import cache, files
    from sartor.data.sources.base import Wish
    from sartor.data.sources.folder import list_folder
    cache.LEAST, cache._CHUNK, count, decode = 10, 4, [0], files.sized
    def dying(path, side):
        count[0] += 1
        if count[0] == 21:
            os.kill(os.getpid(), signal.SIGKILL)
        return decode(path, side)
    files.sized = dying
    files.open_files(list_folder(Path({str(photos)!r})), Wish(16), 0)
    """
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=quick.environment(), check=False)
    assert died.returncode == -signal.SIGKILL
    seen = []
    images = opened(photos, seen=seen.append)
    assert 8 < seen[0] <= 40  # some were done before
    monkeypatch.setenv("SARTOR_CACHE", "")
    assert (images.pixels(np.arange(39)) == opened(photos).pixels(np.arange(39))).all()


@pytest.mark.parametrize("reason", ["few files", "no room", "no cache"])
def test_without_a_cache_images_are_decoded_as_before(photos, tmp_path, monkeypatch, reason):
    if reason == "few files":
        monkeypatch.setattr(kept, "LEAST", 1000)
    elif reason == "no room":
        monkeypatch.setattr(kept, "_SHARE", 0.0)
    else:
        monkeypatch.setenv("SARTOR_CACHE", "")
    images = opened(photos)
    assert images.kept_in is None
    assert len(images) == 39
    assert not list(tmp_path.glob("cache/images/*/pixels"))
