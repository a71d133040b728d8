"""What one row of the table of APIs is."""

from dataclasses import dataclass
from typing import Any

BROKER = "broker"
CONTROLLER = "controller"


@dataclass(frozen=True, slots=True, kw_only=True)
class Canonical:
    """The version that handlers use, and the wire versions that are converted to it.

    Attributes:
        first, last: Inclusive range of wire versions.
        request, response: The `kio` entity types of the canonical version, which is one of them.
    """

    first: int
    last: int
    request: type[Any]
    response: type[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API.

    Attributes:
        key: Kafka's API key.
        module: Name of the package under `kio.schema` that has all versions.
        roles: Which nodes serve it.
        canonical: One or more ranges, ascending and without a gap.
        advertised_min: The smallest version in the ApiVersions response; differs from what is served for
            Produce only (KAFKA-18659).
        purpose: One line for `docs/protocol.md`.
        notes: Exceptions and limits, for the same document; whole sentences.
    """

    key: int
    name: str
    module: str
    roles: tuple[str, ...]
    canonical: tuple[Canonical, ...]
    purpose: str
    advertised_min: int | None = None
    notes: str = ""

    @property
    def min_version(self) -> int:
        """Smallest version that is served."""
        return self.canonical[0].first

    @property
    def max_version(self) -> int:
        """Largest version that is served."""
        return self.canonical[-1].last


def one_range(
    first: int, last: int, request: type[Any], response: type[Any]
) -> tuple[Canonical, ...]:
    """Returns the only range of an API, or a part of its ranges."""
    return (Canonical(first=first, last=last, request=request, response=response),)
