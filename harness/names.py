"""One sentence for a wrong name, with a suggestion and the known names."""

from collections.abc import Iterable
from difflib import get_close_matches


def unknown_name(kind: str, name: object, known: Iterable[str]) -> str:
    """Returns a sentence that states that `name` is not one of `known`, with a suggestion."""
    names = [str(item) for item in known]
    near = get_close_matches(str(name), names, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"no {kind} is called {str(name)!r}{hint} (known: {', '.join(names)})"
