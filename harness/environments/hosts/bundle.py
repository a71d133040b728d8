"""Everything a host needs to run a node, and perhaps its agent, as files and as one tar archive.

It holds the reference system and the installed packages that it imports, for the container image; and the agent
besides, for hosts over SSH. Every world runs the same bytes. Some of the packages are compiled: the host needs
the harness's version of Python and kind of processor.
"""

import hashlib
import io
import platform
import sys
import tarfile
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from harness.errors import HarnessFailure

PACKAGES = ("kio", "crc32c", "typing_extensions")
"""Distributions that the reference system imports; the agent needs none."""
SYSTEM = "system_under_test"
AGENT = "nemesis/agent"
ROOT = Path(__file__).parents[3]
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
MACHINE = platform.machine()


def bundle_files(*, with_agent: bool) -> dict[str, Path]:
    """Returns what belongs into a bundle: path inside it to the file here, in order of the path.

    Args:
        with_agent: Whether the agent does, too.

    Raises:
        HarnessFailure: A package that it needs is not installed.
    """
    files: dict[str, Path] = {}
    if with_agent:
        files["nemesis/__init__.py"] = ROOT / "nemesis" / "__init__.py"
    for folder in (SYSTEM, AGENT) if with_agent else (SYSTEM,):
        for path in (ROOT / folder).rglob("*.py"):
            files[path.relative_to(ROOT).as_posix()] = path
    for name in PACKAGES:
        try:
            listed = distribution(name).files or ()
        except PackageNotFoundError:
            raise HarnessFailure(f"the package {name} is not installed here") from None
        for entry in listed:
            path = Path(str(entry.locate()))
            # Scripts lie outside, caches are made anew, and lists of files differ by installation.
            is_unwanted = entry.suffix in (".pyc", ".pyi") or entry.name == "RECORD"
            if ".." not in entry.parts and not is_unwanted and path.is_file():
                files[entry.as_posix()] = path
    return dict(sorted(files.items()))


def bundle_version(*, with_agent: bool) -> str:
    """Returns a hash of everything in the bundle, and of the Python that it is for."""
    digest = hashlib.blake2b(f"{PYTHON} {MACHINE}".encode(), digest_size=8)
    for name, path in bundle_files(with_agent=with_agent).items():
        digest.update(name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def make_bundle() -> bytes:
    """Returns the bundle with the agent as an uncompressed tar archive; the same files give the same bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, path in bundle_files(with_agent=True).items():
            add_file(archive, name, path.read_bytes())
    return buffer.getvalue()


def add_file(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    """Adds a file with nothing in its header that differs from machine to machine."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o644
    archive.addfile(info, io.BytesIO(data))
