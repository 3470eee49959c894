"""NASI: search at initialisation, with no training and, if wanted, no labels and no data (arXiv:2109.00817).

Algorithm 1: at logits alpha = 0 an architecture is drawn by straight-through Gumbel gates (equation 42); its reward is
the approximated trace norm of the neural tangent kernel (12), penalised where it exceeds nu (13); the gradient of the
reward with respect to the logits goes through the squared gradient norm, a double backward pass; the normalised mean
of these gradients (18) is the score of every option. Its largest entries are the paper's selection; under a budget the
solver takes the best network that fits, which is our extension. So is that parameters count too, unless `size` is 0: on
tabular benchmarks Delta* alone is behind the network with most parameters, and both together ahead of either
(`reproduce/nasi_beyond.py`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from sartor.core.arch import Arch
from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.core.registry import COSTS
from sartor.core.seeds import Seeds
from sartor.core.task import Task
from sartor.engine.curvature.kernel import LOSSES, Init, Loss, Norm, ntk_factors, prepare, squared_norm, weights
from sartor.engine.seeding import seeded
from sartor.methods.base import DARTS_TRAINING, Effort, Found, Job, Method
from sartor.spaces.base import Gates, Space
from sartor.spaces.capabilities import Relaxable, sketch
from sartor.spaces.supernet import new_supernet

Batch = tuple[Tensor, Tensor]
Source = Callable[[int], Batch]  # the batch of a step; equation 40's networks come at steps -1, -2, ...
_NETWORKS = 500  # random ones, that tell a deviation
_LARGE = 5.0  # equation 41 starts "relatively large": the paper's 500 is five times its fixed 100


@final
@dataclass(frozen=True, kw_only=True)
class NASI(Method):
    """The gradient of the neural tangent kernel's trace at initialisation: no training, labels or data (NASI)."""

    steps: int = 200  # T of Algorithm 1
    batch: int = 16
    mu: float = 2.0  # 0: no penalty; 1: nothing gained above nu; 2: lost again what exceeds it
    nu: Literal["median", "fixed", "adaptive"] = "median"  # of equation 40's networks; their mean; equation 41
    nu_start: float | None = None  # nu_0 as a number, as in the paper (100 fixed, 500 or 1000 adaptive), or None
    nu_networks: int = 50  # N of equation 40
    nu_scale: float | None = None  # times that; None: 1, or 5 where adaptive, which must start large
    # Weight of parameters beside Delta*, each in units of its deviation over random networks; 0: the paper's score.
    size: float = 1.0
    normalise: Literal["each", "largest"] = "each"  # a step's gradient by its own norm, or as equation 18 does
    temperature: float = 1.0  # tau of equation 42
    loss: Literal["cross_entropy", "mse", "logits"] = "cross_entropy"
    labels: Literal["true", "random"] = "true"
    images: Literal["true", "gaussian"] = "true"  # gaussian needs no data set; its labels are random
    init: Init = "kaiming"
    parameterisation: Literal["standard", "ntk"] = "standard"  # ntk: Jacot's, as section 3.1's theory has it
    gain: float = 1.0  # factor on the drawn weights
    norm: Norm = "off"
    without: tuple[str, ...] = ("none",)  # options that are not drawn and rank last: the zero operation (B.2)
    redraw: int = 1  # weights are drawn anew every so many steps; 0: once, the paper's theta_0
    sketch: bool = True  # search in the space's small network where it has one
    side: int = 8  # larger images are averaged down to at least this many pixels a side

    def __post_init__(self) -> None:
        check(self, "method.", steps=">= 1", batch=">= 1", nu_networks=">= 1", redraw=">= 0", side=">= 8", mu=">= 0")
        check(self, "method.", nu_start="> 0", nu_scale="> 0", temperature="> 0", gain="> 0", size=">= 0")
        if self.nu_start is not None and self.nu_scale is not None:
            raise BadInput(
                f"method.nu_start = {self.nu_start:g} is nu itself, so that method.nu_scale = {self.nu_scale:g} would "
                "be ignored: give one of them."
            )
        if self.init == "keep" and self.redraw:
            raise BadInput(
                'method.init = "keep" keeps the weights that the network is made with, so that method.redraw = '
                f"{self.redraw} would be ignored: --set method.redraw=0."
            )
        if self.parameterisation == "ntk" and self.init != "lecun":
            raise BadInput(
                'method.parameterisation = "ntk" draws weights of variance one and divides them by the root of the '
                f'fan-in, which is method.init = "lecun", but method.init is {self.init!r}: --set method.init=lecun.'
            )

    @classmethod
    def preset(cls, effort: Effort, images: int, device: str = "cpu") -> dict[str, Any]:
        """The defaults are what `reproduce/nasi_study.py` found; ``thorough`` has 5.2's numbers and 3.1's theory."""
        paper: dict[str, Any] = {
            "steps": 100,
            "batch": 64,
            "redraw": 0,
            "nu": "fixed",
            "size": 0.0,
            "normalise": "largest",
            "init": "lecun",
            "parameterisation": "ntk",
        }
        return paper if effort == "thorough" else {"steps": cls.steps // 2} if effort == "quick" else {}

    @classmethod
    def paper(cls) -> dict[str, Any]:
        """Appendix B.4, which follows DARTS."""
        return DARTS_TRAINING

    def search(self, job: Job) -> Found:
        """Algorithm 1 on the job's training images, or on none. It takes seconds, so a killed one starts again."""
        with job.run.reporter.bar("search at initialisation", self.steps) as bar:
            score, facts = self.at_initialisation(
                job.space, job.task, job.seeds, self._source(job), job.engine.device, bar.to
            )
        unit = "deviations of Delta* and of parameters" if self.size else "share of the largest reward gradient"
        return Found(score, unit, None, facts)

    def at_initialisation(
        self,
        space: Space,
        task: Task,
        seeds: Seeds,
        source: Source | None = None,
        device: str | torch.device = "cpu",
        tick: Callable[[int], None] = lambda done: None,
    ) -> tuple[Quadratic, dict[str, Any]]:
        """The score and what was seen on the way; without a `source`, images are Gaussian and labels random."""
        start, whole = time.monotonic(), task
        factor = max(1, task.image // self.side)
        task = dataclasses.replace(task, image=task.image // factor)
        source = _noise(task, self.batch, seeds, device) if source is None else _smaller(source, factor)
        drawn = space.relaxed() if isinstance(space, Relaxable) else space
        reward = Reward(self, drawn, task, seeds, source, device)
        nu, seen = self._nu(reward), []
        for step in range(self.steps):
            seen.append(reward(step))
            tick(step + 1)
        delta, above = self.delta(seen, nu)
        facts = {"steps": self.steps, "nu": nu, "above_nu": above, "x": _statistics([x for x, _ in seen])}
        score = reward.quadratic(delta)
        score = space.lift(score) if isinstance(space, Relaxable) else score
        if self.size:
            score = self._with_size(score, space, whole, seeds)
        facts["seconds"] = round(time.monotonic() - start, 3)
        return score, facts

    def _with_size(self, score: Quadratic, space: Space, task: Task, seeds: Seeds) -> Quadratic:
        """Delta* and parameters, each in units of its deviation over random networks of the space."""
        rng, total = seeds.rng("nasi size"), Quadratic(space.sizes)
        picks = [space.sample(rng).picks for _ in range(_NETWORKS)]
        for form, weight in ((score, 1.0), (COSTS["params"]().table(space, task).form, self.size)):
            spread = float(form.batch(picks).std())
            total = total + form * (weight / spread if spread > 0 else 0.0)
        return total

    def delta(self, seen: Sequence[tuple[float, Tensor]], nu: float) -> tuple[Tensor, float]:
        """Delta* from x and ``dx / d alpha`` of every step, and the share of steps above nu."""
        largest, before, above = 0.0, nu, 0
        total = torch.zeros_like(seen[0][1])
        for step, (x, slope) in enumerate(seen):
            limit = before / (step + 1) if self.nu == "adaptive" else nu  # (41) or (40)
            gradient = slope * (1.0 - self.mu if x > limit else 1.0)  # of R = x - mu max(0, x - nu), equation 13
            largest = max(largest if self.normalise == "largest" else 0.0, float(gradient.norm()))
            total += gradient / largest if largest > 0 else 0.0  # (18), with xi = 1
            before += x
            above += x > limit
        return total / len(seen), above / len(seen)

    def _nu(self, reward: Reward) -> float:
        """The number that was given, or the median or mean of x over random networks (equation 40) times the scale."""
        if self.nu_start is not None:
            return self.nu_start
        around = [reward.size(-1 - n) for n in range(self.nu_networks)]
        typical = np.median(around) if self.nu == "median" else np.mean(around)
        return float(typical) * (self.nu_scale or (_LARGE if self.nu == "adaptive" else 1.0))

    def _source(self, job: Job) -> Source | None:
        """Training images as they are, drawn anew for every step, the same in every process."""
        if self.images == "gaussian":
            return None
        count = min(self.batch, len(job.splits.train))

        def draw(step: int) -> Batch:
            rng = job.seeds.rng("nasi images", *_moment(step))
            x, y = next(iter(job.feed.plain(rng.choice(job.splits.train, count, replace=False), count)))
            return x, y if self.labels == "true" else _random_labels(job.task, count, job.seeds, step, x.device)

        return draw


class Reward:
    """x of equation 12 for the architecture drawn at a step, and its gradient with respect to all logits."""

    def __init__(
        self, options: NASI, space: Space, task: Task, seeds: Seeds, source: Source, device: str | torch.device
    ) -> None:
        self.options, self.space, self.seeds, self.source, self.device = options, space, seeds, source, device
        with seeded(seeds.number("nasi supernet")):
            self.net: Any = new_supernet(sketch(space) if options.sketch else space, task)
        self._draw(0)
        self.net.to(device)
        self.theta = weights(self.net)
        self.factors = ntk_factors(self.net) if options.parameterisation == "ntk" else None
        self.loss: Loss = task.loss if options.loss == "cross_entropy" else LOSSES[options.loss]
        self.allowed = [_allowed(c.options, options.without) for c in space.choices]

    def _draw(self, step: int) -> None:
        """Weights for a step: one network's luck is not what a score should depend on."""
        o = self.options
        prepare(self.net, o.init, o.norm, o.gain, self.seeds.number("nasi weights", *_moment(step)))

    def logits(self) -> list[Tensor]:
        """alpha_0 = 0, a leaf per choice."""
        return [torch.zeros(n, device=self.device, requires_grad=True) for n in self.space.sizes]

    def __call__(self, step: int) -> tuple[float, Tensor]:
        """The value x and ``dx / d alpha`` (all choices concatenated, on the CPU) at a step."""
        logits = self.logits()
        x = self.value(step, self.gates(step, logits), graph=True)
        slopes = torch.autograd.grad(x, logits, allow_unused=True)
        parts = [torch.zeros_like(a) if s is None else s for a, s in zip(logits, slopes, strict=True)]
        return float(x.detach()), torch.cat(parts).double().cpu()

    def size(self, step: int) -> float:
        """The value x of a random network alone, for equation 40, which needs none of the other options' outputs."""
        picks = tuple(int(g.argmax()) for g in self.gates(step, self.logits()).weights)
        return float(self.value(step, Arch(picks), graph=False).detach())

    def gates(self, step: int, logits: Sequence[Tensor]) -> Gates:
        """Equation 42, straight through: one-hot forwards, softmax((alpha + g) / tau) backwards."""
        generator = self.seeds.torch("nasi gumbel", *_moment(step))
        out = []
        for alpha, allowed in zip(logits, self.allowed, strict=True):
            uniform = torch.rand(len(alpha), generator=generator).clamp_(1e-9, 1 - 1e-7)
            noise = (-torch.log(-torch.log(uniform))).to(alpha.device)
            scores = ((alpha + noise) / self.options.temperature).masked_fill(~allowed.to(alpha.device), -torch.inf)
            soft = torch.softmax(scores, 0)
            hard = torch.zeros_like(soft)
            hard[int(soft.argmax())] = 1.0
            out.append(hard + soft - soft.detach())
        return Gates(tuple(out))

    def value(self, step: int, who: Arch | Gates, graph: bool) -> Tensor:
        """Equation 12: the squared norm of the mini-batch's mean-loss gradient."""
        if self.options.redraw and step % self.options.redraw == 0:
            self._draw(step)
        images, labels = self.source(step)
        loss = self.loss(self.net(images, who), labels)
        gradients = torch.autograd.grad(loss, self.theta, create_graph=graph, allow_unused=True)
        return squared_norm(gradients, self.factors)

    def quadratic(self, delta: Tensor) -> Quadratic:
        """Delta* as the score; what was left out comes last in its choice, for budgets that only it can meet."""
        linear = {}
        for i, (part, allowed) in enumerate(zip(torch.split(delta, list(self.space.sizes)), self.allowed, strict=True)):
            values, keep = part.numpy().copy(), allowed.numpy()
            values[~keep] = values[keep].min() - 1.0  # entries of Delta* lie within -1 and 1
            linear[i] = values
        return Quadratic(self.space.sizes, 0.0, linear)


def _allowed(options: Sequence[str], without: Sequence[str]) -> Tensor:
    """Which options are drawn: all but those left out, unless nothing would remain."""
    keep = torch.tensor([name not in without for name in options])
    return keep if bool(keep.any()) else torch.ones_like(keep)


def _smaller(source: Source, factor: int) -> Source:
    """The same images at a lower resolution: squares of `factor` pixels become their mean."""
    if factor == 1:
        return source

    def draw(step: int) -> Batch:
        x, y = source(step)
        return F.avg_pool2d(x, factor), y

    return draw


def _noise(task: Task, batch: int, seeds: Seeds, device: str | torch.device) -> Source:
    """Data-free: standard normal images with random labels."""

    def draw(step: int) -> Batch:
        generator = seeds.torch("nasi noise", *_moment(step))
        x = torch.randn(batch, task.channels, task.image, task.image, generator=generator).to(device)
        return x, _random_labels(task, batch, seeds, step, x.device)

    return draw


def _random_labels(task: Task, count: int, seeds: Seeds, step: int, device: torch.device) -> Tensor:
    labels = task.random_labels(seeds.rng("nasi labels", *_moment(step)), count)
    return torch.from_numpy(labels).to(device)


def _moment(step: int) -> tuple[int, int]:
    """Steps may be negative (equation 40's networks); moments of a stream may not."""
    return (int(step < 0), abs(step))


def _statistics(values: Sequence[float]) -> dict[str, float]:
    v = np.asarray(values)
    return {"mean": float(v.mean()), "median": float(np.median(v)), "least": float(v.min()), "most": float(v.max())}


PLUGIN = NASI
