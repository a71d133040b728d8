"""Partitions in memory that are judged in pieces, as Spark does with stored ones, and compared with the whole."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from checkers.jobs.huge import judge_pieces
from checkers.jobs.in_process import InProcess
from checkers.kernels.compose import PartitionJudgement, judge_partition
from checkers.kernels.divergence import find_divergence
from checkers.kernels.history import I64, Bools, lookup
from checkers.kernels.payloads import contradicting
from checkers.kernels.replicas import LeaderStates, registrations
from harness.contracts.run_context import RunContext
from harness.history.schema import OPERATION_TABLES, TABLES

WIDTHS = (1, 2, 3, 5, 17, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionInMemory:
    """A partition whose operations are cut before the ones in `cuts`; see `checkers.jobs.huge.Pieces`."""

    topic: str
    partition: int
    context: RunContext
    tables: Mapping[str, pa.Table]
    cuts: Sequence[int]

    def bounds(self) -> list[tuple[int, int, int]]:
        edges = [-(2**63), *sorted(set(self.cuts)), 2**63 - 1]
        return [(index, first, stop) for index, (first, stop) in enumerate(pairwise(edges))]

    def read(self, first: int, stop: int) -> dict[str, pa.Table]:
        rows = {}
        for name in OPERATION_TABLES:
            op = self.tables[name].column("op_index")
            inside = pc.and_(pc.greater_equal(op, first), pc.less(op, stop))
            rows[name] = self.tables[name].filter(inside)
        rows["operations"] = rows["operations"].sort_by("op_index")
        return rows

    def check(self, tables: dict[str, pa.Table], index: int, slices: int) -> None:
        """Nothing: the tables are valid."""

    def changed(self, tables: dict[str, pa.Table]) -> Bools:
        appends = self.tables["operations"].filter(pc.field("kind") == "append").sort_by("op_index")
        append = lookup(appends.column("op_index").to_numpy())
        records = tables["records_read"]
        return contradicting(records, appends, append(records.column("value").to_numpy()))

    def others(self) -> dict[str, pa.Table]:
        names = ("faults", "group_events", "broker_states", "partition_states")
        return {name: self.tables[name] for name in names}

    def states(self) -> dict[str, pa.Table]:
        return {"replica_states": self.tables["replica_states"]}

    def batches(self) -> dict[str, pa.Table]:
        return {"replica_batches": self.tables["replica_batches"]}

    def replicas_agree(self, partition_states: pa.Table) -> bool:
        batches = self.tables["replica_batches"]
        return find_divergence(batches, partition_states, sparse=False) is None

    def leaders_hold(self, broker_states: pa.Table) -> bool:
        states = LeaderStates(registrations(broker_states), self.context.clock_error_ns)
        states.follow(self.tables["replica_states"].sort_by("at_ns"))
        return not states.lowered

    def offsets_of(self, values: I64) -> I64:
        rows = self.tables["operations"].filter(
            (pc.field("kind") == "append") & (pc.field("outcome") == "ok")
        )
        rows = rows.filter(pa.array(np.isin(rows.column("op_index").to_numpy(), values)))
        offset: I64 = rows.column("offset").drop_null().to_numpy()
        return offset[(offset >= 0) & (offset <= 2**62)]


def complete(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Returns all tables of a run; those that are missing are empty."""
    return {name: tables.get(name, schema.empty_table()) for name, schema in TABLES.items()}


def judged_in_pieces(
    tables: Mapping[str, pa.Table],
    context: RunContext,
    rng: random.Random,
    *,
    width: int | None = None,
) -> PartitionJudgement:
    """Returns the judgement of a partition that is cut at random.

    Where clocks differ, a process that sends after it has read needs the whole.
    """
    ops = tables["operations"].column("op_index").to_pylist()
    pieces = PartitionInMemory(
        topic="t",
        partition=0,
        context=context,
        tables=complete(tables),
        cuts=rng.sample(ops, min(len(ops), rng.randrange(5))),
    )
    judged = judge_pieces(InProcess(), pieces, width=width or rng.choice(WIDTHS))
    if judged is None:
        assert context.clock_error_ns
        return judged_as_a_whole(tables, context)
    return judged[0]


def judged_as_a_whole(tables: Mapping[str, pa.Table], context: RunContext) -> PartitionJudgement:
    """Returns the judgement of the same partition in one piece."""
    return judge_partition("t", 0, complete(tables), context)


def differences(
    tables: Mapping[str, pa.Table], context: RunContext, rng: random.Random
) -> list[Any]:
    """Returns in what the two judgements differ, field by field."""
    whole, cut = judged_as_a_whole(tables, context), judged_in_pieces(tables, context, rng)
    fields = ("anomalies", "unknown_reasons", "coverage")
    return [
        (name, getattr(whole, name), getattr(cut, name))
        for name in fields
        if getattr(whole, name) != getattr(cut, name)
    ]
