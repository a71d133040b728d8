"""The exception tree of the harness: everything a user can cause, each with what to do about it."""


class HarnessError(Exception):
    """Something the user can mend. The message is one sentence that says what to do. Exit code 254."""


class UsageError(HarnessError):
    """A flag, a name or an experiment file is wrong."""


class HistoryError(HarnessError):
    """A stored run is missing, truncated or not ours."""


class HarnessFailure(Exception):  # noqa: N818 - the project's word for it
    """The harness itself failed; no verdict about the system can be given. Exit code 255."""
