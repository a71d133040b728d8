"""The exception tree of the harness: every error that a user can cause, with how to fix it."""


class HarnessError(Exception):
    """An error that the user can fix. The message is one sentence that states how. Exit code 254."""


class UsageError(HarnessError):
    """A flag, a name or an experiment file is wrong."""


class HistoryError(HarnessError):
    """A stored run is missing, truncated or not ours."""


class HarnessFailure(Exception):  # noqa: N818 - the project's word for it
    """The harness itself failed; no verdict about the system can be given. Exit code 255."""
