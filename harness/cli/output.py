"""Writes results to standard output: JSON, or text that suits a terminal or a file."""

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


def print_json(data: Any) -> None:
    """Prints one JSON object on one line, keys sorted."""
    print(json.dumps(data, sort_keys=True, default=str))


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
