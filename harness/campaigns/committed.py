"""What committed metadata shows of a partition around one moment, in words without names, numbers or times.

Runs of one bug under different seeds differ in brokers, offsets and times. What they share is how the partition
changed before the bug showed: "ISR shrinks to its last member", "no leader", "leader elected from the ISR". This
module turns rows of `partition_states` into such words, and brokers into their roles.

A replica that rejoins shows little, because replicas rejoin after every fault. Elections and losses of members
decide who has which records, so only these become words.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

import pyarrow as pa

NO_LEADER = "no leader"

ROLES = LEADER, IN_ISR, IN_ELR, LAST_KNOWN, OUT_OF_SYNC, OTHER = (
    "leader",
    "ISR member",
    "ELR member",
    "last-known ELR member",
    "replica out of sync",
    "no replica",
)
"""Roles of a broker towards a partition, the most important first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One committed change of a partition.

    Attributes:
        at_ns: When it was committed, in nanoseconds since run start.
        words: What changed, the most important first; empty if nothing that counts.
        is_election: Whether it gave the partition a leader.
    """

    at_ns: int
    words: tuple[str, ...]
    is_election: bool


class PartitionHistory:
    """The committed states of one partition, in order.

    Args:
        states: Its rows of `partition_states`, in any order.
    """

    def __init__(self, states: Sequence[Mapping[str, Any]]) -> None:
        self._states = sorted(states, key=lambda state: (state["metadata_offset"], state["at_ns"]))
        self._times = [state["at_ns"] for state in self._states]
        self.changes = tuple(
            Change(
                at_ns=new["at_ns"],
                words=tuple(_words(old, new)),
                is_election=old["leader_epoch"] != new["leader_epoch"] and new["leader"] >= 0,
            )
            for old, new in pairwise(self._states)
        )

    def role(self, broker: int, at_ns: int) -> str:
        """Returns the role of a broker right before a moment."""
        index = bisect_right(self._times, at_ns - 1) - 1
        if index < 0:
            return OTHER
        state = self._states[index]
        if broker == state["leader"]:
            return LEADER
        for column, role in (
            ("isr", IN_ISR),
            ("elr", IN_ELR),
            ("last_known_elr", LAST_KNOWN),
            ("replicas", OUT_OF_SYNC),
        ):
            if broker in state[column]:
                return role
        return OTHER

    def election_between(self, begin_ns: int, end_ns: int) -> int | None:
        """Returns when the last election in (begin, end] was committed; None if there was none."""
        times = [c.at_ns for c in self.changes if c.is_election and begin_ns < c.at_ns <= end_ns]
        return times[-1] if times else None

    def last_change(self, until_ns: int) -> int:
        """Returns when the partition last changed until a moment; -1 if it did not exist."""
        index = bisect_right(self._times, until_ns) - 1
        return int(self._times[index]) if index >= 0 else -1

    def last_words(self, until_ns: int, count: int) -> tuple[str, ...]:
        """Returns the last changes until a moment, at most `count`, the latest last.

        The same words twice in a row are one: how often a replica left and came back depends on the seed.
        """
        words = ["; ".join(c.words) for c in self.changes if c.words and c.at_ns <= until_ns]
        return tuple(word for word, _ in groupby(words))[-count:]

    def election_word(self, at_ns: int) -> str:
        """Returns how the leader was elected at a moment, or that there was none; empty if nothing changed."""
        words = [c.words[0] for c in self.changes if c.words and c.at_ns == at_ns]
        return words[-1] if words else ""

    def leader(self, at_ns: int) -> int:
        """Returns the leader at a moment, changes of that moment included; -1 for none."""
        index = bisect_right(self._times, at_ns) - 1
        return int(self._states[index]["leader"]) if index >= 0 else -1


def histories(partition_states: pa.Table) -> dict[tuple[str, int], PartitionHistory]:
    """Returns the committed states of every partition, in the order of their names."""
    rows: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in partition_states.to_pylist():
        rows.setdefault((row["topic"], row["partition"]), []).append(row)
    return {place: PartitionHistory(rows[place]) for place in sorted(rows)}


def _words(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    if old["leader_epoch"] != new["leader_epoch"]:
        yield _election(old, new)
    if set(old["isr"]) - set(new["isr"]):
        yield _shrink(new)


def _election(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    leader = new["leader"]
    if leader < 0:
        return NO_LEADER
    if leader in old["isr"]:
        origin = "the ISR"
    elif leader in old["elr"]:
        origin = "the ELR"
    elif leader in old["last_known_elr"]:
        origin = "the last-known ELR"
    else:
        origin = "outside the ISR"
    how = "elected uncleanly" if new["flagged"] else "elected"
    return f"leader {how} from {origin}"


def _shrink(new: Mapping[str, Any]) -> str:
    size = len(new["isr"])
    if size == 0:
        return "ISR is empty"
    if size == 1:
        return "ISR shrinks to 1"
    return "ISR shrinks below min ISR" if size < new["min_isr"] else "ISR shrinks"
