"""BINAS: a supernet, the accuracy contribution of every decision, a bilinear score (arXiv:2110.12399).

Phases: the heaviest network alone; its channels sorted by importance; all networks together, every
image on a path of its own, taught by the heaviest; batch-norm statistics recomputed; equation 3's
contributions measured on the validation split; the score's ranking checked on held-out networks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch

from sartor.engine import checkpoint, distill
from sartor.engine.evaluate import accuracy, correct, recalibrate
from sartor.engine.fit import Training, fit
from sartor.engine.network import calibration
from sartor.engine.recipe import Recipe
from sartor.errors import BadInput, RunError
from sartor.methods.base import Effort, Found, Job, Method, epochs_for
from sartor.predictors.contributions import entries, estimate, forced
from sartor.quadratic import Quadratic
from sartor.ranking import quality

_PER_FORWARD = 1152  # images in one evaluation pass; several entries share a pass on small data
_SAVE_EVERY = 5.0  # seconds between saves of partial measurements


@final
@dataclass(frozen=True, kw_only=True)
class BINAS(Method):
    """Accuracy contributions measured in a supernet: a bilinear, interpretable score (BINAS)."""

    inherits: ClassVar[bool] = True

    heaviest_epochs: int = 250
    heaviest_lr: float = 0.1
    heaviest_decay: float = 1e-4
    multipath_epochs: int = 100
    multipath_lr: float = 0.0128
    multipath_decay: float = 1e-5
    batch: int = 200
    smoothing: float = 0.1
    gamma: float = 1.0  # weight of the teacher's part of the loss
    ema: float = 0.999
    dropout: float = 0.0
    augment: Literal["none", "light", "standard", "strong"] = "strong"
    sort_share: float = 0.1  # share of the training images that decides the importance of channels
    passes: int = 10  # validation epochs for every expectation
    held_out: int = 500  # networks that check the ranking

    def __post_init__(self) -> None:
        if self.passes < 1 or self.held_out < 3 or not 0 < self.sort_share <= 1:
            raise BadInput(
                "method.passes >= 1, method.held_out >= 3 and 0 < method.sort_share <= 1 must hold, but got "
                f"{self.passes}, {self.held_out} and {self.sort_share:g}."
            )
        self._recipe(self.heaviest_epochs, self.heaviest_lr, self.heaviest_decay)  # refuses what cannot be trained,
        self._recipe(self.multipath_epochs, self.multipath_lr, self.multipath_decay)  # before anything is

    @classmethod
    def preset(cls, effort: Effort, images: int) -> dict[str, Any]:
        """The paper's numbers for ``thorough``; shorter schedules at higher rates below that."""
        if effort == "thorough":
            return {}
        quick = effort == "quick"
        return {
            "heaviest_epochs": epochs_for(images, 16_000 if quick else 100_000, 3, 14 if quick else 60),
            "multipath_epochs": epochs_for(images, 28_000 if quick else 200_000, 4, 24 if quick else 100),
            "multipath_lr": 0.05,
            "batch": 64,
            "augment": "light" if quick else "standard",
            "passes": 3 if quick else 6,
            "held_out": 60 if quick else 200,
        }

    def search(self, job: Job) -> Found:
        """All phases; each resumes from what it left in the run directory."""
        torch.manual_seed(job.seeds.number("supernet"))
        net = job.engine.place(job.space.supernet(job.task))
        history = {"heaviest": self._train_heaviest(job, net)}
        teacher = net.extract(job.space.heaviest)
        recalibrate(teacher, calibration(job.feed, job.splits), job.engine.cast(lambda x, _: teacher(x)))
        teacher.eval().requires_grad_(False)
        self._sort(job, net)
        net.inherit()
        history["multipath"] = self._train_multipath(job, net, teacher)
        paths = lambda x, k: job.space.sample_picks(job.seeds.rng("calibrate", k), len(x))  # noqa: E731
        recalibrate(net, calibration(job.feed, job.splits), job.engine.cast(lambda x, k: net(x, paths(x, k))))
        net.eval()
        seconds = time.monotonic()
        score = self._measure(job, net)
        seconds = time.monotonic() - seconds
        check = self._check(job, net, score)
        facts = {
            "history": history,
            "heaviest_accuracy": accuracy(teacher, job.feed, job.splits.val),
            "expectations": 1 + len(entries(job.space.choices)),
            "passes": self.passes,
            "measuring_seconds": round(seconds, 3),
            "held_out": check["networks"],
        }
        files = []
        for name, module in (("supernet", net), ("teacher", teacher)):
            files.append(f"search/{name}.safetensors")
            if job.run.writer:
                checkpoint.save(job.run.path / files[-1], module.state_dict())
        return Found(score, "% accuracy", check["quality"], facts, tuple(files))

    def _train_heaviest(self, job: Job, net: Any) -> Any:
        heaviest = job.space.heaviest

        def loss(x: torch.Tensor, y: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
            return {"loss": distill.label_loss(net(x, heaviest), y, self.smoothing)}

        recipe = self._recipe(self.heaviest_epochs, self.heaviest_lr, self.heaviest_decay)
        return fit(Training("heaviest", net, loss, recipe, job.feed, job.splits.train, job.run))

    def _train_multipath(self, job: Job, net: Any, teacher: Any) -> Any:
        def loss(x: torch.Tensor, y: torch.Tensor, rng: np.random.Generator) -> dict[str, torch.Tensor]:
            with torch.no_grad():
                their_features, their_logits = teacher.trace(x)
            features, logits = net.trace(x, job.space.sample_picks(rng, len(y)))
            labels = distill.label_loss(logits, y, self.smoothing)
            imitation = distill.imitation_loss(logits, their_logits)
            likeness = distill.feature_loss(features, their_features)
            total = labels + self.gamma * (imitation + likeness)
            return {"loss": total, "labels": labels, "imitation": imitation, "features": likeness}

        recipe = self._recipe(self.multipath_epochs, self.multipath_lr, self.multipath_decay)
        return fit(Training("multipath", net, loss, recipe, job.feed, job.splits.train, job.run))

    def _recipe(self, epochs: int, lr: float, decay: float) -> Recipe:
        return Recipe(
            epochs=epochs, lr=lr, weight_decay=decay, batch=self.batch, smoothing=self.smoothing,
            ema=self.ema, dropout=self.dropout, augment=self.augment,
        )  # fmt: skip

    def _sort(self, job: Job, net: Any) -> None:
        """Gradients of the heaviest network over the first images of each class decide the channels' order."""
        labels = job.feed.images.labels[job.splits.train]
        first = [np.flatnonzero(labels == c) for c in range(job.task.classes)]
        index = np.concatenate([job.splits.train[f[: max(1, int(self.sort_share * len(f)))]] for f in first])
        net.eval().zero_grad()
        for x, y in job.feed.plain(index, 256):
            with job.engine.autocast():
                loss = distill.label_loss(net(x, job.space.heaviest), y, 0.0)
            loss.backward()  # type: ignore[no-untyped-call]
        net.sort_channels()
        net.zero_grad()

    # measuring -----------------------------------------------------------------------------------

    def _measure(self, job: Job, net: Any) -> Quadratic:
        """Equation 3 by multi-path sampling: every validation image on a random path of its own, entry by entry."""
        todo = entries(job.space.choices)
        val = job.splits.val
        # E[Acc] on the very same paths: its luck is theirs, and cancels in every difference.
        base = _Tally(job, "base", 1, self.passes)
        base.run(lambda e, picks: picks, net)
        counted = _Tally(job, "contributions", len(todo), self.passes)
        counted.run(lambda e, picks: forced(picks, todo[e].condition), net)
        assert base.right.shape[1] == len(val)
        return estimate(job.space.choices, base.percent()[0], counted.percent())

    def _check(self, job: Job, net: Any, score: Quadratic) -> dict[str, Any]:
        """Predicted against measured accuracy of networks drawn uniformly, each evaluated on its own."""
        rng = job.seeds.rng("held out")
        archs = [job.space.sample(rng) for _ in range(self.held_out)]
        measured = np.zeros(len(archs))
        with job.run.reporter.bar("held-out networks", len(archs)) as bar:
            for n, arch in enumerate(archs):
                if n % job.engine.world == job.engine.rank:
                    right = correct(partial(net, who=arch), job.feed, job.splits.val, _PER_FORWARD)
                    measured[n] = 100.0 * right.mean()
                bar.to(n + 1)
        measured = job.engine.sum(measured)
        predicted = score.batch([a.picks for a in archs])
        networks = {
            "picks": [list(a.picks) for a in archs], "predicted": predicted.tolist(), "measured": measured.tolist(),
        }  # fmt: skip
        return {"networks": networks, "quality": quality(predicted, measured, job.seeds.rng("bootstrap"))}


class _Tally:
    """How often each validation image was right under each entry; saved as it grows, so it can resume.

    The random paths are a function of the pass alone: all entries see the same ones, so their
    contributions differ by the decision and not by luck.
    """

    def __init__(self, job: Job, name: str, count: int, passes: int) -> None:
        self.job, self.name, self.passes, self.count = job, name, passes, count
        self.file = job.run.path / "search" / f"{name}.tally.safetensors"
        self.right = np.zeros((count, len(job.splits.val)), np.int64)
        self.position = 0
        if job.engine.agree(self.file.exists()):
            saved = checkpoint.load(self.file)
            right: Any = saved.get("right")
            position = saved.get("position")
            if getattr(right, "shape", None) != self.right.shape or not isinstance(position, int):
                raise RunError(f"{self.file} is not of this search. Delete it to measure again.")
            self.right, self.position = right.numpy(), position

    def percent(self) -> np.ndarray:
        """Accuracy of every entry on every image."""
        return 100.0 * self.right / self.passes

    def run(self, paths: Any, net: Any) -> None:
        """Evaluate what is missing; chunks of entries are dealt out over the processes."""
        engine = self.job.engine
        together = max(1, _PER_FORWARD // self.right.shape[1])
        chunks = [range(e, min(e + together, self.count)) for e in range(0, self.count, together)]
        work = [(p, chunk) for p in range(self.passes) for chunk in chunks]
        rounds = range(self.position, len(work), engine.world)
        saved = time.monotonic()
        with self.job.run.reporter.bar(self.name, len(work)) as bar:
            for first in rounds:
                found = np.zeros_like(self.right)
                if first + engine.rank < len(work):
                    self._evaluate(found, *work[first + engine.rank], paths, net)
                self.right += engine.sum(found)
                self.position = min(len(work), first + engine.world)
                bar.to(self.position)
                if time.monotonic() - saved > _SAVE_EVERY or self.position == len(work):
                    saved = time.monotonic()
                    self._save()

    @torch.no_grad()
    def _evaluate(self, found: np.ndarray, number: int, chunk: range, paths: Any, net: Any) -> None:
        job, start = self.job, 0
        for x, y in job.feed.plain(job.splits.val, _PER_FORWARD):
            stop = start + len(y)
            picks = job.space.sample_picks(job.seeds.rng("paths", number, start), len(y))
            who = np.concatenate([paths(e, picks) for e in chunk])
            many = x.repeat(len(chunk), 1, 1, 1).contiguous(memory_format=torch.channels_last)
            with job.engine.autocast():
                guess = net(many, who).argmax(1)
            found[chunk.start : chunk.stop, start:stop] += (guess.view(len(chunk), -1) == y).cpu().numpy()
            start = stop

    def _save(self) -> None:
        if self.job.run.writer:
            checkpoint.save(self.file, {"right": torch.from_numpy(self.right), "position": self.position})


PLUGIN = BINAS
