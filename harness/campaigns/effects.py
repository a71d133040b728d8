"""What the faults of a run did, and what follows from that for a campaign.

A single run is unknown if an enabled fault had no effect, or if almost nothing was acknowledged under faults. In a
campaign other runs test the same, so the campaign is unknown only if a fault took effect in fewer than half of the
runs that enabled it, if fewer than half of the runs tested anything, or if a run is unknown for another reason.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from checkers.idle_faults import beginnings
from checkers.kernels.compose import has_tested_nothing
from harness.contracts.metadata import PartitionState
from harness.contracts.verdict import Validity, Verdict
from harness.history.op import OpKind
from harness.runs.experiment import Experiment
from harness.runs.result import RunResult
from nemesis.events import partition_events
from nemesis.schedule import ADMIN, DRAWN_ACTIONS

SEEDS_LISTED_MAX = 20
"""Seeds that a sentence names; the file of rows has every run."""


def row_of_effects(experiment: Experiment, verdict: Verdict) -> dict[str, Any]:
    """Returns what the row of a run states about its faults.

    Returns:
        `fault_families`: whether each enabled fault took effect, by name. Administrative actions that were drawn
        are one family, as they were enabled. `tested_nothing`: whether too little was acknowledged while a fault
        was in force. `unknown_reason`: why the run is unknown, apart from these two; empty if there is no other
        reason, or if it is not unknown.
    """
    families: dict[str, bool] = verdict.coverage["fault_families"]
    without_effect = tuple(
        text for name, took in families.items() if not took for text in beginnings(name)
    )
    nothing = {reason for reason in verdict.reasons if has_tested_nothing(reason)}
    others = [
        reason
        for reason in verdict.reasons
        if reason not in nothing and not reason.startswith(without_effect)
    ]
    is_unknown = verdict.validity is Validity.UNKNOWN
    return {
        "fault_families": _as_enabled(experiment, families),
        "tested_nothing": bool(nothing),
        "unknown_reason": others[0] if is_unknown and others else "",
    }


def _as_enabled(experiment: Experiment, families: Mapping[str, bool]) -> dict[str, bool]:
    """Returns whether the faults took effect, with drawn administrative actions as one family.

    Which of them are drawn is not the user's choice, and not every cluster needs an election.
    """
    named = {fault.fault for fault in experiment.schedule}
    drawn = {
        name: took for name, took in families.items() if name in DRAWN_ACTIONS and name not in named
    }
    if ADMIN not in experiment.nemesis.faults or not drawn:
        return dict(families)
    others = {name: took for name, took in families.items() if name not in drawn}
    return {**others, ADMIN: any(drawn.values())}


@dataclass(slots=True)
class _Seeds:
    """Some runs: how many, and the first seeds of them, as numbers or in words. Mutable."""

    count: int = 0
    first: list[Any] = field(default_factory=list)
    are_more: bool = False

    def add(self, seed: int | str) -> None:
        self.count += 1
        if seed in self.first:
            return
        if len(self.first) < SEEDS_LISTED_MAX:
            self.first.append(seed)
        else:
            self.are_more = True

    def __str__(self) -> str:
        in_order = sorted(self.first, key=lambda seed: (isinstance(seed, str), seed))
        named = ", ".join(map(str, in_order))
        return f"seed{'' if len(self.first) == 1 else 's'} {named}" + (
            " and others" if self.are_more else ""
        )


class CampaignEffects:
    """Decides whether several runs of one experiment are unknown as a whole. Mutable: `add` counts a run."""

    def __init__(self) -> None:
        self._enabled: dict[str, int] = {}
        self._without: dict[str, _Seeds] = {}
        self._runs = 0
        self._tested_nothing = _Seeds()
        self._unknown = _Seeds()
        self._reason = ""
        self.unknown_seed: int | None = None
        """The seed, or number, of the first run that is unknown for a reason of its own; None if none is."""
        self.unknown_search: Mapping[str, Any] = {}
        """What a guided search says of that run: `search` of its row; empty if it is not guided."""

    def add(self, row: Mapping[str, Any]) -> None:
        """Counts a run; one that ended in an error shows nothing about its faults.

        Args:
            row: Of the run; a seed that several runs share is given in words.
        """
        if row["error"]:
            return
        seed = row["seed"]
        if "search" in row:
            # The number of a guided run is not its seed, and its experiment is not that of the campaign.
            seed = f"{row['search']['root_seed']} (of the guided run {seed})"
        self._runs += 1
        # A run that found something has tested something.
        if row.get("tested_nothing") and row["verdict"] != Validity.INVALID:
            self._tested_nothing.add(seed)
        # Rows of earlier versions lack these keys: such a run is unknown for a reason that is not known.
        for name, took_effect in row.get("fault_families", {}).items():
            self._enabled[name] = self._enabled.get(name, 0) + 1
            if not took_effect:
                self._without.setdefault(name, _Seeds()).add(seed)
        if row["verdict"] == Validity.UNKNOWN:
            default = next(iter(row["reasons"]), "")
            if reason := row.get("unknown_reason", default):
                if not self._unknown.count:
                    self._reason, self.unknown_seed = reason, row["seed"]
                    self.unknown_search = row.get("search", {})
                self._unknown.add(seed)

    @property
    def families(self) -> dict[str, dict[str, int]]:
        """In how many runs each fault was enabled, and in how many of them it took effect, by name."""
        return {
            name: {"enabled": enabled, "took_effect": enabled - self._without_effect(name)}
            for name, enabled in sorted(self._enabled.items())
        }

    @property
    def unknown_reasons(self) -> Sequence[str]:
        """Why the runs are unknown as a whole, one sentence each, with fault and seeds; empty if they are not."""
        reasons = []
        for name, counts in self.families.items():
            enabled, took_effect = counts["enabled"], counts["took_effect"]
            if 2 * took_effect < enabled:
                reasons.append(
                    f"the fault {name!r} took effect in {took_effect} of the {enabled} runs that enabled it, "
                    f"which is fewer than half; not with {self._without[name]}"
                )
        if 2 * self._tested_nothing.count > self._runs:
            reasons.append(
                f"in {self._tested_nothing.count} of the {self._runs} runs too little was acknowledged under"
                f" faults, which is more than half ({self._tested_nothing})"
            )
        if self._unknown.count:
            count = self._unknown.count
            which = "1 run is" if count == 1 else f"{count} runs are"
            is_other = self._without or self._tested_nothing.count
            other = " for another reason" if is_other else ""
            first = "" if count == 1 else "the first one "
            reasons.append(
                f"{which} unknown{other} ({self._unknown}), {first}because: {self._reason}"
            )
        return reasons

    def _without_effect(self, name: str) -> int:
        seeds = self._without.get(name)
        return 0 if seeds is None else seeds.count


def effects_of(result: RunResult) -> dict[str, Any]:
    """Returns JSON-compatible data about the faults of a run, and how much its clients appended.

    Returns:
        `faults`: per fault its `id`, `nodes`, `took_effect`, `is_repair`, `invoked_ns`, and `healed_ns` (None if
        it was never healed). `main_ns`: when the main phase began. All times are nanoseconds since run start.
        `appends`: how many appends clients invoked in the main phase. `changes`: the committed changes of
        partitions that faults can wait for, in their order: `at_ns`, `event` ("isr-shrink"), `partition` ("t-0").
    """
    rows = result.tables["faults"].to_pylist()
    at_ms = {fault.id: fault.at_ms for fault in result.schedule if not fault.on}
    operations = result.tables["operations"]
    kinds = zip(
        operations.column("kind").to_pylist(), operations.column("final").to_pylist(), strict=True
    )
    begins = [
        row["invoked_ns"] - at_ms[row["fault_id"]] * 1_000_000
        for row in rows
        if row["fault_id"] in at_ms
    ]
    begins += operations.column("invoked_ns").to_pylist()
    return {
        "faults": [
            {
                "id": row["fault_id"],
                "nodes": list(row["resolved"]),
                "took_effect": bool(row["took_effect"]),
                "is_repair": bool(row["heals"]),
                "invoked_ns": row["invoked_ns"],
                "healed_ns": row["healed_ns"],
            }
            for row in rows
        ],
        "main_ns": min(begins, default=0),
        "appends": sum(kind == OpKind.APPEND and not final for kind, final in kinds),
        "changes": list(_changes(result.tables["partition_states"].to_pylist())),
    }


def _changes(states: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields the committed changes of partitions for which a fault can wait."""
    last: dict[str, PartitionState] = {}
    for row in states:
        now = PartitionState(
            topic=row["topic"],
            partition=row["partition"],
            replicas=tuple(row["replicas"]),
            leader=row["leader"],
            leader_epoch=row["leader_epoch"],
            partition_epoch=row["partition_epoch"],
            isr=tuple(row["isr"]),
            elr=tuple(row["elr"]),
        )
        before, last[now.name] = last.get(now.name), now
        if before is not None:
            for event in partition_events(before, now):
                yield {"at_ns": row["at_ns"], "event": event, "partition": now.name}
