"""The numbers of a campaign, counted row by row: nothing here keeps a row."""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

from harness.campaigns.effects import CampaignEffects
from harness.campaigns.kept_runs import is_failing
from harness.campaigns.statistics import (
    holm_adjusted,
    mcnemar_exact_p,
    median,
    paired_difference_interval,
    wilson_interval,
)

LISTED_MAX = 100
"""A longer list would not be read; the file of rows has every run."""

_CELLS = ((True, True), (True, False), (False, True), (False, False))
"""Whether the first arm and whether the second one lost records, as `paired_difference_interval` takes them."""

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
        self._effects = CampaignEffects()

    def add(self, row: Row) -> None:
        """Counts one run."""
        counts = self._counts
        counts["runs"] += 1
        self._effects.add(row)
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
            "fault_families": self._effects.families,
            "unknown_reasons": list(self._effects.unknown_reasons),
            "unknown_seed": self._effects.unknown_seed,
        }


class Pairs:
    """Compares every other arm with the first one, seed by seed. Mutable: it keeps the losses of one seed.

    A seed counts for two arms if both of its runs were judged.

    Args:
        names: Of the arms, at least two.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = tuple(names)
        self._counts = {name: dict.fromkeys(_CELLS, 0) for name in self._names[1:]}
        self._seed = -1
        self._losses: dict[str, int] = {}
        self._discordant: list[dict[str, Any]] = []

    def add(self, row: Row) -> None:
        """Counts a run; rows come in the order of seeds."""
        if row["seed"] != self._seed:
            self._finish_seed()
            self._seed = row["seed"]
        if not row["error"]:
            self._losses[row["arm"]] = row["unexcused_lost_records"]

    def to_json(self) -> dict[str, Any]:
        """Returns the tests' results, the intervals of the differences, and seeds on which arms differ."""
        self._finish_seed()
        p_values = [
            mcnemar_exact_p(counts[(True, False)], counts[(False, True)])
            for counts in self._counts.values()
        ]
        comparisons = [
            {
                "arms": [self._names[0], name],
                "pairs": sum(counts.values()),
                "only_first": counts[(True, False)],
                "only_second": counts[(False, True)],
                "mcnemar_p": p_value,
                "adjusted_p": adjusted,
                "difference_interval": list(
                    paired_difference_interval(*(counts[cell] for cell in _CELLS))
                ),
            }
            for (name, counts), p_value, adjusted in zip(
                self._counts.items(), p_values, holm_adjusted(p_values), strict=True
            )
        ]
        return {
            "mcnemar_p": comparisons[0]["mcnemar_p"],
            "difference_interval": comparisons[0]["difference_interval"],
            "comparisons": comparisons,
            "discordant": self._discordant,
        }

    def _finish_seed(self) -> None:
        losses, self._losses = self._losses, {}
        first = losses.get(self._names[0])
        if first is None:
            return
        for name, counts in self._counts.items():
            if name in losses:
                counts[(first > 0, losses[name] > 0)] += 1
        differs = any((lost > 0) != (first > 0) for lost in losses.values())
        if differs and len(self._discordant) < LISTED_MAX:
            in_order = {name: losses[name] for name in self._names if name in losses}
            self._discordant.append({"seed": self._seed, "losses": in_order})


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
