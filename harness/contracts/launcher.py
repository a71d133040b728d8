"""Starts a program that ends when the process that started it ends: `python launcher.py PROGRAM [ARGUMENT ...]`.

The program takes the place of this one, so it has the pid that the starting process knows. The kernel sends
it SIGKILL when the thread that started it ends, so that thread must live as long as the program is to run.
Standard library only: it is run by path, without the package around it.
"""

import ctypes
import os
import select
import signal
import sys
from collections.abc import Sequence

_SET_PARENT_DEATH_SIGNAL = 1


def tied_to_parent(command: Sequence[str], python: str) -> list[str]:
    """Returns a command for the same program that ends with the process that starts it.

    A system whose program does not end when its standard input closes uses this for `ends_with_stdin`.

    Args:
        command: Absolute path of the program, and its arguments.
        python: The Python interpreter of the node's host.
    """
    return [python, "-I", "-S", __file__, *command]


def main(command: list[str]) -> None:
    """Becomes the program."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")
    # The parent may have ended before the call above; then the other end of standard input is closed.
    waiting = select.poll()
    waiting.register(0, select.POLLIN)
    if any(event & select.POLLHUP for _, event in waiting.poll(0)):
        sys.exit("the process that started this one has ended")
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
