"""Which states of a partition are missing from the record, and what may have happened there.

Committed metadata are recorded as they are observed. The record may begin after the partition was created; a
snapshot may replace the states between two others; and a run that ends early may end before its last states were
observed. What is not recorded is not known: an election may have been among it, flagged or not. So what it did to
records is undecided. It is neither an excuse nor the absence of one.

Missing states show themselves:

- the leader epoch grows by one with each change of the leader, so a larger step hides states;
- so does a larger step of the partition epoch, which grows by one with each change;
- the first state is not of the first leader epoch: leaders were deposed before, and may commit records until they
  hear of it;
- an operation was invoked before the first state was committed;
- a client was shown a leader epoch above that of the last state.

If the record may end before the run did, states may be missing at its end too, whatever they began. Clients that
are shown leader epochs would have been shown a new one; then only that counts.

A run without any state has no record with gaps. It has none at all, and nothing is excused there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.columns import largest_of_each
from checkers.kernels.history import INF_NS, lookup
from checkers.kernels.log_contents import ANY_EPOCH
from checkers.kernels.words import APPEND, OK, numbers, operation_words

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What operations of one partition show of its metadata.

    Attributes:
        first_ns: When the first one was invoked; None if that is not known.
        last_ns: When the last one was invoked or completed; None likewise.
        epochs: The leader epochs of responses and of records, ascending.
        appended_ns: For those that only responses to appends show, when the first such append was invoked. A
            producer names the epoch of its metadata, which need not be that of the leader that responded.
        ends: For the others the largest log end that a response of the leader, or a record that it wrote, shows.
        final_end: The largest log end that final reads show; None if they show none.
        ends_early: Whether the record may end before the run did.
    """

    first_ns: int | None = None
    last_ns: int | None = None
    epochs: tuple[int, ...] = ()
    appended_ns: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    final_end: int | None = None
    ends_early: bool = False


NOTHING_SHOWN = Shown()


def shown_ends(operations: pa.Table, records_read: pa.Table) -> dict[int, int]:
    """Returns the leader epochs that trusted records of one partition and responses to reads show.

    Returns:
        For each epoch the largest log end that they show: one more than the largest offset, 0 for none.
    """
    words = operation_words(operations)
    is_read = (words.outcome == OK) & (words.kind != APPEND)
    op, by = (
        operations.column(name).to_numpy().astype(np.int64)[is_read]
        for name in ("op_index", "leader_epoch")
    )
    is_trusted = numbers(records_read.column("status"), ("ok",)) == 0
    read_by, offset, stamp = (
        records_read.column(name).to_numpy().astype(np.int64)[is_trusted]
        for name in ("op_index", "offset", "leader_epoch")
    )
    order = np.argsort(op, kind="stable")
    # Of two rows of one operation the last one counts.
    order = order[np.append(op[order][1:] != op[order][:-1], True)[: len(order)]]
    responded = np.append(by[order], -1)[lookup(op[order])(read_by)]
    epoch = np.concatenate((by, responded, stamp))
    end = np.concatenate((np.zeros(len(by), dtype=np.int64), offset + 1, offset + 1))
    return largest_of_each(epoch[epoch >= 0], end[epoch >= 0])


def appended_epochs(operations: pa.Table) -> dict[int, int]:
    """Returns for each leader epoch that a response to an append shows when the first such append was invoked."""
    words = operation_words(operations)
    is_acked = (words.outcome == OK) & (words.kind == APPEND)
    epoch = operations.column("leader_epoch").to_numpy()[is_acked].astype(np.int64)
    invoked_ns = operations.column("invoked_ns").to_numpy()[is_acked]
    earliest = largest_of_each(epoch[epoch >= 0], -invoked_ns[epoch >= 0])
    return {each: -invoked for each, invoked in earliest.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Elections that may have been, but are not recorded.

    Attributes:
        since_ns, until_ns: They were committed after the one and not after the other.
        first_epoch, last_epoch: The leader epochs that they may have begun.
    """

    since_ns: int
    until_ns: int
    first_epoch: int
    last_epoch: int


class MetadataGaps:
    """What is missing of the states of one partition.

    Args:
        rows: The states, in order.
        shown: What operations show of them.
        clock_error_ns: Largest difference between two clocks of the run.
    """

    def __init__(self, rows: Sequence[Row], shown: Shown, clock_error_ns: int = 0) -> None:
        self._rows = rows
        self.is_missing_before: list[bool] = []
        """Whether states are missing right before each of the rows, and after the last one."""
        if not rows:
            self.is_missing_before = [False]
            return
        self.is_missing_before.append(_begins_late(rows[0], shown, clock_error_ns))
        for before, row in pairwise(rows):
            step = row["leader_epoch"] - before["leader_epoch"]
            changes = row["partition_epoch"] - before["partition_epoch"]
            self.is_missing_before.append(step > 1 or changes > 1)
        last_epoch = max(row["leader_epoch"] for row in rows)
        self._last_shown = max(shown.epochs, default=ANY_EPOCH if shown.ends_early else -1)
        self.is_missing_before.append(self._last_shown > last_epoch)

    def before(self, index: int) -> Gap | None:
        """Returns the elections that may have been right before a row, the one of its epoch included.

        Args:
            index: Of the row; the number of rows for what came after the last one.
        """
        if not self.is_missing_before[index]:
            return None
        first, since_ns = 1, -INF_NS
        if index:
            # Nothing can be lost when the partition is created, in epoch 0.
            before = self._rows[index - 1]
            first, since_ns = before["leader_epoch"] + 1, earliest_ns(before)
        last, until_ns = self._last_shown, INF_NS
        if index < len(self._rows):
            row = self._rows[index]
            # An epoch without a leader began with no election. A flag in the first row is about that row itself.
            is_known = row["leader"] < 0 or (row["flagged"] and not index)
            last = row["leader_epoch"] - is_known
            until_ns = row["at_ns"]
        if last < first:
            return None
        return Gap(since_ns=since_ns, until_ns=until_ns, first_epoch=first, last_epoch=last)

    @property
    def hides_creation(self) -> bool:
        """Whether the first state is one of the first leader epoch, but not that of the creation.

        That the partition was created lost nothing, whenever it was.
        """
        late = self.is_missing_before[0] and not self._rows[0]["flagged"]
        return late and not self._rows[0]["leader_epoch"]

    @property
    def may_hide_elections(self) -> bool:
        """Whether there may have been elections that are not recorded."""
        indices = range(len(self.is_missing_before))
        return bool(self._rows) and any(self.before(index) is not None for index in indices)

    @cached_property
    def elected_in(self) -> dict[int, int]:
        """For each leader epoch that began without an election the one in which its leader was elected."""
        elected_in: dict[int, int] = {}
        for index, (before, row) in enumerate(pairwise(self._rows), 1):
            epoch = int(before["leader_epoch"])
            stays = row["leader"] == before["leader"] >= 0 and not row["flagged"]
            if stays and row["leader_epoch"] > epoch and not self.is_missing_before[index]:
                elected_in[row["leader_epoch"]] = elected_in.get(epoch, epoch)
        return elected_in

    def reign_ends_ns(self, index: int) -> int:
        """Returns the same as `ends_ns` of all leader epochs in which a leader leads by the election of a row."""
        epoch = self._rows[index]["leader_epoch"]
        for later in range(index + 1, len(self._rows)):
            other = self._rows[later]["leader_epoch"]
            if self.elected_in.get(other, other) != epoch:
                break
            index = later
        return self.ends_ns(index)

    def ends_ns(self, index: int) -> int:
        """Returns until when the leader epoch of a row certainly lasted, or when the next one began if known."""
        epoch = self._rows[index]["leader_epoch"]
        for later in range(index + 1, len(self._rows)):
            if self._rows[later]["leader_epoch"] > epoch:
                is_missing = self.is_missing_before[later]
                return int(self._rows[later - is_missing]["at_ns"] + is_missing)
        return int(self._rows[-1]["at_ns"] + 1) if self.is_missing_before[-1] else INF_NS


def earliest_ns(state: Mapping[str, Any]) -> int:
    """Returns when a state was committed at the earliest: its reader may have been late."""
    after_ns = state.get("after_ns")
    return int(state["at_ns"] if after_ns is None else min(after_ns, state["at_ns"]))


def effective_min_isr(state: Mapping[str, Any]) -> int:
    """Returns min ISR of a state; a partition never needs more members than it has replicas."""
    return int(min(state["min_isr"], len(state["replicas"])))


def _begins_late(first: Row, shown: Shown, clock_error_ns: int) -> bool:
    if first["leader_epoch"] > 0:
        return True  # a leader that was deposed before may have committed records since
    return shown.first_ns is not None and bool(first["at_ns"] + clock_error_ns > shown.first_ns)
