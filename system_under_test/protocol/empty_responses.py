"""Responses that state an error of the whole request and nothing else, where an API has such an error."""

import dataclasses
import datetime
from collections.abc import Mapping
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

_EMPTY: Mapping[str, Any] = {
    "bool": False,
    "error_code": ErrorCode.none,
    "timedelta_i32": i32Timedelta(datetime.timedelta()),
    "string": "",
    "bytes": b"",
    "uuid": None,
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint16"), 0),
}
"""What a field holds that nobody reads, by its type."""


def can_refuse(schema: Any) -> bool:
    """Returns whether a kind of response has an error of the whole, and may be empty otherwise."""
    fields = dataclasses.fields(schema)
    return "error_code" in {one.name for one in fields} and all(
        _empty_values(schema, one) for one in fields
    )


def empty_response(schema: Any, error_code: int) -> Any:
    """Returns a response without content that states an error.

    Args:
        schema: Its class, for which `can_refuse` holds.
        error_code: Kafka's number.
    """
    values = {one.name: _empty_values(schema, one)[0] for one in dataclasses.fields(schema)}
    return schema(**{**values, "error_code": ErrorCode(error_code)})


def _empty_values(schema: Any, field: "dataclasses.Field[Any]") -> tuple[Any, ...]:
    """Returns the content of a field that nobody reads; no content if none is known."""
    if field.default is not dataclasses.MISSING:
        return (field.default,)
    kind = _kinds(schema)[field.name]
    if type(None) in get_args(kind):
        return (None,)
    if get_origin(kind) is tuple:
        return ((),)
    name = field.metadata.get("kafka_type", "")
    return (_EMPTY[name],) if name in _EMPTY else ()


@cache
def _kinds(schema: Any) -> Mapping[str, Any]:
    return get_type_hints(schema)
