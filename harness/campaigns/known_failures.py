"""Known failures: findings that are expected for a while and do not fail a night.

    [[failure]]
    signature = "3fa9c1d27b04"
    reason = "the last replica standing loses its tail with ELR off"
    ticket = "KAFKA-15332"
    expiry = 2027-03-31

A finding is matched by its signature. Every entry has an expiry, the last day on which it counts: a bug that
nobody looks at again must fail a night some day.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec

from harness.errors import UsageError
from harness.names import unknown_name

TABLE = "failure"

_SIGNATURE = re.compile(r"[0-9a-f]{12}")
_KEYS = ("signature", "reason", "ticket", "expiry")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFailure:
    """One entry.

    Attributes:
        signature: Of the finding.
        reason: Why it is expected.
        expiry: The last day on which the entry counts.
        ticket: Where it is tracked; may be empty.
    """

    signature: str
    reason: str
    expiry: date
    ticket: str = ""

    def is_expired(self, today: date) -> bool:
        """Returns whether the entry no longer counts."""
        return today > self.expiry

    def to_json(self) -> dict[str, str]:
        """Returns JSON-compatible data."""
        return {
            "signature": self.signature,
            "reason": self.reason,
            "ticket": self.ticket,
            "expiry": self.expiry.isoformat(),
        }


def load_known_failures(path: Path) -> dict[str, KnownFailure]:
    """Reads a file of known failures.

    Returns:
        The entries by signature, in the order of the file.

    Raises:
        UsageError: The file is missing or not TOML, or an entry is wrong; the sentence names file, entry and key.
    """
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"there is no file of known failures {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the known failures {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from None
    for key in data:
        if key != TABLE:
            raise UsageError(f"{path}: {unknown_name('table of known failures', key, [TABLE])}")
    entries = data.get(TABLE, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"{path}: {TABLE!r} must be an array of tables, [[{TABLE}]]")
    known: dict[str, KnownFailure] = {}
    for number, entry in enumerate(entries, start=1):
        failure = _entry(entry, f"{path}, {TABLE} {number}")
        if failure.signature in known:
            raise UsageError(f"{path} lists the signature {failure.signature} twice")
        known[failure.signature] = failure
    return known


def _entry(data: Mapping[str, Any], where: str) -> KnownFailure:
    for key in data:
        if key not in _KEYS:
            raise UsageError(f"{where}: {unknown_name('key of a known failure', key, _KEYS)}")
    for key in ("signature", "reason", "expiry"):
        if key not in data:
            raise UsageError(f"{where} has no {key}")
    if isinstance(data["expiry"], datetime):
        raise UsageError(f"{where}: expiry must be a date like 2027-03-31, without a time")
    try:
        failure = msgspec.convert(data, KnownFailure)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).replace("`", "").partition(" - at $.")
        raise UsageError(f"{where}: {place}: {problem.replace('Expected', 'expected')}") from None
    if not _SIGNATURE.fullmatch(failure.signature):
        raise UsageError(
            f"{where}: signature is {failure.signature!r}; use the 12 letters and digits that a night prints"
        )
    if not failure.reason.strip():
        raise UsageError(f"{where}: reason is empty")
    return failure
