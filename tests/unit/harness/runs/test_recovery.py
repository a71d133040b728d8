"""How long a run took to recover, next to the same seed without faults."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from harness.contracts.run_context import RunContext, context_to_row
from harness.history.writer import HistoryWriter
from harness.runs import recovery
from harness.runs.code_version import code_version
from harness.runs.experiment import Experiment, NemesisConfig
from harness.runs.recovery import compared_recovery, recovery_ms
from harness.runs.result import RunResult

ENDED = RunContext(healed_ns=2_000_000, ended_ns=57_000_000)
BROKEN = Experiment(nemesis=NemesisConfig(faults=("power", "cut")))


def tables(context: RunContext) -> dict[str, pa.Table]:
    writer = HistoryWriter(None)
    writer.add("run_facts", context_to_row(context))
    return writer.close()


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, 55.0),
        ({"final_phase_complete": False}, None),
        ({"healed_ns": None}, None),
        ({"ended_ns": None}, None),
    ],
)
def test_the_recovery_is_the_time_from_healing_to_the_end(
    changes: dict[str, Any], expected: float | None
) -> None:
    assert recovery_ms(tables(replace(ENDED, **changes))) == expected


def test_a_run_is_compared_with_its_seed_without_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[Experiment, int]] = []

    def simulate(experiment: Experiment, seed: int) -> RunResult:
        ran.append((experiment, seed))
        return RunResult(tables=tables(ENDED))

    def stored(experiment: Experiment, code: str) -> None:
        found = (experiment, 7, {"code": code})
        monkeypatch.setattr(recovery, "load_replay", lambda _: found)

    monkeypatch.setattr(recovery, "simulate", simulate)
    own = tables(replace(ENDED, final_phase_complete=False))
    stored(BROKEN, code_version())
    sentence = compared_recovery(Path(), own)
    assert sentence.endswith(
        "did not end as planned; with the same seed and no faults it took 55 ms"
    )
    assert ran == [(replace(BROKEN, nemesis=NemesisConfig()), 7)]
    stored(BROKEN, "another")
    assert compared_recovery(Path(), own) == ""
    stored(replace(BROKEN, on="local"), code_version())
    assert compared_recovery(Path(), own) == ""
    assert len(ran) == 1
