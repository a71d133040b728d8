"""Whether the rows of a replica end too early to show what it did in an epoch.

A record may end too early: a recording was cut, or a report was lost with a disk. A process reports that it leads,
that it has heard of a later epoch, and when it ends. So what a replica did in the epoch in which it was elected is
recorded if its process was down when the epoch ended, and none had registered since; or if it reports a later
epoch, or that its process ended later. It need not have led: one that was down, or heard of its election too late,
did nothing in its epoch. If no epoch came later, it must have heard of its own, or be down, and none of its
processes may have registered since its last report. A follower that reports neither its end nor the last epoch may
have shown records to clients that its rows do not have.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from checkers.kernels.history import I64, INF_NS, Bools, is_word


@dataclass(frozen=True, slots=True, kw_only=True)
class Elected:
    """A replica that was elected.

    Attributes:
        broker: The leader.
        at_ns: When it was elected.
        epoch: Its leader epoch.
        until_ns: When the next leader epoch was committed; infinity if none was.
        is_first: Whether the partition was created with it.
    """

    broker: int
    at_ns: int
    epoch: int
    until_ns: int
    is_first: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """All that one replica reported, in order of time, whether its log was readable or not.

    Shape:
        at_ns, epoch, is_down: one row per report.
        started_ns: When processes of the broker registered, as far as that is recorded.
    """

    at_ns: I64
    epoch: I64
    is_down: Bools
    started_ns: I64

    @property
    def stopped_ns(self) -> I64:
        """Since when the log had not been readable before each report; the time of the report if it had been."""
        rows = np.arange(len(self.at_ns))
        last_up = np.maximum.accumulate(np.where(self.is_down, -1, rows))
        was_down = np.append(False, self.is_down[:-1])
        since = np.where(was_down, np.append(-1, last_up[:-1]) + 1, rows)
        stopped_ns: I64 = self.at_ns[since]
        return stopped_ns

    def cover(self, elected: Elected) -> bool:
        """Returns whether what the replica did in its leader epoch is recorded, up to the end of the epoch.

        A process reports that it leads, that it has heard of a later epoch, and when it ends.
        """
        count = int(np.searchsorted(self.at_ns, elected.until_ns, side="left"))
        if count and self.is_down[count - 1]:
            # A process that began after that, and reported nothing, may have led.
            return not self._started_between(int(self.at_ns[count - 1]), elected.until_ns)
        if elected.until_ns == INF_NS:
            # Nor does one that began after the last report say what it found when it led on.
            has_restarted = self._started_between(int(self.at_ns[-1]), INF_NS)
            return bool((self.epoch >= elected.epoch).any()) and not has_restarted
        return bool((self.epoch > elected.epoch).any() or self.is_down[count:].any())

    def had_left(self, epoch: int, at_ns: int) -> bool:
        """Returns whether the replica had reported a later leader epoch before a moment."""
        return bool(((self.epoch > epoch) & (self.at_ns < at_ns)).any())

    def ends_ns(self, last_epoch: int, *, is_replica: bool) -> int:
        """Returns when the record of the replica ends too early; infinity if it does not.

        Args:
            last_epoch: The largest leader epoch in which a replica was elected.
            is_replica: Whether it is still one in the last state. If not, a later process of it has no log.
        """
        last_ns = int(self.at_ns[-1])
        if self.is_down[-1]:
            is_back = is_replica and self._started_between(last_ns, INF_NS)
            return last_ns if is_back else INF_NS
        return last_ns if self.epoch.max() < last_epoch else INF_NS

    def _started_between(self, from_ns: int, until_ns: int) -> bool:
        return bool(((from_ns < self.started_ns) & (self.started_ns < until_ns)).any())


def reports_of(
    replica_states: pa.Table, order: I64, started_ns: Mapping[int, I64]
) -> dict[int, Reports]:
    """Returns the reports of each broker.

    Args:
        replica_states: The partition's rows, in any order.
        order: Their positions in order of time.
        started_ns: When processes of each broker registered, as far as that is recorded.
    """
    broker, at_ns, epoch = (
        replica_states.column(name).to_numpy().astype(np.int64)[order]
        for name in ("broker", "at_ns", "leader_epoch")
    )
    is_down = is_word(replica_states.column("role"), "offline")[order]
    nothing = np.empty(0, dtype=np.int64)
    return {
        identifier: Reports(
            at_ns=at_ns[mine],
            epoch=epoch[mine],
            is_down=is_down[mine],
            started_ns=started_ns.get(identifier, nothing),
        )
        for identifier in np.unique(broker).tolist()
        for mine in [np.flatnonzero(broker == identifier)]
    }
