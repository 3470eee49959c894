"""Command lines that nobody would type: every command and option of the surface, values right, wrong or hostile.

Nothing here trains: data and runs that would lead so far are not among the values.
"""

import contextlib
import io
import random
import shlex
import sys

import numpy as np
import tiny
import typer
from PIL import Image

from sartor.cli.main import app, main

HOSTILE = ["", " ", "none", "../..", "/proc/self/mem", "/dev/null", "\x00", "x" * 300, "-1", "0", "nan", "1e309", "[",
           "名", "folder", "text.txt", "empty", "deep.json", "deep.toml", "bad.npz", "black.npz", "few.npz", "a:b",
           "os:system", "sartor.version:__version__", "x.png"]  # fmt: skip
BUDGETS = ["1", "5ms", "0%", "50%", "-2M", "1e308M", "2Mb", "", "latency=5ms", "params=1", "=", "a=b=c"]
NUMBERS = ["-1", "0", "1", "3", "2.5", "x", "", "99999999999999999999", "1e9", "nan"]
SETS = ["", "=", "a", "a.b=1", "method.passes=0", "method={}", "space.widths=[]", "solver.time_limit=-1", "seed=[[[",
        "train.lr=nan", "proxy.foo=1", "costs.latency.rounds=0", "budgets=3", "runtime=5", "val=2"]  # fmt: skip
TABLES = {
    "--space": ["space.toml", "deep.toml"], "--samples": ["s.csv", "text.txt"], "--target": ["acc", "none"],
    "--score": ["score.json", "deep.json"], "--cost": ["lat=lut.json", "lat=deep.json", "lat"],
}  # fmt: skip
# Options whose every value must be chosen: others would compute for long, or start processes.
CHOSEN = {
    "--devices": ["0", "-1", "many", "99999"], "--nodes": ["0", "-1", "many"], "--workers": ["0", "x", "1", "99999"],
    "--samples": ["0", "1", "2", "x"], "--time": ["1s", "-5min", "soon", "0h"],
    "--config": ["deep.toml", "none", "odd.toml"],
    "--set": SETS, "--out": ["out", "text.txt", "/proc/x", "folder", ""], "--plot": ["p.exe", "/proc/p.png", "p.svg"],
    "--proxy": ["params", "magic", "", "params,params"], "--space": ["mobile", "outer", "nasbench201", "a:b"],
    "--data": HOSTILE, "--timm": ["resnet18", ""], "--image": ["8", "-1", "99999", "x"], "--batch": ["2", "-1", "x"],
    "--seeds": ["0", "x", "1"], "--queries": ["0", "1"],
}  # fmt: skip
ALWAYS = {"measure": ["--cost=params"], "score": ["--samples=2", "--proxy=params"]}  # else: latency, many networks
RUNS = {"frontier", "predict", "report"}  # these read a finished run, and do no more


def files(folder):
    """What the values name, in the folder where the commands run; a finished run is there beside as ``run``."""
    (folder / "folder").mkdir()
    for name, text in {"text.txt": "text", "empty": "", "deep.json": "[" * 100_000, "deep.toml": "a = " + "[" * 9999,
                       "odd.toml": "budgets = 3\n[method]\nname = 5\n"}.items():  # fmt: skip
        (folder / name).write_text(text)
    (folder / "bad.npz").write_bytes(b"PK\x03\x04" + bytes(range(256)))
    np.savez(folder / "black.npz", x=np.zeros((60, 8, 8), np.uint8), y=np.arange(60) % 3)
    x, y = tiny.arrays(3)
    np.savez(folder / "few.npz", x=x, y=y)
    Image.new("L", (8, 8)).save(folder / "x.png")
    (folder / "space.toml").write_text('[[choices]]\nname="a"\noptions=["p","q"]\n')
    (folder / "s.csv").write_text("a,acc\np,1\nq,2\n")
    (folder / "lut.json").write_text('{"unit": "ms", "options": {"a": {"p": 1, "q": 2}}}')
    (folder / "score.json").write_text('{"format": "sartor-score-1"}')


def commands(group, prefix=""):
    """Every command with its words."""
    for name, command in sorted(group.commands.items()):
        if hasattr(command, "commands"):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}", command


def line(rng, names):
    """One command line: a command, values for most of its arguments, and some options."""
    name, command = rng.choice(names)
    words = [*name.split(), *ALWAYS.get(name, [])]
    for p in command.params:
        if p.param_type_name == "argument" and rng.random() < 0.9:
            words.append("run" if name in RUNS and p.name == "run" and rng.random() < 0.5 else rng.choice(HOSTILE))
        elif p.param_type_name == "option" and rng.random() < (0.8 if p.required else 0.15):
            option = p.opts[-1] if p.opts[-1].startswith("--") else p.opts[0]
            if p.is_flag:
                words.append(option)
            elif not any(word.startswith(f"{option}=") for word in words):
                known = {**CHOSEN, **(TABLES if name.startswith("tables") else {})}
                words.append(f"{option}={rng.choice(known.get(option) or rng.choice([NUMBERS, HOSTILE, BUDGETS]))}")
    return words


def run(words):
    """`sartor WORDS` in this process: exit code, standard output and standard error; an error that nobody caught."""
    out, err, before = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["sartor", *words]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code = 0
    except SystemExit as done:
        code = done.code
    except Exception as error:
        code = repr(error)
    finally:
        sys.argv = before
    return code, out.getvalue(), err.getvalue()


def wrong(seed, count):
    """Run so many lines; every one that ended otherwise than with 0 or 2."""
    rng, names, found = random.Random(seed), list(commands(typer.main.get_command(app))), []
    for _ in range(count):
        words = line(rng, names)
        code, _, err = run(words)
        if code not in (0, 2) or "Traceback" in err:
            found.append(f"sartor {shlex.join(words)}: {code}")
    return found
