"""Every fault, once, in containers: each takes effect, no acknowledged record is lost, nothing remains."""

import json
from pathlib import Path
from typing import Any

import pytest
from test_harness_killed import what_is_left

from harness.cli.main import main
from harness.runs import experiment_file as experiments
from nemesis.faults import FAULT_NAMES
from results.history_files import read_tables

EXAMPLE = Path(__file__).parents[2] / "examples" / "every-fault.toml"


def test_the_example_has_every_fault() -> None:
    scheduled = {fault.fault for fault in experiments.load(EXAMPLE).schedule}
    assert scheduled == set(FAULT_NAMES) - {"start", "heal"}


@pytest.mark.slow
def test_every_fault_takes_effect_in_containers(
    engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["run", str(EXAMPLE), "--no-spark", "--quiet", "--json", "--results", str(tmp_path)]
    code = main(words)
    output = json.loads(capsys.readouterr().out)
    rows = {
        row["fault_id"]: row for row in read_tables(Path(output["directory"]))["faults"].to_pylist()
    }
    harmless = {name: row["evidence"] for name, row in rows.items() if not row["took_effect"]}
    assert harmless == {}
    assert (code, output["verdict"]) == (0, "valid"), output["reasons"]
    assert output["environment"]["left_behind"] == []
    assert what_is_left(engine) == []
