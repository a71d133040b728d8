"""What was judged, by kind and by the text of the code: a file of JSON lines that is kept in the repository."""

import fcntl
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.evidence.cases import Cases
from tests.evidence.kinds import Kind
from tests.evidence.meaning import digest

LEDGER = Path(__file__).with_name("ledger.jsonl")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Cases of one kind that were judged with one text of the code.

    Attributes:
        text: Digest of the code, without what only people read.
        first: The first case; the others follow.
        wrong: A line for each wrong case.
        unknown: The number of unknown verdicts by reason.
    """

    kind: str
    text: str
    first: int
    count: int
    wrong: list[str]
    unknown: dict[str, int]

    @property
    def stop(self) -> int:
        return self.first + self.count


def entries(path: Path = LEDGER) -> list[Entry]:
    """Returns the entries of a ledger, none if there is no file."""
    if not path.exists():
        return []
    return [Entry(**json.loads(line)) for line in path.read_text().splitlines()]


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def add(
    kind_id: str, kind: Kind, first: int, count: int, cases: Cases, path: Path = LEDGER
) -> None:
    """Adds judged cases; those that continue an entry are added to it."""
    with _locked(path):
        kept = entries(path)
        new = Entry(
            kind=kind_id,
            text=digest(kind.parts),
            first=first,
            count=count,
            wrong=cases.wrong,
            unknown=cases.unknown,
        )
        lines = [json.dumps(asdict(one), sort_keys=True) for one in _joined(kept, new)]
        path.write_text("\n".join(lines) + "\n")


def _joined(kept: list[Entry], new: Entry) -> list[Entry]:
    for place, old in enumerate(kept):
        if (old.kind, old.text, old.stop) == (new.kind, new.text, new.first):
            unknown = dict(old.unknown)
            for reason, count in new.unknown.items():
                unknown[reason] = unknown.get(reason, 0) + count
            joined = Entry(
                kind=old.kind,
                text=old.text,
                first=old.first,
                count=old.count + new.count,
                wrong=[*old.wrong, *new.wrong],
                unknown=unknown,
            )
            return [*kept[:place], joined, *kept[place + 1 :]]
    return [*kept, new]
