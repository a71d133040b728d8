"""The version of the code that decides a run, as a hash."""

import hashlib
from pathlib import Path

PACKAGES = ("harness", "nemesis", "workloads", "checkers", "system_under_test")


def code_version() -> str:
    """Returns a hash of the Python sources that decide a run, in order of their names."""
    digest = hashlib.blake2b(digest_size=8)
    root = Path(__file__).parents[2]
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()
