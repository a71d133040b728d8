"""The few operations of a Spark context that jobs use, in this process.

A partition too large to be judged as a whole is cut without Spark too: slices are read one after the other, and
what they send to the buckets stays in memory, some tens of bytes for each operation.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any


class InProcessRdd:
    """Partitions of a distributed list; what a function returns for one of them is computed when it is needed."""

    def __init__(self, parts: Sequence[Iterable[Any]]) -> None:
        self.parts = parts

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> "InProcessRdd":  # noqa: N802 - Spark's name
        """Returns the elements that a function returns for each element."""

        def mapped(part: Iterable[Any]) -> Iterator[Any]:
            return (y for x in part for y in function(x))

        return InProcessRdd([mapped(part) for part in self.parts])

    def mapPartitions(self, function: Callable[[Any], Iterable[Any]]) -> "InProcessRdd":  # noqa: N802
        """Returns the elements that a function returns for each partition."""

        def mapped(part: Iterable[Any]) -> Iterator[Any]:
            yield from function(iter(part))

        return InProcessRdd([mapped(part) for part in self.parts])

    def partitionBy(self, count: int, place: Callable[[Any], int]) -> "InProcessRdd":  # noqa: N802
        """Returns pairs of key and value in partitions that `place` chooses by the key; they are kept."""
        parts: list[list[Any]] = [[] for _ in range(count)]
        for part in self.parts:
            for key, value in part:
                parts[place(key) % count].append((key, value))
        # Spark promises no order within a partition; another one than that of the slices shows who relies on it.
        return InProcessRdd([part[::-1] for part in parts])

    def collect(self) -> list[Any]:
        """Returns all elements."""
        return [x for part in self.parts for x in part]


class InProcessBroadcast:
    """A value that every task reads."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def unpersist(self) -> None:
        """Does nothing: there are no copies."""


class InProcess:
    """Stands in for a Spark context."""

    defaultParallelism = 2  # noqa: N815 - Spark's name

    def parallelize(self, items: Iterable[Any], slices: int) -> InProcessRdd:
        """Returns a list in `slices` partitions."""
        items = list(items)
        assert 0 < slices <= max(1, len(items))
        return InProcessRdd([items[index::slices] for index in range(slices)])

    def runJob(  # noqa: N802 - Spark's name
        self, rdd: InProcessRdd, function: Callable[[Any], Iterable[Any]], partitions: Sequence[int]
    ) -> list[Any]:
        """Returns the elements that a function returns for some partitions."""
        return [x for index in partitions for x in function(iter(rdd.parts[index]))]

    def broadcast(self, value: Any) -> InProcessBroadcast:
        """Returns a value for all tasks."""
        return InProcessBroadcast(value)
