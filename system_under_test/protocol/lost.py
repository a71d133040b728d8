"""Finds what a conversion between two versions of a message would drop.

A converter (`versions.py`) drops fields that the target lacks. That is right for the responses of a node, whose
old clients never knew these fields. A client that sends an older request must not lose a part of what it wants,
nor may it overlook a part of the response, so it checks first.
"""

import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from system_under_test.protocol.versions import unfold, zero

Check = Callable[[Any], None]


class LostFieldError(ValueError):
    """A message has a value that the other version cannot express."""


def check_for_losses(source: type[Any], target: type[Any], spared: frozenset[str]) -> Check | None:
    """Returns a function that refuses a `source` whose conversion to a `target` would lose a value.

    Args:
        source: Type of the messages that it checks.
        target: Type to which they are going to be converted.
        spared: Names of fields that may be lost, at any depth.

    Returns:
        A function that raises `LostFieldError`, or None if nothing can ever be lost.
    """
    if source is target:
        return None
    theirs = {item.name: item for item in fields(target)}
    checks: list[tuple[str, Check]] = []
    for item in fields(source):
        if item.name in spared:
            continue
        if item.name not in theirs:
            checks.append((item.name, _must_be(item.name, zero(item), source)))
            continue
        may_be_null = unfold(item.type)[1]
        if may_be_null and not unfold(theirs[item.name].type)[1]:
            checks.append((item.name, _must_not_be_null(item.name, source)))
        inner = _inner_check(item.type, theirs[item.name].type, spared)
        if inner is not None:
            checks.append((item.name, inner))
    if not checks:
        return None

    def check(entity: Any) -> None:
        for name, check_field in checks:
            check_field(getattr(entity, name))

    return check


def _inner_check(source: Any, target: Any, spared: frozenset[str]) -> Check | None:
    is_array, _, mine = unfold(source)
    theirs = unfold(target)[2]
    if not (is_dataclass(mine) and is_dataclass(theirs)):
        return None
    inner = check_for_losses(typing.cast(type[Any], mine), typing.cast(type[Any], theirs), spared)
    if inner is None:
        return None
    check_one = inner

    def check(value: Any) -> None:
        for one in value if is_array and value is not None else (value,):
            if one is not None:
                check_one(one)

    return check


def _must_be(name: str, default: Any, source: type[Any]) -> Check:
    def check(value: Any) -> None:
        if value != default:
            raise LostFieldError(f"{name} of {source.__name__} is {value!r}")

    return check


def _must_not_be_null(name: str, source: type[Any]) -> Check:
    def check(value: Any) -> None:
        if value is None:
            raise LostFieldError(f"{name} of {source.__name__} is null")

    return check
