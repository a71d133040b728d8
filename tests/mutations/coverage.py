"""Which test shows that a switched-off rule, or a listed defect, is noticed."""

from collections.abc import Callable
from typing import TypeVar

Test = TypeVar("Test", bound=Callable[..., None])

RULES_SHOWN: dict[str, list[str]] = {}
DEFECTS_SHOWN: dict[str, list[str]] = {}


def shows(*identifiers: str) -> Callable[[Test], Test]:
    """Notes that a test shows what happens without these rules ("HW-1") or with these defects ("B-18")."""

    def note(test: Test) -> Test:
        for identifier in identifiers:
            shown = DEFECTS_SHOWN if identifier.startswith("B-") else RULES_SHOWN
            shown.setdefault(identifier, []).append(test.__name__)
        return test

    return note
