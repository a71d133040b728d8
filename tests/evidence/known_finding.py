"""What runs find although the broker is as Kafka: two ways in which a disk harms a replica that trusts it.

`docs/findings/recovery-keeps-truncated-records.md` and `docs/findings/page-cache-after-a-failed-fsync.md` describe
them. A run counts as one of these only if it shows how the records went, and is right on another disk.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from harness.runs import experiment_file
from harness.runs.experiment import Experiment
from harness.runs.resolved import resolve
from harness.runs.simulated import simulate
from harness.simulation.inode import Inode

_END = "log_end_offset"
_LOAD = ("at_ns", "node", "topic", "partition", "cause")
"""What two rows have in common if they are of the same load of a replica."""


def records_came_back(planned: Experiment, seed: int) -> bool:
    """Whether a replica loaded a log that ends where it had once been cut off, or behind its end.

    If segments were removed with what was cut off, only the rest of one segment may come back.

    Args:
        planned: The experiment, before the seed draws its configuration.
        seed: The seed of the run.
    """
    ends: dict[tuple[int, str, int], int] = {}
    cut_off: dict[tuple[int, str, int], set[int]] = {}
    for row in _replica_states(planned, seed):
        replica = (row["broker"], row["topic"], row["partition"])
        end = row["log_end_offset"]
        if row["cause"] == "truncate" and replica in ends:
            cut_off.setdefault(replica, set()).add(ends[replica])
        is_back = replica in cut_off and (end in cut_off[replica] or end > ends[replica])
        if row["cause"] == "load" and is_back:
            return True
        ends[replica] = end
    return False


def pages_were_lost(planned: Experiment, seed: int) -> bool:
    """Whether a replica loaded a shorter log because a power cut took pages whose fsync had failed before.

    Without such pages nothing changes until that replica loads its log, and finds more.

    Args:
        planned: The experiment, before the seed draws its configuration.
        seed: The seed of the run.
    """
    rows = _replica_states(planned, seed)
    with keeping_pages_dirty():
        otherwise = _replica_states(planned, seed)
    for row, other in zip(rows, otherwise, strict=False):
        if row != other:
            is_same = all(row[name] == other[name] for name in _LOAD)
            return is_same and row["cause"] == "load" and row[_END] < other[_END]
    return False


@contextmanager
def keeping_pages_dirty() -> Iterator[None]:
    """Simulates a kernel that keeps the pages of a failed fsync dirty, so that the next fsync writes them."""
    with patch.object(Inode, "write_back_failed", lambda _inode, _sync: None):
        yield


def on_ordered_disk(planned: Experiment) -> Experiment:
    """Returns the experiment on a disk that keeps the order of truncations and fsyncs, so nothing comes back."""
    return experiment_file.vary(planned, "cluster.disk", "ext4")


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownFinding:
    """Something that runs find, and that a text in `docs/findings` describes.

    Attributes:
        reason: Why a verdict counts as right.
        occurred: Whether it happened in a run.
        planned: Returns the experiment in which it cannot happen.
        kernel: Within it, it cannot happen either.
    """

    reason: str
    occurred: Callable[[Experiment, int], bool]
    planned: Callable[[Experiment], Experiment]
    kernel: Callable[[], AbstractContextManager[None]]


def _same(planned: Experiment) -> Experiment:
    return planned


KNOWN_FINDINGS = (
    KnownFinding(
        reason="invalid or undecided on a posix-strict disk only"
        " (docs/findings/recovery-keeps-truncated-records.md)",
        occurred=records_came_back,
        planned=on_ordered_disk,
        kernel=nullcontext,
    ),
    KnownFinding(
        reason="invalid or undecided because an fsync failed and the power was cut later"
        " (docs/findings/page-cache-after-a-failed-fsync.md)",
        occurred=pages_were_lost,
        planned=_same,
        kernel=keeping_pages_dirty,
    ),
)


def known_reason(planned: Experiment, seed: int, is_right: Callable[[Experiment], bool]) -> str:
    """Returns the reason of a known finding without which a run is right; "" if none occurred in it.

    Args:
        planned: The experiment, before the seed draws its configuration.
        seed: The seed of the run.
        is_right: Runs an experiment with that seed, in which the finding cannot occur.
    """
    for known in KNOWN_FINDINGS:
        if known.occurred(planned, seed):
            with known.kernel():
                if is_right(known.planned(planned)):
                    return known.reason
    return ""


def _replica_states(planned: Experiment, seed: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        simulate(resolve(planned, seed)[0], seed).tables["replica_states"].to_pylist()
    )
    return rows
