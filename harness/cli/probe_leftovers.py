"""What a killed probe of disk faults leaves: mounted scratch disks (`nemesis.agent.disks.disk_capabilities`).

Probes of a run are below the run's directory, which names its owner. A probe without a run, as that of
`laststand doctor --on docker`, has a temporary folder that names none, so only its age shows that it has ended.
"""

import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

from nemesis.agent.disks import mounts, power_cut
from nemesis.agent.disks.disk_capabilities import SCRATCH_PREFIX

PROBE_MAX_S = 600.0
"""A probe takes seconds, and tens of seconds on a busy machine."""


def reset(state_root: Path, *, even_if_alive: bool = False) -> list[str]:
    """Removes the scratch disks of dead probes; returns what was removed, one line each.

    Args:
        state_root: Where runs have their directories; what is below is theirs.
        even_if_alive: Also removes those that are so young that their probe may be in progress.

    Raises:
        PermissionError: This process is not root, and there are some.
        AgentError: A disk is still in use.
    """
    removed: list[str] = []
    for folder in _folders(state_root):
        if not even_if_alive and not _is_old(folder):
            continue
        if os.geteuid() != 0:
            raise PermissionError(folder)
        removed += power_cut.reset(folder)
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(f"directory {folder}")
    return removed


def _folders(state_root: Path) -> list[Path]:
    """Returns the folders of probes: those with something mounted, and those among the temporary files."""
    mounted = {
        parent
        for mount in mounts.mounts()
        for parent in Path(mount.path).parents
        if parent.name.startswith(SCRATCH_PREFIX) and state_root not in parent.parents
    }
    here = {
        path for path in Path(tempfile.gettempdir()).glob(f"{SCRATCH_PREFIX}*") if _is_own(path)
    }
    return sorted(mounted | here)


def _is_own(path: Path) -> bool:
    """Whether it is a directory of root: anyone may make a name among the temporary files."""
    try:
        about = path.lstat()
    except FileNotFoundError:  # its probe has just ended
        return False
    return stat.S_ISDIR(about.st_mode) and about.st_uid == 0


def _is_old(folder: Path) -> bool:
    try:
        return time.time() - folder.stat().st_mtime > PROBE_MAX_S
    except FileNotFoundError:  # its probe has just ended
        return False
