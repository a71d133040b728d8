"""Writes results to standard output: JSON in an envelope, or text that suits a terminal or a file.

With --json every command prints one object, also when it fails. It has the keys of `ENVELOPE`, and those of its
result, if there is one (`harness.cli.output_schema`).
"""

import json
import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


SCHEMA = "laststand-output-1"
"""Changes when a key of the envelope is removed or gets another meaning."""

ENVELOPE = ("schema", "command", "exit_code", "error")
"""Keys that every JSON output has; a result may only have an `error` of its own, which explains its exit code."""

_result: dict[str, Any] = {}


def print_json(result: Mapping[str, Any]) -> None:
    """Prints the result of the command as JSON in its envelope, when the command ends."""
    _result.clear()
    _result.update(result)


def print_envelope(command: str, exit_code: int, error: str | None) -> None:
    """Prints the result of a command that has ended as one line with keys in order, and forgets it.

    Args:
        command: Its words, for example "cluster up"; "" if there is no such command.
        exit_code: Its exit code.
        error: Why it failed, in one sentence; None if it did not, or if the result has the reason.
    """
    envelope = {
        "schema": SCHEMA,
        "command": command,
        "exit_code": exit_code,
        "error": error or _result.get("error") or None,
    }
    text = json.dumps({**_result, **envelope}, sort_keys=True, default=str)
    _result.clear()
    print(text, flush=True)


def show(*parts: "RenderableType") -> None:
    """Prints lines and tables (`results.tables`).

    A terminal gets colours and tables that fit its width, where that is possible without cutting anything off. A
    file gets plain text with one row per line.
    """
    from rich.table import Table

    from results.tables import FILE_WIDTH, as_text

    if not is_terminal(sys.stdout):
        sys.stdout.write(as_text(*parts))
        return
    console = terminal_console(sys.stdout)
    unlimited = console.options.update(width=FILE_WIDTH)
    needed = [
        console.measure(part, options=unlimited).minimum
        for part in parts
        if isinstance(part, Table)
    ]
    # The terminal wraps lines that are too long; rich would cut them off.
    console.width = max([console.width, *needed])
    for part in parts:
        console.print(part, soft_wrap=True)


def is_terminal(stream: TextIO) -> bool:
    """Returns whether a stream is a terminal that understands control sequences; one called "dumb" does not."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def terminal_console(stream: TextIO) -> "Console":
    """Returns a console for a stream that is a terminal; no colours if NO_COLOR is set."""
    from rich.console import Console

    return Console(
        file=stream,
        force_terminal=True,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
        markup=False,
        emoji=False,
        highlight=False,
    )
