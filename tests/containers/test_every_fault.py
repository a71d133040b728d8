"""Every fault, once, in containers: each takes effect, no acknowledged record is lost, nothing remains."""

import json
from pathlib import Path
from typing import Any

import pytest
from pace import slower
from test_harness_killed import what_is_left

from harness.cli.main import main
from harness.runs import experiment_file as experiments
from nemesis.administration import ACTIONS
from nemesis.faults import FAULT_NAMES
from nemesis.hosts.capabilities import OF_DIRECTORIES
from nemesis.message_rules import OF_MESSAGES
from results.history_files import read_tables
from tests.kafka_jars import kafka_or_skip

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "every-fault.toml"
ON_MESSAGES = EXAMPLES / "faults-on-messages.toml"
"""Only systems with fault points allow these."""
OF_KAFKA = EXAMPLES / "faults-on-messages-of-kafka.toml"
KAFKA = "4.0.2"


def test_the_example_has_every_fault_that_every_system_allows() -> None:
    scheduled = {fault.fault for fault in experiments.load(EXAMPLE).schedule}
    # A host has one disk for all log directories of a node, and a node of the reference system one thread.
    assert scheduled == set(FAULT_NAMES) - {
        *("start", "heal", "stall_metadata"),
        *OF_DIRECTORIES,
        *OF_MESSAGES,
        *ACTIONS,
    }


def test_the_examples_on_messages_have_every_fault_on_messages() -> None:
    scheduled = {fault.fault for fault in experiments.load(ON_MESSAGES).schedule}
    assert scheduled == {*OF_MESSAGES, "pause", "kill"}
    scheduled = {fault.fault for fault in experiments.load(OF_KAFKA).schedule}
    assert scheduled == {*OF_MESSAGES, "kill"}


def run_once(
    example: Path, results: Path, capsys: pytest.CaptureFixture[str], *, is_kafka: bool
) -> dict[str, dict[str, Any]]:
    """Runs the example, which must leave nothing; returns its faults by identifier.

    It must end valid, unless a fault found nothing to do: then it says that the fault never took effect.
    """
    words = [
        "run",
        str(example),
        "--on",
        "docker",
        "--no-spark",
        "--quiet",
        "--json",
        "--results",
        str(results),
    ]
    words += ["--system", f"apache-kafka:{KAFKA}"] if is_kafka else []
    code = main(words)
    output = json.loads(capsys.readouterr().out)
    others = [reason for reason in output["reasons"] if "never took effect" not in reason]
    assert others == []
    assert (code, output["verdict"]) == ((2, "unknown") if output["reasons"] else (0, "valid"))
    assert output["environment"]["left_behind"] == []
    rows = read_tables(Path(output["directory"]))["faults"].to_pylist()
    return {row["fault_id"]: row for row in rows}


def had_no_file(row: dict[str, Any]) -> bool:
    """Whether a fault was to cut off a file of a node whose disk had been wiped a moment before."""
    evidence = json.loads(row["evidence"])
    return row["fault"] == "truncate_file" and not any(evidence["truncated"].values())


@pytest.mark.slow
@pytest.mark.timeout(1200)  # of up to three runs on a busy machine
@pytest.mark.long  # two minutes, during which no other test can use containers
@pytest.mark.parametrize("example", [EXAMPLE, ON_MESSAGES, OF_KAFKA], ids=lambda path: path.stem)
def test_every_fault_takes_effect_in_containers(
    engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], example: Path
) -> None:
    # On a busy machine a broker may come back so late that the next fault finds no target. Such a fault
    # says so, and a slower run is made for it; a fault that found a target must take effect at once.
    if example == OF_KAFKA:
        kafka_or_skip(KAFKA)
    without_target: set[str] = set()
    for attempt in range(3):
        path = slower(example, tmp_path / f"slower-{attempt}", attempt + 1)
        rows = run_once(path, tmp_path / str(attempt), capsys, is_kafka=example == OF_KAFKA)
        found = {name for name, row in rows.items() if row["resolved"] and not had_no_file(row)}
        harmless = {name: rows[name]["evidence"] for name in found if not rows[name]["took_effect"]}
        assert harmless == {}
        assert what_is_left(engine) == []
        without_target = (without_target or set(rows)) - found
        if not without_target:
            break
    assert without_target == set()
