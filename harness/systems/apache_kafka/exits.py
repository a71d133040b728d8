"""Why a node ended, from what it logged.

The last line of a log says nothing: it is the end of a stack trace, or the last step of an orderly shutdown
after the error. A node also logs errors that it survives. So the diagnosis is the first line that announces
the end, or, if no line does, the first error; both since the node was last started.
"""

import re
from dataclasses import dataclass

_HEAD = re.compile(r"\[\d{4}-\d\d-\d\d[ T][\d:]{8}[,.]\d+\] (?P<level>[A-Z]+) (?P<message>.*)")
_LOGGER = re.compile(r" \([\w.$]+\)$")
_EXCEPTION = re.compile(
    r"(?:Exception in thread \"[^\"]*\" |Caused by: )?"
    r"(?P<name>(?:[a-z_]\w*\.)+[A-Z][\w$]*)(?::\s*(?P<message>.*))?$"
)
_IS_EXCEPTION = re.compile(r"(Exception|Error|Throwable|Fault)$")
_START = re.compile(r"Registered kafka:type=kafka\.Log4jController MBean|^starting \(kafka\.")
_END = re.compile(
    r"\bfatal\b|Exiting Kafka|Shutdown broker because|Halting|OutOfMemoryError|Error occurred during init",
    re.IGNORECASE,
)
_JVM = re.compile(
    r"Error: |Error occurred during initialization of VM|Exception in thread \"main\"|Unrecognized VM option"
    r"|# A fatal error has been detected|java\.lang\.OutOfMemoryError|# +SIG[A-Z]+ "
)
"""Begins a line that the JVM itself prints, without a logger."""
_SENTENCE_MAX = 300


@dataclass(slots=True)
class _Entry:
    """One line of the log with the lines that belong to it. Mutable while it is read."""

    level: str
    message: str
    exception: str = ""

    @property
    def is_error(self) -> bool:
        return self.level in ("ERROR", "FATAL")

    @property
    def announces_end(self) -> bool:
        return self.is_error and (self.level == "FATAL" or bool(_END.search(self.message)))


def exit_reason(log: str) -> str:
    """Returns why a node ended: a line of its log with the exception's class and message; "" if no line tells.

    Args:
        log: The node's output, of its last process or of several.
    """
    entries = _entries(log)
    starts = [place for place, entry in enumerate(entries) if _START.search(entry.message)]
    if starts:
        entries = entries[starts[-1] :]
    errors = [entry for entry in entries if entry.is_error]
    if not errors:
        return ""
    chosen = next((entry for entry in errors if entry.announces_end), errors[0])
    exception = chosen.exception
    if not exception:
        # "Shutdown broker because all log dirs have failed" follows the error that has the cause.
        before = errors[: errors.index(chosen)]
        exception = next((entry.exception for entry in reversed(before) if entry.exception), "")
    parts = [_LOGGER.sub("", chosen.message).strip().rstrip(":")]
    if exception and exception not in parts[0]:
        parts.append(exception)
    return ": ".join(parts)[:_SENTENCE_MAX]


def _entries(log: str) -> list[_Entry]:
    entries: list[_Entry] = []
    for line in log.splitlines():
        head = _HEAD.match(line)
        if head:
            entries.append(_Entry(level=head["level"], message=head["message"]))
        elif exception := _exception(line) if entries and entries[-1].is_error else "":
            entries[-1].exception = entries[-1].exception or exception
        elif _JVM.match(line):
            entries.append(_Entry(level="FATAL", message=line))
    return entries


def _exception(line: str) -> str:
    """Returns class and message of the exception that a line begins with; "" if it begins with none."""
    found = _EXCEPTION.match(line)
    if not found or not _IS_EXCEPTION.search(found["name"]):
        return ""
    name = found["name"].rpartition(".")[2]
    message = (found["message"] or "").strip()
    return f"{name}: {message}" if message else name
