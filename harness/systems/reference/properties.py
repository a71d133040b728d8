"""Kafka's properties that an experiment can set for the nodes of the reference system."""

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches

from harness.errors import UsageError
from system_under_test.config import MetadataLogConfig

METADATA_LOG: Mapping[str, str] = {
    item.name.replace("_", "."): item.name for item in fields(MetadataLogConfig)
}
"""Settings of the metadata log: field of `MetadataLogConfig` by the name of Kafka's property."""

_NEGATIVE = frozenset({"metadata.max.retention.bytes", "metadata.max.retention.ms"})
"""Properties for which a negative number has a meaning."""


def metadata_log_settings(properties: Mapping[str, str]) -> dict[str, int]:
    """Returns what an experiment sets of the metadata log, by field of `MetadataLogConfig`.

    Raises:
        UsageError: A property is unknown, or its value is not a number that it can have.
    """
    found = {}
    for name, text in properties.items():
        if name not in METADATA_LOG:
            near = get_close_matches(name, METADATA_LOG, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; it takes {', '.join(METADATA_LOG)}"
            raise UsageError(f"the reference system takes no property {name!r}{hint}")
        least = -1 if name in _NEGATIVE else 0
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise UsageError(f"{name} is {text!r}; use a whole number of {least} or more")
        found[METADATA_LOG[name]] = value
    return found
