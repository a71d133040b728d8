"""Which records of a compacted topic its cleaner has to keep: a plant removes only these.

The cleaner may remove a record once a later one of its key is committed, so the absence of such a record is no
anomaly. This module does not use `checkers.removed_records`: if the checkers excuse too much, the self-test has to
notice it.
"""

from collections.abc import Iterable
from typing import Any

from checkers.planting.copy import Copy, Row

ANYWHERE = 2**63 - 1
"""Stands for the offset of a record that no client saw: it may be behind any other one."""


class Cleaner:
    """What the cleaner may have removed, by what a copy shows now; in a topic without one that is nothing.

    Args:
        copy: Where the operations are.
    """

    def __init__(self, copy: Copy) -> None:
        self._clock_error_ns = copy.clock_error_ns
        self._seen: dict[str, list[tuple[Row, int]]] = {}
        self._unseen: dict[str, list[Row]] = {}
        self._reads_end_early = False
        if not copy.compacted:
            return
        read_at: dict[int, int] = {}
        for rows in copy.records.values():
            for record in rows:
                value = record["value"]
                read_at[value] = max(record["offset"], read_at.get(value, -1))
        for op, row in copy.operations.items():
            # Records without a key replace nothing.
            if row["kind"] != "append" or row["outcome"] == "fail" or not row["key"]:
                continue
            offset = max(-1 if row["offset"] is None else row["offset"], read_at.get(op, -1))
            if offset >= 0:
                self._seen.setdefault(row["key"], []).append((row, offset))
            else:
                self._unseen.setdefault(row["key"], []).append(row)
        self._reads_end_early = _final_reads_end_early(copy)

    def keeps(self, append: Row, until_ns: int = ANYWHERE) -> bool:
        """Returns whether the record of an append was certainly not removed before some moment.

        A record that no client saw can have replaced it if a later one is there still, or may be.
        """
        key = append["key"]
        later = [row for row, offset in self._seen.get(key, ()) if offset > append["offset"]]
        if later or self._reads_end_early:
            later += self._unseen.get(key, ())
        return all(row["invoked_ns"] > until_ns + self._clock_error_ns for row in later)


def some_kept(copy: Copy, appends: Iterable[Row], what: str) -> Any:
    """Returns one of several appends whose records the cleaner, if there is one, has to keep.

    Args:
        copy: Where they are.
        appends: What would do otherwise.
        what: What they are, for the message.

    Raises:
        CannotPlantError: There are none.
    """
    if not copy.compacted:
        return copy.some(list(appends), what)
    cleaner = Cleaner(copy)
    kept = [append for append in appends if cleaner.keeps(append)]
    return copy.some(kept, f"{what}; those that its cleaner may remove do not count")


def _final_reads_end_early(copy: Copy) -> bool:
    """Returns whether records may be behind the final reads."""
    finals = copy.polls(final=True)
    reached = [record["offset"] + 1 for poll in finals for record in copy.read(poll)]
    reached += [poll["position"] for poll in finals]
    ends = [poll["end_offset"] for poll in finals if poll["end_offset"] is not None]
    ends += [row["offset"] for row in copy.latest() if row["final"]]
    return max(reached, default=0) < max(ends, default=0)
