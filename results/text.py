"""Text that is safe to show."""

import unicodedata


def plain(text: str) -> str:
    """Returns text without control characters: content of a history must not control a terminal."""
    return "".join(
        character if unicodedata.category(character)[0] != "C" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )
