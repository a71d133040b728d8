"""The recorded metadata logs of real clusters; see `tests/data/kafka_metadata/README.md`."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tests

DATA = Path(tests.__path__[0]) / "data" / "kafka_metadata"
VERSIONS = ("3.6.2", "4.0.2", "4.1.2", "4.4.0")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded log, and the newest snapshot that its controller had.

    Attributes:
        snapshot: End offset, epoch and bytes.
    """

    log: bytes
    snapshot: tuple[int, int, bytes]
    facts: dict[str, Any]

    @property
    def end(self) -> int:
        """The high watermark."""
        return int(self.facts["high_watermark"])


def recorded(version: str) -> Recorded:
    """Returns the recorded log of a version."""
    folder = DATA / version
    (log,) = folder.glob("*.log")
    (snapshot,) = folder.glob("*.checkpoint")
    end, epoch = snapshot.stem.split("-")
    return Recorded(
        log=log.read_bytes(),
        snapshot=(int(end), int(epoch), snapshot.read_bytes()),
        facts=json.loads((folder / "facts.json").read_text()),
    )
