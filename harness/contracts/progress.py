"""How long-running work reports its progress."""

from typing import Protocol


class ProgressDisplay(Protocol):
    """Receives progress and shows it, for example on standard error."""

    def message(self, text: str) -> None:
        """Reports an event: one line that stays visible."""

    def update(self, label: str, fraction: float, detail: str = "") -> None:
        """Reports the current state of one activity.

        Args:
            label: Name of the activity, for example "runs".
            fraction: The part that is done, from 0 to 1.
            detail: Additional numbers, for example "12/200".
        """
