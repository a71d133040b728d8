"""Records of a compacted log that its cleaner may have removed (`checkers.compaction`).

A record is *gone* if the final reads went over its offset without it, or if they reached the end of a shorter log.
It is not if a record at its offset cannot be read.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from checkers.kernels.history import I64, Bools
from checkers.kernels.lost_acked import following, has_room, merged
from harness.history.schema import with_column

IDENTITY = ["offset", "value", "process", "sequence", "leader_epoch"]
"""Columns of `records_read` that are those of the record, apart from its key."""

PLACE = ["topic", "partition"]
NEVER_NS = np.iinfo(np.int64).max


def with_removed_records(
    operations: pa.Table,
    records_read: pa.Table,
    clock_error_ns: int = 0,
    *,
    replica_states: pa.Table | None = None,
    partition_states: pa.Table | None = None,
    phase_complete: bool = True,
    sent_twice: bool = False,
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Adds to each poll the records that the cleaner may have removed from the range that it read.

    Args:
        operations: Of any number of partitions; of one, if it has no columns `topic` and `partition`.
        records_read: Likewise.
        clock_error_ns: Largest difference between two clocks that stamped operations.
        replica_states: Likewise; None if no logs were recorded. A leader may hold more than it may show.
        partition_states: Likewise. An election may lose records, and write their offsets again.
        phase_complete: Whether the run recorded that its final phase ended as planned. Otherwise the log may go on
            behind the end that was reported.
        sent_twice: Whether producers without idempotence sent appends again. An acknowledgement without an offset
            does not show then that a record was at the offset where it was read.

    Returns:
        Both tables with more rows of `records_read`, a larger `record_count`, and `info` as the outcome of appends
        that were acknowledged without an offset, or with acks=1, if a later record of their key may have replaced
        them. Then the rows that were added, in any order.
    """
    ops = operations.to_pandas(types_mapper=pd.ArrowDtype)
    reads = records_read.to_pandas(types_mapper=pd.ArrowDtype)
    added = []
    replaced: list[int] = []
    log_ends = _log_ends(replica_states)
    elected = _elected(partition_states)
    for place, mine, here in _partitions(ops, reads):
        final = _FinalReads.of(mine, here, log_ends.get(place, -1), phase_complete=phase_complete)
        log = _SeenLog.of(mine, here, final, clock_error_ns, sent_twice=sent_twice)
        added.append(log.missing_in(mine, here, clock_error_ns))
        replaced += log.perhaps_cut_off()
        has_election = place in elected or _shows_election(mine, here)
        replaced += log.perhaps_replaced(
            mine,
            here,
            final,
            clock_error_ns,
            has_election=has_election,
            sent_twice=sent_twice,
        )
    more = pd.concat(added) if added else pd.DataFrame()
    if replaced:
        is_replaced = pc.is_in(operations.column("op_index"), pa.array(replaced, pa.int64()))
        for name, value in (("outcome", "info"), ("offset", None)):
            column = operations.column(name)
            known = pc.if_else(is_replaced, pa.scalar(value, column.type), column)
            operations = with_column(operations, name, known)
    if more.empty:
        return operations, records_read, records_read.slice(0, 0)
    count = more.groupby("op_index").size()
    extra = ops["op_index"].map(count).fillna(0).astype("int64")
    operations = with_column(
        operations,
        "record_count",
        pc.add(operations.column("record_count"), pa.array(extra.to_numpy())),
    )
    filled = _in_order(reads, more, records_read.schema)
    return operations, filled, _as_table(more.assign(index_in_poll=0), records_read.schema)


def _partitions(
    operations: pd.DataFrame, records_read: pd.DataFrame
) -> Iterator[tuple[Any, pd.DataFrame, pd.DataFrame]]:
    """Yields topic and partition, None if they are not known, and both tables of each partition."""
    if not set(PLACE) <= set(operations.columns):
        yield None, operations, records_read
        return
    reads = dict(iter(records_read.groupby(PLACE)))
    for place, mine in operations.groupby(PLACE):
        yield place, mine, reads.get(place, records_read.iloc[:0])


def _log_ends(replica_states: pa.Table | None) -> dict[Any, int]:
    """Returns the largest log end of a replica at the end of the run, by topic and partition, as `_partitions`."""
    if replica_states is None or not replica_states.num_rows:
        return {}
    rows = replica_states.to_pandas(types_mapper=pd.ArrowDtype).sort_values("at_ns", kind="stable")
    if not set(PLACE) <= set(rows.columns):
        return {None: int(rows.groupby("node")["log_end_offset"].last().max())}
    last = rows.groupby([*PLACE, "node"])["log_end_offset"].last()
    return {place: int(end) for place, end in last.groupby(PLACE).max().items()}


def _elected(partition_states: pa.Table | None) -> set[Any]:
    """Returns the partitions of which more than one leader epoch is recorded, as `_partitions` names them."""
    if partition_states is None or not partition_states.num_rows:
        return set()
    rows = partition_states.to_pandas(types_mapper=pd.ArrowDtype)
    if not set(PLACE) <= set(rows.columns):
        return {None} if rows["leader_epoch"].nunique() > 1 else set()
    epochs = rows.groupby(PLACE)["leader_epoch"].nunique()
    return set(epochs[epochs > 1].index)


def _shows_election(operations: pd.DataFrame, records_read: pd.DataFrame) -> bool:
    """Returns whether responses and the stamps of batches name more than one leader epoch."""
    epochs = {*operations["leader_epoch"].unique(), *records_read["leader_epoch"].unique()}
    return len([epoch for epoch in epochs if epoch >= 0]) > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _FinalReads:
    """What the final reads of one partition returned, and what they went over.

    Attributes:
        returned: Offset and value of each record.
        unreadable: Offsets of records that could not be read.
        starts, stops: Disjoint ranges [start, stop) that they went over, ascending.
        end: Nothing is at or behind it; `NEVER_NS` if that is not known.
        asked_ns: When the end was requested.
    """

    returned: pd.MultiIndex
    unreadable: I64
    starts: I64
    stops: I64
    end: int
    asked_ns: int

    @staticmethod
    def of(
        operations: pd.DataFrame,
        records_read: pd.DataFrame,
        log_end: int,
        *,
        phase_complete: bool,
    ) -> "_FinalReads":
        """Returns those of a partition; `log_end` is the largest log end of a replica at the end of the run."""
        final = operations[operations["final"] & (operations["outcome"] == "ok")]
        rows = records_read[records_read["op_index"].isin(final["op_index"])]
        polls = _ranges(final, rows)
        # Where a poll began whose position is not known, only its first record shows.
        starts, stops = merged(polls["surely"].to_numpy(), polls["last"].to_numpy() + 1)
        reached, ends = _reached(final, rows)
        end = int(ends["end"].max()) if len(ends) else -1
        is_known = phase_complete and reached == end
        is_ok = rows["status"] == "ok"
        return _FinalReads(
            returned=pd.MultiIndex.from_frame(rows.loc[is_ok, ["offset", "value"]].astype("int64")),
            unreadable=rows.loc[~is_ok, "offset"].to_numpy(dtype="int64"),
            starts=starts,
            stops=stops,
            end=max(end, log_end) if is_known else NEVER_NS,
            asked_ns=int(ends.loc[ends["end"] == end, "invoked_ns"].min()) if is_known else 0,
        )

    def lack(self, known: pd.DataFrame, clock_error_ns: int) -> Bools:
        """Returns which records are gone.

        Args:
            known: Columns `offset`, `value` and `shown_ns`, when a response first showed it.
            clock_error_ns: Largest difference between two clocks.
        """
        offset = known["offset"].to_numpy()
        at = np.searchsorted(self.starts, offset, side="right") - 1
        is_over = (at >= 0) & (np.append(self.stops, -1)[at] > offset)
        is_there = pd.MultiIndex.from_frame(known[["offset", "value"]]).isin(self.returned)
        is_there |= np.isin(offset, self.unreadable)
        # A log end that was requested before the record was there may have been too small.
        is_beyond = offset >= self.end
        is_beyond &= known["shown_ns"].to_numpy() < self.asked_ns - clock_error_ns
        gone: Bools = (is_over | is_beyond) & ~is_there
        return gone


@dataclass(frozen=True, slots=True, kw_only=True)
class _SeenLog:
    """The records of one partition that clients saw, and the rest of their batches.

    Several are at one offset if elections lost some.

    Attributes:
        records: Columns `IDENTITY`, `key`, `invoked_ns` of the append, `is_gone`, and three times, `NEVER_NS` if
            they are not known: `shown_ns` of the first response that shows the record, `committed_ns` of the first
            one that shows that it was committed, and `removable_ns`, from when on the cleaner may have removed it.
            `is_read` tells whether a poll returned it or one of its batch, `is_weak` whether only an
            acknowledgement with acks=1 shows it.
            Ascending by offset, then by leader epoch if it is known, then by `shown_ns`.
    """

    records: pd.DataFrame

    @staticmethod
    def of(
        operations: pd.DataFrame,
        records_read: pd.DataFrame,
        final: _FinalReads,
        clock_error_ns: int,
        *,
        sent_twice: bool,
    ) -> "_SeenLog":
        """Returns what polls returned, what was acknowledged with an offset, and the rest of the batches."""
        appends = operations[operations["kind"] == "append"].set_index("op_index")
        read = records_read[(records_read["status"] == "ok")].sort_values("op_index", kind="stable")
        acked = appends[(appends["outcome"] == "ok") & appends["offset"].notna()]
        shown_ns = operations.set_index("op_index")["completed_ns"].fillna(NEVER_NS)
        read = read.assign(
            epoch=read["leader_epoch"],
            shown_ns=shown_ns.reindex(read["op_index"]).to_numpy(dtype="int64"),
        )
        acked = acked.reset_index().rename(columns={"op_index": "value"})
        # Only a read shows the stamp of a batch. A response has the epoch that the client knew.
        acked = acked.assign(epoch=acked["leader_epoch"], leader_epoch=-1, shown_ns=NEVER_NS)
        columns = [*IDENTITY, "epoch", "shown_ns"]
        known = pd.concat([read[columns], acked[columns]]).astype("int64")
        known["shown_ns"] = known.groupby(["offset", "value"])["shown_ns"].transform("min")
        known = known.drop_duplicates(["offset", "value"])
        # When a record was sent that no append of this history wrote is not known, so it removes nothing.
        known = known[known["value"].isin(appends.index)]
        known["is_read"] = pd.MultiIndex.from_frame(known[["offset", "value"]]).isin(
            pd.MultiIndex.from_frame(read[["offset", "value"]].astype("int64"))
        )
        known = _with_whole_batches(known, appends)
        writer = appends.loc[known["value"]]
        known = known.assign(
            key=writer["key"].to_numpy(),
            invoked_ns=writer["invoked_ns"].to_numpy(dtype="int64"),
            is_weak=~known["is_read"].to_numpy() & (writer["acks"] == 1).to_numpy(dtype="bool"),
        )
        known = _with_responses(known, writer, sent_twice=sent_twice)
        # The order of sending is not that of arriving. Epochs are comparable if all at an offset are known.
        known["epoch"] = known["epoch"].where(
            known.groupby("offset")["epoch"].transform("min") >= 0, -1
        )
        known = known.sort_values(["offset", "epoch", "shown_ns"], ignore_index=True)
        known = known.assign(is_gone=final.lack(known, clock_error_ns))
        # The earliest of the later records of its key permits its removal.
        backwards = known.iloc[::-1]
        earliest = backwards.groupby("key")["invoked_ns"].cummin()
        later = earliest.groupby(backwards["key"]).shift(1, fill_value=NEVER_NS)
        # One that no client saw may be there in between, removed itself by the later one that was seen.
        unseen = appends[(appends["outcome"] != "fail") & ~appends.index.isin(known["value"])]
        # A stored column is a dictionary, whose every key would be a group, also without rows.
        first_ns = unseen["invoked_ns"].groupby(unseen["key"].to_numpy()).min()
        hidden = _by_key(first_ns, backwards["key"], NEVER_NS)
        # The cleaner keeps the last record of a key. If all later ones are gone, so is what permits the removal.
        is_kept = (~backwards["is_gone"]).groupby(backwards["key"]).cummax()
        is_possible = is_kept.groupby(backwards["key"]).shift(1, fill_value=False).to_numpy()
        if _ends_early(operations, records_read):
            # One that no client saw may also be beyond the final reads.
            is_possible |= hidden < NEVER_NS
        later = np.where(is_possible, np.minimum(later, hidden), NEVER_NS)
        # Records without a key replace nothing; a compacted topic refuses them.
        later = pd.Series(np.where(backwards["key"] != "", later, NEVER_NS), backwards.index)
        return _SeenLog(records=known.assign(removable_ns=later.reindex(known.index)))

    def missing_in(
        self, operations: pd.DataFrame, records_read: pd.DataFrame, clock_error_ns: int
    ) -> pd.DataFrame:
        """Returns rows of `records_read` for removed records that polls passed over, without `index_in_poll`."""
        polls = _ranges(operations, records_read)
        offsets = self.records["offset"].to_numpy()
        begin = np.searchsorted(offsets, polls["start"].to_numpy(), side="left")
        end = np.maximum(np.searchsorted(offsets, polls["last"].to_numpy(), side="right"), begin)
        poll = np.repeat(np.arange(len(polls)), end - begin)
        record = np.arange(len(poll)) + np.repeat(begin - _starts(end - begin), end - begin)
        ended_ns = polls["completed_ns"].to_numpy()[poll]
        # Two clocks of one moment differ by that much at most.
        until_ns = ended_ns + np.minimum(clock_error_ns, NEVER_NS - ended_ns)
        rows = np.flatnonzero(self.records["invoked_ns"].to_numpy()[record] <= until_ns)
        # Of several at one offset the last one was there, as far as is known (`Excuses.lost`).
        pairs = np.stack((poll[rows], offsets[record[rows]]))
        is_last = np.append((pairs[:, 1:] != pairs[:, :-1]).any(axis=0), True)[: len(rows)]
        rows = rows[is_last]
        rows = rows[self.records["removable_ns"].to_numpy()[record[rows]] <= until_ns[rows]]
        rows = rows[~self.records["is_weak"].to_numpy()[record[rows]]]
        found = self.records.iloc[record[rows]].assign(
            op_index=polls["op_index"].to_numpy()[poll[rows]]
        )
        returned = pd.MultiIndex.from_frame(records_read[["op_index", "offset"]].astype("int64"))
        is_returned = pd.MultiIndex.from_frame(found[["op_index", "offset"]]).isin(returned)
        found = found[~is_returned]
        place = {name: operations[name].iloc[0] for name in PLACE if name in operations}
        return found[["op_index", *IDENTITY, "key"]].assign(status="ok", **place)

    def perhaps_cut_off(self) -> list[int]:
        """Returns appends acknowledged with acks=1 that are gone, and that the cleaner may have removed.

        They may have been lost before, with the leader that alone had them, and their offsets written again.
        """
        rows = self.records["is_weak"] & self.records["is_gone"]
        found: list[int] = self.records["value"][
            rows & (self.records["removable_ns"] < NEVER_NS)
        ].tolist()
        return found

    def perhaps_replaced(
        self,
        operations: pd.DataFrame,
        records_read: pd.DataFrame,
        final: _FinalReads,
        clock_error_ns: int,
        *,
        has_election: bool,
        sent_twice: bool,
    ) -> list[int]:
        """Returns appends acknowledged without an offset that a later record of their key may have replaced.

        The record of such an append is behind every record that was there before it was sent. So it needs an
        offset between these and a later record of its key, at which the final reads returned nothing.

        Args:
            operations: Of one partition.
            records_read: Likewise.
            final: What its final reads showed.
            clock_error_ns: Largest difference between two clocks.
            has_election: Whether an election is known. It may have lost records, and then their offsets are
                written again. So a record counts only if it is still there: then all before it are too.
            sent_twice: See `with_removed_records`.
        """
        is_unknown = (
            (operations["kind"] == "append")
            & (operations["outcome"] == "ok")
            & operations["offset"].isna()
        )
        unknown = operations[is_unknown & ~operations["op_index"].isin(records_read["value"])]
        is_placed = self.records["value"].isin(unknown["op_index"])
        kept = self.records[(self.records["key"] != "") & ~self.records["is_gone"] & ~is_placed]
        if not (has_election or sent_twice):
            # The rest of its batch shows where it was, and `removable_ns` whether it may have been removed.
            unknown = unknown[~unknown["op_index"].isin(self.records["value"])]
        stop = _by_key(kept.groupby("key")["offset"].max(), unknown["key"], 0)
        lost_ns = NEVER_NS if has_election else self.records["committed_ns"]
        there_ns = np.where(self.records["is_gone"], lost_ns, self.records["shown_ns"])
        behind = self.records["offset"].to_numpy() + 1
        if not has_election:
            ends = _ends(operations[operations["outcome"] == "ok"])
            there_ns = np.append(there_ns, ends["completed_ns"].to_numpy(dtype="int64"))
            behind = np.append(behind, ends["end"].to_numpy(dtype="int64"))
        order = np.argsort(there_ns, kind="stable")
        behind = np.maximum.accumulate(behind[order])
        invoked_ns = unknown["invoked_ns"].to_numpy(dtype="int64")
        count = np.searchsorted(there_ns[order], invoked_ns - clock_error_ns, side="left")
        # A response without a log end has the end -1.
        start = np.maximum(np.append(0, behind)[count], 0)
        taken = np.unique(final.returned.get_level_values("offset").to_numpy(dtype="int64"))
        if not has_election:
            # Where another record is known to have been, the append never was.
            taken = np.union1d(taken, self.records["offset"].to_numpy(dtype="int64"))
        found: list[int] = unknown["op_index"][has_room(taken, start, stop)].tolist()
        return found


def _with_responses(
    known: pd.DataFrame, appends: pd.DataFrame, *, sent_twice: bool
) -> pd.DataFrame:
    """Adds when a response showed that a record was committed, and to `shown_ns` when its append was acknowledged.

    The end of an append of unknown outcome, or of one that awaits no response (acks=0), shows nothing.

    Args:
        known: Records with `offset`, and with `shown_ns`: when a poll first returned it.
        appends: The append of each, in this order.
        sent_twice: Whether producers without idempotence sent appends again.
    """
    offset = appends["offset"].fillna(-1).to_numpy(dtype="int64")
    acks = appends["acks"].to_numpy(dtype="int64")
    is_here = offset == known["offset"].to_numpy()
    if not sent_twice:
        is_here |= offset < 0
    is_here &= (appends["outcome"] == "ok").to_numpy(dtype="bool") & (acks != 0)
    completed_ns = appends["completed_ns"].fillna(NEVER_NS).to_numpy(dtype="int64")
    acked_ns = np.where(is_here, completed_ns, NEVER_NS)
    read_ns = known["shown_ns"].to_numpy()
    return known.assign(
        shown_ns=np.minimum(read_ns, acked_ns),
        committed_ns=np.minimum(read_ns, np.where(acks == -1, acked_ns, NEVER_NS)),
    )


def _with_whole_batches(known: pd.DataFrame, appends: pd.DataFrame) -> pd.DataFrame:
    """Adds the records that one batch carried with a known one: the log has, or had, them beside it.

    If one of them was read, so they all count, because a batch is in the log as a whole.

    The cleaner removes single records of a batch. Without its response, only the rest of it shows where they were.
    """
    batch = appends["batch"]
    if not batch.notna().any():
        return known
    head = batch.where(batch.notna(), appends.index).astype("int64")
    members = pd.DataFrame({"value": appends.index, "head": head.to_numpy()}).sort_values("value")
    members["place"] = members.groupby("head").cumcount()
    shown = known.merge(members[members["head"].duplicated(keep=False)], on="value")
    shown["base"] = shown["offset"] - shown["place"]
    # One copy of a batch for each offset at which it would begin.
    shown["is_read"] = shown.groupby(["head", "base"])["is_read"].transform("max")
    copies = shown.drop_duplicates(["head", "base"])
    copies = copies[["head", "base", "process", "leader_epoch", "is_read"]]
    rest = copies.merge(members, on="head")
    rest["offset"] = rest["base"] + rest["place"]
    rest["sequence"] = appends.loc[rest["value"], "sequence"].to_numpy(dtype="int64")
    rest = rest.loc[rest["offset"] >= 0, [*IDENTITY, "is_read"]]
    rest = rest.assign(epoch=rest["leader_epoch"], shown_ns=NEVER_NS)
    both = pd.concat([known, rest], ignore_index=True)
    both["is_read"] = both.groupby(["offset", "value"])["is_read"].transform("max")
    return both.drop_duplicates(["offset", "value"])


def _ranges(operations: pd.DataFrame, records_read: pd.DataFrame) -> pd.DataFrame:
    """Returns the polls that returned records in ascending order, or none, and what they went over.

    A poll that did not succeed went over what is between its position and its last record, if it returned records:
    these count, and so does what it skipped (`checkers.kernels.facts.skips`).

    A final poll begins where the one before it of its process ended, if its position is not known. It ends where
    the next one begins: a consumer moves past records that its leader no longer has.

    Returns:
        Columns `op_index`, `start`, `last`, `completed_ns`, `NEVER_NS` if that is not known, and `surely`: the
        start without that assumption.
    """
    rows = records_read[["op_index", "index_in_poll", "offset"]].astype("int64")
    rows = rows.sort_values(["op_index", "index_in_poll"], kind="stable")
    # Integers everywhere: a missing value would make a column floating-point, which rounds offsets.
    before = rows.groupby("op_index")["offset"].shift(1, fill_value=0)
    rows = rows.assign(step=np.where(rows["op_index"].duplicated(), rows["offset"] - before, 1))
    by_poll = rows.groupby("op_index").agg(
        first=("offset", "min"), last=("offset", "max"), step=("step", "min")
    )
    polls = operations[operations["kind"] == "poll"].set_index("op_index", drop=False).sort_index()
    has_rows = polls.index.isin(by_poll.index)
    of_rows = by_poll.reindex(polls.index, fill_value=1)
    position = polls["position"].to_numpy(dtype="int64")
    first = np.where(has_rows, of_rows["first"], position)
    last = np.where(has_rows, of_rows["last"], position - 1)
    is_known = position >= 0
    surely = np.where(is_known, np.minimum(position, first), first)
    polls = polls.assign(surely=surely, last=_moved_past(polls, last))
    is_ok = (polls["outcome"] == "ok").to_numpy(dtype="bool")
    is_range = (of_rows["step"] > 0).to_numpy()
    polls = polls[is_range & (has_rows | (is_ok & is_known & (polls["last"] >= surely)))]
    final = polls[polls["final"] & (polls["outcome"] == "ok")]
    before, after = following(
        final["process"].to_numpy(dtype="int64"),
        np.ones(len(final), dtype=np.bool_),
        final["invoked_ns"].to_numpy(dtype="int64"),
        final["completed_ns"].fillna(NEVER_NS).to_numpy(dtype="int64"),
    )
    followed = pd.Series(final["last"].to_numpy()[before] + 1, index=final.index[after])
    followed = followed.reindex(polls.index, fill_value=NEVER_NS)
    start = polls["surely"].where(polls["position"] >= 0, np.minimum(polls["surely"], followed))
    columns = ["op_index", "start", "last", "completed_ns", "surely"]
    ended_ns = polls["completed_ns"].fillna(NEVER_NS)
    return polls.assign(start=start, completed_ns=ended_ns)[columns].astype("int64")


def _moved_past(polls: pd.DataFrame, last: I64) -> I64:
    """Returns the last offset that each poll went over, as `checkers.kernels.lost_acked.passed_between_polls`.

    Args:
        polls: All of a partition, in order of `op_index`.
        last: Offset of the last record of each, or the offset before its position; -1 or less if it is not known.
    """
    process, invoked_ns, position = (
        polls[name].to_numpy(dtype="int64") for name in ("process", "invoked_ns", "position")
    )
    completed_ns = polls["completed_ns"].fillna(NEVER_NS).to_numpy(dtype="int64")
    counts = (polls["final"] & (polls["outcome"] == "ok")).to_numpy(dtype="bool")
    before, after = following(process, counts, invoked_ns, completed_ns)
    # Where a poll was that has neither records nor a position is not known.
    is_known = (last[before] >= 0) | (position[before] >= 0)
    before, after = before[is_known], after[is_known]
    moved = last.copy()
    moved[before] = np.maximum(last[before], position[after] - 1)
    return moved


def _ends_early(operations: pd.DataFrame, records_read: pd.DataFrame) -> bool:
    """Returns whether the final reads certainly did not reach the end of the log that they saw."""
    final = operations[operations["final"] & (operations["outcome"] == "ok")]
    reached, ends = _reached(final, records_read)
    return bool(reached < ends["end"].max()) if len(ends) else False


def _reached(final: pd.DataFrame, records_read: pd.DataFrame) -> tuple[int, pd.DataFrame]:
    """Returns how far the final reads got, and the log ends that they saw (`_ends`).

    Args:
        final: Those that succeeded.
        records_read: Of any operations.
    """
    polls = final[final["kind"] == "poll"]
    read = records_read["offset"][records_read["op_index"].isin(polls["op_index"])]
    reached = max(read.max() + 1 if len(read) else 0, polls["position"].max() if len(polls) else 0)
    return int(reached), _ends(final)


def _ends(operations: pd.DataFrame) -> pd.DataFrame:
    """Returns the log ends that operations saw: `end`, -1 if one saw none, `invoked_ns` and `completed_ns`."""
    polls, latest = (operations[operations["kind"] == kind] for kind in ("poll", "latest"))
    ends = pd.concat([polls.assign(end=polls["end_offset"]), latest.assign(end=latest["offset"])])
    ends = ends.assign(end=ends["end"].fillna(-1).astype("int64"))
    return ends[["end", "invoked_ns", "completed_ns"]]


def _by_key(times_ns: pd.Series, keys: pd.Series, missing_ns: int) -> I64:
    """Returns the time of every key, never as a floating-point number, which would round it."""
    found = times_ns.astype("int64").reindex(keys, fill_value=missing_ns)
    return np.asarray(found, dtype=np.int64)


def _starts(counts: I64) -> I64:
    return np.asarray(np.cumsum(counts) - counts, dtype=np.int64)


def _in_order(reads: pd.DataFrame, more: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    """Returns all rows, those of polls that got more in the order of their offsets."""
    both = pd.concat([reads.assign(is_old=True), more.assign(is_old=False, index_in_poll=0)])
    changed = both["op_index"].isin(more["op_index"].unique())
    by_offset = both[changed].sort_values(["op_index", "offset"], kind="stable")
    by_offset["index_in_poll"] = by_offset.groupby("op_index").cumcount()
    return _as_table(pd.concat([both[~changed], by_offset]), schema)


def _as_table(rows: pd.DataFrame, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pandas(rows[schema.names], schema=schema, preserve_index=False)
