"""Programs that systems under test need and laststand does not contain: `laststand system fetch` and `list`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from harness.contracts.progress import ProgressDisplay
from harness.java import cache_directory as cache_directory


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchRequest:
    """What is to be fetched.

    Attributes:
        version: Of the program, as the user named it.
        cache: Where everything that laststand fetches is kept; each system has a directory of its own there.
        progress: Takes what takes long.
        binary: A program of this machine that is used instead of one that is fetched; None if there is none.
        repository: Where to download from; "" is the usual place.
        with_archive: Whether to prepare a faster start, if the system knows one.
    """

    version: str
    cache: Path
    progress: ProgressDisplay
    binary: Path | None = None
    repository: str = ""
    with_archive: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchReport:
    """What a fetch did.

    Attributes:
        lines: For people; the first one says what there is now and where.
        data: For programs, JSON-compatible; beside the name of the system.
    """

    lines: Sequence[str]
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One version of a program, fetched or not.

    Attributes:
        version: As for `FetchRequest`.
        profile: The profile of an experiment with that version; "" if it has several.
        needs: What else this machine must have, for example "Java 17"; "" for nothing.
        directory: Where it is, or would be.
    """

    version: str
    profile: str
    needs: str
    is_fetched: bool
    directory: Path


@runtime_checkable
class Fetchable(Protocol):
    """What a system may have besides: laststand can get its program."""

    def fetch(self, request: FetchRequest) -> FetchReport:
        """Gets a version of the program; one that is there already is not fetched again.

        Raises:
            UsageError: There is no such version, something that the fetch needs is missing, or what was fetched
                is not what it should be.
        """
        ...

    def programs(self, cache: Path) -> Sequence[Program]:
        """Returns the versions that are known or fetched, oldest first."""
        ...
