from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch._subclasses.fake_tensor import FakeTensorMode

from sartor.core.errors import BadInput
from sartor.core.task import Task
from sartor.data import auto_augment as aa
from sartor.data import rand_augment as ra
from sartor.data.augment import Augment, crop_flip, cutout, erase, statistics
from sartor.data.sources.arrays import from_arrays

STRONG = Augment(pad=4, flip=True, rand_augment=2, auto=True, cutout=0.5, erase=0.5)


def stream(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int = 8, channels: int = 3, side: int = 32) -> torch.Tensor:
    """Smooth random pictures: noise enlarged, so that geometry can be recognised."""
    small = torch.rand((count, channels, 6, 6), generator=stream(5)) * 255
    return torch.nn.functional.interpolate(small, side, mode="bicubic").clamp(0, 255).to(torch.uint8)


def as_pil(x: torch.Tensor) -> Image.Image:
    array = x.numpy()
    return Image.fromarray(array[0] if len(array) == 1 else array.transpose(1, 2, 0).copy())


def from_pil(image: Image.Image) -> torch.Tensor:
    array = np.array(image)
    return torch.from_numpy(array[None] if array.ndim == 2 else array.transpose(2, 0, 1).copy())


def apply(name: str, x: torch.Tensor, level: float, sign: float = 1.0) -> torch.Tensor:
    """One operation for the whole batch, without the dice."""
    number = ra.OPERATIONS.index(name)
    function = next(f for first, last, f in ra.GROUPS if first <= number <= last)
    n = len(x)
    return function(x, torch.full((n,), number), torch.full((n,), level / 10), torch.full((n,), sign))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("side", [8, 17, 32])
@pytest.mark.parametrize("count", [1, 2, 40])
def test_shape_type_and_range(channels, side, count):
    augment = Augment(pad=2, flip=True, rand_augment=3, cutout=0.5, erase=0.5)
    out = augment(torch.randint(0, 256, (count, channels, side, side), dtype=torch.uint8), stream())
    assert out.shape == (count, channels, side, side)
    assert out.dtype == torch.float32
    assert out.min() >= 0
    assert out.max() <= 255


def test_a_seed_is_a_result():
    x = pictures(40)
    kept = x.clone()
    first = STRONG(x, stream(1))
    assert torch.equal(first, STRONG(x, stream(1)))
    assert not torch.equal(first, STRONG(x, stream(2)))
    assert torch.equal(x, kept)


def test_nothing_asked_nothing_done():
    x = pictures()
    assert torch.equal(Augment()(x, stream()), x.float())
    assert torch.equal(Augment()(x.float() + 0.2, stream()), x.float())


def test_crop_shifts_with_reflection():
    x = pictures(64, 3, 16)
    out = crop_flip(x, 2, False, stream())
    padded = torch.nn.functional.pad(x.float(), (2, 2, 2, 2), mode="reflect").to(torch.uint8)
    seen = set()
    for image, wide in zip(out, padded, strict=True):
        hits = [(i, j) for i in range(5) for j in range(5) if torch.equal(wide[:, i : i + 16, j : j + 16], image)]
        assert hits
        seen.update(hits)
    assert len(seen) > 15


def test_flip_mirrors_about_half():
    x = pictures(400, 1, 8)
    out = crop_flip(x, 0, True, stream())
    mirrored = (out == x.flip(-1)).flatten(1).all(1)
    assert bool((mirrored | (out == x).flatten(1).all(1)).all())
    assert 150 < int(mirrored.sum()) < 250


def test_cutout_blanks_one_square_with_the_mean():
    x = torch.randint(0, 256, (200, 3, 16, 16), dtype=torch.uint8).float() + 0.25
    out = cutout(x, 6, stream())
    changed = (out != x).any(1)
    assert int(changed.flatten(1).sum(1).max()) == 36
    assert int(changed.flatten(1).sum(1).min()) >= 9
    mean = x.mean((2, 3), keepdim=True).expand_as(x)
    assert torch.equal(out[changed[:, None].expand_as(x)], mean[changed[:, None].expand_as(x)])


def test_erase_takes_a_rectangle_of_the_share_asked_for():
    x = torch.full((1000, 1, 32, 32), 0.5)
    out = erase(x, 0.3, stream())
    area = (out != x).flatten(1).sum(1) / 1024
    hit = area > 0
    assert 230 < int(hit.sum()) < 370
    assert float(area[hit].min()) > 0.01
    assert float(area.max()) < 0.36


MAGNITUDE = [name for name in ra.OPERATIONS if name not in ("autocontrast", "equalize", "identity")]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("name", MAGNITUDE)
def test_magnitude_zero_is_the_identity_and_nine_is_not(name, channels):
    x = pictures(4, channels)
    assert torch.equal(apply(name, x, 0), x)
    if not (channels == 1 and name == "colour"):  # grey images have no colour to change
        assert not torch.equal(apply(name, x, 9), x)


@pytest.mark.parametrize("channels", [1, 3])
def test_tables_equal_pillow(channels):
    x = pictures(6, channels)
    x[0] = 77  # flat
    x[1] = (x[1] > 128).to(torch.uint8) * 200  # two values
    for image, equal, auto, bits, sun in zip(
        x, *(apply(n, x, 5) for n in ("equalize", "autocontrast", "posterize", "solarize")), strict=True
    ):
        pil = as_pil(image)
        assert torch.equal(equal, from_pil(ImageOps.equalize(pil)))
        assert (auto.int() - from_pil(ImageOps.autocontrast(pil)).int()).abs().max() <= 1
        assert torch.equal(bits, from_pil(ImageOps.posterize(pil, 6)))
        assert torch.equal(sun, from_pil(ImageOps.solarize(pil, 128)))


def test_solarize_add_raises_dark_values_only():
    x = torch.tensor([0, 100, 127, 128, 255], dtype=torch.uint8).view(1, 1, 1, 5)
    assert apply("solarize-add", x, 10).flatten().tolist() == [110, 210, 237, 128, 255]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("name", ["colour", "contrast", "brightness", "sharpness"])
def test_blends_equal_pillow_within_rounding(name, sign, channels):
    kind = {
        "colour": ImageEnhance.Color,
        "contrast": ImageEnhance.Contrast,
        "brightness": ImageEnhance.Brightness,
        "sharpness": ImageEnhance.Sharpness,
    }[name]
    x = pictures(4, channels)
    for image, out in zip(x, apply(name, x, 6, sign), strict=True):
        expected = from_pil(kind(as_pil(image)).enhance(1 + 0.54 * sign))
        assert (out.int() - expected.int()).abs().max() <= 2


def test_warp_by_a_quarter_turn_is_exact():
    x = pictures(3)
    turn = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0]]).expand(3, 2, 3)
    assert torch.equal(ra.warp(x, turn), torch.rot90(x, 1, (2, 3)))


def test_warp_uses_a_matrix_for_each_image():
    x = pictures(2)
    identity, mirror = torch.tensor([[1.0, 0, 0], [0, 1, 0]]), torch.tensor([[-1.0, 0, 0], [0, 1, 0]])
    out = ra.warp(x, torch.stack([identity, mirror]))
    assert torch.equal(out[0], x[0])
    assert torch.equal(out[1], x[1].flip(-1))


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_rotation_equals_pillow_inside(sign):
    x = pictures(2, 1, 64)
    out = apply("rotate", x, 10, sign)
    expected = from_pil(as_pil(x[0]).rotate(30 * sign, Image.Resampling.BILINEAR))
    inner = slice(16, 48)
    assert (out[0].int() - expected.int())[:, inner, inner].abs().max() <= 2


def test_translation_is_a_share_of_the_side():
    x = pictures(1, 1, 40)
    out = apply("translate-x", x, 10)  # 0.45 of 40 pixels
    assert torch.equal(out[..., :22], x[..., 18:])
    assert torch.equal(out[..., 22:], x[..., -1:].expand(1, 1, 40, 18))


@pytest.mark.parametrize("count", [4, 15, 128])
def test_every_image_meets_every_operation_equally_often(count, monkeypatch):
    """Operations replaced by marks: who gets which, over many layers."""
    kinds = len(ra.OPERATIONS)

    def mark(x, drawn, level, sign):
        return (drawn[:, None, None, None] + 1).to(torch.uint8).expand_as(x)

    monkeypatch.setattr(ra, "GROUPS", tuple((first, last, mark) for first, last, _ in ra.GROUPS))
    x, generator, layers = torch.zeros((count, 1, 1, 1), dtype=torch.uint8), stream(), 6000 // count + 600
    marks = torch.stack([ra.layer(x, 9, 0.5, generator).flatten() for _ in range(layers)])
    share = torch.bincount(marks.flatten().long(), minlength=kinds) / marks.numel()
    assert (share - 1 / kinds).abs().max() < 0.02  # mark 0: identity
    each = torch.stack([(marks == k).float().mean(0) for k in range(kinds)])
    assert (each - 1 / kinds).abs().max() < 0.06


def test_auto_augment_draws_its_pairs_evenly_and_operations_with_their_probabilities(monkeypatch):
    """Marks instead of operations: of 25 pairs each as often, each of their steps as often as the policy says."""
    seen = []

    def mark(x, drawn, level, sign):
        seen.append((drawn.clone(), level.clone(), sign.clone()))
        return x

    monkeypatch.setattr(aa, "GROUPS", ((0, 13, mark),))
    aa.auto_augment(torch.zeros((50_000, 1, 1, 1), dtype=torch.uint8), stream())
    for step, (drawn, level, sign) in enumerate(seen):
        expected = torch.zeros(len(ra.OPERATIONS))
        for pair in aa.POLICY:
            expected[ra.NUMBER[pair[step][0]]] += pair[step][1] / len(aa.POLICY)
        share = torch.bincount(drawn, minlength=len(ra.OPERATIONS)) / len(drawn)
        assert (share - expected)[:-1].abs().max() < 0.01  # the last is the identity
        assert set((level * 9).round().long().tolist()) == {pair[step][2] for pair in aa.POLICY}
        assert sign.mean().abs() < 0.02
    assert len(seen) == 2


def test_auto_augment_applies_what_was_drawn(monkeypatch):
    """One pair for all: inverted, then equalised, as Pillow does it."""
    x = pictures(4)
    steps = [(float(ra.NUMBER["solarize"]), 1.0, 1.0), (float(ra.NUMBER["equalize"]), 1.0, 0.0)]
    monkeypatch.setattr(aa, "_TABLE", [steps] * len(aa.POLICY))
    out = Augment(auto=True)(x, stream())
    for before, after in zip(x, out, strict=True):
        assert torch.equal(after.to(torch.uint8), from_pil(ImageOps.equalize(ImageOps.invert(as_pil(before)))))


def test_presets_suit_the_images():
    tiny = Augment.for_task(Task(10, 8, 1), "strong")
    assert (tiny.pad, tiny.flip, tiny.rand_augment) == (1, False, 0)
    photo = Augment.for_task(Task(10, 64), "standard")
    assert (photo.pad, photo.flip, photo.rand_augment) == (8, True, 1)
    assert Augment.for_task(Task(10, 64), "none") == Augment()
    assert Augment.for_task(Task(10, 64), "strong").rand_augment == 2
    assert Augment.for_task(Task(10, 64), "auto") == Augment(pad=8, flip=True, auto=True)
    assert Augment.for_task(Task(10, 64), "auto_cutout") == Augment(pad=8, flip=True, auto=True, cutout=0.5)
    assert not Augment.for_task(Task(10, 8), "auto").auto
    with pytest.raises(BadInput, match="strength must be"):
        Augment.for_task(Task(10, 64), "wild")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"pad": -1}, {"magnitude": 11}, {"cutout": 1.5}, {"erase": -0.1}])
def test_impossible_options_are_refused(wrong):
    with pytest.raises(BadInput, match=f"{next(iter(wrong))} must be"):
        Augment(**wrong)


def test_statistics_are_those_of_the_pixels():
    x = np.random.default_rng(0).integers(0, 256, (700, 9, 9, 3), dtype=np.uint8)
    x[..., 2] = 7
    images = from_arrays(x, np.arange(700) % 2)
    mean, std = statistics(images, np.arange(700))
    np.testing.assert_allclose(mean, x.mean((0, 1, 2)), rtol=1e-6)
    np.testing.assert_allclose(std[:2], x.std((0, 1, 2))[:2], rtol=1e-6)
    assert std[2] == 1.0
    sampled, _ = statistics(images, np.arange(700), most=500)
    np.testing.assert_allclose(sampled, mean, rtol=0.02)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_the_gpu_without_waiting_for_it():
    x = pictures(64).cuda()
    generator = torch.Generator("cuda").manual_seed(0)
    STRONG(x, generator)
    torch.cuda.set_sync_debug_mode("error")
    try:
        out = STRONG(x, generator)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert out.is_cuda
    with pytest.raises(BadInput, match="generator must be on the images' device"):
        STRONG(x, stream())


def test_shapes_never_depend_on_drawn_values():
    """Fake tensors have no values: whatever would wait for the device to read one raises here."""
    with FakeTensorMode() as mode:
        out = STRONG(mode.from_tensor(pictures(20)), stream())
    assert out.shape == (20, 3, 32, 32)
