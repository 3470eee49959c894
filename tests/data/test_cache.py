"""Decoded images on the disk: as decoded anew, taken up after a kill or a power cut, never of files that changed."""

import os
import pickle
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import quick
from PIL import Image

from sartor.data import cache as kept
from sartor.data import decode, files, packing, rows
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
    monkeypatch.setattr(rows, "machine_memory", lambda: memory)
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
    monkeypatch.setattr(rows, "machine_memory", lambda: 1)
    monkeypatch.setattr(rows, "_AT_ONCE", 5 * 3 * 64 * 64)
    order, listing, wish = np.random.default_rng(0).permutation(39), list_folder(photos), Wish(64)
    found = open_files(listing, wish, 0).pixels(order)
    monkeypatch.setenv("SARTOR_CACHE", "")
    assert (found == open_files(listing, wish, 0).pixels(order)).all()


def test_memory_is_used_again_once_nobody_has_it(photos, monkeypatch):
    monkeypatch.setattr(rows, "_AT_ONCE", 5 * 3 * 16 * 16)  # five images: several threads read a batch
    images, rng, held = opened(photos), np.random.default_rng(0), []
    monkeypatch.setenv("SARTOR_CACHE", "")
    plain = opened(photos)
    for _ in range(20):
        order = rng.permutation(39)[:23]
        held.append((order, images.pixels(order)[3:, 1]))  # a part of a batch is a reason to keep all of it
        places = {part.untyped_storage().data_ptr() for _, part in held}
        assert len(places) == len(held)
        assert all((part == plain.pixels(order)[3:, 1]).all() for order, part in held)
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


@pytest.fixture
def decoded(monkeypatch):
    """The names of the files that are decoded."""
    seen, square = [], decode.sized

    def spied(path, *rest):
        seen.append(path.name)
        return square(path, *rest)

    monkeypatch.setattr(decode, "sized", spied)
    return seen


def same_as_decoded(photos, images, monkeypatch):
    """Whether images from a cache are those that the folder has now."""
    with monkeypatch.context() as patch:
        patch.setenv("SARTOR_CACHE", "")
        plain = opened(photos)
    every = np.arange(len(plain))
    assert images.files == plain.files
    assert (images.pixels(every) == plain.pixels(every)).all()
    assert np.array_equal(images.prints().exact, plain.prints().exact)
    assert images.digest() == plain.digest()


def test_nothing_is_decoded_twice(photos, decoded):
    opened(photos)
    assert len(decoded) == 40
    assert len(opened(photos)) == 39
    assert len(decoded) == 40


def test_only_what_is_new_or_changed_is_decoded_into_the_same_cache(photos, decoded, monkeypatch):
    before = opened(photos)
    place, size = before.kept_in, (before.kept_in / "pixels").stat().st_size
    Image.new("RGB", (30, 30), "red").save(photos / "class0/0.jpg")
    Image.new("RGB", (30, 30), "blue").save(photos / "class0/99.jpg")
    decoded.clear()
    after = opened(photos)
    assert sorted(decoded) == ["0.jpg", "99.jpg"]
    assert after.kept_in == place
    same_as_decoded(photos, after, monkeypatch)
    assert (before.pixels(np.array([0])) != after.pixels(np.array([0]))).any()  # `before` still has what it opened
    del before
    for n in (2, 4, 6):
        (photos / f"class0/{n}.jpg").unlink()
    Image.new("RGB", (30, 30), "green").save(photos / "class1/77.jpg")
    del after
    same_as_decoded(photos, opened(photos), monkeypatch)
    assert (place / "pixels").stat().st_size == size + 2 * 3 * 16 * 16  # rows of files that are gone are used again
    assert [p.name for p in place.parent.iterdir() if p.is_dir()] == [place.name]


def test_rows_that_somebody_uses_stay_as_they_are(photos, monkeypatch):
    images, every = opened(photos), np.arange(39)
    first = images.pixels(every).clone()
    for n in range(0, 20, 2):
        Image.new("RGB", (30, 30), (n, 99, 0)).save(photos / f"class0/{n}.jpg")
    same_as_decoded(photos, opened(photos), monkeypatch)
    assert (images.pixels(every) == first).all()


def test_a_file_that_could_not_be_read_for_now_is_tried_again(photos, monkeypatch):
    square, tried = decode.sized, []

    def away(path, *rest):
        tried.append(path.name)
        if path.name in ("5.jpg", "6.jpg", "7.jpg"):
            reasons = {"5.jpg": PermissionError(13, "denied"), "6.jpg": MemoryError(), "7.jpg": OSError(5, "I/O")}
            with monkeypatch.context() as patch:
                patch.setattr("PIL.Image.open", lambda *_, **__: (_ for _ in ()).throw(reasons[path.name]))
                return square(path, *rest)
        return square(path, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(decode, "sized", away)
        patch.setattr(packing, "workers", lambda: 1)
        images = opened(photos)
        told = {entry.name: entry.reason for entry in images.skipped}
        assert told.keys() == {f"class1/{n}.jpg" for n in (3, 5, 7)} | {"class0/6.jpg"}
        assert told["class0/6.jpg"] == "not enough memory to decode it"
        assert told["class1/5.jpg"] == "no permission to read it"
        tried.clear()
        opened(photos)
        assert sorted(tried) == ["5.jpg", "6.jpg", "7.jpg"]  # and not the one that is broken
    images = opened(photos)
    assert [entry.name for entry in images.skipped] == ["class1/3.jpg"]
    same_as_decoded(photos, images, monkeypatch)


def test_several_processes_share_the_work(photos, decoded, monkeypatch):
    """One has locked a chunk and dies; the others decode the rest meanwhile, and then what it had not."""
    monkeypatch.setattr(packing, "_CHUNK", 4)
    code = """
    import fcntl, sys
    held = open(sys.argv[1] + "/.claims", "a")
    fcntl.lockf(held, fcntl.LOCK_EX, 1, 3)
    print("ready", flush=True)
    sys.stdin.readline()
    """
    listing = list_folder(photos)
    stamps = [files.stamp(path, listing.root) for path in listing.paths]
    place = kept.Cache.of(f"{photos}\0photos", stamps, (3, 16, 16))[0].folder  # made, and nothing decoded
    decoded.clear()
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "ready\n"
    seen = []

    def watch(done):
        seen.append(done)
        if len(decoded) == 36 and child.poll() is None:
            child.kill()
            child.wait()

    monkeypatch.setattr(packing, "_TICK", 0.0)
    images = opened(photos, seen=watch)
    assert sorted(decoded[36:]) == sorted(p.name for p in list_folder(photos).paths[12:16])
    assert len(decoded) == 40
    assert seen == sorted(seen)
    same_as_decoded(photos, images, monkeypatch)


def test_further_processes_help_where_there_are_many_cores(photos, tmp_path, decoded, monkeypatch):
    for n in range(100, 170):
        shutil.copy(photos / "class0/0.jpg", photos / f"class0/{n}.jpg")
    monkeypatch.setattr(packing, "_MANY", 10)
    monkeypatch.setattr(packing, "_CORES", 1)  # one process for each, with two threads: one chunk of four is left
    monkeypatch.setattr(packing, "cores", lambda: 2)
    slow = decode.sized

    def waiting(*given):
        """Until the other process has decoded something."""
        (states,) = tmp_path.glob("cache/images/*/states")
        until = time.monotonic() + 60
        while not np.fromfile(states, np.uint8).any() and time.monotonic() < until:
            time.sleep(0.02)
        return slow(*given)

    with monkeypatch.context() as patch:
        patch.setattr(decode, "sized", waiting)
        images = opened(photos)
    assert len(decoded) < 110
    same_as_decoded(photos, images, monkeypatch)


def test_what_a_power_cut_left_undone_is_done_again(photos, decoded, monkeypatch):
    images = opened(photos)
    place, size = images.kept_in, 3 * 16 * 16
    assert not (place / kept.UNSYNCED).exists()
    with (place / "pixels").open("r+b") as file:  # marked, and never written
        file.seek(5 * size)
        file.write(bytes(4 * size))
    (place / kept.UNSYNCED).write_text("an earlier boot")
    del images
    decoded.clear()
    images = opened(photos)
    assert len(decoded) == 4 + 1  # and what was not usable
    same_as_decoded(photos, images, monkeypatch)
    assert not (place / kept.UNSYNCED).exists()


def test_what_was_killed_in_the_middle_is_taken_up(photos, monkeypatch):
    code = f"""
    import os, signal
    from pathlib import Path
    from sartor.data import cache, decode, files, packing
    from sartor.data.sources.base import Wish
    from sartor.data.sources.folder import list_folder
    cache.LEAST, packing._CHUNK, count, square = 10, 4, [0], decode.sized
    def dying(path, *rest):
        count[0] += 1
        if count[0] == 21:
            os.kill(os.getpid(), signal.SIGKILL)
        return square(path, *rest)
    decode.sized = dying
    files.open_files(list_folder(Path({str(photos)!r})), Wish(16), 0)
    """
    died = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], env=quick.environment(), check=False)
    assert died.returncode == -signal.SIGKILL
    seen = []
    images = opened(photos, seen=seen.append)
    assert 8 < seen[0] <= 40  # some were done before
    same_as_decoded(photos, images, monkeypatch)


@pytest.mark.parametrize(
    ("reason", "words"),
    [("few files", None), ("no cache", None), ("no room", "more than half: images are decoded again in every epoch"),
     ("a file in its place", "cannot be written")],
)  # fmt: skip
def test_without_a_cache_images_are_decoded_as_before_and_that_is_said(photos, tmp_path, monkeypatch, reason, words):
    if reason == "few files":
        monkeypatch.setattr(kept, "LEAST", 1000)
    elif reason == "no room":
        monkeypatch.setattr(kept, "_SHARE", 0.0)
    elif reason == "no cache":
        monkeypatch.setenv("SARTOR_CACHE", "")
    else:
        (tmp_path / "cache").write_text("")
    images = opened(photos)
    assert images.kept_in is None
    assert len(images) == 39
    assert not list(tmp_path.glob("cache/images/*/pixels"))
    assert [words in note for note in images.notes] == ([True] if words else [])


def test_where_there_is_no_room_caches_that_nobody_uses_are_deleted_the_oldest_first(photos, tmp_path, monkeypatch):
    made = {}
    for name, age in (("old", 300), ("new", 200), ("used", 400)):
        shutil.copytree(photos, tmp_path / name / "photos")
        made[name] = opened(tmp_path / name / "photos")
        os.utime(made[name].kept_in / ".used", (time.time() - age,) * 2)
    old, new, used = (made[name].kept_in for name in ("old", "new", "used"))
    del made["old"], made["new"]
    room = [10**9, 10**4, 10**4]  # the last one before anything is deleted
    free = lambda _: SimpleNamespace(free=room.pop() if len(room) > 1 else room[0])  # noqa: E731
    monkeypatch.setattr(kept.shutil, "disk_usage", free)
    images = opened(photos)
    assert images.notes == ["1 older caches in " + str(old.parent) + " were deleted to make room. "]
    assert (old.exists(), new.exists(), used.exists()) == (False, True, True)
    assert images.kept_in is not None
