"""Checkers by name: the built-in ones, and those that installed packages provide.

A package provides a checker through an entry point of the group `laststand.checkers`; the entry point's value is
an object as `harness.contracts.checker.Checker` describes it, and its name is the checker's name. The built-in
ones are entry points too, listed here, so that they are found without any installed metadata.
"""

from collections.abc import Iterable
from importlib import metadata
from typing import Any

from harness.contracts.checker import Checker
from harness.errors import UsageError
from harness.history.schema import CLEANED_RECORDS, COORDINATOR_STATES, TABLES
from harness.names import unknown_name

GROUP = "laststand.checkers"

BUILT_IN: dict[str, metadata.EntryPoint] = {
    name: metadata.EntryPoint(name=name, value=value, group=GROUP)
    for name, value in (
        ("linearizability", "checkers.kernels.log_checkers:LINEARIZABILITY"),
        ("lost-acked", "checkers.kernels.log_checkers:LOST_ACKED"),
        ("measures", "checkers.kernels.measures:MEASURES"),
        ("replicas", "checkers.kernels.replicas:REPLICAS"),
        ("progress", "checkers.kernels.progress:PROGRESS"),
        (
            "idempotent-producer",
            "checkers.kernels.producer_sessions:IDEMPOTENT_PRODUCER",
        ),
        ("batches", "checkers.kernels.batches:BATCHES"),
        ("consumer-group", "checkers.kernels.consumer_group:CONSUMER_GROUP"),
        ("offset-queries", "checkers.kernels.queries.checker:OFFSET_QUERIES"),
        ("transactions", "checkers.kernels.transactions.checker:TRANSACTIONS"),
    )
}
"""The checkers of this project."""

NOT_FOR_CHECKERS = frozenset({"marks"})
"""Tables that no verdict may depend on: marks are free text for people (docs/decisions/0001)."""


def find_checkers(names: Iterable[str]) -> tuple[Checker, ...]:
    """Returns the checkers with the given names, in their order.

    Raises:
        UsageError: A name is unknown, or what an entry point names is no checker.
    """
    return tuple(_find(name) for name in names)


def checker_names() -> tuple[str, ...]:
    """Returns the names of all checkers that can be found, the built-in ones first."""
    others = {entry.name for entry in metadata.entry_points(group=GROUP)} - BUILT_IN.keys()
    return (*BUILT_IN, *sorted(others))


def tables_of(checkers: Iterable[Checker]) -> frozenset[str]:
    """Returns the names of all tables that the checkers read."""
    return frozenset(name for checker in checkers for name in checker.tables)


def _find(name: str) -> Checker:
    entry = BUILT_IN.get(name)
    if entry is None:
        # A built-in name always means the built-in checker, whatever else is installed.
        entry = next((e for e in metadata.entry_points(group=GROUP) if e.name == name), None)
    if entry is None:
        raise UsageError(unknown_name("checker", name, checker_names()))
    try:
        loaded: Any = entry.load()
        objection = _objection(name, loaded)
    except Exception as error:
        objection = f"{type(error).__name__}: {error}"
    if objection:
        raise UsageError(f"the entry point {entry.value!r} is not a checker: {objection}")
    checker: Checker = loaded
    return checker


def _objection(name: str, checker: Any) -> str:
    """Returns what is wrong with a checker's declarations; empty if nothing is."""
    if checker.name != name:
        return f"its name is {checker.name!r}, not {name!r}"
    forbidden = sorted(set(checker.tables) & NOT_FOR_CHECKERS)
    if forbidden:
        return f"a checker must not read the table {forbidden[0]!r}"
    unknown = sorted(set(checker.tables) - {*TABLES, COORDINATOR_STATES, CLEANED_RECORDS})
    if unknown:
        return unknown_name("table", unknown[0], TABLES)
    if not isinstance(checker.per_partition, bool) or not callable(checker.check):
        return "it needs per_partition (a bool) and a method check"
    return ""
