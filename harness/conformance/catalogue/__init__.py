"""The catalogue of requests: one module per family of APIs, each a generator of cases.

Cases are data and small functions. Their order, ids and requests are the same in every run.
"""

from functools import cache

from harness.conformance.catalogue import (
    administration,
    cluster,
    configs,
    consumer_groups,
    fetch,
    frames,
    group_administration,
    groups,
    offsets,
    produce,
    topics,
    transactions,
)
from harness.conformance.probe import Case

FAMILIES = (
    produce,
    fetch,
    offsets,
    topics,
    configs,
    groups,
    group_administration,
    consumer_groups,
    cluster,
    administration,
    transactions,
    frames,
)


@cache
def catalogue() -> tuple[Case, ...]:
    """Returns every case, in a fixed order."""
    return tuple(case for family in FAMILIES for case in family.cases())
