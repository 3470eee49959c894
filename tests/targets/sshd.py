"""A real OpenSSH server on the loopback interface, with keys, a port and a client's configuration of its own.

The client reaches it through a relay that a test can slow down, cut and stop.
"""

import getpass
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

# What stands between client and server: `mode` is read before every chunk.
RELAY = """
import os, pathlib, select, socket, sys, time
port, folder = int(sys.argv[1]), pathlib.Path(sys.argv[2])
server = socket.create_connection(("127.0.0.1", port))
passed, client = 0, os.getppid()
while True:
    ready, _, _ = select.select([0, server], [], [])
    for source in ready:
        data = os.read(0, 4096) if source == 0 else server.recv(4096)
        mode, _, amount = (folder / "mode").read_text().partition(" ")
        passed += len(data)
        if not data or (mode == "cut" and passed > int(amount)):
            if mode == "cut":
                (folder / "mode").write_text("plain")
            sys.exit(0)
        while mode == "silent" and passed > int(amount):
            time.sleep(0.1)
            if os.getppid() != client:  # killed without a word: nobody is left to keep silent to
                sys.exit(0)
        if mode == "slow":
            time.sleep(len(data) / float(amount))
        if source == 0:
            server.sendall(data)
        else:
            os.write(1, data)
"""


@dataclass(frozen=True)
class Server:
    """Where it is, and the folder whose files steer it."""

    folder: Path
    port: int

    @property
    def address(self) -> str:
        return f"ssh://{getpass.getuser()}@board:{self.port}?python={sys.executable}"

    def link(self, mode: str) -> None:
        """``plain``, ``slow BYTES_A_SECOND``, ``cut BYTES`` (once) or ``silent BYTES``."""
        (self.folder / "mode").write_text(mode)

    def configure(self, **changed: str) -> None:
        """The client's configuration, with the right keys unless told otherwise."""
        options = {
            "HostName": "127.0.0.1", "HostKeyAlias": "board", "IdentityFile": self.folder / "client",
            "IdentitiesOnly": "yes", "UserKnownHostsFile": self.folder / "known_hosts",
            "GlobalKnownHostsFile": "/dev/null", "IdentityAgent": "none",
            "ProxyCommand": f"{sys.executable} {self.folder}/relay.py {self.port} {self.folder}",
        } | changed  # fmt: skip
        (self.folder / "config").write_text(
            "\n".join(["Host board", *(f"  {k} {v}" for k, v in options.items())]) + "\n"
        )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def server(folder: Path):
    """A running server; tests are skipped, saying so, where there is none to be had."""
    program = shutil.which("sshd") or shutil.which("sshd", path="/usr/sbin:/usr/local/sbin")
    if program is None or shutil.which("ssh") is None:
        pytest.skip("these tests need OpenSSH's server and client (apt-get install openssh-server)")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where a server that is started by root locks itself in
    for name in ("host", "client", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    shutil.copy(folder / "client.pub", folder / "authorized_keys")
    (folder / "known_hosts").write_text("board " + " ".join((folder / "host.pub").read_text().split()[:2]) + "\n")
    made = Server(folder, _free_port())
    lines = {
        "ListenAddress": "127.0.0.1", "Port": made.port, "HostKey": folder / "host", "PidFile": "none",
        "AuthorizedKeysFile": folder / "authorized_keys", "PasswordAuthentication": "no", "StrictModes": "no",
        "KbdInteractiveAuthentication": "no", "PermitRootLogin": "prohibit-password", "UsePAM": "no",
    }  # fmt: skip
    (folder / "sshd_config").write_text("".join(f"{k} {v}\n" for k, v in lines.items()))
    (folder / "relay.py").write_text(RELAY)
    client = folder / "bin/ssh"
    client.parent.mkdir()
    client.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    client.chmod(client.stat().st_mode | stat.S_IXUSR)
    made.link("plain")
    made.configure()
    process = subprocess.Popen([program, "-D", "-e", "-f", folder / "sshd_config"], stderr=(folder / "log").open("wb"))
    try:
        _await(made.port, process)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{client.parent}{os.pathsep}{os.environ['PATH']}")
            yield made
    finally:
        process.terminate()
        process.wait()


def _await(port: int, process: subprocess.Popen) -> None:
    for _ in range(100):
        if process.poll() is not None:
            pytest.skip(f"sshd does not start here (status {process.returncode})")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.skip("sshd does not listen")
