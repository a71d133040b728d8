"""What runs find although the broker is correct: Kafka's recovery keeps records that were truncated and came back.

`docs/findings/recovery-keeps-truncated-records.md` describes it.
"""

from harness.runs import experiment_file
from harness.runs.experiment import Experiment
from harness.runs.resolved import resolve
from harness.runs.simulated import simulate

KNOWN_FINDING = (
    "invalid or undecided on a posix-strict disk only"
    " (docs/findings/recovery-keeps-truncated-records.md)"
)


def records_came_back(planned: Experiment, seed: int) -> bool:
    """Whether a replica loaded a log that ends where it had once been cut off, or behind its end.

    If segments were removed with what was cut off, only the rest of one segment may come back.

    Args:
        planned: The experiment, before the seed draws its configuration.
        seed: The seed of the run.
    """
    result = simulate(resolve(planned, seed)[0], seed)
    ends: dict[tuple[int, str, int], int] = {}
    cut_off: dict[tuple[int, str, int], set[int]] = {}
    for row in result.tables["replica_states"].to_pylist():
        replica = (row["broker"], row["topic"], row["partition"])
        end = row["log_end_offset"]
        if row["cause"] == "truncate" and replica in ends:
            cut_off.setdefault(replica, set()).add(ends[replica])
        is_back = replica in cut_off and (end in cut_off[replica] or end > ends[replica])
        if row["cause"] == "load" and is_back:
            return True
        ends[replica] = end
    return False


def on_ordered_disk(planned: Experiment) -> Experiment:
    """Returns the experiment on a disk that keeps the order of truncations and fsyncs, so nothing comes back."""
    return experiment_file.vary(planned, "cluster.disk", "ext4")
