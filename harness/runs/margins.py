"""How close the invariants about committed records came to failing in a run (`docs/invariants.md`).

Committed is what is below the largest high watermark that any replica of the partition reported. A margin is 0 if
one more step in the wrong direction breaks the invariant. A negative one is no finding by itself: these invariants
promise nothing with ELR off and after an unclean election. The other invariants are equalities and orders, which
hold or do not: they have no margin.

| invariant | margin |
|---|---|
| INV-1 | records of a newly elected leader above the committed ones, at most `RECORDS_MAX` |
| INV-2 | the same for the shortest running member of ISR and ELR, at each change of them |
| INV-11 | replicas with all committed records minus one, while all replicas run |
"""

from collections.abc import Mapping
from typing import Any

RECORDS_MAX = 8
"""A larger distance says nothing about danger."""

_COLUMNS = (
    "at_ns",
    "broker",
    "topic",
    "partition",
    "log_end_offset",
    "high_watermark",
    "role",
    "cause",
)
_OFFLINE = "offline"


class _Replicas:
    """The replicas of one partition as far as they were reported. Mutable."""

    def __init__(self) -> None:
        self.ends: dict[int, int] = {}
        self.committed = 0
        self.assigned = 0

    def slack(self, broker: int) -> int | None:
        """Returns how many records a running replica has above the committed ones; None if it is down."""
        end = self.ends.get(broker)
        return None if end is None else _rounded(end - self.committed)


def margins_of(tables: Mapping[str, Any]) -> dict[str, int]:
    """Returns the smallest margin of a run by invariant; an invariant that was never near is left out.

    Args:
        tables: The history of the run, one Arrow table by name.
    """
    replicas: dict[tuple[str, int], _Replicas] = {}
    smallest: dict[str, int] = {}

    def note(invariant: str, margin: int | None) -> None:
        if margin is not None and margin < smallest.get(invariant, margin + 1):
            smallest[invariant] = margin

    states = tables["partition_states"].to_pylist()
    epochs: dict[tuple[str, int], int] = {}
    index = 0
    table = tables["replica_states"]
    rows = zip(*(table.column(name).to_pylist() for name in _COLUMNS), strict=True)
    for at_ns, broker, topic, partition, end, high_watermark, role, cause in rows:
        while index < len(states) and states[index]["at_ns"] < at_ns:
            _note_state(states[index], replicas, epochs, note)
            index += 1
        seen = replicas.setdefault((topic, partition), _Replicas())
        if role == _OFFLINE:
            seen.ends.pop(broker, None)
        else:
            seen.ends[broker] = end
            seen.committed = max(seen.committed, high_watermark)
        is_whole = 0 < seen.assigned <= len(seen.ends)
        if is_whole and seen.committed and cause not in ("append", "replicate", "observed"):
            copies = sum(each >= seen.committed for each in seen.ends.values())
            note("INV-11", copies - 1)
    for state in states[index:]:
        _note_state(state, replicas, epochs, note)
    return dict(sorted(smallest.items()))


def _note_state(
    state: Mapping[str, Any],
    replicas: dict[tuple[str, int], _Replicas],
    epochs: dict[tuple[str, int], int],
    note: Any,
) -> None:
    name = (state["topic"], state["partition"])
    seen = replicas.setdefault(name, _Replicas())
    seen.assigned = len(state["replicas"])
    is_elected = state["leader"] >= 0 and state["leader_epoch"] > epochs.get(name, -1)
    epochs[name] = state["leader_epoch"]
    if not seen.committed:
        return
    if is_elected:
        note("INV-1", seen.slack(state["leader"]))
    members = dict.fromkeys((*state["isr"], *state["elr"]))
    slacks = [slack for one in members if (slack := seen.slack(one)) is not None]
    note("INV-2", min(slacks, default=None))


def _rounded(records: int) -> int:
    """Returns a distance as 0, 1, 2, 4 or 8, the largest of these that it reaches; -1 if it is negative."""
    if records < 0:
        return -1
    return min(1 << (records.bit_length() - 1), RECORDS_MAX) if records else 0
