"""Text that is safe to show."""

import unicodedata


def plain(text: str) -> str:
    """Returns text without control characters: content of a history must not control a terminal."""
    return "".join(
        character if unicodedata.category(character)[0] != "C" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def markdown_text(text: str) -> str:
    """Escapes what Markdown or HTML would act upon."""
    safe = plain(text).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return safe.replace("[", "\\[").replace("*", "\\*")
