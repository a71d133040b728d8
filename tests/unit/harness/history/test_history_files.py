"""Parquet files of a history: same content, same bytes; anything else is refused in one sentence."""

import json
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harness.contracts.run_context import RunContext, context_from_facts, context_to_row
from harness.errors import HistoryError
from harness.history.op import OpKind
from harness.history.parquet import WORD_COLUMNS, by_place, places_of
from harness.history.schema import PARTITIONED_TABLES, TABLES
from harness.history.writer import HistoryWriter
from results.history_files import is_finished, read_file, read_tables, table_files, write_tables
from tests.unit.harness.history.test_history import fill


@pytest.fixture
def tables() -> dict[str, pa.Table]:
    writer = HistoryWriter(None)
    fill(writer)
    return writer.close()


def files_of(directory):
    return {
        path.relative_to(directory): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_the_same_history_is_the_same_bytes(tmp_path, tables):
    write_tables(tmp_path / "a", tables)
    write_tables(tmp_path / "b", {name: tables[name] for name in reversed(tables)})
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")
    assert len(files_of(tmp_path / "a")) > len(TABLES)


def test_rows_in_any_order_become_the_same_bytes(tmp_path, tables):
    write_tables(tmp_path / "a", tables)
    operations = tables["operations"]
    backwards = operations.take(pa.array(range(operations.num_rows - 1, -1, -1)))
    write_tables(tmp_path / "b", {**tables, "operations": backwards})
    assert files_of(tmp_path / "a") == files_of(tmp_path / "b")


def test_a_partitioned_table_has_one_file_per_partition(tmp_path, tables):
    write_tables(tmp_path, tables)
    files = [file for file in table_files(tmp_path) if file.table == "operations"]
    assert [(file.topic, file.partition) for file in files] == [("t", 0), ("t", 1), ("t", 2)]
    for file in files:
        table = read_file(file, columns=["op_index", "partition"])
        assert table.num_rows == file.rows > 0
        assert set(table.column("partition").to_pylist()) == {file.partition}
        assert table.column("op_index").to_pylist() == sorted(table.column("op_index").to_pylist())
    names = {file.table for file in table_files(tmp_path)}
    assert {"faults", "broker_states", "marks"} <= names
    assert "partition_states" not in names  # no rows, no partition, no file


def test_rows_are_divided_by_topic_and_partition_in_any_order():
    rng = random.Random(1)
    for count in range(40):
        topics = rng.choice((["t"], ["t", "u", "t-0"], ["", "t"]))
        partitions = rng.choice(([0], [3, 0, 70000], [5, -1]))
        rows = [(rng.choice(topics), rng.choice(partitions), row) for row in range(count)]
        columns = [list(column) for column in zip(*rows, strict=True)] or [[], [], []]
        schema = pa.schema([("topic", pa.string()), ("partition", pa.int32()), ("row", pa.int64())])
        table = pa.table(dict(zip(schema.names, columns, strict=True)), schema=schema)
        halves = pa.concat_tables([table.slice(0, count // 3), table.slice(count // 3)])
        for form in (table, halves):
            divided = by_place(form)
            assert list(divided) == places_of(form) == sorted({row[:2] for row in rows})
            for (topic, partition), mine in divided.items():
                wanted = [row for row in rows if row[:2] == (topic, partition)]
                assert list(zip(*mine.to_pydict().values(), strict=True)) == wanted


def test_named_columns_of_words_come_encoded_and_hold_the_same_words(tmp_path, tables):
    write_tables(tmp_path, tables)
    for file in table_files(tmp_path):
        whole = read_file(file)
        named = read_file(file, columns=whole.column_names)
        assert whole.schema.equals(TABLES[file.table], check_metadata=False)
        assert named.to_pylist() == whole.to_pylist()
        for field in named.schema:
            is_encoded = pa.types.is_dictionary(field.type)
            assert is_encoded == (field.name in WORD_COLUMNS), field


def test_64_bit_columns_are_delta_encoded_without_dictionary(tmp_path, tables):
    write_tables(tmp_path, tables)
    for file in table_files(tmp_path):
        row_group = pq.ParquetFile(file.path).metadata.row_group(0)
        for index, field in enumerate(TABLES[file.table]):
            if not pa.types.is_int64(field.type) or not file.rows:
                continue
            column = row_group.column(index)
            assert column.path_in_schema == field.name
            assert "DELTA_BINARY_PACKED" in column.encodings
            assert not column.has_dictionary_page
            assert column.compression == "ZSTD"


def test_hostile_topic_names_stay_in_the_directory(tmp_path):
    for topic in ("../../escaped", "a/b", "..", "", "day=1"):
        writer = HistoryWriter(None)
        writer.invoke(process=0, kind=OpKind.LATEST, topic=topic, partition=0, invoked_ns=0)
        run = tmp_path / "run"
        write_tables(run, writer.close())
        assert read_tables(run)["operations"].column("topic").to_pylist() == [topic]
        (file,) = (file for file in table_files(run) if file.table == "operations")
        assert file.path.parent == run / "history" / "operations"
        assert len(list(file.path.parent.iterdir())) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_missing_run_is_reported_in_one_sentence(tmp_path):
    with pytest.raises(HistoryError, match=r"there is no run at .*nowhere; `laststand list`"):
        read_tables(tmp_path / "nowhere")
    with pytest.raises(HistoryError, match="holds no history"):
        read_tables(tmp_path)


def test_a_truncated_file_is_named(tmp_path, tables):
    write_tables(tmp_path, tables)
    path = tmp_path / "history" / "operations" / "t-1.parquet"
    whole = path.read_bytes()
    for size in (0, 3, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(HistoryError, match=r"operations/t-1\.parquet is damaged") as caught:
            read_tables(tmp_path)
        assert "\n" not in str(caught.value)


def test_a_flipped_byte_is_found_or_harmless(tmp_path, tables):
    """Pages carry checksums and the footer is parsed: damage is refused, never read as other rows."""
    write_tables(tmp_path, tables)
    path = tmp_path / "history" / "records_read" / "t-0.parquet"
    whole = path.read_bytes()
    expected = read_tables(tmp_path)
    refused = 0
    for position in range(4, len(whole), 23):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x41]) + whole[position + 1 :])
        try:
            found = read_tables(tmp_path)
        except HistoryError:
            refused += 1
            continue
        assert found["records_read"].equals(expected["records_read"])
    assert refused


def test_a_foreign_table_is_refused_with_the_column(tmp_path, tables):
    write_tables(tmp_path, tables)
    path = tmp_path / "history" / "marks.parquet"
    pq.write_table(pa.table({"at_ns": [1]}), path)
    with pytest.raises(HistoryError, match=r"marks\.parquet is not a table of ours: column at_ns"):
        read_tables(tmp_path)
    nullable = pa.schema([pa.field("at_ns", pa.int64(), nullable=False)])
    pq.write_table(pa.table({"at_ns": [1]}, schema=nullable), path)
    with pytest.raises(HistoryError, match="column node is missing"):
        read_tables(tmp_path)


def test_a_file_with_a_row_count_other_than_in_the_manifest_is_refused(tmp_path, tables):
    write_tables(tmp_path, tables)
    directory = tmp_path / "history" / "operations"
    shutil.copy(directory / "t-0.parquet", directory / "t-2.parquet")
    manifest = json.loads((tmp_path / "history" / "manifest.json").read_text())
    rows = {partition: rows for _, partition, rows in manifest["tables"]["operations"]}
    assert rows[0] != rows[2]
    with pytest.raises(HistoryError, match=rf"holds {rows[0]} rows, but the manifest lists"):
        read_tables(tmp_path)


def test_a_missing_file_and_a_foreign_manifest_are_refused(tmp_path, tables):
    write_tables(tmp_path, tables)
    (tmp_path / "history" / "marks.parquet").unlink()
    with pytest.raises(HistoryError, match=r"marks\.parquet is missing"):
        read_tables(tmp_path)
    manifest = tmp_path / "history" / "manifest.json"
    for text, message in (
        ("{", "cannot be read as a history manifest"),
        ('{"format": 99}', "is of history format 99"),
        ('{"format": 3, "tables": []}', "is not a history manifest"),
        ("[]", "is not a history manifest"),
    ):
        manifest.write_text(text)
        with pytest.raises(HistoryError, match=message):
            read_tables(tmp_path)


def test_rewriting_replaces_the_history_and_leaves_no_old_files(tmp_path, tables):
    write_tables(tmp_path, tables)
    assert "operations" in PARTITIONED_TABLES
    write_tables(tmp_path, {})
    assert is_finished(tmp_path)
    assert read_tables(tmp_path)["operations"].num_rows == 0
    assert not list((tmp_path / "history").rglob("t-*.parquet"))


def test_unknown_tables_and_wrong_schemas_are_not_written(tmp_path, tables):
    with pytest.raises(HistoryError, match="no table is called 'opperations'"):
        write_tables(tmp_path, {"opperations": tables["operations"]})
    with pytest.raises(HistoryError, match="the table marks is not a table of ours"):
        write_tables(tmp_path, {"marks": tables["operations"]})
    assert not is_finished(tmp_path)


ADDED_IN_5 = ["elects_uncleanly", "allows_unclean", "reconfigures"]


ADDED_IN_6 = ["healed_ns", "ended_ns", "stuck_after_ms"]


def without_columns(run_dir, version: int, table: str, columns: list[str]) -> None:
    """Makes a history one of an older format, in which a table has fewer columns."""
    directory = run_dir / "history"
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["format"] = version
    (directory / "manifest.json").write_text(json.dumps(manifest))
    for path in (directory / f"{table}.parquet", *directory.glob(f"{table}/*.parquet")):
        if path.exists():
            pq.write_table(pq.read_table(path, partitioning=None).drop_columns(columns), path)


def as_format_8(run_dir) -> None:
    """Makes a history one of format 8, which knows neither batches nor compacted topics."""
    without_columns(run_dir, 8, "operations", ["batch"])
    without_columns(run_dir, 8, "run_facts", ["compacted"])


def test_a_history_of_format_8_is_read_without_batches_and_compacted_topics(tmp_path, tables):
    assert tables["operations"].num_rows
    writer = HistoryWriter(None)
    writer.add("run_facts", context_to_row(RunContext(compacted=True)))
    tables["run_facts"] = writer.close()["run_facts"]
    write_tables(tmp_path, tables)
    assert read_tables(tmp_path)["run_facts"].column("compacted").to_pylist() == [True]
    as_format_8(tmp_path)
    read = read_tables(tmp_path)
    assert read["run_facts"].column("compacted").to_pylist() == [False]
    assert read["operations"].column("batch").null_count == tables["operations"].num_rows
    assert read["operations"].equals(tables["operations"])


def as_format_6(run_dir) -> None:
    """Makes a history one of format 6, which has no table `transaction_events`."""
    as_format_8(run_dir)
    directory = run_dir / "history"
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["format"] = 6
    for part in ("rows", "tables"):
        del manifest[part]["transaction_events"]
    (directory / "manifest.json").write_text(json.dumps(manifest))
    (directory / "transaction_events.parquet").unlink()


def test_a_history_of_format_6_is_read_without_transactions(tmp_path, tables):
    row = HistoryWriter(None)
    row.transaction_event(at_ns=1, transaction=-1, process=1, event="begin")
    tables["transaction_events"] = row.close()["transaction_events"]
    write_tables(tmp_path, tables)
    assert read_tables(tmp_path)["transaction_events"].equals(tables["transaction_events"])
    as_format_6(tmp_path)
    read = read_tables(tmp_path)
    assert read.pop("transaction_events").equals(TABLES["transaction_events"].empty_table())
    assert read == {name: tables[name] for name in read}


def test_a_history_of_this_format_must_list_its_transactions(tmp_path, tables):
    write_tables(tmp_path, tables)
    as_format_6(tmp_path)
    manifest = tmp_path / "history" / "manifest.json"
    data = json.loads(manifest.read_text())
    data["tables"]["transaction_events"] = []
    manifest.write_text(json.dumps({**data, "format": 7}))
    with pytest.raises(HistoryError, match="lists no file of the table transaction_events"):
        read_tables(tmp_path)


def as_format_5(run_dir) -> None:
    """Makes a history one of format 5, whose facts do not state when it was healed."""
    as_format_6(run_dir)
    without_columns(run_dir, 5, "run_facts", ADDED_IN_6)


def as_format_4(run_dir) -> None:
    """Makes a history one of format 4, whose faults also name no requested unclean elections."""
    as_format_5(run_dir)
    without_columns(run_dir, 4, "faults", ADDED_IN_5)


def as_format_3(run_dir) -> None:
    """Makes a history one of format 3, which also has no table `replica_batches`."""
    as_format_4(run_dir)
    directory = run_dir / "history"
    manifest = json.loads((directory / "manifest.json").read_text())
    manifest["format"] = 3
    for part in ("rows", "tables"):
        del manifest[part]["replica_batches"]
    (directory / "manifest.json").write_text(json.dumps(manifest))
    shutil.rmtree(directory / "replica_batches")


def test_a_history_of_format_3_is_read_without_the_tables_that_came_later(tmp_path, tables):
    assert tables["replica_batches"].num_rows, "otherwise nothing is left out"
    write_tables(tmp_path, tables)
    as_format_3(tmp_path)
    read = read_tables(tmp_path)
    assert read.pop("replica_batches").equals(TABLES["replica_batches"].empty_table())
    assert read == {name: tables[name] for name in read}


def test_a_column_that_older_versions_declared_to_have_no_nulls_is_read(tmp_path, tables):
    write_tables(tmp_path, tables)
    path = tmp_path / "history" / "broker_states.parquet"
    table = pq.read_table(path)
    index = table.schema.get_field_index("clean")
    strict = table.schema.set(index, table.schema.field(index).with_nullable(False))
    pq.write_table(table.cast(strict), path, write_page_checksum=True)
    assert read_tables(tmp_path)["broker_states"].equals(tables["broker_states"])


def test_a_history_of_format_3_must_list_all_tables_of_its_format(tmp_path, tables):
    write_tables(tmp_path, tables)
    as_format_3(tmp_path)
    manifest = tmp_path / "history" / "manifest.json"
    data = json.loads(manifest.read_text())
    del data["tables"]["replica_states"]
    manifest.write_text(json.dumps(data))
    with pytest.raises(HistoryError, match="is not a history manifest"):
        read_tables(tmp_path)


def test_a_history_of_format_4_has_no_requested_elections(tmp_path, tables):
    fault = ("f1", "elect_leader", [], ["b1"], "{}", 5, 6, None, True, "{}")
    writer = HistoryWriter(None)
    writer.add("faults", (*fault, False, False, False, False, [], False, ["t-0"], [], []))
    tables["faults"] = writer.close()["faults"]
    write_tables(tmp_path, tables)
    assert read_tables(tmp_path)["faults"].column("elects_uncleanly").to_pylist() == [["t-0"]]
    as_format_4(tmp_path)
    (file,) = (one for one in table_files(tmp_path) if one.table == "faults")
    some = read_file(file, ["fault_id", "reconfigures"])
    assert (some.column_names, some.num_rows) == (["fault_id", "reconfigures"], 1)
    faults = read_tables(tmp_path)["faults"]
    assert faults.schema.equals(TABLES["faults"])
    assert faults.num_rows == tables["faults"].num_rows > 0
    assert faults.column("elects_uncleanly").to_pylist() == [[]] * faults.num_rows
    assert faults.drop_columns(ADDED_IN_5).equals(tables["faults"].drop_columns(ADDED_IN_5))


def test_a_history_of_format_5_does_not_state_when_it_was_healed(tmp_path, tables):
    writer = HistoryWriter(None)
    context = RunContext(healed_ns=5, ended_ns=9, stuck_after_ms=3, clock_error_ns=7)
    writer.add("run_facts", context_to_row(context))
    tables["run_facts"] = writer.close()["run_facts"]
    write_tables(tmp_path, tables)
    assert context_from_facts(read_tables(tmp_path)["run_facts"]) == context
    as_format_5(tmp_path)
    facts = read_tables(tmp_path)["run_facts"]
    assert facts.schema.equals(TABLES["run_facts"])
    assert context_from_facts(facts) == RunContext(clock_error_ns=7)


@pytest.mark.parametrize(
    ("older", "version"), [(as_format_5, 6), (as_format_4, 5), (as_format_6, 4)]
)
def test_a_history_has_the_columns_of_its_format_and_no_others(tmp_path, tables, older, version):
    """A column that is lost or added later is damage: without it, an excused loss would be a finding."""
    write_tables(tmp_path, tables)
    manifest = tmp_path / "history" / "manifest.json"
    older(tmp_path)
    data = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**data, "format": version}))
    with pytest.raises(HistoryError, match="is not a table of ours"):
        read_tables(tmp_path)


def test_a_history_of_format_4_must_list_the_new_table(tmp_path, tables):
    write_tables(tmp_path, tables)
    as_format_3(tmp_path)
    manifest = tmp_path / "history" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"format": 3', '"format": 4'))
    with pytest.raises(HistoryError, match="is not a history manifest"):
        read_tables(tmp_path)
