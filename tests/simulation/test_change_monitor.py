"""What is wrong for a moment only: found at the change, and not by comparing replicas now and then."""

from dataclasses import replace
from pathlib import Path

import pytest

import harness.experiments
from harness.environments.simulated.cluster import SimulatedCluster
from harness.history.writer import HistoryWriter
from harness.runs import experiment_file as experiments
from harness.runs.experiment import Experiment
from harness.runs.resolved import resolve
from harness.runs.result import RunResult
from harness.runs.simulated import SimulatedRun, simulate
from system_under_test.broker.leadership import Leadership
from system_under_test.log.log import Log

EXPERIMENT = Path(harness.experiments.__path__[0]) / "search.toml"
SEED = 12
"""With this seed a wrong high watermark is right again before the next comparison of all replicas."""


def experiment() -> Experiment:
    found = experiments.load(EXPERIMENT)
    space = {key: draws for key, draws in found.space.items() if key != "profile"}
    found = replace(found, profile="kafka-4.1", duration_ms=1000, space=space)
    return resolve(found, SEED)[0]


def run() -> RunResult:
    return simulate(experiment(), SEED)


@pytest.fixture
def too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the high watermark follow the fastest follower, so that the slower ones lack records for a moment."""
    real = Leadership._committed_end

    def early(self: Leadership, log: Log, enough: int | None) -> int:
        fetched = [follower.log_end_offset for follower in self.followers.values()]
        end = real(self, log, enough)
        return max([end, *(offset for offset in fetched if offset <= log.log_end_offset)])

    monkeypatch.setattr(Leadership, "_committed_end", early)


def without_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedCluster, "watch_changes", lambda *_: None)


@pytest.mark.usefixtures("too_early")
def test_a_high_watermark_that_is_wrong_between_two_comparisons_is_found_when_it_moves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (found,) = run().violations
    assert "INV-2: every member of ISR and ELR has all committed records" in found
    without_changes(monkeypatch)
    assert run().violations == []


def test_a_correct_system_breaks_nothing_and_is_not_disturbed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    watched = SimulatedRun(experiment(), SEED, HistoryWriter(None))
    result = watched.run()
    assert result.violations == []
    assert watched.monitor.changes.change_count > 100
    without_changes(monkeypatch)
    assert run().trace_hash == result.trace_hash
