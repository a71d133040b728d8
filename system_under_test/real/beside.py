"""Starts the proxy of a fault point, and becomes the program that it is for.

    python -m system_under_test.real.beside PROXY_FILE PROGRAM [ARGUMENT ...]

The program takes the place of this process and has its pid, so that signals reach the program. The proxy
(`proxy.py`) is its child and ends with it. A pause of the program does not stop the proxy.
"""

import ctypes
import os
import signal
import sys
from pathlib import Path

_SET_PARENT_DEATH_SIGNAL = 1


def main(arguments: list[str]) -> None:
    """Becomes the program."""
    proxy_file, *command = arguments
    parent = os.getpid()
    if os.fork() == 0:
        _follow(parent)
        # Here, so that the program does not wait for imports.
        from system_under_test.real.proxy import serve

        try:
            serve(Path(proxy_file))
        except OSError as error:
            print(f"laststand: the proxy before this node has ended: {error}", file=sys.stderr)
        finally:
            # Nobody can reach a program without its proxy.
            os.kill(parent, signal.SIGKILL)
    os.execvp(command[0], command)


def _follow(parent: int) -> None:
    """Has the kernel end this process with its parent."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")
    if os.getppid() != parent:
        os._exit(1)
    # Standard input ends with the process that started this one; the program may wait for that.
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)


if __name__ == "__main__":
    main(sys.argv[1:])
