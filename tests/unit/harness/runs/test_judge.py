"""What a run is judged by: a fault that could not be injected counts as one that never bit."""

import json

import pyarrow as pa
import pytest

from harness.runs.experiment import Experiment
from harness.runs.judge import run_context
from harness.runs.result import RunResult


@pytest.mark.parametrize(
    ("resolved", "evidence", "enabled"),
    [
        (["b1"], {}, ("io_error",)),
        ([], {"hit": "nobody"}, ()),
        ([], {"hit": "nobody", "error": "strace said no"}, ("io_error",)),
    ],
)
def test_a_fault_must_bite_if_it_hit_somebody_or_could_not_be_injected(
    resolved: list[str], evidence: dict[str, str], enabled: tuple[str, ...]
) -> None:
    rows = {
        "fault": pa.array(["io_error"]),
        "resolved": pa.array([resolved], pa.list_(pa.string())),
        "evidence": pa.array([json.dumps(evidence)]),
    }
    result = RunResult(tables={"faults": pa.table(rows)})
    assert run_context(Experiment(), result).enabled_faults == enabled
