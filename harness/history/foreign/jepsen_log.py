"""Histories in the log lines that old versions of Jepsen printed.

`INFO  jepsen.util - 3<tab>:invoke<tab>:write<tab>4`: process, type, function, value, and sometimes an error.

Source:
    Jepsen's `util/log-op`; the format of the etcd histories that Porcupine and Knossos are tested with.
"""

import re
from collections.abc import Iterable, Iterator

from harness.history.foreign.edn import EdnError, read_one
from harness.history.foreign.events import TYPES, Event, Problems, is_integer, shown

_LINE = re.compile(r"INFO\s+jepsen\.util\s+-\s+(?P<fields>.*)")
_FIELDS = re.compile(
    rf"(?P<process>:?\S+)\s+:(?P<type>{'|'.join(TYPES)})\s+:(?P<function>\S+)\s*(?P<value>.*)"
)
_TIMED_OUT = ":timed-out"


def is_log_line(text: str) -> bool:
    """Returns whether a line is one of this format."""
    return _LINE.match(text) is not None


def events_of_log(lines: Iterable[str], problems: Problems) -> Iterator[Event]:
    """Returns the events of log lines."""
    for number, text in enumerate(lines, 1):
        match = _LINE.match(text)
        if match is None:
            if text.strip():
                problems.add(number, f"{shown(text.strip())} is no line of jepsen.util")
            continue
        fields = _FIELDS.fullmatch(match["fields"].strip())
        event = None if fields is None else _event(number, fields)
        if event is None:
            problems.add(number, f"{shown(match['fields'].strip())} is not an event of Jepsen")
            continue
        yield event


def _event(number: int, fields: "re.Match[str]") -> Event | None:
    # Fields are separated by tabs; what follows the value is the error.
    text = fields["value"].split("\t")[0].strip()
    try:
        process = read_one(fields["process"])
        value = None if text in ("", _TIMED_OUT) else read_one(text)
    except EdnError:
        return None
    return Event(
        line=number,
        type=fields["type"],
        process=process if is_integer(process) else fields["process"].lstrip(":"),
        function=fields["function"],
        value=value,
        extra={"error": text} if text == _TIMED_OUT else {},
    )
