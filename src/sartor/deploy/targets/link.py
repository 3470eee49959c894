"""A connection to the measuring program on another machine, through the system's OpenSSH client.

The program goes over as the first bytes of its own input and lives in memory alone: nothing has to be removed
afterwards, and a full disk over there does not matter.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sartor.core.errors import BadInput, MissingDependency, SartorError
from sartor.deploy import probe

# Never a question, never an unknown machine; one that falls silent is noticed within twenty seconds.
_OPTIONS = (
    "BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=15", "ServerAliveInterval=5", "ServerAliveCountMax=3",
    "ClearAllForwardings=yes", "PermitLocalCommand=no", "RequestTTY=no",
)  # fmt: skip
_GREETING = 60.0  # seconds until the program answers for the first time
_NO_PYTHON = (126, 127)  # what a shell returns
_CHATTER = 65536  # bytes that a login script may print before
# What ssh says where trying again is of no use, and what to do about it.
_REFUSED = {
    "Permission denied": "its owner must let your key in: try `{ssh}`, and name the key in ~/.ssh/config",
    "Host key verification failed": "its host key must be a known one: connect once by `{ssh}` and compare the key",
    "Could not resolve hostname": "there must be such a host: check the name",
}


class Cut(Exception):
    """The connection ended; another one may do."""


class Link:
    """One connection: requests go, answers come."""

    def __init__(self, address: str, destination: Sequence[str], python: str) -> None:
        self.address, self.destination, self.pending = address, destination, b""
        source = Path(probe.__file__).read_bytes()
        start = shlex.quote(f"import sys;exec(sys.stdin.buffer.read({len(source)}))")
        options = [word for option in _OPTIONS for word in ("-o", option)]
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - read when the connection has ended
        try:
            self.process = subprocess.Popen(
                ["ssh", *options, *destination, f"exec {python} -u -c {start}"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, bufsize=0, start_new_session=True,
            )  # fmt: skip
        except FileNotFoundError as error:
            self.errors.close()
            raise MissingDependency("the OpenSSH client `ssh` is needed for a target over SSH: install it.") from error
        try:
            self._greet(source)
        except BaseException:
            self.close()
            raise

    def _greet(self, source: bytes) -> None:
        self.send(source)
        chatter = b""
        while len(chatter) < _CHATTER:
            line = self._line(_GREETING)
            if line.strip() == b'{"sartor": 1}':
                return
            chatter += line
        raise self.garbage(chatter)

    def send(self, data: bytes) -> None:
        """Write all of it, or find that the connection is cut."""
        assert self.process.stdin is not None
        view = memoryview(data)
        try:
            while view:
                view = view[self.process.stdin.write(view) :]
        except OSError:
            raise self._ended() from None

    def ask(self, request: dict[str, Any], data: bytes = b"") -> None:
        """Send one request."""
        self.send(json.dumps(request).encode() + b"\n" + data)

    def answer(self, key: str, seconds: float) -> Any:
        """The next answer's entry `key`, which must come within `seconds`."""
        line = self._line(seconds)
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise self.garbage(line) from None
        if isinstance(found, dict) and "error" in found:
            raise self._failed(str(found["error"]), str(found.get("why")))
        if not isinstance(found, dict) or key not in found:
            raise self.garbage(line)
        return found[key]

    def _line(self, seconds: float) -> bytes:
        assert self.process.stdout is not None
        until, pipe = time.monotonic() + seconds, self.process.stdout.fileno()
        while b"\n" not in self.pending:
            if not select.select([pipe], [], [], max(0.0, until - time.monotonic()))[0]:
                self.process.kill()
                raise Cut(f"it gave no answer for {seconds:.0f} s")
            new = os.read(pipe, 65536)
            if not new:
                raise self._ended()
            self.pending += new
            if len(self.pending) > 2**26:
                raise self.garbage(self.pending)
        line, _, self.pending = self.pending.partition(b"\n")
        return line

    def _ended(self) -> Exception:
        """Why the connection ended: for good, or only for now."""
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.errors.seek(0)
        said = self.errors.read().decode(errors="replace").strip()
        for words, advice in _REFUSED.items():
            for line in said.splitlines():
                if words in line:
                    hint = advice.format(ssh=" ".join(("ssh", *self.destination)))
                    return BadInput(f"{self.address} cannot be used ({line.strip()}): {hint}. Nothing is lost.")
        last = said.splitlines()[-1] if said else "the connection was closed"
        if self.process.returncode in _NO_PYTHON:
            return BadInput(f"{self.address} must have Python 3.8 or newer, but: {last}. {self._another()}")
        return Cut(last)

    def _another(self) -> str:
        return f"Name a Python that it has by {self.address.partition('?')[0]}?python=/path/to/python3."

    def _failed(self, kind: str, why: str) -> SartorError:
        if kind in ("ImportError", "ModuleNotFoundError"):
            return BadInput(f"{self.address} must have onnxruntime, but: {why}. Install it there. {self._another()}")
        return BadInput(f"the measuring program on {self.address} failed: {why} ({kind}).")

    def garbage(self, said: bytes) -> SartorError:
        """The error where something else answers."""
        text = said[:80].decode(errors="replace").strip()
        return SartorError(
            f"{self.address} must answer as Sartor's measuring program does, but said {text!r}. Nothing is lost: run "
            "the same command again when it does."
        )

    def close(self) -> None:
        """End the program over there, which ends with its input."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()
