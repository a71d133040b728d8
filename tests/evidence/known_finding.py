"""What runs find although the broker is correct: Kafka's recovery keeps records that were truncated and came back.

`docs/findings/recovery-keeps-truncated-records.md` describes it.
"""

from harness.campaigns.worker import run_seed
from harness.runs import experiment_file
from harness.runs.experiment import Experiment
from harness.runs.resolved import resolve
from harness.runs.simulated import simulate

KNOWN_FINDING = (
    "invalid on a posix-strict disk only (docs/findings/recovery-keeps-truncated-records.md)"
)


def is_known_finding(planned: Experiment, seed: int) -> bool:
    """Whether what a run found is known: records came back in it, and on another disk it finds nothing.

    Args:
        planned: The experiment, before the seed draws its configuration.
        seed: The seed of the run.
    """
    return _records_came_back(planned, seed) and _has_no_finding_on_ext4(planned, seed)


def _records_came_back(planned: Experiment, seed: int) -> bool:
    """Whether a replica loaded a log that ends where it had once been cut off, or behind its end.

    If segments were removed with what was cut off, only the rest of one segment may come back.
    """
    result = simulate(resolve(planned, seed)[0], seed)
    ends: dict[tuple[int, str, int], int] = {}
    cut_off: dict[tuple[int, str, int], set[int]] = {}
    for row in result.tables["replica_states"].to_pylist():
        replica = (row["broker"], row["topic"], row["partition"])
        end = row["log_end_offset"]
        if row["cause"] == "truncate" and replica in ends:
            cut_off.setdefault(replica, set()).add(ends[replica])
        is_longer = replica in cut_off and (end in cut_off[replica] or end > ends[replica])
        if row["cause"] == "load" and is_longer:
            return True
        ends[replica] = end
    return False


def _has_no_finding_on_ext4(planned: Experiment, seed: int) -> bool:
    """Whether the same seed finds nothing on a disk that keeps the order of truncations and fsyncs.

    A run in which too little was acknowledged is unknown there too, and has no finding.
    """
    data = experiment_file.to_data(experiment_file.vary(planned, "cluster.disk", "ext4"))
    row = run_seed({"experiment": data, "seed": seed, "arm": "ext4", "run": "ext4", "keep": False})
    return not (row["verdict"] == "invalid" or row["violations"] or row["error"])
