"""What a corruption of a stored run is, and the words in which the tables of corruptions are written.

A corruption damages a copy of a recorded run and states how its check must end: with bad input, with a named
anomaly, with unknown and a reason, or, if nothing that counts was changed, with the same verdict; then it says why
that is right.
"""

import copy
import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.errors import HarnessError
from harness.history.parquet import history_directory, in_order, write_tables
from harness.history.schema import OFFSETS_TOPIC, TABLES
from harness.runs import experiment_file
from harness.runs.experiment import Experiment
from harness.runs.record import record_run
from harness.runs.scripted import scenario_experiment
from harness.scenarios import find_scenario
from results.history_files import read_tables
from results.layout import RunFiles
from results.store import RunStore
from tests.spark.stored_runs import with_group

Row = dict[str, Any]
Rows = list[Row]
Tables = dict[str, Rows]
Edit = Callable[[Tables], object]
Damage = Callable[[Path], object]

PLAIN, EXCUSED, GROUP, TRANSACTIONS = "plain", "excused", "group", "transactions"
"""Valid runs: of two partitions, with an excused loss, with a consumer group, and with transactions."""

TWO_PARTITIONS = """
name = "two-partitions"
profile = "kafka-4.1"
weather = "calm"
duration_ms = 3000

[topic]
partitions = 2

[workload]
appends_per_s = 20
polls_per_s = 10
queries_per_s = 10

[[schedule]]
fault = "isolate"
targets = ["isr_follower:t-0"]
at_ms = 500
for_ms = 1500
"""

WITH_TRANSACTIONS = """
name = "with-transactions"
profile = "kafka-4.1"
weather = "calm"
duration_ms = 3000

[topic]
partitions = 2

[workload]
name = "transactions"
producers = 2
processors = 1
readers = 1
transactions_per_s = 20
polls_per_s = 20
zombie_share = 0.1

[[schedule]]
fault = "isolate"
targets = ["isr_follower:t-0"]
at_ms = 500
for_ms = 1500
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corruption:
    """One way to damage a stored run.

    Attributes:
        name: What is done.
        run: The run that is damaged: PLAIN, EXCUSED, GROUP or TRANSACTIONS.
        ending: "refused", "anomaly", "noted", "unknown" or "harmless".
        words: What the sentence holds, the anomaly's identifier, or why the verdict stays.
        damage, edit: One of them is given: what is done to the files in a directory, or to the rows.
    """

    name: str
    run: str
    ending: str
    words: str
    damage: Damage | None = None
    edit: Edit | None = None


def refused(name: str, edit: Edit, words: str, run: str = PLAIN) -> Corruption:
    """Returns a corruption of rows that is bad input."""
    return _of_rows(name, edit, "refused", words, run)


def anomaly(name: str, edit: Edit, identifier: str, run: str = PLAIN) -> Corruption:
    """Returns a corruption of rows that a named anomaly shows."""
    return _of_rows(name, edit, "anomaly", identifier, run)


def noted(name: str, edit: Edit, identifier: str, run: str = PLAIN) -> Corruption:
    """Returns a corruption of rows that a named anomaly shows, one that breaks no promise of Kafka."""
    return _of_rows(name, edit, "noted", identifier, run)


def unknown(name: str, edit: Edit, words: str, run: str = PLAIN) -> Corruption:
    """Returns a corruption of rows after which nothing can be said."""
    return _of_rows(name, edit, "unknown", words, run)


def harmless(name: str, edit: Edit, why: str, run: str = PLAIN) -> Corruption:
    """Returns a corruption of rows that changes nothing that a verdict depends on."""
    return _of_rows(name, edit, "harmless", why, run)


def of_files(name: str, damage: Damage, ending: str, words: str, run: str = PLAIN) -> Corruption:
    """Returns a corruption of files."""
    return Corruption(name=name, run=run, damage=damage, ending=ending, words=words)


def _of_rows(name: str, edit: Edit, ending: str, words: str, run: str) -> Corruption:
    return Corruption(name=name, run=run, ending=ending, words=words, edit=edit)


@cache
def _rows_of(directory: Path) -> Tables:
    return {name: table.to_pylist() for name, table in read_tables(directory).items()}


def _edited(directory: Path, edit: Edit) -> dict[str, pa.Table]:
    """Returns the edited tables of a stored run, in canonical order; the files stay as they are."""
    tables = copy.deepcopy(_rows_of(directory))
    edit(tables)
    return {
        name: in_order(name, pa.Table.from_pylist(rows, schema=TABLES[name]))
        for name, rows in tables.items()
    }


# --- rows by what they are ---


def operations(t: Tables, partition: int = 0, **columns: object) -> Rows:
    """Returns the operations of a partition whose columns have the given values."""
    return [
        row
        for row in t["operations"]
        if row["partition"] == partition and all(row[key] == columns[key] for key in columns)
    ]


def acked(t: Tables, number: int, partition: int = 0) -> Row:
    """Returns one of the acknowledged appends of a partition, in order of their offsets."""
    rows = operations(t, partition, kind="append", outcome="ok")
    return sorted(rows, key=lambda row: row["offset"])[number]


def polls(t: Tables, partition: int = 0, *, final: bool) -> Rows:
    """Returns the polls of a partition that returned records."""
    rows = operations(t, partition, kind="poll", outcome="ok", final=final)
    return [row for row in rows if row["record_count"]]


def latests(t: Tables, partition: int = 0, *, final: bool) -> Rows:
    """Returns the requests of a partition's log end."""
    return operations(t, partition, kind="latest", outcome="ok", final=final)


def records(t: Tables, **columns: object) -> Rows:
    """Returns the records whose columns have the given values."""
    return [row for row in t["records_read"] if all(row[key] == columns[key] for key in columns)]


def final_record(t: Tables, number: int) -> Row:
    """Returns one record of the final reads of partition 0."""
    ops = {row["op_index"] for row in polls(t, final=True)}
    return [row for row in t["records_read"] if row["op_index"] in ops][number]


def drop(t: Tables, table: str, rows: Iterable[Row]) -> None:
    """Removes rows; nothing else is adjusted."""
    gone = {id(row) for row in rows}
    t[table][:] = [row for row in t[table] if id(row) not in gone]


def drop_records(t: Tables, rows: Rows) -> None:
    """Removes records as if their polls had never returned them, with the questions about them."""
    gone = {(row["op_index"], row["offset"], row["value"]) for row in rows}
    t["offset_queries"][:] = [
        row
        for row in t["offset_queries"]
        if (row["op_index"], row["record_offset"], row["record_value"]) not in gone
    ]
    drop(t, "records_read", rows)
    count_records(t)


def count_records(t: Tables) -> None:
    """Makes the places of records in their polls, and their number, agree with the rows."""
    count: dict[int, int] = {}
    for row in t["records_read"]:
        row["index_in_poll"] = count.get(row["op_index"], 0)
        count[row["op_index"]] = row["index_in_poll"] + 1
    for row in t["operations"]:
        row["record_count"] = count.get(row["op_index"], 0)


def drop_operations(t: Tables, rows: Rows) -> None:
    """Removes operations with everything that belongs to them."""
    ops = {row["op_index"] for row in rows}
    for table in ("operations", "records_read", "end_offsets_seen", "offset_queries"):
        t[table][:] = [row for row in t[table] if row["op_index"] not in ops]


def set_all(rows: Iterable[Row], **columns: object) -> None:
    """Sets columns of rows."""
    for row in rows:
        row.update(columns)


# --- files ---


def path_of(run: Path, table: str, partition: int | None = 0) -> Path:
    """Returns the file of a table."""
    name = f"{table}.parquet" if partition is None else f"{table}/t-{partition}.parquet"
    return history_directory(run) / name


def edit_manifest(change: Callable[[dict[str, Any]], object]) -> Damage:
    """Returns the damage that changes the manifest."""

    def damage(run: Path) -> None:
        path = history_directory(run) / "manifest.json"
        manifest = json.loads(path.read_text())
        change(manifest)
        path.write_text(json.dumps(manifest))

    return damage


def edit_file(
    table: str, change: Callable[[pa.Table], pa.Table], partition: int | None = 0
) -> Damage:
    """Returns the damage that writes one file anew, as it is; the manifest's number of rows is adjusted."""

    def damage(run: Path) -> None:
        path = path_of(run, table, partition)
        with pq.ParquetFile(path) as file:
            changed = change(file.read())
        pq.write_table(changed, path)
        where = ["", -1] if partition is None else ["t", partition]

        def adjust(manifest: dict[str, Any]) -> None:
            (entry,) = (e for e in manifest["tables"][table] if e[:2] == where)
            manifest["rows"][table] += changed.num_rows - entry[2]
            entry[2] = changed.num_rows

        edit_manifest(adjust)(run)

    return damage


# --- the runs ---


def record_runs(root: Path) -> dict[str, Path]:
    """Records the runs that are corrupted, each in a store of its own below a directory."""
    scenario = "last-replica-standing"
    runs = {
        PLAIN: _record(root / PLAIN, _experiment(root / "plain.toml", TWO_PARTITIONS)),
        TRANSACTIONS: _record(
            root / TRANSACTIONS, _experiment(root / "transactions.toml", WITH_TRANSACTIONS)
        ),
        EXCUSED: _record(
            root / EXCUSED, scenario_experiment(find_scenario(scenario, "V6"), "kafka-4.1")
        ),
        GROUP: _record(
            root / GROUP, scenario_experiment(find_scenario(scenario, "V3b"), "kafka-4.1")
        ),
    }
    tables = dict(read_tables(runs[GROUP]))
    facts = tables["run_facts"].to_pylist()
    facts[0]["checkers"].append("consumer-group")
    tables["run_facts"] = pa.Table.from_pylist(facts, schema=TABLES["run_facts"])
    # Nothing happens to the group's coordinator.
    states = tables["partition_states"].to_pylist()
    coordinator = {**states[0], "topic": OFFSETS_TOPIC, "partition": 0}
    tables["partition_states"] = pa.Table.from_pylist(
        [*states, coordinator], schema=TABLES["partition_states"]
    )
    write_tables(runs[GROUP], with_group(tables, committed=8, seen=8))
    return runs


def _experiment(source: Path, text: str) -> Experiment:
    source.write_text(text, encoding="utf-8")
    return experiment_file.load(source)


def _record(root: Path, experiment: Experiment) -> Path:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    directory, _ = record_run(experiment, 1, RunStore(root), now=now)
    return directory


def damaged_copy(
    corruption: Corruption, runs: dict[str, Path], directory: Path
) -> dict[str, pa.Table] | None:
    """Writes a damaged copy of a run into a directory; returns its tables if only rows are damaged."""
    source = runs[corruption.run]
    if corruption.edit is None:
        shutil.copytree(source, directory)
        assert corruption.damage is not None
        corruption.damage(directory)
        return None
    directory.mkdir()
    experiment = RunFiles(source).experiment
    shutil.copy(experiment, directory / experiment.name)
    tables = _edited(source, corruption.edit)
    write_tables(directory, tables)
    return tables


def swap(one: Path, other: Path) -> None:
    """Exchanges two files."""
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)


# --- how a check ends ---


def judged(check: Callable[[], dict[str, Any]]) -> dict[str, Any] | str:
    """Returns a verdict, or the sentence with which the input was refused."""
    try:
        return check()
    except HarnessError as error:
        return str(error)


def short(sentence: str, run: Path) -> str:
    """Returns a sentence with the names that tables in memory have instead of paths."""
    return sentence.replace(f"{history_directory(run)}/", "")


def assert_ends(
    outcome: dict[str, Any] | str, corruption: Corruption, undamaged: dict[str, Any], run: Path
) -> None:
    """Fails unless a check ended as the corruption declares."""
    if corruption.ending == "refused":
        assert isinstance(outcome, str), outcome["validity"]
        assert corruption.words in outcome
        assert len(outcome.splitlines()) == 1
        assert str(run) in outcome or "no checker is called" in outcome
        return
    assert not isinstance(outcome, str), outcome
    found = {anomaly["id"] for anomaly in outcome["anomalies"]}
    assert not [reason for reason in outcome["reasons"] if "the checker failed" in reason]
    if corruption.ending == "anomaly":
        assert (outcome["validity"], corruption.words in found) == ("invalid", True), found
    elif corruption.ending == "noted":
        assert corruption.words in found
    elif corruption.ending == "unknown":
        assert outcome["validity"] == "unknown", outcome["reasons"]
        assert any(corruption.words in reason for reason in outcome["reasons"])
    else:
        same = ("validity", "reasons", "unexcused_lost_records", "excused_lost_records")
        assert [outcome[name] for name in same] == [undamaged[name] for name in same]
        assert found == {anomaly["id"] for anomaly in undamaged["anomalies"]}
