"""Files of this machine that a system's nodes need on other hosts: one tar archive, unpacked once per host.

The files are not at their own paths there, which may belong to somebody else, but below a folder of
laststand; commands are rewritten accordingly. Links are replaced by what they point to, which may be outside.
"""

import hashlib
import os
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from harness.contracts.system import ProgramFiles, System


def program_paths(system: System) -> Sequence[str]:
    """Returns the files of this machine that a system's nodes need; none for most systems."""
    return system.program_paths() if isinstance(system, ProgramFiles) else ()


def programs_version(paths: Sequence[str]) -> str:
    """Returns a hash of the names, sizes and times of all files: another one if any of them changes."""
    digest = hashlib.blake2b(digest_size=8)
    for file in _files(paths):
        status = file.stat()
        digest.update(f"{file}|{status.st_size}|{status.st_mtime_ns}|{status.st_mode}\n".encode())
    return digest.hexdigest()


def write_programs(paths: Sequence[str], target: IO[bytes]) -> None:
    """Writes an uncompressed archive of all files, by their absolute paths without the leading "/"."""
    with tarfile.open(fileobj=target, mode="w|", dereference=True) as archive:
        for file in _files(paths):
            archive.add(file, arcname=str(file).lstrip("/"), recursive=False)


def moved(command: Sequence[str], paths: Sequence[str], root: str) -> list[str]:
    """Returns a command in which every path of a program is below another root.

    Args:
        command: Program and arguments; a path may be a part of an argument.
        paths: As given to `write_programs`.
        root: Where the archive was unpacked.
    """
    words = list(command)
    # The longest first: one may be a part of another. What was replaced once must not be replaced again.
    for number, path in enumerate(sorted(paths, key=len, reverse=True)):
        words = [word.replace(path, f"\0{number}\0") for word in words]
    for number, path in enumerate(sorted(paths, key=len, reverse=True)):
        words = [word.replace(f"\0{number}\0", f"{root}{path}") for word in words]
    return words


def _files(paths: Sequence[str]) -> Iterator[Path]:
    for path in paths:
        if Path(path).is_file():
            yield Path(path)
        for directory, folders, files in os.walk(path, followlinks=True):
            folders.sort()
            for name in sorted(files):
                file = Path(directory, name)
                if file.is_file():  # not a link to nothing
                    yield file
