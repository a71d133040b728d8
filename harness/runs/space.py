"""The space of an experiment: what each seed draws, and the experiment with what one seed drew.

In the file of an experiment:

    [space]
    default = true                                      # every key of the default space that the file does not set
    "topic.partitions" = [1, 2, 5]                      # one of these
    "cluster.segment_bytes" = { from = 1024, to = 65536 }

Every key has a random stream of its own, so a key more or less changes no other draw. What was drawn replaces the
values of the file. The resolved experiment has no space; it is what runs, what is stored and what is replayed.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import fields
from math import exp, log
from random import Random
from typing import Any, TypeAlias

from harness.contracts.space import BOUNDED_BY, DEFAULT_SPACE, Draws, Range, Space
from harness.contracts.system import HasProfileVariants, HasSpace, SeveralLogDirs, System
from harness.environments.registry import ENVIRONMENTS
from harness.errors import UsageError
from harness.names import unknown_name

DEFAULT_KEY = "default"
EVERY = "every"
"""The value of `default` with which the default space also draws the keys that the file sets."""
DRAWN_TABLES = ("cluster", "topic", "workload", "nemesis", "properties", "features")
DRAWN_SCALARS = ("profile", "timings", "weather", "duration_ms", "recovery_max_ms")
"""Keys outside of tables that a seed may draw; the others decide which run it is, or where."""

PROFILE_WEIGHT = 4
"""The experiment's own profile is so much more likely than each that differs in a feature switch."""

StreamOf: TypeAlias = Callable[[str], Random]
"""Returns the random stream of a key."""

_FROM, _TO = "from", "to"
_ONLY_SIMULATED = ("weather", "cluster.disk")
_BOUNDS = frozenset((*BOUNDED_BY, *BOUNDED_BY.values()))


def read_space(data: Any) -> dict[str, Any]:
    """Reads the table `space` of an experiment, without its key `default`.

    Args:
        data: The table as read from TOML or JSON.

    Raises:
        UsageError: A key cannot be drawn, or its values are no choices and no range.
    """
    if not isinstance(data, Mapping):
        raise UsageError("'space' must be a table")
    return {
        key: _read_draws(key, value) for key, value in sorted(data.items()) if key != DEFAULT_KEY
    }


def _read_draws(key: str, value: Any) -> Draws:
    table, _, rest = key.partition(".")
    if key in DRAWN_TABLES and isinstance(value, Mapping) and value:
        name = _dotted(key, value)
        raise UsageError(f'space.{name}: a key with a dot must be quoted; write "{name}" = ...')
    if key not in DRAWN_SCALARS and (table not in DRAWN_TABLES or not rest):
        known = [*DRAWN_SCALARS, *(f"{name}.KEY" for name in DRAWN_TABLES)]
        raise UsageError(unknown_name("key of a space", key, known))
    given = value.values() if isinstance(value, Mapping) else value
    if key in _BOUNDS and isinstance(given, Iterable):
        # They are compared with one another before the experiment is made, which checks all other values.
        wrong = next((one for one in given if type(one) is not int), None)
        if wrong is not None:
            raise UsageError(f'space."{key}" has the value {wrong!r}, which is no whole number')
    if isinstance(value, list | tuple) and value:
        return tuple(_frozen(one) for one in value)
    if isinstance(value, Mapping):
        are_numbers = all(type(end) in (int, float) for end in value.values())
        if set(value) == {_FROM, _TO} and are_numbers and 0 <= value[_FROM] <= value[_TO]:
            return Range(least=value[_FROM], most=value[_TO])
        raise UsageError(
            f'space."{key}" must be a range such as {{ from = 1, to = 10 }}: from and to are both needed, '
            "both are numbers of at least 0 (whole ones, if the key has whole numbers), and from <= to"
        )
    raise UsageError(
        f'space."{key}" must be a list of values, or a range such as {{ from = 1, to = 10 }}'
    )


def _dotted(key: str, value: Mapping[str, Any]) -> str:
    """Returns the key that TOML split at its dots."""
    name, below = next(iter(value.items()))
    is_deeper = isinstance(below, Mapping) and below and not set(below) <= {_FROM, _TO}
    return f"{key}.{_dotted(name, below) if is_deeper else name}"


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def space_to_data(space: Space) -> dict[str, Any]:
    """Returns a space as the table that `read_space` reads back."""
    return {
        key: {_FROM: draws.least, _TO: draws.most}
        if isinstance(draws, Range)
        else [list(one) if isinstance(one, tuple) else one for one in draws]
        for key, draws in sorted(space.items())
    }


def default_space(
    system: System,
    *,
    environment: str,
    profile: str,
    timings: str,
    workload: type[Any],
    fixed: Collection[str],
) -> dict[str, Draws]:
    """Returns the default space of an experiment.

    Args:
        system: Its system, which adds settings of its own.
        environment: Where it runs.
        profile: Its profile; profiles that differ from it in a feature switch are drawn, too.
        timings: Its set of timeouts.
        workload: The class of its workload's settings; keys that it does not have are left out.
        fixed: Keys that are left out.
    """
    found = dict(DEFAULT_SPACE)
    if isinstance(system, HasSpace):
        found |= system.space(timings)
    if isinstance(system, HasProfileVariants) and (variants := system.profile_variants(profile)):
        found["profile"] = (*(profile,) * PROFILE_WEIGHT, *variants)
    settings = {f"workload.{item.name}" for item in fields(workload)}
    is_simulated = ENVIRONMENTS[environment].is_simulated
    return {
        key: draws
        for key, draws in sorted(found.items())
        if key not in fixed
        and (not key.startswith("workload.") or key in settings)
        and (key not in _ONLY_SIMULATED or is_simulated)
        and (key != "cluster.log_dirs" or isinstance(system, SeveralLogDirs))
        and (key != "cluster.controllers" or system.has_controllers)
    }


def draw(space: Space, data: Mapping[str, Any], stream_of: StreamOf) -> dict[str, Any]:
    """Returns one value for each key of a space.

    Args:
        space: The space.
        data: The experiment as nested tables; bounds that are not drawn are read from it.
        stream_of: Returns the random stream of a key.

    Raises:
        UsageError: No value of a key is possible with what was drawn before.
    """
    drawn: dict[str, Any] = {}
    for key in _in_order(space):
        least, most = _bounds(key, space, data, drawn)
        possible = _within(key, space[key], least, most)
        drawn[key] = _one(possible, stream_of(key))
    return {key: drawn[key] for key in sorted(drawn)}


def extremes(space: Space, data: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields draws that contain every choice, and the ends of all ranges: what to check before the first run.

    Raises:
        UsageError: No value of a key is possible with other draws.
    """
    longest = max(
        (len(draws) if isinstance(draws, tuple) else 2 for draws in space.values()), default=0
    )
    for low in (True, False):
        for index in range(longest):
            drawn: dict[str, Any] = {}
            for key in _in_order(space):
                least, most = _bounds(key, space, data, drawn)
                possible = _within(key, space[key], least, most)
                drawn[key] = _nth(possible, index, low=low, is_bound=key in _BOUNDS)
            yield drawn


def _in_order(space: Space) -> list[str]:
    """Returns the keys so that every bound is drawn before what it bounds."""
    late = list(BOUNDED_BY)
    return sorted(space, key=lambda key: (late.index(key) + 1 if key in late else 0, key))


def _bounds(
    key: str, space: Space, data: Mapping[str, Any], drawn: Mapping[str, Any]
) -> tuple[float, float]:
    """Returns what a key's value must not be below, for keys that are not drawn, or above."""
    most = float("inf")
    if key in BOUNDED_BY:
        bound = BOUNDED_BY[key]
        most = drawn[bound] if bound in drawn else _value(data, bound)
    least = max(
        (
            _value(data, other)
            for other, by in BOUNDED_BY.items()
            if by == key and other not in space
        ),
        default=0,
    )
    return least, most


def _value(data: Mapping[str, Any], key: str) -> float:
    table, _, name = key.partition(".")
    return float(data[table][name])


def _within(key: str, draws: Draws, least: float, most: float) -> Draws:
    if isinstance(draws, Range):
        ends = max(draws.least, least), min(draws.most, most)
        if ends[0] <= ends[1]:
            is_whole = isinstance(draws.least, int) and isinstance(draws.most, int)
            return (
                Range(least=int(ends[0]), most=int(ends[1]))
                if is_whole
                else Range(least=ends[0], most=ends[1])
            )
    elif key not in _BOUNDS:
        return draws
    else:
        left = tuple(value for value in draws if least <= value <= most)
        if left:
            return left
    problem = f"at most {most:g}" if most < float("inf") else ""
    problem = " and ".join(filter(None, (f"at least {least:g}" if least else "", problem)))
    raise UsageError(
        f'space."{key}" has no possible value: it must be {problem} with what else is set or drawn'
    )


def _one(draws: Draws, stream: Random) -> Any:
    position = stream.random()
    if not isinstance(draws, Range):
        return draws[int(position * len(draws))]
    if draws.least > 0:
        value = exp(log(draws.least) + position * (log(draws.most) - log(draws.least)))
    else:
        value = draws.least + position * (draws.most - draws.least)
    if isinstance(draws.least, int) and isinstance(draws.most, int):
        return min(max(round(value), draws.least), draws.most)
    return value


def _nth(draws: Draws, index: int, *, low: bool, is_bound: bool) -> Any:
    if isinstance(draws, Range):
        return draws.least if low else draws.most
    if is_bound:
        return min(draws) if low else max(draws)
    return draws[index % len(draws)]
