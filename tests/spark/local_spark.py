"""The few operations of a Spark context that jobs use, in this process: plans can be tested a thousand times."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any


class LocalRdd:
    """A list of partitions."""

    def __init__(self, parts: list[list[Any]]) -> None:
        self.parts = parts

    def flatMap(self, function: Callable[[Any], Iterable[Any]]) -> "LocalRdd":  # noqa: N802 - Spark's name
        return LocalRdd([[y for x in part for y in function(x)] for part in self.parts])

    def mapPartitions(self, function: Callable[[Any], Iterable[Any]]) -> "LocalRdd":  # noqa: N802
        return LocalRdd([list(function(iter(part))) for part in self.parts])

    def partitionBy(self, count: int, place: Callable[[Any], int]) -> "LocalRdd":  # noqa: N802
        parts: list[list[Any]] = [[] for _ in range(count)]
        for part in self.parts:
            for key, value in part:
                parts[place(key) % count].append((key, value))
        # Spark promises no order within a partition.
        return LocalRdd([part[::-1] for part in parts])

    def collect(self) -> list[Any]:
        return [x for part in self.parts for x in part]


class LocalBroadcast:
    def __init__(self, value: Any) -> None:
        self.value = value

    def unpersist(self) -> None:
        pass


class LocalSpark:
    """Stands in for a Spark context."""

    defaultParallelism = 2  # noqa: N815 - Spark's name

    def parallelize(self, items: Iterable[Any], slices: int) -> LocalRdd:
        items = list(items)
        assert 0 < slices <= max(1, len(items))
        return LocalRdd([items[index::slices] for index in range(slices)])

    def runJob(  # noqa: N802 - Spark's name
        self, rdd: LocalRdd, function: Callable[[Any], Iterable[Any]], partitions: Sequence[int]
    ) -> list[Any]:
        return [x for index in partitions for x in function(iter(rdd.parts[index]))]

    def broadcast(self, value: Any) -> LocalBroadcast:
        return LocalBroadcast(value)
