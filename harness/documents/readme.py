"""The excerpt of `laststand demo` in README.md: its two scripted runs are made again, in the simulation.

The table of the comparison needs forty runs, so it stays as it is; a long test compares it with what is printed.
"""

import contextlib
import io
import re
import tempfile
import textwrap
from functools import cache
from pathlib import Path

from harness.cli.main import main

PATH = Path(__file__).parents[2] / "README.md"
WIDTH = 104
"""Columns of the excerpt, without its indentation; longer lines are wrapped."""

_EXCERPT = re.compile(r"(?<=\(excerpt\):\n\n)(?: {4}\S.*\n| {5,}.*\n|\n)+?(?= {4}arm  )")


def document() -> str:
    """Returns the text of README.md with the excerpt as the program prints it now.

    Raises:
        ValueError: The file has no excerpt, or the program no longer prints what the excerpt shows.
    """
    excerpt = "\n".join([*_loss(_printed("kafka-4.0")), "", *_no_loss(_printed("kafka-4.1")), ""])
    indented = textwrap.indent(excerpt, "    ") + "\n"
    text, found = _EXCERPT.subn(lambda _: indented, PATH.read_text(encoding="utf-8"))
    if found != 1:
        raise ValueError("README.md has no excerpt that ends with the table of a comparison")
    return text


@cache
def _printed(profile: str) -> list[str]:
    """Returns the lines that the scripted run prints."""
    arguments = ["reproduce", "last-replica-standing", "--profile", profile, "--quiet"]
    with tempfile.TemporaryDirectory() as store, contextlib.redirect_stdout(io.StringIO()) as out:
        main([*arguments, "--no-spark", "--results", store])
    return out.getvalue().splitlines()


def _loss(lines: list[str]) -> list[str]:
    """Returns the verdict with its first reason, the lost records, and the outcome."""
    reason = textwrap.wrap(lines[1], WIDTH, subsequent_indent="  ")
    first = _index(lines, "lost at")
    last = lines.index("", first)
    return [lines[0], *reason, "  ...", *lines[first:last], "", lines[_index(lines, "outcome")]]


def _no_loss(lines: list[str]) -> list[str]:
    """Returns the verdict, two facts, and the outcome."""
    shown = (lines[_index(lines, start)] for start in ("profile", "unexcused"))
    return [lines[0], *shown, "", lines[_index(lines, "outcome")]]


def _index(lines: list[str], start: str) -> int:
    for index, line in enumerate(lines):
        if line.startswith(start):
            return index
    raise ValueError(f"no line begins with {start!r}")
