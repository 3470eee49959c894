"""Mutated run directories through every command that reads one: refused or right, never a traceback, nothing outside.

A case is a seed. It changes a few files of an honest run (values, keys, types, bytes, links, pipes, swaps), with the
hashes renewed as a forger would or not, and says what each command made of it.
"""

import contextlib
import io
import json
import os
import random
import shutil
import signal
import traceback
from pathlib import Path

import numpy as np
import tiny

import sartor
from sartor.cli import main as cli
from sartor.compression import order as compressing
from sartor.core.errors import SartorError
from sartor.pipeline import decision, order
from sartor.runs.directory import Run, sha256
from sartor.runs.progress import Reporter

EVIL = "evil_fuzz:make"
VALUES = [
    None, True, False, -1, 0, 1, 2, 7, 10**6, 10**30, 0.5, -3.5, 1e308, 1e-300, "", "x", "\x00", "ä", "../../victim",
    "/", "mobile", "40%", "99999999999999999999M", EVIL, [], {}, [[]], [0], {"a": 1}, "NAN", "x" * 5000, [[[[[[]]]]]],
]  # fmt: skip
COMMANDS = ("report", "predict", "solve", "verify", "compress", "load")
SECONDS = 120


class Stopped(Exception):
    """A command got as far as is tried here."""


def make(root):
    """Honest runs in a folder of their own, small: a fit with one further budget, and its network compressed."""
    data, silent = tiny.npz(root), Reporter(silent=True)
    space = {"name": "nasbench201", "cells": 1, "channels": 4, "sketch_cells": 1, "sketch_channels": 8}
    given = tiny.given(data, {"params": "20K"}, space=space, method="random", costs={}, solver="auto")
    order.fit(given, root / "honest", silent)
    order.solve(root / "honest", {"params": "8K"}, silent)
    quick = {"pretrain": 0, "rounds": 1, "epochs": 1, "levels": 3, "hessian_images": 40, "train": {"epochs": 1}}
    sartor.compress(root / "honest", params="70%", out=root / "compressed", quiet=True, **quick)
    return [root / "honest", root / "compressed"]


# mutations ------------------------------------------------------------------------------------------


def nodes(data, way=()):
    """Every place in nested JSON."""
    yield way
    pairs = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in list(pairs)[:50]:
        yield from nodes(value, (*way, key))


def mutated_json(text, rng):
    data = json.loads(text)
    way = rng.choice(list(nodes(data)))
    value = rng.choice(VALUES)
    if not way:
        data = value
    else:
        holder = data
        for key in way[:-1]:
            holder = holder[key]
        deed = rng.choice(("replace", "remove", "wrap", "scale"))
        if deed == "remove":
            del holder[way[-1]]
        elif deed == "wrap":
            holder[way[-1]] = rng.choice(([holder[way[-1]]], {"x": holder[way[-1]]}, str(holder[way[-1]])))
        elif deed == "scale" and isinstance(holder[way[-1]], (int, float)):
            holder[way[-1]] = holder[way[-1]] * rng.choice((-1, 0.999, 2, 1e9))
        else:
            holder[way[-1]] = value
    return json.dumps(data).replace('"NAN"', "NaN")


def mutated_toml(text, rng):
    lines = text.splitlines()
    n = rng.randrange(len(lines))
    name, equals, _ = lines[n].partition("=")
    deed = rng.choice(("value", "value", "remove", "twice", "garbage"))
    if deed == "value" and equals:
        value = rng.choice([v for v in VALUES if v is not None and not isinstance(v, dict)])
        lines[n] = f"{name}= {json.dumps(value)}"
    elif deed == "remove":
        del lines[n]
    else:
        lines.insert(n, lines[n] if deed == "twice" else "= [")
    return "\n".join(lines) + "\n"


def mutated_bytes(content, rng):
    deed = rng.choice(("cut", "cut", "empty", "flip", "flip"))
    if deed == "flip" and content:
        changed = bytearray(content)
        for _ in range(rng.choice((1, 3, 50))):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        return bytes(changed)
    return content[: rng.randrange(len(content) + 1)] if deed == "cut" else b""


def replaced(path, content):
    """New contents in a new file: the old one may be shared with the honest run."""
    path.unlink()
    path.write_bytes(content)


def mutate(run, victim, rng):
    """One change; what was done, in words."""
    files = sorted(p for p in run.rglob("*") if p.is_file() and not p.is_symlink() and "tensorboard" not in p.parts)
    texts = [p for p in files if p.suffix in (".json", ".toml")]
    path = rng.choice(texts if rng.random() < 0.75 else files)
    name = path.relative_to(run)
    deed = rng.choice(("content",) * 12 + ("bytes",) * 3 + ("swap", "delete", "link", "folder link", "pipe", "folder"))
    content = path.read_bytes()
    if deed == "content" and path.suffix in (".json", ".toml"):
        change = mutated_json if path.suffix == ".json" else mutated_toml
        with contextlib.suppress(ValueError):  # mutated before into something else
            content = change(content.decode(errors="replace"), rng).encode("utf-8", "surrogatepass")
        replaced(path, content)
    elif deed in ("content", "bytes"):
        replaced(path, mutated_bytes(content, rng))
    elif deed == "swap":
        other = rng.choice(files)
        theirs = other.read_bytes()
        replaced(other, content)
        replaced(path, theirs)
        name = f"{name} and {other.relative_to(run)}"
    elif deed == "folder link":
        folder = rng.choice([p for p in run.rglob("*") if p.is_dir() and not p.is_symlink()])
        name = folder.relative_to(run)
        shutil.rmtree(folder)
        folder.symlink_to(victim)
    else:
        path.unlink()
        if deed == "link":
            path.symlink_to(victim / "file")
        elif deed == "pipe":
            os.mkfifo(path)
        elif deed == "folder":
            path.mkdir()
    return f"{deed} {name}"


def renew(run):
    """Every hash as a forger would renew it, as far as the list still is one."""
    for path in (p for p in run.rglob("stages.json") if p.is_file()):
        with contextlib.suppress(ValueError, AttributeError, TypeError, KeyError, OSError):
            listed = json.loads(path.read_text())
            for entry in listed.values():
                if isinstance(entry, dict):
                    files = [n for n in entry["files"] if (path.parent / n).is_file()]
                    entry["files"] = {n: sha256(path.parent / n) for n in files}
            replaced(path, json.dumps(listed).encode())


def listed_intact(run):
    """Whether every file that the honest list has is what it was."""
    with contextlib.suppress(SartorError, OSError):
        return all(Run(run).intact(s) for s in Run(run).stages()) and bool(Run(run).stages())
    return False


# commands -------------------------------------------------------------------------------------------

PIXELS = tiny.arrays(3)[0][:, None].astype(np.float32)


def solve(run, out):
    order.solve(run, {"params": "12K"}, Reporter(silent=True))
    return json.loads((run / "cuts/params-12K/solution.json").read_text())["solution"]["picks"]


def compress(run, out):
    return sum(p.numel() for p in sartor.compress(run, params="50%", out=out, quiet=True).model.parameters())


def load(run, out):
    result = sartor.load(run)
    found = [result.certificate, sorted(result.tables), result.labels]
    if not (run / "compression.json").exists():  # whose budget decided its rounds
        found += [len(result.frontier), sorted(result.explain())]
    return [*map(str, found), sum(float(p.detach().sum()) for p in result.model.parameters())]


CALLS = {
    "report": lambda run, out: cli.report(run),
    "predict": lambda run, out: [f["label"] for f in sartor.load(run).predict(PIXELS)],
    "solve": solve,
    "verify": lambda run, out: sartor.verify(run).holds,
    "compress": compress,
    "load": load,
}


@contextlib.contextmanager
def up_to_the_decision():
    """`solve` ends when it has decided, `compress` when it has opened everything."""

    def stop(context):
        raise Stopped(sum(p.numel() for p in context.net.parameters()))

    kept = order.finish, compressing.begin
    order.finish, compressing.begin = decision.decide, stop
    try:
        yield
    finally:
        order.finish, compressing.begin = kept


def outcome(name, run, out):
    """("right", value), ("refused", message) or ("failed", traceback)."""

    def late(*_):
        raise TimeoutError(f"{name} took more than {SECONDS} s")

    signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return "right", CALLS[name](run, out)
    except SartorError as error:
        return "refused", str(error)
    except Stopped as done:
        return "right", done.args[0]
    except BaseException:
        return "failed", traceback.format_exc()
    finally:
        signal.alarm(0)


def copied(source, target):
    """Large files shared, small ones copied: commands append to logs."""
    link = lambda a, b: os.link(a, b) if os.path.getsize(a) > 100_000 else shutil.copy2(a, b)  # noqa: E731
    return Path(shutil.copytree(source, target, copy_function=link))


def outside(place):
    """All that must not change: whatever lies beside the run."""
    return sorted((str(p), p.stat().st_mtime_ns) for p in place.rglob("*") if "got" not in p.relative_to(place).parts)


def case(seed, honest, place, expected):
    """One mutated directory in the folder `place`: what was done, what each command made of it, and what is wrong."""
    rng, victim, run = random.Random(seed), place / "victim", place / "got"
    shutil.rmtree(place, ignore_errors=True)
    victim.mkdir(parents=True)
    (victim / "file").write_text("mine")
    copied(honest, run)
    done = []
    for _ in range(rng.choice((1, 1, 2, 3))):
        with contextlib.suppress(OSError, IndexError):  # a change that an earlier one made impossible
            done.append(mutate(run, victim, rng))
    renewed = rng.random() < 0.6
    if renewed:
        renew(run)
    before, wrong, counts = outside(place), [], {}
    with up_to_the_decision():
        for name in COMMANDS:
            intact = name != "verify" or listed_intact(run)  # a report that was changed has been written again by then
            how, value = outcome(name, run, place / "got/small")
            counts[f"{name} {how}"] = 1
            if how == "failed":
                wrong.append(f"{name}: {value}")
            elif how == "right" and name == "verify" and value and not intact:
                wrong.append("verify: passes though a listed file has changed")
            elif how == "right" and name not in ("verify", "report") and not renewed and expected[name] != (how, value):
                wrong.append(f"{name}: {value} instead of {expected[name]}, though nothing was renewed")
            if outside(place) != before:
                wrong.append(f"{name}: something outside the directory was touched")
                before = outside(place)
    return {"seed": seed, "done": done, "renewed": renewed, "wrong": wrong, "counts": counts}


def answers(honest, place):
    """What every command gives of the honest run; another budget is for fits alone."""
    shutil.rmtree(place, ignore_errors=True)
    run = copied(honest, place / "got")
    with up_to_the_decision():
        found = {name: outcome(name, run, place / "got/small") for name in COMMANDS}
    others = {"solve"} if (honest / "compression.json").exists() else set()
    assert all(how == ("refused" if name in others else "right") for name, (how, _) in found.items()), found
    return found


def cases(seeds, honest, place):
    """A case for every seed, of one of the honest runs, in a folder from which code could be imported that must not."""
    place.mkdir(parents=True, exist_ok=True)
    (place / "evil_fuzz.py").write_text(f"open({str(place / 'bitten')!r}, 'w').close()\ndef make(*_, **__): pass\n")
    kept = Path.cwd()
    os.chdir(place)
    try:
        expected = {run: answers(run, place / "case") for run in honest}
        for seed in seeds:
            run = honest[seed % len(honest)]
            found = case(seed, run, place / "case", expected[run])
            if (place / "bitten").exists():
                found["wrong"].append("code named by the files was run")
                (place / "bitten").unlink()
            yield found
    finally:
        os.chdir(kept)
