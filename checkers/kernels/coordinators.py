"""What elections did to the records of a consumer group, which its coordinator keeps.

The leader of one partition of the offsets topic coordinates a group. Commits and assignments are records of that
partition, so a lawful flagged election of it may lose them, as it may lose any record. No client sees the offsets
of these records, so which replica had them is not known: what a group lost is excused if every election of the
partition in between was flagged and lawful, a broken promise if none was, and undecided otherwise
(`checkers.kernels.elections`). If the elections of the partition were not recorded and the run may have had
such an election, it is undecided too. Which partition it is follows from how many there are. That is known only if
states of all partitions below the highest one were recorded.

States that were read from a controller were committed at any moment between `after_ns` and `at_ns`. So a
coordinator may have been replaced, and may have left the ISR, since `after_ns`.

A coordinator answers what is committed from its memory, so one that was deposed and does not know it reports what
was committed before. It knows when it copies from another leader, and before a member of the ISR has done so,
nothing new is committed. So it cannot be one that is in the ISR when something is committed that it does not
report, and not one that came back into the ISR, was killed or stopped, or was started again, before it was asked.
Where states are missing, it may have left the ISR and come back. If the elections of the partition were not
recorded, there may have been one if a fault other than a kill took effect.

One that was just elected loads its log to the end, and may answer from what is not committed yet: any replica of
the ISR that is elected next may lack that, lawfully. So what it reports is established only if somebody
acknowledged it, or if the coordinator acknowledged a commit that was sent after its election. Before Kafka 4.0
coordinators report positions so, and later ones still generations. Those that report only what the high watermark
has passed may lag behind what their predecessor acknowledged, so members must request positions with
`require_stable`, as Java's and librdkafka's do: then the coordinator waits.

Source:
    Kafka's `GroupMetadataManager.partitionFor`: the hash of the group's name determines the partition.
"""

import json
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from checkers.kernels.elections import Elections
from checkers.kernels.fates import UNDECIDED, UNEXCUSED, Claims
from checkers.kernels.history import I8, I64, INF_NS
from checkers.kernels.lawful_losses import may_have_destroyed
from checkers.kernels.log_contents import ANY_EPOCH
from checkers.kernels.metadata_gaps import MetadataGaps, Shown, earliest_ns
from checkers.kernels.partition_tables import derive_once
from harness.contracts.run_context import RunContext
from harness.history.schema import COORDINATOR_STATES, TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class Deposed:
    """A coordinator that another one replaced, as far as it may not have known it.

    Attributes:
        from_ns, until_ns: When it was deposed, at the earliest and at the latest.
        left_ns: When it was not in the ISR any more, at the earliest; infinity if it stayed there.
        back_ns: When it certainly knew, or was dead, at the latest; infinity if nothing shows that.
    """

    from_ns: int
    until_ns: int
    left_ns: int
    back_ns: int

    def may_lack(self, at_ns: int) -> bool:
        """Whether it may not know what was shown to be committed at a moment."""
        return at_ns >= self.from_ns and at_ns >= self.left_ns

    def may_answer(self, asked_ns: int, seen_ns: int) -> bool:
        """Whether it may have answered a request between two moments without knowing."""
        return self.from_ns <= seen_ns and asked_ns <= self.back_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """From one election of a coordinator to the next one.

    Attributes:
        from_ns, from_late_ns: When it began, at the earliest and at the latest.
        until_ns, until_late_ns: When it ended, likewise.
    """

    from_ns: int
    from_late_ns: int
    until_ns: int
    until_late_ns: int

    def may_report(self, asked_ns: int, seen_ns: int) -> bool:
        """Whether its coordinator may have answered a request between two moments."""
        return self.from_ns <= seen_ns and asked_ns <= self.until_late_ns

    def is_settled(self, sent_ns: I64, acked_ns: I64) -> bool:
        """Whether a commit was sent and acknowledged in the term, so that what was loaded is committed too."""
        return bool(((sent_ns > self.from_late_ns) & (acked_ns < self.until_ns)).any())


_AT_ANY_TIME = Deposed(from_ns=-INF_NS, until_ns=INF_NS, left_ns=-INF_NS, back_ns=INF_NS)


class Coordinator:
    """What elections did to a group's offsets partition.

    Args:
        group: Name of the group.
        tables: Those of a checker that names COORDINATOR_STATES, `partition_states`, `broker_states` and `faults`.
        context: What the run declares about itself.
    """

    def __init__(self, group: str, tables: Mapping[str, pa.Table], context: RunContext) -> None:
        self._group, self._tables, self._context = group, tables, context

    def losses(self, from_ns: I64, until_ns: I64) -> I8:
        """Returns what elections of the partition did to records of the group.

        Args:
            from_ns: When each record was written at the earliest.
            until_ns: When a client learned that it was gone.

        Returns:
            UNEXCUSED, UNDECIDED or EXCUSED for each record.
        """
        elections = self._elections
        if elections is None:
            outcome = UNDECIDED if self._may_have_lost else UNEXCUSED
            return np.full(len(from_ns), outcome, dtype=np.int8)
        return elections.fates(_claims(from_ns), _claims(until_ns)).outcome

    @cached_property
    def deposed(self) -> tuple[Deposed, ...]:
        """The coordinators that were replaced, in order; a possible one if elections were not recorded."""
        states = self._states
        faults = self._tables["faults"].to_pylist()
        if states is None:
            # A pause or a partition may leave one that does not know. One that is killed does not go on.
            is_possible = any(
                row["took_effect"] and not row["unclean_end"] and not row["heals"] for row in faults
            )
            return (_AT_ANY_TIME,) if is_possible else ()
        error_ns = self._context.clock_error_ns
        brokers = self._tables["broker_states"].to_pylist()
        rows = states.sort_by("metadata_offset").to_pylist()
        is_missing = MetadataGaps(rows, self._shown, error_ns).is_missing_before
        found = []
        for number in range(1, len(rows)):
            broker, row = rows[number - 1]["leader"], rows[number]
            if broker < 0 or row["leader"] == broker:
                continue
            isr = [broker in one["isr"] for one in rows]
            # Where states are missing, it may have left the ISR and come back.
            may_be_out = [
                one
                for one in range(number, len(rows))
                if not isr[one] or (is_missing[one] and one > number)
            ]
            left_ns, returns = INF_NS, []
            if may_be_out:
                out = may_be_out[0]
                left_ns = earliest_ns(rows[out - 1] if is_missing[out] else rows[out])
                returns = [rows[one]["at_ns"] for one in range(out, len(rows)) if isr[one]]
            registered_ns = [
                one["at_ns"]
                for one in brokers
                if one["broker"] == broker and one["change"] == "registered"
            ]
            returns += [at_ns for at_ns in registered_ns if at_ns > row["at_ns"]]
            returns += [
                at_ns
                for since_ns, at_ns in _ended_ns(broker, faults)
                # Otherwise another process of this broker was the one that was replaced.
                if not any(since_ns <= one <= row["at_ns"] for one in registered_ns)
            ]
            found.append(
                Deposed(
                    from_ns=earliest_ns(row) - error_ns,
                    until_ns=row["at_ns"] + error_ns,
                    left_ns=left_ns - error_ns if left_ns < INF_NS else INF_NS,
                    back_ns=min(returns, default=INF_NS - error_ns) + error_ns,
                )
            )
        return tuple(found)

    def may_be_uncommitted(
        self, between_ns: tuple[int, int], gone_ns: int, settled_ns: tuple[I64, I64]
    ) -> bool:
        """Returns whether a coordinator may have reported what it had loaded, and the next one lacked it lawfully.

        Args:
            between_ns: When the report was requested and seen.
            gone_ns: When a client learned that it was gone.
            settled_ns: When commits of the group were sent, and when they were acknowledged.
        """
        if self._states is None:
            return any(row["took_effect"] for row in self._tables["faults"].to_pylist())
        return any(
            term.may_report(*between_ns)
            and term.until_ns <= gone_ns
            and not term.is_settled(*settled_ns)
            for term in self._terms
        )

    @cached_property
    def _terms(self) -> tuple[Term, ...]:
        """The terms that ended, without that in which the partition was created: nothing was loaded then."""
        states = self._states
        rows = [] if states is None else states.sort_by("metadata_offset").to_pylist()
        led = [row for row in rows if row["leader"] >= 0]
        epochs = [row["leader_epoch"] for row in led]
        # In a row that follows one of the same epoch, nobody was elected.
        elected = [
            row
            for number, row in enumerate(led)
            if not number or epochs[number - 1] != epochs[number]
        ]
        error_ns = self._context.clock_error_ns
        return tuple(
            Term(
                from_ns=earliest_ns(one) - error_ns,
                from_late_ns=one["at_ns"] + error_ns,
                until_ns=earliest_ns(other) - error_ns,
                until_late_ns=other["at_ns"] + error_ns,
            )
            for one, other in pairwise(elected)
            if one["leader_epoch"] > 0
        )

    @property
    def _may_have_lost(self) -> bool:
        """Whether an election that was not recorded may have lost something lawfully."""
        return bool(
            self._context.unclean_election_enabled
            or any(
                self._tables[name].column("flagged").to_numpy().any()
                for name in ("partition_states", COORDINATOR_STATES)
            )
            or any(map(may_have_destroyed, self._tables["faults"].to_pylist()))
        )

    @cached_property
    def _states(self) -> pa.Table | None:
        """The states of the partition; None if it is not known which one it is.

        How many partitions the offsets topic has is known if states of all below the highest one were recorded.
        """
        states = self._tables[COORDINATOR_STATES]
        partition = states.column("partition").to_numpy()
        recorded = np.unique(partition)
        if not len(recorded) or len(recorded) <= recorded[-1]:
            return None
        mine = offsets_partition(self._group, len(recorded))
        return states.filter(pa.array(partition == mine))

    @property
    def _shown(self) -> Shown:
        return Shown(ends_early=self._context.record_ends_early)

    @cached_property
    def _elections(self) -> Elections | None:
        states = self._states
        if states is None:
            return None
        tables, context = self._tables, self._context

        def derive() -> Elections:
            return Elections(
                states,
                TABLES["replica_states"].empty_table(),
                tables["broker_states"],
                tables["faults"],
                elr_on=context.elr_on,
                unclean_election_enabled=context.unclean_election_enabled,
                clock_error_ns=context.clock_error_ns,
                shown=self._shown,
            )

        return derive_once(tables, f"elections of the coordinator of {self._group}", derive)


def offsets_partition(group: str, partition_count: int) -> int:
    """Returns the partition of the offsets topic that has a group's records, by Java's hash of its name."""
    value = 0
    data = group.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[index : index + 2], "big")) & 0xFFFFFFFF
    # Kafka clears the sign bit instead of negating the number.
    return (value & 0x7FFFFFFF) % partition_count


def _ended_ns(broker: int, faults: Iterable[Mapping[str, Any]]) -> list[tuple[int, int]]:
    """Returns since when, and by when, faults had ended a broker's process."""
    node = f"b{broker}"
    return [
        (row["invoked_ns"], row["completed_ns"])
        for row in faults
        if not row["failed"] and row["completed_ns"] is not None
        if (row["unclean_end"] and row["took_effect"] and node in row["resolved"])
        or node in _stopped(row["evidence"])
    ]


def _stopped(evidence: str) -> Container[str]:
    """Returns the nodes of which the evidence of a fault states how their process ended: in time, or by force."""
    try:
        ended = json.loads(evidence)["ended"]
    except (ValueError, KeyError, TypeError):
        return ()
    return ended if isinstance(ended, dict) else ()


def _claims(at_ns: I64) -> Claims:
    unknown = np.full(len(at_ns), -1, dtype=np.int64)
    return Claims(
        offset=unknown,
        low_epoch=unknown,
        high_epoch=np.full(len(at_ns), ANY_EPOCH, dtype=np.int64),
        from_ns=at_ns,
        by_ns=at_ns,
        epoch=unknown,
        read_ns=np.full(len(at_ns), -INF_NS),
    )
