"""The server: built from its published Go module, or taken from a file; kept in laststand's cache.

    CACHE/nats/2.12.1/nats-server     the program; it is there only if it is whole and reports this version
    CACHE/nats/2.12.1/modules.txt     the modules it was built from, with their checksums

The Go toolchain compares every module with the public checksum database before it builds. The program is linked
statically, so that it starts in containers with any C library.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.contracts.programs import FetchReport, FetchRequest, Program
from harness.errors import UsageError

NAME = "nats"
PROGRAM = "nats-server"
MODULE = "github.com/nats-io/nats-server/v2"
KNOWN = ("2.10.20", "2.10.23", "2.12.1")
"""Versions of published findings; every other version can be fetched, too."""
DEFAULT = "2.12.1"
VERSION_LIMIT_S = 30


def program_path(cache: Path, version: str) -> Path:
    """Returns where the server of a version is, or would be."""
    return cache.absolute() / NAME / version / PROGRAM


def check_version(version: str) -> str:
    """Returns a version that may exist.

    Raises:
        UsageError: It is not of the form 2.12.1.
    """
    if not re.fullmatch(r"2\.\d+\.\d+(-[A-Za-z0-9.]+)?", version):
        raise UsageError(f"{version!r} is no version of nats-server 2; use one such as {DEFAULT}")
    return version


def fetch_program(request: FetchRequest) -> FetchReport:
    """Builds a version of the server, or takes it from a file."""
    target = program_path(request.cache, check_version(request.version))
    was_there = target.exists() and request.binary is None
    if not was_there:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            built = Path(folder, PROGRAM)
            if request.binary is None:
                request.progress.message(f"building {MODULE}@v{request.version} with Go")
                (target.parent / "modules.txt").write_text(_build(request.version, built))
            else:
                _copy(request.binary, built)
            _check(built, request.version)
            built.replace(target)
    size = target.stat().st_size
    return FetchReport(
        lines=(f"{NAME} {request.version}: {size >> 20} MiB in {target}",),
        data={
            "version": request.version,
            "program": str(target),
            "bytes": size,
            "was_there": was_there,
        },
    )


def known_programs(cache: Path) -> Sequence[Program]:
    """Returns the versions of published findings and those that were fetched."""
    fetched = {path.parent.name for path in (cache / NAME).glob(f"*/{PROGRAM}")}
    versions = sorted({*KNOWN, *fetched}, key=lambda v: [int(n) for n in re.findall(r"\d+", v)])
    return [
        Program(
            version=version,
            profile=NAME,
            needs="Go",
            is_fetched=version in fetched,
            directory=program_path(cache, version).parent,
        )
        for version in versions
    ]


def _build(version: str, target: Path) -> str:
    """Builds the server; returns the modules that are in it."""
    go = shutil.which("go")
    if go is None:
        raise UsageError("nats-server is built with Go, which is not installed; or use --binary")
    environment = {**os.environ, "GOBIN": str(target.parent), "CGO_ENABLED": "0"}
    try:
        subprocess.run(
            [go, "install", f"{MODULE}@v{version}"],
            env=environment,
            check=True,
            stderr=subprocess.PIPE,
            text=True,
        )
        command = [go, "version", "-m", str(target)]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UsageError(f"Go could not build nats-server {version}: {reason}") from None


def _copy(binary: Path, target: Path) -> None:
    try:
        shutil.copyfile(binary, target)
        target.chmod(0o755)
    except OSError as error:
        raise UsageError(f"--binary {binary} cannot be read: {error.strerror}") from None


def _check(program: Path, version: str) -> None:
    """Raises `UsageError` unless a program says that it is this version of the server."""
    try:
        said = subprocess.run(
            [program, "--version"], capture_output=True, text=True, timeout=VERSION_LIMIT_S
        ).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"the program does not start: {error}") from None
    if said != f"{PROGRAM}: v{version}":
        raise UsageError(f"the program is {said or 'silent'!r}, not nats-server v{version}")
