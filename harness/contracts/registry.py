"""Registries of systems, workloads, clients and checkers: built in by a table, third-party through entry points.

Both are loaded only when requested, so that a command that needs none of them starts fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from harness.errors import UsageError
from harness.names import unknown_name

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry(Generic[T]):
    """Things of one kind by name.

    Attributes:
        kind: What one is, for messages: "workload".
        group: Group of entry points, for example "laststand.workloads".
        built_in: "module:attribute" by name. These names are taken: an entry point cannot replace them.
    """

    kind: str
    group: str
    built_in: Mapping[str, str]

    def names(self) -> tuple[str, ...]:
        """Returns all names: built-in first, then those of entry points."""
        return tuple(dict.fromkeys((*self.built_in, *self._entry_points())))

    def get(self, name: str) -> T:
        """Returns one of them.

        Raises:
            UsageError: No such thing is known (the sentence suggests one), or its package cannot be loaded.
        """
        place = self.built_in.get(name)
        if place is not None:
            module, _, attribute = place.partition(":")
            found: T = getattr(import_module(module), attribute)
            return found
        places = self._entry_points()
        if name not in places:
            raise UsageError(unknown_name(self.kind, name, self.names()))
        try:
            loaded: T = places[name].load()
        except Exception as error:  # whatever the third-party package raises
            raise UsageError(
                f"the {self.kind} {name!r} ({places[name].value}) cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from None
        return loaded

    def _entry_points(self) -> dict[str, EntryPoint]:
        return {entry.name: entry for entry in entry_points(group=self.group)}
