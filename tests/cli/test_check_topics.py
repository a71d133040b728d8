"""`laststand check RUN`: runs with several topics."""

from pathlib import Path

import pyarrow.compute as pc
import pytest

from harness.history.parquet import write_tables
from results.history_files import read_tables
from tests.cli.cli_helpers import call, refused, write

TWO_TOPICS = """\
name = "two"
profile = "kafka-4.1"
duration_ms = 1000
[topic]
partitions = 1
count = 2
[nemesis]
faults = []
"""


def test_a_topic_without_an_operation_of_a_client_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What the nodes report of the topic is still there, so only its operations are missing."""
    path = write(tmp_path / "two.toml", TWO_TOPICS)
    assert call(capsys, "run", path, "--no-spark", "--results", str(tmp_path)).code == 0
    (run,) = (each.parent for each in tmp_path.rglob("experiment.toml"))
    assert call(capsys, "check", str(run), "--no-spark").code == 0
    tables = dict(read_tables(run))
    topic = sorted(set(tables["operations"]["topic"].to_pylist()))[-1]
    for name in ("operations", "records_read", "end_offsets_seen", "offset_queries"):
        tables[name] = tables[name].filter(pc.not_equal(tables[name]["topic"], topic))
    write_tables(run, tables)
    sentence = refused(capsys, "check", run, "--no-spark")
    assert f"the history has no operation of a client in the topic {topic}, which" in sentence
