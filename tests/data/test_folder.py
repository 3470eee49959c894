from __future__ import annotations

import os
import struct
import threading
import warnings
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from sartor.core.errors import BadInput
from sartor.core.seeds import Seeds
from sartor.data import picture as decode
from sartor.data.batches import Batches
from sartor.data.files import Decoded, memory_limit, open_files
from sartor.data.open import open_data
from sartor.data.picture import Unusable, square
from sartor.data.sources.arrays import Arrays
from sartor.data.sources.base import Wish
from sartor.data.sources.folder import list_folder
from sartor.data.split import split

RED, WHITE = (200, 30, 40), (255, 255, 255)


def open_folder(path, image=None, memory=None):
    return open_files(list_folder(path), Wish(image), memory)


def picture(path: Path, colour=RED, size=(20, 20), mode="RGB", **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path, **options)
    return path


def photos(root: Path, classes=("cat", "dog"), count: int = 4, size=(20, 20)) -> Path:
    for k, name in enumerate(classes):
        for i in range(count):
            picture(root / name / f"{i}.png", (40 * k + 5, 10 * i, 100), size)
    return root


def centre(path: Path) -> tuple[int, ...]:
    """The middle pixel of the decoded picture."""
    return tuple(int(v) for v in square(path, 8)[:, 4, 4])


def close(a, b, within: int = 4) -> bool:
    return all(abs(x - y) <= within for x, y in zip(a, b, strict=True))


# What a picture looks like, whatever it is stored as.


def test_eight_bit_modes(tmp_path):
    assert centre(picture(tmp_path / "rgb.png")) == RED
    assert close(centre(picture(tmp_path / "rgb.jpg")), RED)
    assert centre(picture(tmp_path / "grey.png", 90, mode="L")) == (90, 90, 90)
    assert centre(picture(tmp_path / "bits.png", 1, mode="1")) == WHITE
    assert centre(picture(tmp_path / "rgb.bmp")) == RED
    assert close(centre(picture(tmp_path / "rgb.webp")), RED, 12)
    cmyk = Image.new("RGB", (20, 20), RED).convert("CMYK")
    cmyk.save(tmp_path / "cmyk.jpg", quality=95)
    assert close(centre(tmp_path / "cmyk.jpg"), RED, 8)
    cmyk.save(tmp_path / "cmyk.tif")
    assert close(centre(tmp_path / "cmyk.tif"), RED)
    Image.new("RGB", (20, 20), RED).quantize(4).save(tmp_path / "palette.png")
    assert centre(tmp_path / "palette.png") == RED


def test_transparency_lies_on_white(tmp_path):
    assert centre(picture(tmp_path / "clear.png", (*RED, 0), mode="RGBA")) == WHITE
    assert close(centre(picture(tmp_path / "half.png", (0, 0, 0, 128), mode="RGBA")), (127, 127, 127))
    assert centre(picture(tmp_path / "la.png", (0, 0), mode="LA")) == WHITE
    palette = Image.new("P", (20, 20), 0)
    palette.putpalette([*RED, 0, 0, 0])
    palette.save(tmp_path / "p.png", transparency=0)
    assert centre(tmp_path / "p.png") == WHITE
    palette.save(tmp_path / "p.gif", transparency=0)
    assert centre(tmp_path / "p.gif") == WHITE
    assert centre(picture(tmp_path / "key.png", RED, transparency=RED)) == WHITE


@pytest.mark.parametrize(("value", "seen"), [(0, 0), (32896, 128), (65535, 255), (300, 1)])
@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bits_are_scaled(tmp_path, value, seen, ending):
    path = tmp_path / f"deep.{ending}"
    Image.fromarray(np.full((20, 20), value, np.uint16)).save(path)
    assert centre(path) == (seen,) * 3


def test_other_depths_are_scaled(tmp_path):
    ramp = np.linspace(0, 1, 400).reshape(20, 20)
    for k, (array, seen) in enumerate(
        [
            (np.full((20, 20), 0.5, np.float32), 128),
            (np.full((20, 20), 77, np.float32), 77),
            (np.full((20, 20), 32896, np.int32), 128),
            ((ramp * 2e9 - 1e9).astype(np.int32), 144),
        ]
    ):
        path = tmp_path / f"{k}.tif"
        Image.fromarray(array).save(path)
        assert close(centre(path), (seen,) * 3, 8)
    path = tmp_path / "nan.tif"
    Image.fromarray(np.full((20, 20), np.nan, np.float32)).save(path)
    with pytest.raises(Unusable, match="not finite"):
        square(path, 8)


def test_sixteen_bit_colour(tmp_path):
    rows = b"".join(b"\0" + struct.pack(">HHH", *(v * 257 for v in RED)) * 20 for _ in range(20))
    header = struct.pack(">IIBBBBB", 20, 20, 16, 2, 0, 0, 0)
    path = tmp_path / "deep.png"
    path.write_bytes(png(header, rows))
    assert close(centre(path), RED, 1)


def png(header: bytes, rows: bytes) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png"])
def test_exif_rotation_is_applied(tmp_path, orientation, ending):
    array = np.zeros((24, 32, 3), np.uint8)
    array[:12, :16], array[:12, 16:], array[12:, :16] = (250, 0, 0), (0, 250, 0), (0, 0, 250)
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"turned.{ending}"
    Image.fromarray(array).save(path, exif=exif.tobytes(), **({"quality": 95} if ending == "jpg" else {}))
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image).convert("RGB")
    width, height = upright.size
    edge = min(width, height)
    left, top = (width - edge) // 2, (height - edge) // 2
    expected = upright.crop((left, top, left + edge, top + edge)).resize((8, 8), Image.Resampling.BICUBIC)
    got = square(path, 8).transpose(1, 2, 0)
    corners = ((1, 1), (1, 6), (6, 1), (6, 6))
    assert all(close(got[at], np.asarray(expected)[at], 25) for at in corners)


def test_damaged_exif_leaves_the_picture(tmp_path):
    for name in ("cat", "dog"):
        for k in range(3):
            path = picture(tmp_path / name / f"{k}.jpg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(open_folder(tmp_path)) == 6
    with pytest.warns(UserWarning, match="EXIF"):
        assert close(centre(path), RED)


def test_animations_show_their_first_frame(tmp_path):
    frames = [Image.new("RGB", (20, 20), colour) for colour in (RED, (0, 0, 250))]
    for ending in ("gif", "png", "webp", "tif"):
        path = tmp_path / f"moving.{ending}"
        frames[0].save(path, save_all=True, append_images=frames[1:])
        assert close(centre(path), RED, 12)


@pytest.mark.parametrize("size", [(100, 30), (30, 100), (1, 1), (9, 700), (3000, 2000)])
def test_the_centre_square_is_scaled(tmp_path, size):
    path = picture(tmp_path / "wide.jpg", size=size, quality=95)
    out = square(path, 16)
    assert out.shape == (3, 16, 16)
    assert close(out.reshape(3, -1).mean(1), RED)


def test_scaling_equals_resize_then_crop(tmp_path):
    rng = np.random.default_rng(0)
    array = np.asarray(Image.fromarray(rng.integers(0, 256, (6, 9, 3), dtype=np.uint8)).resize((90, 60)))
    Image.fromarray(array).save(tmp_path / "a.png")
    expected = Image.fromarray(array).resize((48, 32), Image.Resampling.BICUBIC).crop((8, 0, 40, 32))
    difference = square(tmp_path / "a.png", 32).transpose(1, 2, 0).astype(int) - np.asarray(expected).astype(int)
    assert np.abs(difference).max() <= 4


def test_one_channel_for_networks_of_grey_images(tmp_path):
    assert square(picture(tmp_path / "a.png", WHITE), 8, channels=1).tolist() == [[[255] * 8] * 8]


# Files that cannot be used.


def forged_png(path: Path, width: int, height: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0), b"\0" * 100))
    return path


def test_unusable_images_are_skipped_counted_and_named(tmp_path):
    photos(tmp_path, count=6)
    whole = picture(tmp_path / "whole.jpg", size=(300, 300)).read_bytes()
    (tmp_path / "whole.jpg").unlink()
    (tmp_path / "cat" / "empty.jpg").write_bytes(b"")
    (tmp_path / "cat" / "text.png").write_text("not a picture")
    (tmp_path / "dog" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "dog" / "phone.HEIC").write_bytes(b"ftypheic")
    forged_png(tmp_path / "dog" / "bomb.png", 10_000, 10_000)  # Pillow warns of this one
    forged_png(tmp_path / "dog" / "mega.png", 60_000, 60_000)  # and refuses this one
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        images = open_folder(tmp_path)
    assert len(images) == 12
    reasons = {entry.name: entry.reason for entry in images.skipped}
    dogs = {f"dog/{name}" for name in ("cut.jpg", "phone.HEIC", "bomb.png", "mega.png")}
    assert set(reasons) == {"cat/empty.jpg", "cat/text.png"} | dogs
    assert reasons["cat/empty.jpg"] == "an empty file"
    assert reasons["cat/text.png"] == "not an image that can be read"
    assert "truncated" in reasons["dog/cut.jpg"]
    assert "convert" in reasons["dog/phone.HEIC"]
    assert "too large" in reasons["dog/bomb.png"]
    assert "too large" in reasons["dog/mega.png"]


def test_the_pixel_limit_holds_where_pillows_is_off(tmp_path, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    with pytest.raises(Unusable, match="60000 x 60000 pixels, the limit is 89 million"):
        square(forged_png(tmp_path / "a.png", 60_000, 60_000), 32)


def test_large_images_are_decoded_one_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(decode, "_LARGE_PIXELS", 100)
    assert len(open_folder(photos(tmp_path))) == 8


def test_postscript_is_never_run(tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 20 20\n%%EndComments\n")
    with pytest.raises(Unusable, match="not an image"):
        square(path, 8)


def test_more_than_half_unusable_is_an_error(tmp_path):
    photos(tmp_path, count=4)
    for k in range(9):
        (tmp_path / "cat" / f"bad{k}.jpg").write_bytes(b"x")
    with pytest.raises(BadInput, match=r"9 of 17 are not: cat.bad0\.jpg \(not an image that can be read\)"):
        open_folder(tmp_path)


def test_a_class_that_loses_its_images_is_named(tmp_path):
    photos(tmp_path, ("a", "b", "c"), count=5)
    for k in range(3):
        (tmp_path / "c" / f"{k}.png").write_bytes(b"x")
    with pytest.raises(BadInput, match=r"'c' \(2\).* 3 files cannot be used, such as c.0\.png"):
        open_folder(tmp_path)


def test_a_class_of_foreign_photographs_is_named(tmp_path):
    photos(tmp_path)
    (tmp_path / "phone").mkdir()
    (tmp_path / "phone" / "a.heic").write_bytes(b"x")
    with pytest.raises(BadInput, match=r"'phone' \(0\).*convert them to JPEG"):
        open_folder(tmp_path)


# What is no image is passed over.


def test_other_files_and_hidden_ones_are_ignored(tmp_path):
    photos(tmp_path)
    for name in ("notes.txt", ".DS_Store", "Thumbs.db", "._0.png", ".hidden.png", "labels.csv", "README", "a.pdf"):
        (tmp_path / "cat" / name).write_bytes(b"something")
        (tmp_path / name).write_bytes(b"something")
    picture(tmp_path / ".git" / "a.png")
    picture(tmp_path / "__MACOSX" / "a.png")
    picture(tmp_path / "cat" / ".cache" / "a.png")
    images = open_folder(tmp_path)
    assert (len(images), images.class_names, len(images.skipped)) == (8, ("cat", "dog"), 0)


def test_a_folder_without_images_is_no_class_and_is_named(tmp_path):
    photos(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("x")
    images = open_folder(tmp_path)
    assert images.class_names == ("cat", "dog")
    assert [entry.name for entry in images.skipped] == [f"notes{os.sep}"]


def test_names_in_any_script_and_deeper_folders(tmp_path):
    names = ("кошка", "猫", "كلب", "naïve café", "🐶", "UPPER")
    for name in names:
        for k in range(3):
            picture(tmp_path / name / "sub" / f"{name} {k}.PNG")
    (tmp_path / "🐶" / "плохо.jpg").write_bytes(b"x")
    images = open_folder(tmp_path)
    assert set(images.class_names) == set(names)
    assert images.class_names == tuple(sorted(names, key=os.fsencode))
    assert images.skipped[0].name == os.path.join("🐶", "плохо.jpg")


def test_names_that_are_no_text(tmp_path):
    photos(tmp_path)
    odd = os.path.join(os.fsencode(tmp_path), b"cat", b"\xff\xfe.png")
    try:
        with open(odd, "wb") as file:
            file.write(b"x")
    except OSError:
        pytest.skip("this file system refuses names that are not UTF-8")
    images = open_folder(tmp_path)
    assert images.skipped[0].name.encode()  # can be printed


def test_images_without_an_ending(tmp_path):
    photos(tmp_path)
    picture(tmp_path / "cat" / "plain", format="PNG")
    assert len(open_folder(tmp_path)) == 9


def test_links_cannot_loop(tmp_path):
    photos(tmp_path)
    (tmp_path / "cat" / "again").symlink_to(tmp_path / "cat")
    (tmp_path / "cat" / "up").symlink_to(tmp_path)
    (tmp_path / "self").symlink_to(tmp_path / "self")
    (tmp_path / "cat" / "self.png").symlink_to(tmp_path / "cat" / "self.png")
    (tmp_path / "cat" / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert len(open_folder(tmp_path)) == 8


def test_a_linked_class_folder_counts(tmp_path):
    photos(tmp_path / "real", ("cat", "dog", "cow"))
    (tmp_path / "photos").mkdir()
    for name in ("cat", "dog"):
        (tmp_path / "photos" / name).symlink_to(tmp_path / "real" / name)
    assert len(open_folder(tmp_path / "photos")) == 8


def test_special_files_are_not_opened(tmp_path):
    photos(tmp_path)
    os.mkfifo(tmp_path / "cat" / "pipe.png")  # reading it would wait for ever
    assert len(open_folder(tmp_path)) == 8


# What a folder must be.


def test_folders_of_the_wrong_shape_are_refused(tmp_path):
    def refused(path: Path, says: str) -> None:
        with pytest.raises(BadInput, match=says):
            open_data(path)

    refused(tmp_path / "absent", "neither a name nor an existing path")
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty", "but is empty. Put the images there")
    picture(tmp_path / "flat" / "a.png")
    refused(tmp_path / "flat", "holds 1 images directly. Move them into a folder for each class")
    (tmp_path / "texts" / "a").mkdir(parents=True)
    (tmp_path / "texts" / "a" / "b.txt").write_text("x")
    refused(tmp_path / "texts", "no image was found")
    refused(photos(tmp_path / "one", ("cat",)), "at least two classes, but holds only 'cat'. Add another")
    photos(tmp_path / "single")
    picture(tmp_path / "single" / "eel" / "a.png")
    refused(tmp_path / "single", r"at least 3 usable images.*'eel' \(1\)\. Add images to these classes")


def test_missing_permission_is_said(tmp_path, monkeypatch):
    photos(tmp_path)

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(os, "listdir", refuse)
        with pytest.raises(BadInput, match="no permission"):
            open_folder(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_unreadable_files_and_folders(tmp_path):
    photos(tmp_path, count=5)
    (tmp_path / "cat" / "0.png").chmod(0)
    assert open_folder(tmp_path).skipped[0].reason == "no permission to read it"
    (tmp_path / "dog").chmod(0)
    with pytest.raises(BadInput, match="readable"):
        open_folder(tmp_path)
    (tmp_path / "dog").chmod(0o700)
    tmp_path.chmod(0o400)  # may be listed, not entered
    with pytest.raises(BadInput, match="no permission"):
        open_data(tmp_path)
    tmp_path.chmod(0o700)


# Parts, sizes and order.


@pytest.mark.parametrize("held_out", ["test", "val", "Validation"])
def test_separate_test_folders(tmp_path, held_out):
    photos(tmp_path / "train", count=4)
    photos(tmp_path / held_out, count=2)
    images = open_folder(tmp_path)
    assert images.test is not None
    assert (len(images), images.test.tolist(), images.class_names) == (12, [8, 9, 10, 11], ("cat", "dog"))
    assert images.labels.tolist() == [0] * 4 + [1] * 4 + [0] * 2 + [1] * 2
    parts = split(images, np.random.default_rng(0))
    assert parts.test.tolist() == [8, 9, 10, 11]


def test_val_joins_train_where_there_is_a_test_folder(tmp_path):
    for name, count in (("train", 4), ("val", 3), ("test", 2)):
        photos(tmp_path / name, count=count)
    images = open_folder(tmp_path)
    assert images.test is not None
    assert (len(images), len(images.test)) == (18, 4)


def test_unlabelled_test_images_are_passed_over_and_named(tmp_path):
    photos(tmp_path / "train")
    picture(tmp_path / "test" / "1.png")
    images = open_folder(tmp_path)
    assert (len(images), images.test) == (8, None)
    assert images.skipped[0].name == f"test{os.sep}"


def test_a_class_only_in_the_test_folder_is_named(tmp_path):
    photos(tmp_path / "train")
    photos(tmp_path / "test", ("cat", "dog", "emu"))
    with pytest.raises(BadInput, match=r"'emu' \(0\)"):
        open_folder(tmp_path)


def test_classes_called_train_and_test_are_classes(tmp_path):
    assert open_folder(photos(tmp_path, ("train", "test"))).class_names == ("test", "train")
    assert open_folder(photos(tmp_path, ("train", "test", "bus"))).class_names == ("bus", "test", "train")


@pytest.mark.parametrize(
    ("size", "side"),
    [((5, 9), 8), ((16, 16), 16), ((40, 31), 24), ((64, 64), 64), ((500, 333), 224), ((700, 1200), 224)],
)
def test_the_side_is_chosen_from_the_images(tmp_path, size, side):
    images = open_folder(photos(tmp_path, count=3, size=size))
    assert images.task.image == side
    assert open_folder(tmp_path, image=48).task.image == 48


def test_order_is_that_of_the_names(tmp_path):
    for name in ("b", "a"):
        for k in (2, 10, 1):
            picture(tmp_path / name / f"{k}.png", (k, 0, 0))
    images = open_folder(tmp_path)
    assert images.pixels(np.arange(6))[:, 0, 0, 0].tolist() == [1, 10, 2, 1, 10, 2]
    assert images.digest() == open_folder(tmp_path).digest()


def test_progress_is_told_from_the_calling_thread(tmp_path):
    seen: list[tuple[str, int, int]] = []

    def tick(what: str, done: int, total: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        seen.append((what, done, total))

    open_data(photos(tmp_path), tick=tick)
    assert seen == [("decoding images", k, 8) for k in range(1, 9)]


# Folders larger than the memory.


def test_streamed_images_are_those_held(tmp_path):
    photos(tmp_path, count=6)
    (tmp_path / "cat" / "bad.png").write_bytes(b"x")
    held, streamed = open_folder(tmp_path), open_folder(tmp_path, memory=1000)
    assert isinstance(held, Arrays)
    assert isinstance(streamed, Decoded)
    assert (held.digest_of, streamed.digest_of) == ("pixels", "files")
    assert streamed.resident("cpu") is None
    assert held.skipped == streamed.skipped
    index = np.array([7, 0, 11, 7])
    assert torch.equal(held.pixels(index), streamed.pixels(index))
    for (x, y), (u, v) in zip(
        *(Batches(images, np.arange(12), 4, Seeds(0), "train").epoch(1) for images in (held, streamed)), strict=True
    ):
        assert torch.equal(x, u)
        assert torch.equal(y, v)


def test_the_digest_of_streamed_folders_follows_names_and_sizes(tmp_path):
    photos(tmp_path)
    first = open_folder(tmp_path, memory=0).digest()
    assert first == open_folder(tmp_path, memory=0).digest()
    (tmp_path / "cat" / "0.png").rename(tmp_path / "cat" / "00.png")
    second = open_folder(tmp_path, memory=0).digest()
    picture(tmp_path / "cat" / "00.png", size=(90, 90))
    assert len({first, second, open_folder(tmp_path, memory=0, image=16).digest()}) == 3


def test_a_file_that_vanishes_while_streaming_is_named(tmp_path):
    images = open_folder(photos(tmp_path), memory=0)
    (tmp_path / "cat" / "0.png").unlink()
    with pytest.raises(BadInput, match=r"cat.0\.png must stay as it was"):
        images.pixels(np.arange(3))


def test_the_memory_limit_is_a_share_of_the_machines():
    assert 0 < memory_limit() < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def test_the_shared_photos_open(tmp_path):
    if "SARTOR_TEST_DATA" not in os.environ:
        pytest.skip("SARTOR_TEST_DATA is not set to the folder with tinyimagenet20/")
    packed = Path(os.environ["SARTOR_TEST_DATA"], "tinyimagenet20", "val.zip")
    if not packed.is_file():
        pytest.skip(f"{packed} does not exist")
    inside = open_data(packed)
    with zipfile.ZipFile(packed) as file:
        file.extractall(tmp_path)
    images = open_data(tmp_path)
    assert (len(images), images.task.classes, images.task.image) == (1000, 20, 64)
    assert (inside.pixels(np.arange(1000)) == images.pixels(np.arange(1000))).all()


def test_class_folders_whose_names_are_no_text_stay_apart(tmp_path):
    for name in (b"\xff", b"\xfe"):
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name))
        folder.mkdir()
        for n in range(4):
            Image.new("RGB", (12, 12), (40 * n, 90, 7)).save(folder / f"{n}.png")
    assert open_data(tmp_path).class_names == ("\\xfe", "\\xff")
