"""Whole runs with confluent-kafka or the Java client: recorded, healed, read to the end, judged like any other."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from wire_helpers import skip_without_java

from harness.cli.main import main
from harness.history.schema import TABLES
from results.history_files import read_tables, write_tables

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
pytestmark = pytest.mark.wire

EXPERIMENT = """
on = "local"
timings = "fast"
duration_ms = 8000
final_phase_ms = 60000

[topic]
partitions = 2
replication_factor = 3
min_insync_replicas = 2

[workload]
name = "consumer-group"
client = "confluent"
processes = 3
acks = ["all", "all", "1"]
members = 2

[[schedule]]
fault = "kill"
targets = ["leader:t-0"]
at_ms = 1500
for_ms = 1500

[[schedule]]
fault = "kill"
targets = ["active_controller"]
at_ms = 5000
for_ms = 1000
"""


@pytest.mark.parametrize(
    ("client", "topics"),
    [
        ("confluent", 1),
        *(
            pytest.param(*case, marks=pytest.mark.long)
            for case in [("confluent", 2), ("native", 2), ("java", 1)]
        ),
    ],
)
def test_a_run_with_a_group_is_valid_whichever_client_its_members_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], client: str, topics: int
) -> None:
    if client == "java":
        skip_without_java()
    path = tmp_path / "clients.toml"
    text = EXPERIMENT.replace('client = "confluent"', f'client = "{client}"')
    if topics == 2:
        text = text.replace("[topic]\npartitions = 2", "[topic]\ncount = 2\npartitions = 1")
        text = text.replace("leader:t-0", "leader:t1-0")
    path.write_text(text, encoding="utf-8")
    results = tmp_path / "runs"
    arguments = ["run", str(path), "--seed", "5", "--results", str(results)]
    code = main([*arguments, "--no-spark", "--quiet", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert code == 0, printed
    stored = json.loads((results / "latest" / "run.json").read_text(encoding="utf-8"))
    assert stored["verdict"] == "valid"
    assert stored["violations"] == []
    # The group did something (how much depends on the machine), and survived the death of a broker and of a
    # controller.
    assert stored["counters"]["group_assignments"] >= 2
    assert stored["counters"]["group_commits"] >= 1
    assert stored["counters"]["group_records"] >= 1
    assert stored["faults"] == 2
    run = (results / "latest").resolve()
    events = read_tables(run)["group_events"]
    assert len(set(events.column("topic").to_pylist())) == topics
    # Only the native members know the generation.
    assert (max(events.column("generation").to_pylist()) > 0) == (client == "native")
    logs = read_tables(run)["replica_batches"].to_pylist()
    found = {(row["broker"], row["topic"], row["partition"]) for row in logs}
    places = [("t", 0), ("t", 1)] if topics == 1 else [("t1", 0), ("t2", 0)]
    assert found == {(broker, *place) for broker in (1, 2, 3) for place in places}
    assert "logs_not_read" not in stored["environment"]
    first = (run / "verdict.json").read_bytes()
    _forget_all_but_the_history(run)
    assert main(["check", str(run), "--no-spark", "--quiet"]) == 0
    assert (run / "verdict.json").read_bytes() == first
    assert main(["check", str(run), "--no-spark", "--quiet"]) == 0


@pytest.mark.long
def test_check_finds_what_a_group_missed_in_a_stored_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "clients.toml"
    path.write_text(EXPERIMENT.partition("[[schedule]]")[0], encoding="utf-8")
    results = tmp_path / "runs"
    words = ["run", str(path), "--seed", "6", "--results", str(results), "--no-spark", "--quiet"]
    assert main(words) == 0
    run = (results / "latest").resolve()
    tables = read_tables(run)
    events = tables["group_events"].to_pylist()
    members = pa.array(sorted({event["process"] for event in events}))
    operations = tables["operations"]
    is_member = pc.is_in(operations.column("process"), value_set=members)
    polls = operations.filter(is_member).column("op_index").combine_chunks()
    by_member = pc.is_in(tables["records_read"].column("op_index"), value_set=polls)
    assert pc.sum(by_member).as_py() >= 50
    count = pc.if_else(is_member, 0, operations.column("record_count"))
    at = operations.schema.get_field_index("record_count")
    withheld = {
        **tables,
        "operations": operations.set_column(at, operations.schema.field(at), count),
        "records_read": tables["records_read"].filter(pc.invert(by_member)),
    }
    last = {**events[-1], "event_index": events[-1]["event_index"] + 1, "event": "committed-asked"}
    seen = {**last, "event_index": last["event_index"] + 1, "event": "committed-seen"}
    seen |= {"offset": 0, "refers_to": last["event_index"]}
    regressed = pa.Table.from_pylist([*events, last, seen], schema=TABLES["group_events"])
    for changed, anomaly in (
        (withheld, "group-skipped-record"),
        ({**tables, "group_events": regressed}, "committed-offset-regressed"),
    ):
        write_tables(run, changed)
        _forget_all_but_the_history(run)
        capsys.readouterr()
        assert main(["check", str(run), "--no-spark", "--quiet", "--json"]) == 1
        found = json.loads(capsys.readouterr().out)["anomalies"]
        assert {"id": anomaly, "judgement": "forbidden"}.items() <= found[0].items()


def _forget_all_but_the_history(run: Path) -> None:
    for name in ("verdict.json", "run.json", "experiment.toml", "replay.json"):
        (run / name).unlink(missing_ok=True)


def test_a_simulation_refuses_real_clients(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for line in ("", 'name = "consumer-group"'):
        path = tmp_path / "wrong.toml"
        path.write_text(f'[workload]\nclient = "confluent"\n{line}\n', encoding="utf-8")
        assert main(["run", str(path), "--quiet"]) == 254
        assert "cannot run in a simulation" in capsys.readouterr().err
