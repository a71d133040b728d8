"""The server: built from its published Go module, or taken from a file.

The Go toolchain compares every module with the public checksum database before it builds. The program is linked
statically, so that it starts in containers with any C library.
"""

import os
import re
import shutil
import subprocess
from pathlib import Path

from harness.contracts.fetching import ProgramFile
from harness.contracts.programs import FetchReport, FetchRequest
from harness.errors import UsageError

NAME = "nats"
MODULE = "github.com/nats-io/nats-server/v2"
KNOWN = ("2.10.20", "2.10.23", "2.12.1")
"""Versions of published findings; every other version can be fetched, too."""
DEFAULT = "2.12.1"
SERVER = ProgramFile(
    system=NAME,
    program="nats-server",
    needs="Go",
    known=KNOWN,
    version_line="nats-server: v{version}",
    profile=NAME,
)


def check_version(version: str) -> str:
    """Returns a version that may exist.

    Raises:
        UsageError: It is not of the form 2.12.1.
    """
    if not re.fullmatch(r"2\.\d+\.\d+(-[A-Za-z0-9.]+)?", version):
        raise UsageError(f"{version!r} is no version of nats-server 2; use one such as {DEFAULT}")
    return version


def fetch_server(request: FetchRequest) -> FetchReport:
    """Builds a version of the server, or takes it from a file."""
    version = check_version(request.version)

    def build(target: Path) -> str:
        request.progress.message(f"building {MODULE}@v{version} with Go")
        return _build(version, target)

    return SERVER.fetch(request, build)


def _build(version: str, target: Path) -> str:
    """Builds the server; returns the modules that are in it."""
    go = shutil.which("go")
    if go is None:
        raise UsageError("nats-server is built with Go, which is not installed; or use --binary")
    environment = {**os.environ, "GOBIN": str(target.parent), "CGO_ENABLED": "0"}
    install = [go, "install", f"{MODULE}@v{version}"]
    try:
        subprocess.run(install, env=environment, check=True, stderr=subprocess.PIPE, text=True)
        modules = [go, "version", "-m", str(target)]
        return subprocess.run(modules, check=True, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(f"Go could not build nats-server {version}: {reason}") from None
