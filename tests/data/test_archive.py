"""Images inside archives: the same as in the folder that was packed, without unpacking."""

import io
import json
import shutil
import tarfile
import zipfile

import numpy as np
import pytest
from PIL import Image

from sartor.core.errors import BadInput
from sartor.data import files
from sartor.data.files import open_files
from sartor.data.open import open_data
from sartor.data.sources.archive import list_archive
from sartor.data.sources.base import Wish


def picture(seed, side=24):
    rng, file = np.random.default_rng(seed), io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (side, side, 3)).astype(np.uint8)).save(file, "PNG")
    return file.getvalue()


def folder(root, *parts):
    """Four images of two classes, in every part."""
    for k, part in enumerate(parts or ("",)):
        for n in range(8):
            path = root / part / ("cat" if n % 2 else "dog") / f"{n}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(picture(10 * k + n))
    (root / parts[0] / "cat/notes.txt" if parts else root / "cat/notes.txt").write_text("no image")
    return root


def packed(root, kind):
    """As `zip -r` and `tar` make it, with the folder's own name in front."""
    return shutil.make_archive(str(root), kind, root.parent, root.name)


@pytest.mark.parametrize("kind", ["zip", "tar", "gztar", "xztar"])
@pytest.mark.parametrize("parts", [(), ("train", "test"), ("train", "val", "test")])
def test_an_archive_is_read_as_the_folder_that_it_was(tmp_path, kind, parts):
    plain = open_data(folder(tmp_path / "photos", *parts), 16)
    found = open_data(packed(tmp_path / "photos", kind), 16)
    every = np.arange(len(plain))
    assert found.class_names == plain.class_names == ("cat", "dog")
    assert found.labels.tolist() == plain.labels.tolist()
    assert (found.pixels(every) == plain.pixels(every)).all()
    assert (found.test is None) == (plain.test is None)
    assert found.test is None or found.test.tolist() == plain.test.tolist()
    assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "photos", *tmp_path.glob("photos.*")])  # nothing unpacked


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_what_does_not_fit_in_memory_is_read_again_and_again(tmp_path, kind):
    path = packed(folder(tmp_path / "photos"), kind)
    held, read = (open_files(list_archive(files.Path(path)), Wish(16), memory) for memory in (None, 0))
    assert (read.pixels(np.array([7, 0, 3])) == held.pixels(np.array([7, 0, 3]))).all()
    assert read.digest_of == "files"


def test_a_compressed_tar_that_does_not_fit_in_memory_is_refused(tmp_path, monkeypatch):
    path = packed(folder(tmp_path / "photos"), "gztar")
    monkeypatch.setattr("sartor.data.sources.archive.memory_limit", lambda: 3000)
    with pytest.raises(BadInput, match=r"Make it a plain \.tar"):
        open_data(path)


def test_broken_members_are_skipped_and_loose_images_have_no_class(tmp_path):
    folder(tmp_path / "photos")
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for n in range(8):
            archive.writestr(f"{'cat' if n % 2 else 'dog'}/{n}.png", picture(n))
        archive.writestr("cat/broken.png", b"not an image")
        archive.writestr("loose.png", picture(1))
        archive.writestr("__MACOSX/cat/1.png", picture(2))
    images = open_data(path, 16)
    assert len(images) == 8
    assert {s.name for s in images.skipped} == {"cat/broken.png", "loose.png"}
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(BadInput, match="must be a sound archive"):
        open_data(path, 16)


# WebDataset ----------------------------------------------------------------------------------------


def shard(path, start, label=lambda n: ("cls", str(n % 3))):
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for n in range(start, start + 9):
            ending, text = label(n)
            for name, data in ((f"{n:04}.png", picture(n)), (f"{n:04}.{ending}", text.encode())):
                entry = tarfile.TarInfo(name)
                entry.size = len(data)
                archive.addfile(entry, io.BytesIO(data))
    return path


def test_shards_in_a_folder_by_pattern_and_alone_are_one_data_set(tmp_path):
    for k in range(3):
        shard(tmp_path / "s" / f"train-{k:03}.tar", 9 * k)
    whole, by_pattern = open_data(tmp_path / "s", 16), open_data(f"{tmp_path}/s/train-{{000..001}}.tar", 16)
    assert (len(whole), len(by_pattern), len(open_data(tmp_path / "s/train-002.tar", 16))) == (27, 18, 9)
    assert whole.class_names == ("0", "1", "2")
    assert whole.labels.tolist() == [n % 3 for n in range(27)]
    with Image.open(io.BytesIO(picture(20))) as image:
        assert whole.pixels(np.array([20]))[0].float().mean() == pytest.approx(np.asarray(image).mean(), abs=1)
    assert whole.test is None
    shard(tmp_path / "s" / "test-000.tar", 90)
    assert len(open_data(tmp_path / "s", 16).test) == 9


def test_labels_may_be_names_or_stand_in_json(tmp_path):
    named = shard(tmp_path / "a.tar", 0, lambda n: ("cls", "abc"[n % 3]))
    told = shard(tmp_path / "b.tar", 0, lambda n: ("json", json.dumps({"label": "abc"[n % 3]})))
    assert open_data(named, 16).class_names == open_data(told, 16).class_names == ("a", "b", "c")
    with pytest.raises(BadInput, match="must be JSON"):
        open_data(shard(tmp_path / "c.tar", 0, lambda n: ("json", "{")), 16)
    with pytest.raises(BadInput, match=r"there is no .*x-1\.tar"):
        open_data(f"{shard(tmp_path / 'x-0.tar', 0).parent}/x-{{0..1}}.tar")
