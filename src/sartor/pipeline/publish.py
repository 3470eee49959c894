"""`sartor publish`: a finished network as the folder that a model hub expects, and its upload.

RUN/hub has the model with its labels, preprocessing, predict.py and weights, the forms of `sartor export` where there
are any, the certificate, and the model card as README.md.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from sartor.core.errors import BadInput, RunError, SartorError, require
from sartor.pipeline.exports import COPIED
from sartor.report.card import card
from sartor.runs.directory import Run
from sartor.runs.progress import Reporter

_ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)")
_MORE = ("weights.safetensors", "arch.json")


def publish(path: Path, to: str, private: bool = False, reporter: Reporter | None = None) -> str:
    """Write RUN/hub and upload it to ``hf://user/name``; where that is afterwards.

    The folder stays where the upload cannot be: without a network, a permission or the package.
    """
    named = _ADDRESS.fullmatch(to)
    if named is None:
        raise BadInput(f"--to must be hf://USER/NAME, such as hf://ada/flowers, but got {to!r}.")
    folder, said = written(path), reporter or Reporter()
    said.say(f"  written: {folder}")
    api = require("huggingface_hub", "hub").HfApi()
    try:
        where = api.create_repo(named[1], private=private, exist_ok=True)
        api.upload_folder(repo_id=named[1], folder_path=str(folder), commit_message="By Sartor")
    except Exception as error:  # a hub's client raises what its network does
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise SartorError(
            f"{folder} could not be uploaded to {to}: {reason}. Log in with `hf auth login`, or upload it by hand."
        ) from error
    return str(where)


def written(path: Path) -> Path:
    """The folder itself, made anew."""
    run, folder = Run.open(path), path / "hub"
    if not run.done("certificate"):
        raise RunError(f"{path} must be a finished run, but has no certificate. Run the same `sartor fit` again.")
    shutil.rmtree(folder, ignore_errors=True)
    if run.done("exports"):
        shutil.copytree(path / "export", folder)
    folder.mkdir(exist_ok=True)
    for name in (*COPIED, *_MORE):
        if (path / "model" / name).is_file():
            shutil.copyfile(path / "model" / name, folder / name)
    shutil.copyfile(path / "certificate.json", folder / "certificate.json")
    (folder / "README.md").write_text(card(path), encoding="utf-8")
    return folder
