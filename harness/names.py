"""One sentence for a wrong name, with a suggestion and the known names."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(kind: str, name: object, known: Iterable[str], *, listed_in: str = "") -> str:
    """Returns a sentence that states that `name` is not one of `known`, with a suggestion.

    Args:
        kind: What the name should be the name of.
        name: The unknown name.
        known: The known names.
        listed_in: Where to read all of them, if they are too many for a sentence.
    """
    names = [str(item) for item in known]
    without_unit = [one for one in names if one.startswith(f"{name}_")]
    near = without_unit or get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    all_of_them = f"known: {', '.join(names)}" if names else "there are none"
    others = f"{listed_in} lists all" if listed_in else all_of_them
    return f"no {kind} is called {str(name)!r}{hint} ({others})"
