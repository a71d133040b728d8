"""The maintained list of differences between the reference system and Apache Kafka, with the reason of each.

`expected_differences.toml` has one entry per difference, or per group of them: in `request`, `field` and both
values, `*` stands for any text. A difference that no entry covers is new. An entry that covers nothing although
all its requests were sent no longer holds, which is reported too: the list must not outlive what it describes.
The file also has differences in behaviour that no single response shows (`[[behaviour]]`). These are for readers
only (`docs/differences.md`).
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from harness.conformance.comparison import Difference
from harness.systems.apache_kafka.versions import SUPPORTED, Version, parse_version

FILE = "expected_differences.toml"
_BEHAVIOUR_KEYS = ("subject", "apache_kafka", "reference", "reason")
_TEXT_KEYS = ("request", "field", "apache_kafka", "reference", "reason")
_KEYS = {*_TEXT_KEYS, "since", "until", "depends_on_time"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedDifference:
    """One entry of the file.

    Attributes:
        request, field, apache_kafka, reference: Patterns; `*` stands for any text.
        reason: Why the systems differ, as a sentence.
        since, until: The oldest and the newest version of Apache Kafka for which it holds; None for no limit.
        depends_on_time: Whether it does not occur every time, so that it still holds if it did not.
    """

    request: str
    field: str
    apache_kafka: str
    reference: str
    reason: str
    since: Version | None = None
    until: Version | None = None
    depends_on_time: bool = False

    def holds_for(self, version: Version) -> bool:
        """Whether the entry is about a version of Apache Kafka."""
        return (self.since is None or self.since <= version) and (
            self.until is None or version <= self.until
        )

    def covers(self, difference: Difference) -> bool:
        """Whether the entry is about a difference."""
        return (
            matches(self.request, difference.request)
            and matches(self.field, difference.field)
            and matches(self.apache_kafka, difference.apache_kafka)
            and matches(self.reference, difference.reference)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedBehaviour:
    """A difference that no single response shows.

    Attributes:
        subject: What differs, in a few words.
        apache_kafka, reference: What each system does, as sentences.
        reason: Why, as a sentence.
    """

    subject: str
    apache_kafka: str
    reference: str
    reason: str


def matches(pattern: str, value: str) -> bool:
    """Whether a text matches a pattern in which `*` stands for any text; nothing else is special."""
    return _compiled(pattern).fullmatch(value) is not None


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


def expected_differences(version: Version | None = None) -> tuple[ExpectedDifference, ...]:
    """Returns the maintained entries, those for one version of Apache Kafka or all of them."""
    entries = read_expected(_content())
    return tuple(one for one in entries if version is None or one.holds_for(version))


def expected_behaviours() -> tuple[ExpectedBehaviour, ...]:
    """Returns the maintained differences in behaviour."""
    return tuple(read_behaviours(_content()))


def _content() -> str:
    return files(__package__).joinpath(FILE).read_text(encoding="utf-8")


def read_behaviours(content: str) -> list[ExpectedBehaviour]:
    """Reads the differences in behaviour of such a file.

    Raises:
        ValueError: An entry is wrong; the message names it.
    """
    found = []
    for number, values in enumerate(tomllib.loads(content).get("behaviour", []), 1):
        place = f"behaviour {number} ({values.get('subject', 'without a subject')})"
        if unknown := values.keys() - set(_BEHAVIOUR_KEYS):
            raise ValueError(f"{place}: unknown key {', '.join(sorted(unknown))}")
        for name in _BEHAVIOUR_KEYS:
            if not isinstance(values.get(name), str) or not values[name].strip():
                raise ValueError(f"{place}: {name} is missing or not a text")
        found.append(ExpectedBehaviour(**values))
    return found


def read_expected(content: str) -> list[ExpectedDifference]:
    """Reads the text of a file of expected differences.

    Raises:
        ValueError: It is not such a file; the message names the entry.
    """
    data = tomllib.loads(content)
    if unknown := data.keys() - {"difference", "behaviour"}:
        raise ValueError(f"unknown table {', '.join(sorted(unknown))}")
    return [_entry(number, one) for number, one in enumerate(data.get("difference", []), 1)]


def _entry(number: int, values: dict[str, Any]) -> ExpectedDifference:
    place = f"difference {number} ({values.get('request', 'without a request')})"
    if unknown := values.keys() - _KEYS:
        raise ValueError(f"{place}: unknown key {', '.join(sorted(unknown))}")
    for name in _TEXT_KEYS:
        if not isinstance(values.get(name), str) or not values[name].strip():
            raise ValueError(f"{place}: {name} is missing or not a text")
    depends_on_time = values.get("depends_on_time", False)
    if not isinstance(depends_on_time, bool):
        raise ValueError(
            f"{place}: depends_on_time is {depends_on_time!r}, which is not true or false"
        )
    return ExpectedDifference(
        **{name: values[name] for name in _TEXT_KEYS},
        since=_version(place, "since", values.get("since")),
        until=_version(place, "until", values.get("until")),
        depends_on_time=depends_on_time,
    )


def _version(place: str, name: str, value: object) -> Version | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in map(str, SUPPORTED):
        raise ValueError(f"{place}: {name} is {value!r}, which is no supported version")
    return parse_version(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What the list says about the differences that were found.

    Attributes:
        expected: Every difference that an entry covers, with the first such entry.
        new: Every other difference.
        gone: Entries that cover no difference although everything they are about was sent, and that do not depend
            on time.
    """

    expected: tuple[tuple[Difference, ExpectedDifference], ...]
    new: tuple[Difference, ...]
    gone: tuple[ExpectedDifference, ...]


def assess(
    found: Iterable[Difference],
    entries: Sequence[ExpectedDifference],
    *,
    sent: Collection[str],
    catalogue: Collection[str],
) -> Assessment:
    """Divides differences into expected and new ones, and finds entries that no longer hold.

    Args:
        found: All differences of a run.
        entries: Those for the version that was compared.
        sent: Ids of the cases that were run.
        catalogue: Ids of all cases. An entry about cases of which only some were run is not judged.
    """
    expected: list[tuple[Difference, ExpectedDifference]] = []
    new = []
    used: set[ExpectedDifference] = set()
    for difference in found:
        covering = [entry for entry in entries if entry.covers(difference)]
        used.update(covering)
        if covering:
            expected.append((difference, covering[0]))
        else:
            new.append(difference)
    gone = tuple(
        entry
        for entry in entries
        if entry not in used
        and not entry.depends_on_time
        and all(case in sent for case in catalogue if matches(entry.request, case))
    )
    return Assessment(expected=tuple(expected), new=tuple(new), gone=gone)
