"""Progress on standard error: one rewritten line on a terminal, sparse lines in a log, none when quiet."""

import sys
import time
from typing import TextIO

LOG_INTERVAL_S = 10.0
"""A log gets a line this often; a terminal is rewritten at every report."""


class ProgressLine:
    """Shows what is going on. Mutable: when it last wrote.

    Args:
        quiet: Write nothing.
        stream: Where to; standard error by default.
    """

    def __init__(self, *, quiet: bool = False, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._quiet = quiet
        self._terminal = self._stream.isatty()
        self._start_s = time.monotonic()
        self._last_s = -LOG_INTERVAL_S
        self._width = 0

    def show(self, text: str, *, always: bool = False) -> None:
        """Shows a state; in a log only every few seconds unless `always`."""
        now_s = time.monotonic() - self._start_s
        if self._quiet or not (self._terminal or always or now_s - self._last_s >= LOG_INTERVAL_S):
            return
        self._last_s = now_s
        line = f"[{now_s:6.1f} s] {text}"
        if self._terminal:
            self._stream.write("\r" + line.ljust(self._width))
            self._width = len(line)
            if always:
                self._stream.write("\n")
                self._width = 0
        else:
            self._stream.write(line + "\n")
        self._stream.flush()

    def say(self, text: str) -> None:
        """Writes a line that stays."""
        self.show(text, always=True)

    def bar(self, label: str, fraction: float, detail: str = "") -> None:
        """Shows how much of something is done."""
        filled = int(24 * min(max(fraction, 0.0), 1.0))
        self.show(f"{label:<10} [{'#' * filled}{'.' * (24 - filled)}] {fraction:4.0%} {detail}")
