"""Time as a budget: how many epochs of a training fit into so many seconds on this machine, found by timing steps."""

from __future__ import annotations

import copy
import math
import time
from dataclasses import replace
from itertools import islice
from typing import Any, final

import numpy as np
import torch

from sartor.engine import hands
from sartor.engine.device import Way
from sartor.engine.fit import Gradients, Training, batches
from sartor.engine.growth import Growth, Stage
from sartor.engine.length import Length
from sartor.engine.recipe import MovingAverage
from sartor.engine.seeding import seeded
from sartor.runs.progress import span

_WARM = {"cpu": 1, "cuda": 4}  # steps that are not timed: libraries set themselves up, a CUDA graph is recorded
_TIMED = 12  # steps that are, at most,
_PATIENCE = 0.06  # or as many as fit into this share of the training's time, two at least
_WORSE = 1.3  # times the fastest way's: such steps need not be timed well
_LONG = 0.03  # seconds of a step from which it may be worth asking whether more threads shorten it
_PAYS = 0.9  # of the time of steps on whole images: with less to win, images do not grow
_EVERY = 10.0  # seconds between looks at how long steps take now,
_OTHER = 1.5  # and how many times longer, or shorter, than they took makes it worth timing all ways again
_RESERVE = 0.97  # share of the seconds that is planned: checkpoints and the evaluation take the rest


def planned(t: Training, seconds: float) -> Training:
    """The training with as many epochs as fit into `seconds`, at least one step; remembered for a resumed run."""
    file, until = f"search/{t.name}.plan.json", time.monotonic() + seconds
    known = t.run.read(file) if t.engine.agree((t.run.path / file).exists()) else None
    if known is None:
        steps = len(t.feed.batches(t.index, t.recipe.batch, t.name))
        step, way = fastest(t, _PATIENCE * seconds)
        growth = _growing(t, step, _PATIENCE * seconds)
        left = max(until - time.monotonic(), 0.5 * seconds)  # a GPU's first steps may take longer than all others
        epochs = max(1 / steps, _RESERVE * left / (step * growth.left(0.0) * steps))
        known = {"epochs": epochs, "seconds": seconds, "seconds_per_step": step, "steps": steps}
        known |= way._asdict()
        known = t.engine.agree({**known, "stages": [[s.until, s.side, s.cost] for s in growth.stages]})
        t.run.write(file, known)
        t.run.log(f"{t.title or t.name}: about {epochs:.1f} epochs in {span(left)}")
    t.engine.use(Way(int(known.get("hands", 1)), int(known["threads"])))  # their number decides what a step computes
    # Runs of an older version have no hands and no stages.
    told = known.get("stages") or [[1.0, t.feed.task.image, 1.0]]
    growth = Growth(tuple(Stage(float(until), int(side), float(cost)) for until, side, cost in told))
    length = Length(float(known["epochs"]), until, filled=True, growth=growth)
    pace = Pacer(float(known["seconds_per_step"])) if len(t.engine.ways(t.recipe.batch)) > 1 else None
    return replace(t, length=length, growth=growth, pacer=pace)


@final
class Pacer:
    """Chooses anew how steps are computed where they have come to take another time: neighbours come and go.

    Beside other work threads wait for each other, and one alone may be faster than two; when it has ended, no longer.
    """

    def __init__(self, step: float) -> None:
        self.step = step  # seconds of one on whole images
        self.begun, self.steps = time.monotonic(), 0

    def __call__(self, t: Training, progress: float) -> None:
        """After every step of the training, which is as long as a time."""
        self.steps += 1
        seconds = time.monotonic() - self.begun
        if seconds < _EVERY or t.engine.world > 1:
            return
        expected = self.step * (t.growth.at(progress).cost if t.growth is not None else 1.0)
        if not expected / _OTHER < seconds / self.steps < expected * _OTHER:
            self.step = fastest(replace(t, growth=None), _PATIENCE * _EVERY)[0]
        self.begun, self.steps = time.monotonic(), 0


def _growing(t: Training, step: float, patience: float) -> Growth:
    """The growth of the images, with the times of its stages; none where it would win little."""
    growth, whole = Growth.of(t.recipe.small, t.feed.task, t.net), t.feed.task.image
    timed = {whole: step}
    for stage in growth.stages[:-1]:
        timed[stage.side] = seconds_per_step(replace(t, growth=Growth((Stage(1.0, stage.side),))), patience)
    growth = growth.timed(timed)
    return growth if growth.left(0.0) < _PAYS else Growth((Stage(1.0, whole),))


def fastest(t: Training, patience: float, cores: int | None = None) -> tuple[float, Way]:
    """The time of a step and the way to compute it, of those with so many cores, in which it is shortest.

    The engine goes on in that way. Beside other work threads wait for each other, so that one may be the fastest.
    """
    found: list[tuple[float, Way]] = []
    for way in t.engine.ways(t.recipe.batch, cores):
        if found and found[0][0] < _LONG:
            break
        if way.hands == 1 or hands.suited(t.recipe):
            t.engine.use(way)
            found.append((seconds_per_step(t, patience, _WORSE * min(found)[0] if found else math.inf), way))
    step, way = min(found)
    t.engine.use(way)
    return step, way


def seconds_per_step(t: Training, patience: float = 4.0, hopeless: float = math.inf) -> float:
    """The median time of a training step, on the real images; everything is then put back as it was.

    Two steps are enough where both take longer than what would be `hopeless`.
    """
    warm = _WARM[t.engine.device.type]
    optimiser, average = t.recipe.optimiser(t.net), MovingAverage(t.net, t.recipe.ema)
    parts: dict[str, Any] = {**t.extra, "net": t.net}
    before = {name: copy.deepcopy(part.state_dict()) for name, part in parts.items()}
    gradients, taken = Gradients(t), []
    t.net.train()
    parameters, begin = gradients.start(0.0), time.monotonic()
    with seeded(0):
        mark = time.perf_counter()
        for k, (x, y) in enumerate(islice(batches(t, 0), warm + _TIMED)):
            x = x if t.growth is None else t.growth.shown(x, 0.0)
            gradients(x, y, t.feed.seeds.rng(f"step/{t.name}", 0, k, t.engine.rank))
            t.engine.average_gradients(parameters)
            for group in optimiser.param_groups:
                group["lr"] = 0.0  # weights stay where they are; the work is the same
            optimiser.step()
            average.update()
            if t.engine.device.type == "cuda":
                torch.cuda.synchronize(t.engine.device)
            taken.append(time.perf_counter() - mark)
            mark = time.perf_counter()
            enough = time.monotonic() - begin > patience or min(taken[warm:], default=0.0) > hopeless
            if t.engine.agree(len(taken) >= warm + 2 and enough):
                break
    for name, part in parts.items():
        part.load_state_dict(before[name])
    for parameter in t.net.parameters():
        parameter.grad = None
    timed = taken[warm:] or taken
    return float(t.engine.agree(np.median(timed)))
