"""The tables of one partition, with what several checkers derive from them computed once."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa

from checkers.kernels.left_out import NOTHING, LeftOut
from harness.history.schema import CLEANED_RECORDS, COORDINATOR_STATES, TABLES

_T = TypeVar("_T")

_LIKE = {COORDINATOR_STATES: "partition_states", CLEANED_RECORDS: "records_read"}
"""Tables that are not stored, and the stored table whose columns each of them has."""


@cache
def empty_table(name: str) -> pa.Table:
    """Returns a table without rows; making one takes longer than judging a small partition's table."""
    return TABLES[_LIKE.get(name, name)].empty_table()


class PartitionTables(Mapping[str, pa.Table]):
    """A mapping of tables by name. Mutable: it caches derived values.

    Args:
        tables: The tables.
        derived: What was derived so far, shared with every restriction (`only`) of the same tables.
        left_out: What was left out of the tables.
    """

    def __init__(
        self,
        tables: Mapping[str, pa.Table],
        derived: dict[str, Any] | None = None,
        left_out: LeftOut = NOTHING,
    ) -> None:
        self._tables = dict(tables)
        self.left_out = left_out
        self._derived: dict[str, Any] = {} if derived is None else derived

    def __getitem__(self, name: str) -> pa.Table:
        return self._tables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)

    def only(self, names: Iterable[str]) -> "PartitionTables":
        """Returns some of the tables; what was derived is shared."""
        return PartitionTables(
            {name: self._tables[name] for name in names}, self._derived, self.left_out
        )


def records_returned(tables: Mapping[str, pa.Table]) -> pa.Table:
    """Returns the rows of `records_read` that polls returned, without those that were added (CLEANED_RECORDS)."""
    records, cleaned = tables["records_read"], tables.get(CLEANED_RECORDS)
    if cleaned is None or not cleaned.num_rows:
        return records
    op, offset = (
        np.concatenate([table.column(name).to_numpy() for table in (records, cleaned)])
        for name in ("op_index", "offset")
    )
    order = np.lexsort((offset, op))
    begins = np.append(True, (np.diff(op[order]) != 0) | (np.diff(offset[order]) != 0))
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(begins)
    is_added = np.isin(group[: records.num_rows], group[records.num_rows :])
    return records.filter(pa.array(~is_added))


def derive_once(tables: Mapping[str, pa.Table], name: str, derive: Callable[[], _T]) -> _T:
    """Returns what `derive` returns; computed once for each `PartitionTables`, every time for a plain mapping."""
    if not isinstance(tables, PartitionTables):
        return derive()
    derived = tables._derived
    if name not in derived:
        derived[name] = derive()
    return cast(_T, derived[name])
