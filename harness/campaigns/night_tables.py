"""The campaign tables: what every night adds to the history of all nights, as Parquet.

    <root>/night=2026-11-22/runs.parquet        one row per finished run
    <root>/night=2026-11-22/findings.parquet    one row per signature and job
    <root>/night=2026-11-22/jobs.parquet        one row per job, written last

The root is a path or a URI (`harness.history.filesystems`), and `night` is a partition column: engines read it
from the name of the directory. A night without `jobs.parquet` was interrupted while it was written and does not
count.
Valid runs are one row; failing runs are also stored whole, at the path in the column `stored`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from harness.campaigns.night import Row, is_night, night_order
from harness.campaigns.night_summary import JobSummary, NightSummary, Rate
from harness.errors import HistoryError
from harness.history.filesystems import child, open_root
from results.campaign_tables import NIGHT_TABLES, RUNS

BATCH_ROWS = 1000
"""Rows that are in memory while a table is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastNight:
    """What an earlier night left in the tables: its rows of `jobs` and `findings`."""

    night: str
    jobs: tuple[dict[str, Any], ...]
    findings: tuple[dict[str, Any], ...]


class NightTables:
    """The campaign tables below one root.

    Args:
        root: A path or a URI.

    Raises:
        UsageError: Arrow cannot open it.
    """

    def __init__(self, root: str) -> None:
        self.root = root
        self._system, self._path = open_root(root)

    def nights(self) -> list[str]:
        """Returns the complete nights, oldest first.

        Raises:
            HistoryError: The root cannot be listed.
        """
        try:
            return [night for night in self.begun() if self._has(self._place(night, "jobs"))]
        except OSError as error:
            raise HistoryError(f"{self.root} cannot be listed: {_reason(error)}") from None

    def begun(self) -> list[str]:
        """Returns the nights that wrote at least a part of their tables, oldest first.

        Raises:
            HistoryError: The root cannot be listed.
        """
        try:
            found = self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        except OSError as error:
            raise HistoryError(f"{self.root} cannot be listed: {_reason(error)}") from None
        names = [entry.base_name.removeprefix("night=") for entry in found]
        return sorted(filter(is_night, names), key=night_order)

    def path(self, night: str, table: str) -> str:
        """Returns the path or URI of a table of a night, in the form in which the root was given."""
        return child(self.root, f"night={night}", f"{table}.parquet")

    def write(
        self, summary: NightSummary, rows: Iterable[Row], statuses: Mapping[str, str]
    ) -> None:
        """Writes the tables of a night; replaces what an earlier attempt wrote.

        Args:
            summary: The night, counted.
            rows: Its rows again, in the same order.
            statuses: The status of every finding by its signature.

        Raises:
            HistoryError: The tables cannot be written.
        """
        night = summary.plan.night
        try:
            self._system.create_dir(f"{self._path}/night={night}", recursive=True)
            if self._has(self._place(night, "jobs")):
                self._system.delete_file(self._place(night, "jobs"))
            self._write(night, "runs", _run_rows(summary, rows))
            self._write(night, "findings", finding_rows(summary, statuses))
            self._write(night, "jobs", map(job_row, summary.jobs.values()))
        except OSError as error:
            raise HistoryError(
                f"{self.path(night, 'runs')} cannot be written: {_reason(error)}"
            ) from None

    def read(self, night: str, table: str) -> list[dict[str, Any]]:
        """Returns the rows of a table of one night; a column that nights of earlier versions lack is None.

        Raises:
            HistoryError: The file is missing, damaged, or has other columns.
        """
        path = self.path(night, table)
        try:
            read = pq.read_table(
                self._place(night, table), filesystem=self._system, partitioning=None
            )
            schema = NIGHT_TABLES[table]
            later = [field.name for field in schema if field.nullable]
            known = [
                name for name in schema.names if name in read.column_names or name not in later
            ]
            empty = dict.fromkeys(later)
            rows = [{**empty, **row} for row in read.select(known).to_pylist()]
        except (OSError, pa.ArrowException, KeyError) as error:
            raise HistoryError(f"{path} cannot be read: {_reason(error)}") from None
        return rows

    def before(self, night: str, count: int) -> list[PastNight]:
        """Returns the last complete nights before one, oldest first."""
        earlier = [name for name in self.nights() if night_order(name) < night_order(night)]
        return [
            PastNight(
                night=name,
                jobs=tuple(self.read(name, "jobs")),
                findings=tuple(self.read(name, "findings")),
            )
            for name in earlier[max(len(earlier) - count, 0) :]
        ]

    def _place(self, night: str, table: str) -> str:
        return f"{self._path}/night={night}/{table}.parquet"

    def _has(self, path: str) -> bool:
        return bool(self._system.get_file_info(path).type == fs.FileType.File)

    def _write(self, night: str, table: str, rows: Iterable[Mapping[str, Any]]) -> None:
        schema, waiting = NIGHT_TABLES[table], iter(rows)
        place = self._place(night, table)
        with pq.ParquetWriter(place, schema, filesystem=self._system, compression="zstd") as file:
            while batch := list(islice(waiting, BATCH_ROWS)):
                file.write_table(pa.Table.from_pylist(batch, schema=schema))


def job_row(job: JobSummary) -> dict[str, Any]:
    """Returns a row of the table `jobs`."""
    plan = job.job
    return {
        "job": plan.name,
        "experiment": plan.experiment,
        "system": plan.system,
        "profile": plan.profile,
        "world": plan.world,
        "weight": float(plan.weight),
        "budget_s": float(plan.budget_s),
        "runs": job.runs,
        "valid": job.valid,
        "invalid": job.invalid,
        "unknown": job.unknown,
        "errors": job.errors,
        "findings": len(job.signatures),
        "operations": job.operations,
        "faults": job.faults,
        "marks": len(job.marks),
        "unavailable_ms_median": job.unavailable_ms_median,
        "elapsed_ms": job.elapsed_ms,
        "wall_s": job.wall_s,
        "runs_per_min": job.runs_per_min,
        "confirmed": job.confirmed,
        "replayed": job.replayed,
        "nondeterministic": job.nondeterministic,
        "repeats": job.repeats,
        **_rate_columns(job.rate),
    }


def _rate_columns(rate: Rate) -> dict[str, Any]:
    low, high = rate.interval if rate.repeats else (None, None)
    return {
        "recurred": rate.recurred,
        "judged_repeats": rate.repeats,
        "rate_low": low,
        "rate_high": high,
    }


def _run_rows(summary: NightSummary, rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    same = [name for name in RUNS.names if name not in _COMPUTED]
    for row in rows:
        job = summary.jobs[row["job"]].job
        yield {
            **{name: row[name] for name in same},
            "system": row["system"] or job.system,
            "profile": row["profile"] or job.profile,
            "world": row["on"],
            "reason": next(iter(row["reasons"]), ""),
            "violations": len(row["violations"]),
            "signatures": [finding["signature"] for finding in row["findings"]],
            "anomalies": row["anomalies"],
            "marks": [{"mark": mark, "count": count} for mark, count in row["marks"].items()],
        }


_COMPUTED = frozenset(
    {"system", "profile", "world", "reason", "violations", "signatures", "anomalies", "marks"}
)


def finding_rows(summary: NightSummary, statuses: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yields the rows of the table `findings`: one per signature and job."""
    for group in summary.groups.values():
        for name, runs in group.runs.items():
            job = summary.jobs[name].job
            examples = [one for one in group.examples if one["job"] == name]
            yield {
                "signature": group.signature,
                "title": group.title,
                "status": statuses[group.signature],
                "job": name,
                "system": job.system,
                "profile": job.profile,
                "world": job.world,
                "runs": runs,
                "what": str(group.parts.get("what", "")),
                "expectation": str(group.parts.get("expectation", "")),
                "change": str(group.parts.get("change", "")),
                "role": str(group.parts.get("role", "")),
                "marks": _texts(group.parts.get("marks")),
                "seeds": list(dict.fromkeys(int(one["seed"]) for one in examples)),
                "stored": [one["stored"] for one in examples if one["stored"]],
                "confirmed": group.confirmed,
                "replayed": group.replayed,
                **_rate_columns(group.rates.get(name, Rate())),
            }


def _texts(value: Any) -> list[str]:
    return [str(item) for item in value] if isinstance(value, Sequence) else []


def _reason(error: Exception) -> str:
    return str(error).partition("\n")[0]
