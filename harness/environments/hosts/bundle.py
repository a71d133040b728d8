"""Everything a host needs to run a node and, optionally, its agent, as files and as one tar archive.

It contains the reference system and the installed packages that it imports, for the container image; for hosts
over SSH, it also contains the agent. All environments run the same bytes. Some packages are compiled, so the host
needs the harness's version of Python and its processor architecture.
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
    """Returns the files of a bundle, ordered by path: path in the bundle to the local file.

    Args:
        with_agent: Whether the agent is included.

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
            # Scripts are outside of the package, caches are rebuilt, and lists of files differ by installation.
            is_unwanted = entry.suffix in (".pyc", ".pyi") or entry.name == "RECORD"
            if ".." not in entry.parts and not is_unwanted and path.is_file():
                files[entry.as_posix()] = path
    return dict(sorted(files.items()))


def bundle_version(*, with_agent: bool) -> str:
    """Returns a hash of everything in the bundle, and of its Python version."""
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
    """Adds a file with a header that is the same on all machines."""
    info = tarfile.TarInfo(name)
    info.size = len(data)
    info.mode = 0o644
    archive.addfile(info, io.BytesIO(data))
