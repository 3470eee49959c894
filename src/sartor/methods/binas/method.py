"""BINAS: a supernet, the accuracy contribution of every decision, a bilinear score (arXiv:2110.12399).

Phases: the heaviest network alone; its channels sorted by importance; all networks together, every
image on a path of its own, taught by the heaviest; batch-norm statistics recomputed; equation 3's
contributions measured on the validation split; the score's ranking checked on held-out networks.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, ClassVar, Literal, final

import numpy as np
import torch

from sartor.core.config import check
from sartor.core.errors import BadInput
from sartor.core.quadratic import Quadratic
from sartor.data.augment import Augment, Strength
from sartor.engine import checkpoint, distill
from sartor.engine.evaluate import Forward, accuracy, correct, recalibrate
from sartor.engine.fit import Training, fit, nothing
from sartor.engine.network import calibration
from sartor.engine.recipe import Recipe
from sartor.engine.seeding import seeded
from sartor.insight.ranking import quality
from sartor.methods.base import Effort, Found, Job, Method
from sartor.methods.binas.focus import chances, draw_images, gain
from sartor.methods.binas.outcomes import Outcomes, PathsAt
from sartor.methods.binas.tally import Tally, per_forward
from sartor.methods.sharing import recalibrate_paths
from sartor.predictors.contributions import entries, estimate, force
from sartor.predictors.joint import Paths, Redrawn, correlation, rescale_to
from sartor.predictors.shrinkage import shrink_score, shrink_with_hint
from sartor.spaces.base import Picks
from sartor.spaces.capabilities import Elastic, prepared
from sartor.spaces.supernet import StepDraw, new_supernet, trace

_FIRST = 16  # passes that see all images, at least: few are enough for what leads, and doubt must be known
_DECK = 36  # images to which paths are dealt evenly: a GPU meets the same shapes again
# Shares of the search's time, where the time decides.
_HEAVIEST, _MULTIPATH, _MEASURING, _CHECKING = 0.3, 0.45, 0.18, 0.07
_LEAST_HELD_OUT = 12
_MOST_PASSES, _MOST_HELD_OUT = 200, 200  # more would not change the decision
_CALIBRATION = 40  # batches that decide the teacher's batch-norm statistics
_FEW = 256  # images, on which a CPU times a pass, and that must measure at least
_OUTCOMES_A_TERM = 8  # least outcomes for every coefficient of the joint estimate


def _of_mirror_images(forward: Forward, images: torch.Tensor) -> torch.Tensor:
    return forward(images.flip(3))


@final
@dataclass(frozen=True, kw_only=True)
class BINAS(Method):
    """Accuracy contributions measured in a supernet: a bilinear, interpretable score (BINAS)."""

    inherits: ClassVar[bool] = True

    heaviest_epochs: int = 250  # 0, here and below: as many as the time allows
    heaviest_lr: float = 0.1
    heaviest_decay: float = 1e-4
    multipath_epochs: int = 100
    multipath_lr: float = 0.0128
    multipath_decay: float = 1e-5
    batch: int = 200
    smoothing: float = 0.1
    gamma: float = 1.0  # weight of the teacher's part of the loss
    ema: float = 0.999
    warmup: float = 0.1  # share of a phase's steps
    clip: float = 5.0  # largest gradient norm; 0 switches clipping off
    dropout: float = 0.0
    augment: Strength = "auto_cutout"
    sort_share: float = 0.1  # share of the training images that decides the importance of channels
    estimator: Literal["joint", "paper"] = "joint"
    # For joint: right or wrong, the right class's probability, its logarithm, or the first led by the last.
    outcome: Literal["both", "right", "chance", "likelihood"] = "both"
    shrink: bool = True  # for joint: towards what contributions of like decisions have in common
    focus: bool = True  # for joint: most of the passes go to images that paths disagree about
    mirror: bool = True  # for joint: networks are measured on mirror images too, where training mirrors images
    passes: int = 200  # validation epochs: in all for joint, for every single expectation for paper (its own: 10)
    held_out: int = 500  # networks that check the ranking

    def __post_init__(self) -> None:
        check(self, "method.", passes=">= 0", held_out=">= 0", sort_share="> 0 <= 1")
        if self.held_out in (1, 2):
            raise BadInput(f"method.held_out must be at least 3, or 0 (as time allows), but got {self.held_out}.")
        if self.outcome == "both" and not self.shrink:
            raise BadInput(
                'method.outcome = "both" weighs two measurements of every contribution, which method.shrink = false '
                'forbids. Leave method.shrink on, or say method.outcome = "right" or "likelihood".'
            )
        self._recipe(self.heaviest_epochs, self.heaviest_lr, self.heaviest_decay)  # refuses what cannot be trained,
        self._recipe(self.multipath_epochs, self.multipath_lr, self.multipath_decay)  # before anything is

    @classmethod
    def preset(cls, effort: Effort, images: int, device: str = "cpu") -> dict[str, Any]:
        """The paper's numbers for ``thorough``; else the time decides, at rates that suit the device's batch."""
        if effort == "thorough":  # appendices A and C; the fields' defaults are the rest of them
            return {"estimator": "paper", "passes": 10, "warmup": 0.0, "clip": 0.0}
        # A GPU replays steps whose shapes repeat: multiples of 36 images, at which every path's groups are equal.
        batch = min(360, max(2, images // 20 // _DECK) * _DECK) if device == "cuda" else 64
        return {
            "heaviest_epochs": 0,
            "heaviest_lr": 0.1 * max(1.0, batch / 120),
            "multipath_epochs": 0,
            "multipath_lr": 0.05 * max(1.0, batch / 90),
            "batch": batch,
            "augment": "light",
            "passes": 0,
            "held_out": 0,
        }

    @classmethod
    def paper(cls) -> dict[str, Any]:
        """Fine-tuning by the authors' code: 19 epochs are the paper's 8 hours, three of them warm-up."""
        return {
            "epochs": 19, "batch": 128, "lr": 0.00128, "weight_decay": 1e-5, "warmup": 3 / 19, "smoothing": 0.0,
            "clip": 0.0, "augment": "auto_cutout", "teacher": True, "images": "train",
        }  # fmt: skip

    def search(self, job: Job) -> Found:
        """All phases; each resumes from what it left in the run directory."""
        with seeded(job.seeds.number("supernet")):
            net = job.engine.place(new_supernet(job.space, job.task))
        if job.origin is not None:
            job.run.log(f"the search starts with {job.origin.into(net, job.task.classes)}")
        history = {"heaviest": self._train_heaviest(job, net)}
        teacher = net.extract(job.space.heaviest)
        batch = job.engine.batch(240, self.batch)
        recalibrate(teacher, calibration(job.feed, job.splits, batch), job.engine.cast(lambda x, _: teacher(x)))
        heaviest = accuracy(teacher, job.feed, job.splits.val, job.engine.batch(512, self.batch))
        self._prepare_to_teach(job, teacher, batch)
        self._sort(job, net)
        if isinstance(net, Elastic):
            net.inherit()
        history["multipath"] = self._train_multipath(job, net, teacher)
        recalibrate_paths(job, net, job.engine.batch(240, self.batch))
        seconds = time.monotonic()
        timed, job = self._timed(job, net)
        score = timed._measure(job, net)
        seconds = time.monotonic() - seconds
        checking = time.monotonic()
        check = timed._check(job, net, score)
        checking = time.monotonic() - checking
        facts = {
            "history": history,
            "heaviest_accuracy": heaviest,
            "estimator": self.estimator,
            "validation_epochs": timed._epochs(job),
            "measuring_seconds": round(seconds, 3),
            "checking_seconds": round(checking, 3),
            "held_out": check["networks"],
        }
        files = []
        for name, module in (("supernet", net), ("teacher", teacher)):
            files.append(f"search/{name}.safetensors")
            if job.run.writer:
                checkpoint.save(job.run.path / files[-1], module.state_dict())
        return Found(score, f"% {job.task.outcome}", check["quality"], facts, tuple(files))

    def _train_heaviest(self, job: Job, net: Any) -> Any:
        heaviest = job.space.heaviest

        def loss(x: torch.Tensor, y: torch.Tensor, drawn: StepDraw) -> dict[str, torch.Tensor]:
            return {"loss": job.task.loss(net(x, heaviest), y, self.smoothing)}

        recipe = self._recipe(self.heaviest_epochs, self.heaviest_lr, self.heaviest_decay)
        training = Training("heaviest", net, loss, recipe, job.feed, job.splits.train, job.run, draw=nothing,
                            title="training the largest network")  # fmt: skip
        return fit(job.timed(training, _HEAVIEST))

    def _prepare_to_teach(self, job: Job, teacher: Any, batch: int) -> None:
        """Batch-norm statistics of the varied images that it will teach on.

        With those of plain images its features grow from stage to stage on images that are varied much, and students
        imitate that: the worst image's last features were three times as large (`docs/decisions.md`).
        """
        augment = Augment.for_task(job.task, self.augment)
        varied = job.feed.train(job.splits.train, batch, augment, "teacher calibration", 0)
        recalibrate(teacher, islice(varied, _CALIBRATION), job.engine.cast(lambda x, _: teacher(x)))
        job.engine.average([b for b in teacher.buffers() if b.is_floating_point()])  # every process saw other images
        teacher.eval().requires_grad_(False)

    def _train_multipath(self, job: Job, net: Any, teacher: Any) -> Any:
        def draw(rng: np.random.Generator, images: int) -> Any:
            return prepared(net, job.space.sample_picks(rng, images), job.engine.device)

        def loss(x: torch.Tensor, y: torch.Tensor, paths: Any) -> dict[str, torch.Tensor]:
            with torch.no_grad():
                their_features, their_logits = trace(teacher, x)
            features, logits = net.trace(x, paths)
            labels = job.task.loss(logits, y, self.smoothing)
            imitation = job.task.imitation(logits, their_logits)
            likeness = distill.feature_loss(features, their_features) if features else 0.0 * imitation
            total = labels + self.gamma * (imitation + likeness)
            return {"loss": total, "labels": labels, "imitation": imitation, "features": likeness}

        recipe = self._recipe(self.multipath_epochs, self.multipath_lr, self.multipath_decay)
        training = Training("multipath", net, loss, recipe, job.feed, job.splits.train, job.run, draw=draw,
                            title="training all networks at once")  # fmt: skip
        return fit(job.timed(training, _MULTIPATH))

    def _recipe(self, epochs: int, lr: float, decay: float) -> Recipe:
        return Recipe(
            epochs=epochs, lr=lr, weight_decay=decay, batch=self.batch, smoothing=self.smoothing,
            ema=self.ema, warmup=self.warmup, clip=self.clip, dropout=self.dropout, augment=self.augment,
        )  # fmt: skip

    def _sort(self, job: Job, net: Any) -> None:
        """Gradients of the heaviest network over the first images of each class decide the channels' order."""
        shared: object = net
        if not isinstance(shared, Elastic):
            return
        labels = job.feed.images.labels[job.splits.train]
        first = [np.flatnonzero(job.task.members(labels, c)) for c in range(job.task.classes)]
        index = np.concatenate([job.splits.train[f[: max(1, int(self.sort_share * len(f)))]] for f in first])
        net.eval().zero_grad()
        batch = job.engine.batch(256, self.batch)
        if job.engine.device.type == "cuda" and len(index) > batch:  # whole batches, and some of every class
            index = job.seeds.rng("sort").permutation(index)[: len(index) // batch * batch]
        for x, y in job.feed.plain(index, batch):
            with job.engine.autocast():
                loss = job.task.loss(net(x, job.space.heaviest), y)
            loss.backward()  # type: ignore[no-untyped-call]
        shared.sort_channels()
        net.zero_grad()

    # measuring -----------------------------------------------------------------------------------

    def _timed(self, job: Job, net: Any) -> tuple[BINAS, Job]:
        """The method with as many passes and held-out networks as the time allows, where it left that open.

        Where the time does not even allow the fewest, the job that comes back measures on fewer images.
        """
        if self.passes and self.held_out:
            return self, job
        file = "search/measuring.plan.json"
        if job.engine.agree((job.run.path / file).exists()):
            plan = job.run.read(file)
        else:
            job.needs_time("method.passes and method.held_out")
            epoch, images, views = self._epoch(job, net), len(job.splits.val), 2 if self._mirrors(job) else 1
            fewest = epoch * (_FIRST + views * _LEAST_HELD_OUT)
            share = min(1.0, (_MEASURING + _CHECKING) * (job.seconds or 0.0) / max(fewest, 1e-9))
            few = min(images, max(_FEW, round(share * images)))
            epoch *= few / images
            plan = job.engine.agree({
                "passes": job.count(_MEASURING, epoch, _FIRST, _MOST_PASSES),
                "held_out": job.count(_CHECKING, views * epoch, _LEAST_HELD_OUT, _MOST_HELD_OUT),
                "images": few,
            })  # fmt: skip
            job.run.write(file, plan)
        some = np.sort(job.seeds.rng("measured").permutation(job.splits.val)[: int(plan.get("images", 2**62))])
        method = replace(
            self, passes=self.passes or int(plan["passes"]), held_out=self.held_out or int(plan["held_out"])
        )
        return method, replace(job, splits=replace(job.splits, val=some))

    def _epoch(self, job: Job, net: Any) -> float:
        """Seconds of a pass of random paths over the validation images; on a CPU those of some tell it."""
        gpu, images = job.engine.device.type == "cuda", len(job.splits.val)
        few = images if gpu else min(images, _FEW)
        rows = 2 * max(1, per_forward(job.engine.device.type) // images) if gpu else 1
        pace, start = Tally(job, "pace", rows, places=np.tile(np.arange(few), (rows, 1))), 0.0
        for _ in range(2 if gpu else 1):  # a GPU's first run is not timed: libraries set themselves up
            start, pace.position = time.monotonic(), 0
            pace.run(net, lambda row, _, first, count: job.space.sample_picks(job.seeds.rng("pace", row), count))
        return (time.monotonic() - start) / rows * images / few

    def _measure(self, job: Job, net: Any) -> Quadratic:
        """The contributions of equation 3, by the estimator asked for."""
        space, last = job.space, (-1, -1, np.zeros((0, 0), np.int64))

        def paths_at(number: int, start: int, count: int) -> Picks:
            """Random paths, a function of the pass and the first image: asked for again, they are the same."""
            nonlocal last
            if last[:2] != (number, start):
                last = (number, start, space.sample_picks(job.seeds.rng("paths", number, start), count))
            return last[2]

        if self.estimator == "joint":
            return self._fit_jointly(job, self._outcomes(job, net, paths_at))
        todo = entries(space.choices)
        # E[Acc] on the very same paths: its luck is theirs, and cancels in every difference.
        base, counted = Tally(job, "base", 1, self.passes), Tally(job, "contributions", len(todo), self.passes)
        base.run(net, lambda row, number, start, count: paths_at(number, start, count))
        counted.run(net, lambda row, number, start, count: force(paths_at(number, start, count), todo[row].condition))
        share: Any = 100.0 / self.passes
        return estimate(space.choices, share * base.right[0], share * counted.right)

    def _epochs(self, job: Job) -> int:
        """Validation epochs that measuring takes; on very few images more than asked, or nothing is determined."""
        if self.estimator == "paper":
            return self.passes * (1 + sum(job.space.sizes))
        return max(self.passes, -(-_OUTCOMES_A_TERM * sum(job.space.sizes) // len(job.splits.val)))

    def _mirrors(self, job: Job) -> bool:
        """Whether mirror images measure too: they are as likely as the images, and share only part of their luck."""
        return self.estimator == "joint" and self.mirror and Augment.for_task(job.task, self.augment).flip

    def _outcomes(self, job: Job, net: Any, paths_at: PathsAt) -> Outcomes:
        """All images on random paths first; then, for most of the epochs, those that paths disagree about."""
        epochs, images = self._epochs(job), len(job.splits.val)
        first = min(epochs, max(_FIRST, epochs // 4)) if self.focus and images >= 4 else epochs
        tally = Tally(job, "joint", first, mirror=self._mirrors(job))
        tally.run(net, lambda row, _, start, count: paths_at(row, start, count))
        seen = Outcomes.of(tally, paths_at)
        begun = job.engine.agree((job.run.path / "search/again.tally.safetensors").exists())
        if first == epochs or (not begun and job.late):
            return seen
        size = images // 4 // _DECK * _DECK or images // 4
        chance = chances(tally.right, size)
        rows = round((epochs - first) * images / size)
        places = np.stack([draw_images(chance, job.seeds.rng("again", row)) for row in range(rows)])
        again = Tally(job, "again", rows, places=places, mirror=tally.mirror)
        again.run(net, lambda row, _, start, count: paths_at(first + row, start, count))
        rest = Outcomes.of(again, lambda row, start, count: paths_at(first + row, start, count), 1 / chance)
        return seen.join(rest, first, (epochs - first) * gain(tally.right, chance))

    def _fit_jointly(self, job: Job, seen: Outcomes) -> Quadratic:
        """All decisions at once: every path speaks about all of them."""
        choices, w = job.space.choices, seen.weights
        kinds = {"right": seen.right, "likelihood": seen.likelihood, "chance": 100.0 * np.exp(seen.likelihood / 100.0)}
        paths = Paths(choices, seen.picks, seen.images, w)
        together = correlation(seen.right, seen.likelihood, seen.images, w) if self.outcome == "both" else 0.0

        def estimate_for(redrawn: Redrawn) -> Quadratic:
            if self.outcome == "both":
                right, likelihood = (paths.estimate(kinds[kind], redrawn=redrawn) for kind in ("right", "likelihood"))
                return shrink_with_hint(right, likelihood, together, choices)
            score = paths.estimate(kinds[self.outcome], redrawn=redrawn)
            return shrink_score(score, choices) if self.shrink else score

        # What is best for these images is decided by how well the paths measured them; how far off it may be for
        # others, by how much images differ.
        score = replace(estimate_for("paths"), errors=estimate_for("images").errors)
        return score if self.outcome in ("both", "right") else rescale_to(score, seen.picks, seen.right, w)

    def _check(self, job: Job, net: Any, score: Quadratic) -> dict[str, Any]:
        """Predicted against measured accuracy of networks drawn uniformly, each evaluated on its own."""
        rng = job.seeds.rng("held out")
        archs = [job.space.sample(rng) for _ in range(self.held_out)]
        seen = np.zeros((2, len(archs)))  # on every second image, and on the others: how much of it is the images' luck
        with job.run.reporter.bar("checking the score on networks it has not seen", len(archs)) as bar:
            for n, arch in enumerate(archs):
                if n % job.engine.world == job.engine.rank:
                    one, batch = partial(net, who=arch), per_forward(job.engine.device.type)
                    views = [one, partial(_of_mirror_images, one)] if self._mirrors(job) else [one]
                    right = np.mean([correct(view, job.feed, job.splits.val, batch) for view in views], 0)
                    seen[:, n] = right[::2].sum(), right[1::2].sum()
                bar.to(n + 1)
                if job.engine.world == 1 and n + 1 >= _LEAST_HELD_OUT and job.late:
                    archs, seen = archs[: n + 1], seen[:, : n + 1]
                    break
        seen, images = job.engine.sum(seen), len(job.splits.val)
        measured = 100.0 * seen.sum(0) / images
        halves = 100.0 * seen / np.array([[images - images // 2], [max(1, images // 2)]])
        predicted = score.batch([a.picks for a in archs])
        networks = {
            "picks": [list(a.picks) for a in archs], "predicted": predicted.tolist(), "measured": measured.tolist(),
            "halves": halves.tolist(),
        }  # fmt: skip
        return {"networks": networks, "quality": quality(predicted, measured, job.seeds.rng("bootstrap"))}
