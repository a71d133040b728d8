"""A child process that ends when its input ends."""

import contextlib
import subprocess
from contextlib import AbstractContextManager
from typing import Any


def end_child(
    process: subprocess.Popen[bytes],
    limit_s: float,
    *,
    writing: AbstractContextManager[Any] | None = None,
) -> None:
    """Closes a child's input and waits for its end; kills it if that takes too long. Idempotent.

    Args:
        process: The child.
        limit_s: How long it may take to end.
        writing: A lock, held while the input is closed, so that nothing writes to it meanwhile.
    """
    assert process.stdin is not None
    with writing or contextlib.nullcontext(), contextlib.suppress(OSError):  # it has ended already
        process.stdin.close()
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
