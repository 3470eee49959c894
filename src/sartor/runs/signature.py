"""Who stands for a certificate: an Ed25519 signature over its canonical form, in signature.json beside it.

The certificate names the hash of every file that it vouches for, so one signature covers them all. Canonical is the
JSON with sorted keys, no spaces and every character as itself, in UTF-8: another program can check it too.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sartor.core.errors import BadInput, RunError, require
from sartor.runs.directory import Run, read_json
from sartor.runs.schema import Certificate, Signature
from sartor.runs.verification import Line, unknown

_WHAT = "signature.json: the certificate is signed"


def canonical(data: Any) -> bytes:
    """The bytes that are signed."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def new_key(path: Path) -> Path:
    """Write a new private key (PEM, for its owner's eyes only) and beside it the public one, whose path is returned."""
    keys, forms = _library()
    if not path.name:
        raise BadInput(f"the new key must be a file, but got {str(path)!r}. Give its name.")
    private, public = keys.Ed25519PrivateKey.generate(), path.with_name(f"{path.name}.pub")
    secret = private.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.NoEncryption())
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
            stream.write(secret)
        public.write_bytes(_pem(private.public_key(), forms))
    except FileExistsError as error:
        raise BadInput(f"{path} exists already, and keys are not overwritten. Choose another name.") from error
    except OSError as error:
        raise BadInput(f"{path} must be writable, but: {error.strerror}.") from error
    return public


def sign(run: Run, key: Path) -> str:
    """Sign the run's certificate; the name of the file written."""
    keys, forms = _library()
    if run.load(Certificate).files is None:
        raise RunError(
            f"{run.path} was made by an older Sartor: its certificate does not name its files, so a signature would "
            "not cover them. Run the same command in a new folder."
        )
    private = _read(key, forms.load_pem_private_key, keys.Ed25519PrivateKey, "private", password=None)
    signed = private.sign(canonical(read_json(run.path / Certificate.NAME)))
    public = _pem(private.public_key(), forms).decode()
    return run.save(Signature("Ed25519", public, base64.b64encode(signed).decode()))


def signed(run: Run, by: Path | None) -> Iterator[Line]:
    """Whether the certificate carries the signature of the key in the PEM file `by`."""
    there = (run.path / Signature.NAME).is_file()
    if by is None:
        if there:
            yield unknown(_WHAT, "say by whom: --signed-by with the public key that you trust")
        return
    keys, forms = _library()
    public = _read(by, forms.load_pem_public_key, keys.Ed25519PublicKey, "public")
    if not there:
        yield Line(_WHAT, "differs", f"a signature of {by}", "no signature.json")
        return
    told, errors = run.load(Signature), require("cryptography.exceptions", "sign")
    try:
        public.verify(
            base64.b64decode(told.signature, validate=True), canonical(read_json(run.path / Certificate.NAME))
        )
    except (errors.InvalidSignature, ValueError):
        yield Line(_WHAT, "differs", f"a signature of {by}", "another one, or of another certificate")
    else:
        yield Line(_WHAT, "verified")


def _library() -> tuple[Any, Any]:
    """The keys, and their forms as files."""
    forms = require("cryptography.hazmat.primitives.serialization", "sign")
    return require("cryptography.hazmat.primitives.asymmetric.ed25519", "sign"), forms


def _pem(public: Any, forms: Any) -> bytes:
    text: bytes = public.public_bytes(forms.Encoding.PEM, forms.PublicFormat.SubjectPublicKeyInfo)
    return text


def _read(path: Path, load: Any, kind: type, which: str, **more: Any) -> Any:
    """A key of a PEM file, or what is wrong with it."""
    wanted = f"{path} must be a PEM file with a {which} Ed25519 key, as `sartor sign --new-key` writes it"
    try:
        found = load(path.read_bytes(), **more)
    except OSError as error:
        raise BadInput(f"{wanted}, but: {error.strerror}.") from error
    except (ValueError, TypeError) as error:  # another format, or a key that is locked by a password
        raise BadInput(f"{wanted}, but holds something else.") from error
    except require("cryptography.exceptions", "sign").UnsupportedAlgorithm as error:
        raise BadInput(f"{wanted}, but holds a key of another kind.") from error
    if not isinstance(found, kind):
        raise BadInput(f"{wanted}, but holds a key of another kind.")
    return found
