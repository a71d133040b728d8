"""Control groups for processes that the agent starts itself."""

import contextlib
import os
import time
from pathlib import Path

from nemesis.agent.processes.procfs import CGROUP_ROOT

CONTROLLERS = ("memory", "cpu")
REMOVE_TRIES = 50


class OwnGroup:
    """A control group with the memory and cpu controllers, where they are available.

    Args:
        name: Name of the group, below the group of this process.

    Raises:
        OSError: No group can be made.
    """

    def __init__(self, name: str, root: Path = CGROUP_ROOT) -> None:
        self._folders: dict[str, Path] = {}
        if (root / "cgroup.controllers").exists():
            with contextlib.suppress(OSError):
                (root / "cgroup.subtree_control").write_text("+memory +cpu", encoding="ascii")
            folder = root / name
            folder.mkdir(exist_ok=True)
            for controller, file in (("memory", "memory.max"), ("cpu", "cpu.max")):
                if os.access(folder / file, os.W_OK):
                    self._folders[controller] = folder
            self._made = [folder]
            return
        self._made = []
        for controller in CONTROLLERS:
            folder = root / controller / name
            try:
                folder.mkdir(exist_ok=True)
            except OSError:
                continue  # read-only, as in most containers
            self._made.append(folder)
            self._folders[controller] = folder

    def has(self, controller: str) -> bool:
        """Whether a controller can be used."""
        return controller in self._folders

    @property
    def paths(self) -> list[str]:
        """The folders of the group, for its later removal."""
        return [os.fspath(folder) for folder in self._made]

    def join(self, pid: int) -> None:
        """Moves a process to the group."""
        for folder in self._made:
            (folder / "cgroup.procs").write_text(str(pid), encoding="ascii")

    def __enter__(self) -> "OwnGroup":
        """Returns itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Removes the group."""
        for path in self.paths:
            remove_group(path)


def remove_group(path: str) -> bool:
    """Removes a control group once its last process is gone; returns whether it is."""
    for _ in range(REMOVE_TRIES):
        try:
            os.rmdir(path)
        except FileNotFoundError:
            return True
        except OSError:
            time.sleep(0.01)
            continue
        return True
    return False
