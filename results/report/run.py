"""Everything the report knows of one run, read once."""

import json
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from harness.contracts.verdict import Judgement
from harness.environments.registry import DEFAULT, ENVIRONMENTS
from harness.errors import HistoryError
from nemesis.faults import FAULTS
from results.history_files import read_tables
from results.layout import RunFiles, is_in_campaign, is_run_name
from results.store import read_json

_JUDGEMENT_ORDER = [str(judgement) for judgement in Judgement]
_TIME_COLUMNS = ("invoked_ns", "completed_ns", "healed_ns", "at_ns")


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWindow:
    """When one fault was in force. Times in nanoseconds since run start; begin = end for a moment.

    `number` is the fault's row in the table of faults, from 1.
    """

    number: int
    fault_id: str
    fault: str
    nodes: tuple[str, ...]
    begin_ns: int
    end_ns: int
    took_effect: bool

    @property
    def anchor(self) -> str:
        """Returns the name of its row in the page."""
        return f"fault-{self.number}"

    @property
    def label(self) -> str:
        """Returns a few characters for a bar in a chart."""
        return f"{self.fault} {' '.join(self.nodes)}".strip()


class RunData:
    """One stored run.

    Args:
        directory: Where it is.
        place: What the directory will be renamed to; by default it stays where it is.

    Attributes:
        directory: Where it is.
        id: "<experiment>/<stamp>-<seed>" when the directory is called like that, otherwise its path. Commands
            name a run of a campaign by its path, because no store has its id.
        summary: run.json; empty when the run did not get so far.
        verdict: verdict.json; None when the run was never judged.
        tables: Every table of `harness.history.schema`.
        experiment_text: The resolved experiment, empty when missing.

    Raises:
        HistoryError: The history is missing or damaged; run.json or verdict.json is not ours.
    """

    def __init__(self, directory: Path, *, place: Path | None = None) -> None:
        files = RunFiles(directory)
        self.directory = directory
        self.tables: dict[str, pa.Table] = read_tables(directory)
        self.summary = _read_or_none(files.run) or {}
        self.verdict = _read_or_none(files.verdict)
        self.replay = _read_or_none(files.replay) or {}
        self.experiment_text = _text(files.experiment)
        shown = directory if place is None else place
        resolved = shown.resolve()
        known = is_run_name(resolved.name)
        self.id = f"{resolved.parent.name}/{resolved.name}" if known else str(shown)
        self._name = str(shown) if is_in_campaign(shown) else self.id

    @cached_property
    def world(self) -> str:
        """Where it ran; if the harness died, only the experiment has it."""
        experiment = self.replay.get("experiment")
        for value in (
            self.summary.get("on"),
            experiment.get("on") if isinstance(experiment, dict) else None,
            _world_in(self.experiment_text),
        ):
            if isinstance(value, str) and value:
                return value
        return DEFAULT

    @property
    def is_repeatable(self) -> bool:
        """Whether the same seed gives the same run: only in a simulation."""
        environment = ENVIRONMENTS.get(self.world)
        return environment is not None and environment.is_simulated

    @property
    def again_command(self) -> str:
        """Returns what to type to see the same run again; on real machines, to run the same experiment.

        Empty where that would be refused: a run whose harness died cannot be replayed.
        """
        if self.is_repeatable:
            return f"laststand replay {shell_word(self._name)}" if self.replay else ""
        if not self.experiment_text or not self.fact("seed").isdecimal():
            return ""
        path = shell_word(str(RunFiles(self.directory).experiment))
        return f"laststand run {path} --seed {self.fact('seed')}"

    @property
    def again_word(self) -> str:
        """The label of `again_command`: only in the simulation a run repeats another."""
        return "replay" if self.is_repeatable else "again"

    def fact(self, name: str, default: str = "unknown") -> str:
        """Returns one fact of run.json as text, or of replay.json when run.json does not have it."""
        value = self.summary.get(name, self.replay.get(name))
        return default if value is None or value == "" else str(value)

    @cached_property
    def end_ns(self) -> int:
        """The latest time that any table mentions; at least a millisecond."""
        latest = 1_000_000
        for table in self.tables.values():
            for column in _TIME_COLUMNS:
                if column in table.column_names and table.num_rows:
                    latest = max(latest, int(numbers(table, column).max()))
        return latest

    @cached_property
    def begin_ns(self) -> int:
        """When the cluster was ready: the first operation or fault. Axes begin there; 0 if there is neither."""
        firsts = [
            int(numbers(self.tables[name], "invoked_ns").min())
            for name in ("operations", "faults")
            if self.tables[name].num_rows
        ]
        return max(min(min(firsts, default=0), self.end_ns - 1_000_000), 0)

    @cached_property
    def partitions(self) -> tuple[tuple[str, int], ...]:
        """Every topic-partition that the history mentions, in order."""
        found: set[tuple[str, int]] = set()
        for name in ("operations", "partition_states", "replica_states"):
            table = self.tables[name]
            pairs = table.group_by(["topic", "partition"]).aggregate([]).to_pylist()
            found.update((row["topic"], row["partition"]) for row in pairs)
        return tuple(sorted(found))

    @cached_property
    def faults(self) -> tuple[Mapping[str, Any], ...]:
        """Rows of the faults table, with params and evidence parsed."""
        rows = self.tables["faults"].to_pylist()
        for row in rows:
            row["params"] = parsed(row["params"])
            row["evidence"] = parsed(row["evidence"])
        return tuple(rows)

    @cached_property
    def fault_windows(self) -> tuple[FaultWindow, ...]:
        """When each fault was in force, ordered by the beginning."""
        starts = [
            (row["completed_ns"], node)
            for row in self.faults
            if _has(row, "ends_outages") and row["completed_ns"] is not None
            for node in row["resolved"]
        ]
        windows = []
        for number, row in enumerate(self.faults, start=1):
            begin_ns = row["completed_ns"] if row["completed_ns"] is not None else row["invoked_ns"]
            windows.append(
                FaultWindow(
                    number=number,
                    fault_id=row["fault_id"],
                    fault=row["fault"],
                    nodes=tuple(row["resolved"]),
                    begin_ns=begin_ns,
                    end_ns=max(begin_ns, self._fault_end(row, begin_ns, starts)),
                    took_effect=row["took_effect"],
                )
            )
        return tuple(sorted(windows, key=lambda window: window.begin_ns))

    @cached_property
    def brokers(self) -> tuple[int, ...]:
        """Every broker id that the history mentions, in order."""
        found: set[int] = set()
        for row in self.tables["partition_states"].to_pylist():
            found.update(row["replicas"])
        for name in ("replica_states", "broker_states"):
            found.update(numbers(self.tables[name], "broker").tolist())
        return tuple(sorted(found))

    def anomalies(self) -> list[dict[str, Any]]:
        """Returns the anomalies of the verdict, the forbidden ones first."""
        found = (self.verdict or {}).get("anomalies", [])
        # The checkers put what matters most first; within one judgement that order stays.
        return sorted(
            (anomaly for anomaly in found if isinstance(anomaly, dict)),
            key=lambda anomaly: judgement_rank(anomaly.get("judgement")),
        )

    def _fault_end(
        self, row: Mapping[str, Any], begin_ns: int, starts: list[tuple[int, str]]
    ) -> int:
        if _has(row, "is_momentary") or not row["resolved"]:
            return begin_ns
        if row["healed_ns"] is not None:
            return int(row["healed_ns"])
        if _has(row, "is_outage"):
            ends = [
                next((at for at, who in starts if who == node and at >= begin_ns), self.end_ns)
                for node in row["resolved"]
            ]
            return max(ends)
        return self.end_ns


def _has(row: Mapping[str, Any], trait: str) -> bool:
    """Whether a fault has a trait of the table; one that is not in the table (of another version) has none."""
    return row["fault"] in FAULTS and bool(getattr(FAULTS[row["fault"]], trait))


def numbers(table: pa.Table, column: str) -> Any:
    """Returns an integer column as NumPy int64, nulls as -1."""
    values: Any = table.column(column)
    return np.asarray(values.fill_null(-1).to_numpy(), dtype=np.int64)


def texts(table: pa.Table, column: str) -> Any:
    """Returns a text column as a NumPy array of objects."""
    return np.asarray(table.column(column).to_numpy(zero_copy_only=False), dtype=object)


def rows_of(table: pa.Table, topic: str, partition: int) -> pa.Table:
    """Returns the rows of one topic-partition."""
    here = (numbers(table, "partition") == partition) & (texts(table, "topic") == topic)
    return table.filter(pa.array(here.astype(bool), type=pa.bool_()))


def parsed(text: str) -> dict[str, Any]:
    """Returns a JSON object from a table, or the text under "text": a report never fails on a detail."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {"text": text}
    return data if isinstance(data, dict) else {"text": text}


def details_text(data: Mapping[str, Any]) -> str:
    """Returns details as text: "frames held: 12, b1 (lost bytes: 612)"."""
    return ", ".join(_detail_text(str(key).replace("_", " "), value) for key, value in data.items())


def seconds(time_ns: int | None) -> str:
    """Returns a time for people: "12.345 s"."""
    return "" if time_ns is None else f"{time_ns / 1e9:.3f} s"


LEVELS = ("durability", "integrity", "order", "fresh")
"""Levels in the order in which they are shown, the most important first."""


def levels_of(run: RunData) -> list[tuple[str, str]]:
    """Returns (level, state) of every level of promises; empty for a verdict that does not state them."""
    return _in_order((run.verdict or {}).get("levels", {}))


def levels_text(run: RunData) -> str:
    """Returns the states of all levels as text."""
    return text_of_levels((run.verdict or {}).get("levels", {}))


def text_of_levels(levels: object) -> str:
    """Returns the states of all levels of a verdict as text; empty if it does not state them.

    Args:
        levels: The state by level.
    """
    stated = _in_order(levels)
    if len(stated) <= len(LEVELS):
        return ", ".join(f"{level} {state}" for level, state in stated)
    by_state: dict[str, list[str]] = {}
    for level, state in stated:
        by_state.setdefault(state, []).append(level)
    return "; ".join(f"{state}: {', '.join(names)}" for state, names in sorted(by_state.items()))


def _in_order(levels: object) -> list[tuple[str, str]]:
    if not isinstance(levels, dict):
        return []
    names = [*(level for level in LEVELS if level in levels), *sorted(levels.keys() - set(LEVELS))]
    return [(name, str(levels[name])) for name in names]


def shell_word(text: str) -> str:
    """Returns text as one word of a shell command."""
    return shlex.quote(text)


def _detail_text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return f"{name}: {'yes' if value else 'no'}"
    if isinstance(value, dict):
        return f"{name} ({details_text(value)})" if value else f"{name}: none"
    if isinstance(value, list) and not any(isinstance(item, dict | list) for item in value):
        return f"{name}: {' '.join(str(item) for item in value) or 'none'}"
    return f"{name}: {json.dumps(value, sort_keys=True) if isinstance(value, list) else value}"


def judgement_rank(judgement: object) -> int:
    """Returns a judgement's place in the order of what matters most: 0 for forbidden."""
    known = judgement in _JUDGEMENT_ORDER
    return _JUDGEMENT_ORDER.index(str(judgement)) if known else len(_JUDGEMENT_ORDER)


def _read_or_none(path: Path) -> dict[str, Any] | None:
    try:
        return read_json(path)
    except FileNotFoundError:
        return None


def _world_in(experiment_text: str) -> Any:
    try:
        return tomllib.loads(experiment_text).get("on")
    except tomllib.TOMLDecodeError:
        return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise HistoryError(f"{path} cannot be read: {error}") from None
