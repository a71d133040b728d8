"""Tables and lines for a terminal or a file, by rich.

Text that was recorded may contain anything. Every cell and line therefore becomes a `rich.text.Text`, in which
markup has no meaning, after `results.text.plain` has replaced its control characters.
"""

from collections.abc import Collection, Sequence
from io import StringIO

from rich.box import Box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from results.text import plain

FILE_WIDTH = 100_000
"""Columns of a line in a file or pipe. No data is that wide, so nothing is wrapped or cut off."""

FOLDED_WIDTH_MIN = 24
"""A folding column is not made narrower than this; a narrower terminal wraps the whole line instead."""

WORD_STYLES = {
    "valid": "green",
    "invalid": "bold red",
    "unknown": "yellow",
    "unfinished": "yellow",
    "unreadable": "yellow",
    "up": "green",
    "down": "red",
    "paused": "yellow",
    "ok": "green",
    "BAD": "bold red",
    "~": "yellow",
    "--": "red",
    "found": "green",
    "MISSED": "bold red",
    "forbidden": "bold red",
    "undecided": "magenta",
}
"""Words that have a colour wherever they are a whole cell."""

# One rule below the header, and nothing else.
_BOX = Box("    \n    \n ── \n    \n    \n    \n    \n    \n")


def line(text: str, style: str = "") -> Text:
    """Returns one line of text; control characters are replaced, and markup is not interpreted."""
    return Text(plain(text), style=style)


def word(text: str) -> Text:
    """Returns a word with its colour, if it has one."""
    return line(text, WORD_STYLES.get(text.lower(), WORD_STYLES.get(text, "")))


def table(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    header: bool = True,
    right: Collection[str] = (),
    folding: Collection[str] = (),
) -> Table:
    """Returns rows in aligned columns.

    Args:
        names: The columns.
        rows: One text per column.
        header: Whether to show the names.
        right: Columns of numbers, aligned to the right.
        folding: Columns of long text, which may be wrapped on a terminal. Other columns stay whole.
    """
    made = Table(
        box=_BOX,
        show_header=header,
        show_edge=False,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
        border_style="dim",
    )
    cells = [[word(text) for text in row] for row in rows]
    for index, name in enumerate(names):
        widest = max([len(name) if header else 0, *(row[index].cell_len for row in cells)])
        folds = name in folding
        made.add_column(
            name,
            justify="right" if name in right else "left",
            overflow="fold",
            no_wrap=not folds,
            min_width=min(widest, FOLDED_WIDTH_MIN) if folds else widest,
        )
    for row in cells:
        made.add_row(*row)
    return made


def as_text(*parts: RenderableType) -> str:
    """Returns what a file gets: no colours, no trailing spaces, and every line whole, however long it is."""
    file = StringIO()
    console = Console(
        file=file,
        width=FILE_WIDTH,
        color_system=None,
        force_terminal=False,
        markup=False,
        emoji=False,
        highlight=False,
    )
    console.print(Group(*parts), soft_wrap=True)
    return "".join(f"{one.rstrip()}\n" for one in file.getvalue().splitlines())
