"""The exception tree of the harness: every error that a user can cause, with how to fix it."""

from collections.abc import Iterator
from contextlib import contextmanager


class HarnessError(Exception):
    """An error that the user can fix. The message is one sentence that states how. Exit code 254."""


class UsageError(HarnessError):
    """A flag, a name or an experiment file is wrong."""


@contextmanager
def usage_errors_of(place: object) -> Iterator[None]:
    """Puts a place in front of every `UsageError` from within.

    Args:
        place: For example the path of a file, or "fault f3"; None changes nothing.
    """
    try:
        yield
    except UsageError as error:
        if place is None:
            raise
        raise UsageError(f"{place}: {error}") from None


class HistoryError(HarnessError):
    """A stored run is missing, truncated or not ours."""


class HarnessFailure(Exception):  # noqa: N818 - the project's word for it
    """The harness itself failed; no verdict about the system can be given. Exit code 255."""
