"""The numbers of a campaign, counted row by row: nothing here keeps a row."""

from array import array
from collections.abc import Mapping
from typing import Any

from harness.campaigns.kept_runs import is_failing
from harness.campaigns.statistics import (
    mcnemar_exact_p,
    median,
    paired_difference_interval,
    wilson_interval,
)

LISTED_MAX = 100
"""A longer list would not be read; the file of rows has every run."""

Row = Mapping[str, Any]


class ArmTotals:
    """Counts the runs of one arm. Mutable. Runs that ended in an error count only as runs."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(
            (
                "runs",
                "judged",
                "runs_with_unexcused_loss",
                "unexcused_lost_records",
                "runs_with_excused_loss",
                "valid",
                "invalid",
                "unknown",
                "violations",
            ),
            0,
        )
        self._wall_s = 0.0
        self._unavailable_ms = array("d")
        self._anomalies: dict[tuple[str, str], int] = {}

    def add(self, row: Row) -> None:
        """Counts one run."""
        counts = self._counts
        counts["runs"] += 1
        if row["error"]:
            return
        counts["judged"] += 1
        counts["runs_with_unexcused_loss"] += row["unexcused_lost_records"] > 0
        counts["unexcused_lost_records"] += row["unexcused_lost_records"]
        counts["runs_with_excused_loss"] += row["excused_lost_records"] > 0
        counts[row["verdict"]] += 1
        counts["violations"] += bool(row["violations"])
        self._wall_s += row["wall_s"]
        self._unavailable_ms.append(row["unavailable_ms"])
        for key in {(anomaly["id"], anomaly["judgement"]) for anomaly in row["anomalies"]}:
            self._anomalies[key] = self._anomalies.get(key, 0) + 1

    def to_json(self, name: str) -> dict[str, Any]:
        """Returns the numbers of the arm."""
        counts = dict(self._counts)
        judged = counts.pop("judged")
        interval = wilson_interval(counts["runs_with_unexcused_loss"], counts["runs"])
        return {
            "name": name,
            **counts,
            "unavailable_ms_median": median(self._unavailable_ms),
            "wall_s": self._wall_s,
            "anomalies": [
                {"id": anomaly, "judgement": judgement, "runs": runs}
                for (anomaly, judgement), runs in sorted(self._anomalies.items())
            ],
            "loss_rate_interval": list(interval),
            "errors": counts["runs"] - judged,
        }


class Pairs:
    """Compares two arms seed by seed. Mutable: it keeps the losses of a seed until both arms have come.

    Args:
        first, second: Names of the arms.
    """

    def __init__(self, first: str, second: str) -> None:
        self._names = (first, second)
        self._counts = {(True, True): 0, (True, False): 0, (False, True): 0, (False, False): 0}
        self._waiting: dict[str, tuple[int, int]] = {}
        self._discordant: list[dict[str, Any]] = []

    def add(self, row: Row) -> None:
        """Counts a run; rows come in the order of seeds."""
        if row["arm"] not in self._names or row["error"]:
            return
        self._waiting[row["arm"]] = (row["seed"], row["unexcused_lost_records"])
        (first, second) = (self._waiting.get(name, (-1, 0)) for name in self._names)
        if first[0] != second[0]:
            return
        self._counts[(first[1] > 0, second[1] > 0)] += 1
        if (first[1] > 0) != (second[1] > 0) and len(self._discordant) < LISTED_MAX:
            losses = dict(zip(self._names, (first[1], second[1]), strict=True))
            self._discordant.append({"seed": row["seed"], "losses": losses})

    def to_json(self) -> dict[str, Any]:
        """Returns the test's result, the interval of the difference, and seeds on which the arms differ."""
        counts = self._counts
        cells = ((True, True), (True, False), (False, True), (False, False))
        return {
            "mcnemar_p": mcnemar_exact_p(counts[(True, False)], counts[(False, True)]),
            "difference_interval": list(
                paired_difference_interval(*(counts[cell] for cell in cells))
            ),
            "discordant": self._discordant,
        }


class Attention:
    """Lists the runs that need attention, failures of the harness first. Mutable; bounded."""

    def __init__(self) -> None:
        self._by_urgency: tuple[list[dict[str, Any]], ...] = ([], [], [])
        self.count = 0

    def add(self, row: Row) -> None:
        """Notices a run."""
        if not is_failing(row):
            return
        self.count += 1
        urgency = 0 if row["error"] else 1 if row["violations"] else 2
        if len(self._by_urgency[urgency]) < LISTED_MAX:
            reason = (row["reasons"] or row["violations"])[0]
            self._by_urgency[urgency].append(
                {"seed": row["seed"], "arm": row["arm"], "reason": reason, "run": row["run"]}
            )

    def to_json(self) -> list[dict[str, Any]]:
        """Returns the runs, most urgent first."""
        return [entry for entries in self._by_urgency for entry in entries][:LISTED_MAX]
