"""Builds and runs the clients below `foreign/`, with the toolchains that this machine has."""

import hashlib
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.java import cache_directory

SOURCES = Path(__file__).parent / "foreign"
BUILD_LIMIT_S = 1500
RUN_LIMIT_S = 200


@dataclass(frozen=True, kw_only=True)
class Language:
    """How the client of a language is built and started.

    Attributes:
        name: The directory below `foreign/`.
        tool: The program that must be installed.
        build: Builds it in a directory that has the sources.
        run: Starts it there.
        environment: Variables for the build.
    """

    name: str
    tool: str
    build: Sequence[str]
    run: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)


LANGUAGES = (
    Language(
        name="go",
        tool="go",
        build=("go", "build", "-mod=readonly", "-o", "client", "."),
        run=("./client",),
        environment={"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"},
    ),
    Language(
        name="node",
        tool="npm",
        build=("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"),
        run=("node", "client.js"),
    ),
    Language(
        name="rust",
        tool="cargo",
        build=("cargo", "build", "--locked", "--quiet"),
        run=("target/debug/client",),
        environment={"CARGO_TARGET_DIR": "target"},
    ),
)


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client that was built.

    Attributes:
        language: Which one.
        directory: Where.
    """

    language: Language
    directory: Path

    def start(self, command: str, *arguments: str) -> "Running":
        """Starts the client with a command and its arguments."""
        process = subprocess.Popen(
            [*self.language.run, command, *arguments],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return Running(process)

    def run(self, command: str, *arguments: str) -> list[dict[str, Any]]:
        """Runs the client until it ends and returns the objects that it printed."""
        return self.start(command, *arguments).finish()


class Running:
    """A client that runs. Mutable; what it prints is collected in the background.

    Attributes:
        rows: The objects that it has printed so far.
    """

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._process = process
        self._errors = ""
        self._readers = [
            threading.Thread(target=read, daemon=True)
            for read in (self._read_rows, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()

    def has_printed(self, count: int) -> bool:
        """Whether it has printed that many objects; fails if it ended before."""
        if len(self.rows) >= count:
            return True
        assert self._process.poll() is None, f"it ended too early: {self._errors}"
        return False

    def finish(self) -> list[dict[str, Any]]:
        """Waits until the client ends and returns what it printed; fails if it failed."""
        try:
            code = self._process.wait(RUN_LIMIT_S)
        finally:
            self._process.kill()
            self._process.wait()
            for reader in self._readers:
                reader.join()
        assert code == 0, self._errors
        return self.rows

    def _read_rows(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as output:
            for line in output:
                self.rows.append(json.loads(line))

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as output:
            self._errors = output.read()


def client_or_skip(language: Language) -> Client:
    """Returns the client of a language, built once per version of its sources; skips the test if it cannot be."""
    if shutil.which(language.tool) is None:
        pytest.skip(f"no toolchain for {language.name}: {language.tool} is not installed")
    sources = SOURCES / language.name
    files = sorted(path for path in sources.rglob("*") if path.is_file())
    digest = hashlib.blake2b(digest_size=8)
    for path in files:
        digest.update(path.relative_to(sources).as_posix().encode() + b"\0" + path.read_bytes())
    directory = cache_directory() / "foreign-clients" / f"{language.name}-{digest.hexdigest()}"
    built = directory / ".built"
    if not built.exists():
        shutil.rmtree(directory, ignore_errors=True)
        shutil.copytree(sources, directory)
        run_build(language, directory, language.build)
        built.touch()
    return Client(language=language, directory=directory)


def run_build(language: Language, directory: Path, command: Sequence[str]) -> None:
    """Runs a command that builds something; skips the test if the language's packages cannot be had."""
    done = subprocess.run(
        command,
        cwd=directory,
        env={**os.environ, **language.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=BUILD_LIMIT_S,
        check=False,
    )
    if done.returncode == 0:
        return
    words = (done.stderr or done.stdout).lower()
    if any(sign in words for sign in NO_REGISTRY):
        pytest.skip(f"no packages for {language.name}: its registry cannot be reached")
    raise AssertionError(f"the {language.name} client does not build: {done.stderr[-3000:]}")


NO_REGISTRY = (
    "dial tcp",
    "i/o timeout",
    "no such host",
    "eai_again",
    "econnrefused",
    "enotfound",
    "etimedout",
    "could not resolve host",
    "couldn't connect to server",
    "failed to download",
    "network failure",
)
"""Parts of the messages of go, npm and cargo without a registry."""
