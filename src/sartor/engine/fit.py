"""The only training loop. Callers say what the loss of a batch is; everything else happens here.

A step is a function of (seed, phase, epoch, batch number), and the state is checkpointed after every epoch, within one
every minute, and where Ctrl-C or SIGTERM stops it. So a run that is killed and started again ends with the same
weights, bit for bit on a CPU. How long a training is may be said in epochs or in seconds (`plan.py`). Running out of
memory halves the batch and says so; a loss that is not a number stops the run with the last good epoch kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from sartor.core.errors import BadInput, Diverged, RunError
from sartor.data.augment import Augment, mix
from sartor.data.base import Index
from sartor.engine import checkpoint
from sartor.engine.device import Engine
from sartor.engine.feed import Feed
from sartor.engine.growth import Growth
from sartor.engine.length import Length
from sartor.engine.recipe import MovingAverage, Recipe
from sartor.engine.replay import Repeated
from sartor.engine.seeding import drawn_so_far, go_on, seeded
from sartor.runs.directory import Run
from sartor.runs.progress import Bar
from sartor.runs.stopping import patiently
from sartor.spaces.depthwise import in_32_bits
from sartor.spaces.supernet import StepDraw

if TYPE_CHECKING:
    from sartor.engine.plan import Pacer

# (random stream of this step, images) -> what the step draws; with `StepDraw` the step may be replayed as a CUDA graph
Draw = Callable[[np.random.Generator, int], Any]
# (images, labels, what was drawn) -> named losses, of which "loss" is minimised
Loss = Callable[[Tensor, Tensor, Any], dict[str, Tensor]]
History = list[dict[str, float]]
# (the training with its batch size, the optimiser, epoch, step, steps): what else follows a step of the optimiser
After = Callable[["Training", torch.optim.SGD, int, int, int], None]
_CHECK_EVERY = 200  # steps between looks at the loss: each look waits for the device
_SHOW_EVERY = 0.5  # seconds between movements of the progress bar
_BAR = 1000  # its length
_SAVE_EVERY = 60.0  # seconds between checkpoints within an epoch


def nothing(rng: np.random.Generator, images: int) -> StepDraw:
    """The `draw` of a loss that is the same function of images and labels at every step."""
    return StepDraw()


@dataclass(frozen=True, eq=False)
class Training:
    """One phase of training: a network, its recipe and where its data comes from.

    `extra` is further state (with `state_dict` and `load_state_dict`) that belongs into the checkpoint; it is loaded
    before the network, which it may shape. `draw` makes of a step's random stream what the loss is given; without it
    the loss is given the stream itself.
    """

    name: str
    net: nn.Module
    loss: Loss
    recipe: Recipe
    feed: Feed
    index: Index
    run: Run
    extra: Mapping[str, Any] = field(default_factory=dict)
    after: After | None = None
    draw: Draw | None = None
    length: Length | None = None  # instead of the recipe's epochs
    growth: Growth | None = None  # of the images, where steps were timed; else as the recipe says
    pacer: Pacer | None = None  # looks after how fast steps are
    title: str = ""  # what a person is told that it is; its name where nothing is said

    @property
    def engine(self) -> Engine:
        """Device and processes."""
        return self.feed.engine

    @property
    def file(self) -> Path:
        """The checkpoint of the last whole epoch."""
        return self.run.path / "search" / f"{self.name}.checkpoint.safetensors"

    @property
    def within(self) -> Path:
        """The checkpoint within the epoch that follows."""
        return self.run.path / "search" / f"{self.name}.within.safetensors"


@dataclass
class Begun:
    """An epoch as far as it has come: steps, their losses summed up, images and seconds."""

    steps: int = 0
    sums: dict[str, Any] = field(default_factory=dict)
    images: int = 0
    seconds: float = 0.0
    random: dict[str, Tensor] | None = None  # where torch's own streams stand


def fit(training: Training) -> History:
    """Train for the recipe's epochs, from the last checkpoint if there is one; ends with the averaged weights."""
    t = training
    optimiser, average = t.recipe.optimiser(t.net), MovingAverage(t.net, t.recipe.ema)
    for module in t.net.modules():
        if isinstance(module, nn.Dropout):
            module.p = t.recipe.dropout
    state = {**t.extra, "net": t.net, "optimiser": optimiser, "average": average}
    length = t.length or Length(float(t.recipe.epochs))
    state |= {"length": length}
    growth = t.growth or Growth.of(t.recipe.small, t.feed.task, t.net)
    epoch, batch, history = _resume(t, state)
    begun, batch = _resume_within(t, state, epoch, batch)
    gradients = Gradients(t)
    with t.run.reporter.bar(t.title or t.name, _BAR) as bar, patiently() as stopped:
        keep = Keeper(state, stopped)
        show = Show(bar, length)
        while length.end - epoch > 0.5 / len(t.feed.batches(t.index, batch, t.name)):  # a step, at least
            try:
                now = replace(t, recipe=replace(t.recipe, batch=batch), length=length, growth=growth)
                with seeded(t.feed.seeds.number(f"torch/{t.name}", epoch, t.engine.rank)):  # dropout
                    history.append(_epoch(now, gradients, optimiser, average, epoch, begun, show, keep))
                begun, show.note = Begun(), _note(history)
            except RuntimeError as error:
                if not _out_of_memory(error):
                    raise
                gradients.repeated.forget()
                batch = _smaller(t, batch, error)
                (epoch, _, history), begun = _resume(t, state), Begun()
                t.within.unlink(missing_ok=True)  # its steps are of the larger batch
                continue
            epoch += 1
            length.keep(t.engine, min(float(epoch), length.end))
            # Every process saw other images: one set of statistics for all, or a resumed run would differ.
            t.engine.average([*(b for b in t.net.buffers() if b.is_floating_point()), *average.shadow])
            _save(t, state, epoch, batch, history)
        bar.to(_BAR, _note(history))
    average.put()
    _drop_paths(t.net, 0.0)
    return history


class Show:
    """Moves the bar, and with it the length, every half second, however short or long the epochs are."""

    def __init__(self, bar: Bar, length: Length) -> None:
        self.bar, self.length, self.note, self.last = bar, length, "", time.monotonic()

    def __call__(self, t: Training, at: float) -> None:
        """After every step."""
        if time.monotonic() - self.last > _SHOW_EVERY:
            self.last = time.monotonic()
            self.bar.to(round(_BAR * self.length.progress(at)), self.note)
            if t.engine.world == 1:
                self.length.keep(t.engine, at)


def batches(t: Training, epoch: int, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
    """The augmented batches of an epoch, mixed where the recipe says so: a function of the seed and the epoch."""
    augment, task = Augment.for_task(t.feed.images.task, t.recipe.augment), t.feed.images.task
    for k, (x, y) in enumerate(t.feed.train(t.index, t.recipe.batch, augment, t.name, epoch, start), start):
        if t.recipe.mix:
            rng = t.feed.seeds.rng(f"mix/{t.name}", epoch, k, t.engine.rank)
            x, y = mix(x, y, task.classes, t.recipe.mix, rng)
        yield x, y


def _drop_paths(net: nn.Module, probability: float) -> None:
    """Set the probability with which images lose a path, in networks that have such paths."""
    for module in net.modules():
        if hasattr(module, "path_p"):
            module.path_p = probability  # type: ignore[assignment]


class Gradients:
    """The losses of a batch; their gradient is left in the parameters' `.grad`."""

    def __init__(self, t: Training) -> None:
        self.t = t
        self.parameters: list[nn.Parameter] = []
        self.path_p = 0.0
        self.repeated = Repeated(self._recordable, t.engine.device)
        if t.recipe.mixed:
            in_32_bits(t.net)

    def start(self, path_p: float) -> list[nn.Parameter]:
        """Before an epoch, at whose end parameters may have stopped training: those that do."""
        _drop_paths(self.t.net, path_p)
        self.path_p, self.parameters = path_p, [p for p in self.t.net.parameters() if p.requires_grad]
        return self.parameters

    def __call__(self, x: Tensor, y: Tensor, rng: np.random.Generator) -> dict[str, Tensor]:
        """Forward and backward, replayed where the step's shapes are the last one's."""
        drawn = rng if self.t.draw is None else self.t.draw(rng, len(y))
        if not isinstance(drawn, StepDraw):
            return self._backward(x, y, drawn)
        losses, gradients = self.repeated((x, y, *drawn.tensors), (drawn.same, self.path_p, len(self.parameters)))
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            parameter.grad = gradient
        return losses

    def _recordable(self, tensors: Sequence[Tensor], key: Any) -> tuple[dict[str, Tensor], list[Tensor | None]]:
        (x, y, *rest), (same, *_) = tensors, key
        losses = self._backward(x, y, StepDraw(tuple(rest), same))
        return losses, [p.grad for p in self.parameters]

    def _backward(self, x: Tensor, y: Tensor, drawn: Any) -> dict[str, Tensor]:
        for parameter in self.parameters:
            parameter.grad = None
        with self.t.engine.autocast(self.t.recipe.mixed):
            losses = self.t.loss(x, y, drawn)
        losses["loss"].backward()  # type: ignore[no-untyped-call]
        return {name: value.detach() for name, value in losses.items()}


def _epoch(
    t: Training,
    gradients: Gradients,
    optimiser: torch.optim.SGD,
    average: MovingAverage,
    epoch: int,
    begun: Begun,
    show: Show,
    keep: Keeper,
) -> dict[str, float]:
    """What is left of one pass over the training images, or of the length; the mean of every named loss."""
    assert t.length is not None and t.growth is not None
    start, sums = time.monotonic() - begun.seconds, begun.sums
    if begun.random is not None:
        go_on(begun.random)
    steps = len(t.feed.batches(t.index, t.recipe.batch, t.name))
    t.net.train()
    parameters = gradients.start(t.recipe.drop_path * t.length.progress(epoch))
    for k, (x, y) in enumerate(batches(t, epoch, begun.steps), begun.steps):
        at = epoch + k / steps
        if at >= t.length.end - 0.5 / steps:  # the last epoch of a training in seconds is a part of one
            break
        progress = t.length.progress(at)
        t.recipe.set_rates(optimiser, progress)
        losses = gradients(t.growth.shown(x, progress), y, t.feed.seeds.rng(f"step/{t.name}", epoch, k, t.engine.rank))
        t.engine.average_gradients(parameters)
        if t.recipe.clip:
            nn.utils.clip_grad_norm_(parameters, t.recipe.clip, foreach=True)
        optimiser.step()
        average.update()
        if t.after is not None:
            t.after(t, optimiser, epoch, k, steps)
        begun.images += len(y) * t.engine.world
        for name, value in losses.items():
            sums[name] = sums.get(name, 0.0) + value
        begun.steps, begun.seconds = k + 1, time.monotonic() - start
        if k % _CHECK_EVERY == _CHECK_EVERY - 1:
            _check(t, _means(t, sums, k + 1), epoch)
        show(t, at)
        if t.pacer is not None:
            t.pacer(t, progress)
        keep(t, epoch, begun)
    means = _means(t, sums, begun.steps)
    _check(t, means, epoch)
    return {**means, "images_per_second": begun.images / (time.monotonic() - start)}


def _means(t: Training, sums: dict[str, Any], steps: int) -> dict[str, float]:
    """The mean of every named loss over steps and processes: all of them must come to the same verdict."""
    totals = t.engine.sum(np.array([float(value) for value in sums.values()]))
    return {name: float(total) / (steps * t.engine.world) for name, total in zip(sums, totals, strict=True)}


def _check(t: Training, means: dict[str, float], epoch: int) -> None:
    loss = means["loss"]
    if not math.isfinite(loss):
        raise Diverged(
            f"the training loss must stay finite, but became {loss} in epoch {epoch + 1} of '{t.name}'. The epochs "
            f"before it are kept. Lower the learning rate (now {t.recipe.lr:g}) with --set, into a new --out."
        )


def _resume(t: Training, state: dict[str, Any]) -> tuple[int, int, History]:
    """Load the last checkpoint, or write the first one: (epochs done, batch size, history)."""
    if t.engine.agree(t.file.exists()):
        saved = checkpoint.load(t.file)
        _restore(state, saved, t.file)
        return int(saved["epoch"]), int(saved["batch"]), list(saved["history"])
    _save(t, state, 0, t.recipe.batch, [])
    return 0, t.recipe.batch, []


def _resume_within(t: Training, state: dict[str, Any], epoch: int, batch: int) -> tuple[Begun, int]:
    """How far the epoch had come when the training was stopped, and its batch size; else its beginning."""
    saved = checkpoint.load(t.within) if t.engine.world == 1 and t.within.exists() else {}
    if saved.get("epoch") != epoch:  # of an epoch that was completed since
        return Begun(), batch
    _restore(state, saved, t.within)
    return Begun(**saved["begun"]), int(saved["batch"])


def _restore(state: dict[str, Any], saved: dict[str, Any], file: Path) -> None:
    try:
        for name, part in state.items():
            if name != "length" or name in saved:  # a checkpoint of an older version has its recipe's epochs
                part.load_state_dict(saved[name])
    except (RuntimeError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise RunError(f"{file} is not of this training ({reason}). Delete it to train again.") from error


def _save(t: Training, state: dict[str, Any], epoch: int, batch: int, history: History) -> None:
    if t.run.writer:
        parts = {name: part.state_dict() for name, part in state.items()}
        checkpoint.save(t.file, {**parts, "epoch": epoch, "batch": batch, "history": history})
        t.within.unlink(missing_ok=True)
        if history:
            named = {f"{t.run.inside}{t.name}/{name}": value for name, value in history[-1].items()}
            try:
                t.engine.fabric.log_dict(named, step=epoch)
            except Exception as error:  # whatever a logging service raises: it must not end a training
                t.run.reporter.say(f"  the curves of epoch {epoch} could not be logged: {error}")
    t.engine.barrier()


class Keeper:
    """Checkpoints within an epoch: every minute, and after the step during which somebody stopped the training.

    Not with several processes: until the epoch ends, the statistics of each are its own.
    """

    def __init__(self, state: dict[str, Any], stopped: Callable[[], bool]) -> None:
        self.state, self.stopped, self.last = state, stopped, time.monotonic()

    def __call__(self, t: Training, epoch: int, begun: Begun) -> None:
        """After every step."""
        stopped = self.stopped()
        if (stopped or time.monotonic() - self.last > _SAVE_EVERY) and t.engine.world == 1:
            parts = {name: part.state_dict() for name, part in self.state.items()}
            at = {**vars(begun), "random": drawn_so_far()}
            checkpoint.save(t.within, {**parts, "epoch": epoch, "batch": t.recipe.batch, "begun": at})
            self.last = time.monotonic()
        if stopped:
            raise KeyboardInterrupt


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _smaller(t: Training, batch: int, error: RuntimeError) -> int:
    """Half the batch, or an error where nothing is left to halve."""
    half = batch // 2
    if half < max(2, t.engine.world):
        raise BadInput(f"memory ran out in '{t.name}' even at a batch of {batch} images: {error}") from error
    if t.engine.device.type == "cuda":
        torch.cuda.empty_cache()
    t.run.log(f"memory ran out in '{t.name}' at a batch of {batch}: going on with {half}")
    return half


def _note(history: History) -> str:
    if not history:
        return ""
    last = history[-1]
    return f"loss {last['loss']:.3f}, {last['images_per_second']:.0f} images/s"
