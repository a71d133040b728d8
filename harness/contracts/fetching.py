"""What fetching a program that is one file has in common: it is there only if it is whole and the right version.

CACHE/SYSTEM/VERSION/PROGRAM     the program
CACHE/SYSTEM/VERSION/origin.txt  what the program was made of, if it was not given
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.contracts.programs import FetchReport, FetchRequest, Program, cache_directory
from harness.errors import UsageError

ORIGIN_FILE = "origin.txt"
VERSION_LIMIT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFile:
    """A program that is one file per version.

    Attributes:
        system: Name of the system.
        program: Name of the file.
        needs: What fetching it needs, for example "Go"; "" for nothing.
        known: Versions that are listed although they were not fetched.
        version_line: What `PROGRAM --version` prints, with {version}.
        profile: The profile of an experiment with that program.
    """

    system: str
    program: str
    needs: str
    known: Collection[str]
    version_line: str
    profile: str

    def path(self, version: str, cache: Path | None = None) -> Path:
        """Returns where the program of a version is, or would be; by default in laststand's cache."""
        return (cache or cache_directory()).absolute() / self.system / version / self.program

    def path_of_fetched(self, version: str) -> Path:
        """Returns where the program of a version is.

        Raises:
            UsageError: It was not fetched.
        """
        path = self.path(version)
        if not path.exists():
            raise UsageError(
                f"{self.program} {version} is not in {path.parent}; `laststand system fetch"
                f" {self.system} {version}` gets it"
            )
        return path

    def fetch(self, request: FetchRequest, make: Callable[[Path], str]) -> FetchReport:
        """Gets a version unless it is there; a given program replaces the one that is there.

        Args:
            request: What is fetched.
            make: Writes the program of the requested version to a path; returns what it was made of.

        Raises:
            UsageError: The given program cannot be read, or the program is not of that version.
        """
        target = self.path(request.version, request.cache)
        was_there = target.exists() and request.binary is None
        if not was_there:
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as folder:
                made = Path(folder, self.program)
                origin = (
                    make(made) if request.binary is None else f"{_copied(request.binary, made)}\n"
                )
                self._check(made, request.version)
                (target.parent / ORIGIN_FILE).write_text(origin, encoding="utf-8")
                made.replace(target)
        size = target.stat().st_size
        return FetchReport(
            lines=(f"{self.system} {request.version}: {size >> 20} MiB in {target}",),
            data={
                "version": request.version,
                "program": str(target),
                "bytes": size,
                "was_there": was_there,
            },
        )

    def programs(self, cache: Path) -> Sequence[Program]:
        """Returns the versions that are known or fetched, oldest first."""
        fetched = {path.parent.name for path in (cache / self.system).glob(f"*/{self.program}")}
        return [
            Program(
                version=version,
                profile=self.profile,
                needs=self.needs,
                is_fetched=version in fetched,
                directory=self.path(version, cache).parent,
            )
            for version in sorted({*self.known, *fetched}, key=_numbers)
        ]

    def _check(self, path: Path, version: str) -> None:
        try:
            said = subprocess.run(
                [path, "--version"], capture_output=True, text=True, timeout=VERSION_LIMIT_S
            ).stdout.strip()
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"the program does not start: {error}") from None
        if said != self.version_line.format(version=version):
            raise UsageError(
                f"the program is {said or 'silent'!r}, not {self.program} {version}; nothing was changed"
            )


def _copied(binary: Path, target: Path) -> str:
    try:
        shutil.copyfile(binary, target)
        target.chmod(0o755)
    except OSError as error:
        raise UsageError(f"--binary {binary} cannot be read: {error.strerror}") from None
    return f"copied from {binary}"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
