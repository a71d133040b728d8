"""The tables of one partition, with what several checkers derive from them computed once."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, cast

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


def derive_once(tables: Mapping[str, pa.Table], name: str, derive: Callable[[], _T]) -> _T:
    """Returns what `derive` returns; computed once for each `PartitionTables`, every time for a plain mapping."""
    if not isinstance(tables, PartitionTables):
        return derive()
    derived = tables._derived
    if name not in derived:
        derived[name] = derive()
    return cast(_T, derived[name])
