"""A watched run ends its main phase when clients have seen what no log does, and is judged like any other."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

from checkers.kernels.live_watch import LiveWatch
from harness.errors import UsageError
from harness.runs import experiment_file as experiments
from harness.runs.judge import judge_result
from harness.runs.simulated import simulate

EXAMPLES = Path(__file__).parents[2] / "examples"
CUTS = experiments.load(EXAMPLES / "power-cuts.toml", profile="kafka-4.0")
WATCHED = replace(CUTS, stop_on_violation=True)
SHORT = experiments.load(EXAMPLES / "short-power-cuts.toml", profile="kafka-4.0")


def test_a_watched_run_stops_early_heals_and_is_invalid() -> None:
    """Seeds 10 to 12 lose records at the time of writing; a change of the broker may move them, not all."""
    stopped = []
    for seed in range(10, 13):
        result = simulate(WATCHED, seed)
        verdict, summary = judge_result(WATCHED, seed, result)
        if not result.stopped_early:
            continue
        stopped.append(seed)
        assert summary["stopped_early"].startswith("t-0: op ")
        assert result.final_phase_complete
        assert verdict.validity == "invalid"
        faults = {row["fault_id"]: row for row in result.tables["faults"].to_pylist()}
        assert all(row["completed_ns"] is not None for row in faults.values())
        assert result.elapsed_ms < simulate(CUTS, seed).elapsed_ms
    assert stopped


def test_a_run_that_was_stopped_without_an_anomaly_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watch knows no elections, so what it sees may be excused; the faults that are left were not injected."""
    complete = LiveWatch.complete

    def find_at_once(watch: LiveWatch, op: int, *more: Any) -> None:
        complete(watch, op, *more)
        watch.finding = "t-0: op 2 is early"

    monkeypatch.setattr(LiveWatch, "complete", find_at_once)
    result = simulate(WATCHED, 1)
    verdict, _ = judge_result(WATCHED, 1, result)
    assert result.final_phase_complete
    assert verdict.validity == "unknown"
    assert "the run ended early: the watch saw a violation (t-0: op 2 is early)" in verdict.reasons


def test_a_watch_that_sees_nothing_changes_nothing() -> None:
    """Each timer of a simulated process draws how late it is, so the watch must not set any."""
    unstopped = []
    for seed in (1, 2):
        watched = simulate(replace(SHORT, stop_on_violation=True), seed)
        if not watched.stopped_early:
            unstopped.append(seed)
            assert watched.trace_hash == simulate(SHORT, seed).trace_hash
    assert unstopped


def test_what_the_watch_sees_after_the_main_phase_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    unwatched = simulate(SHORT, 1)
    final = unwatched.tables["operations"].filter(pc.field("final"))
    final_ns = pc.min(final["invoked_ns"]).as_py()
    seen = []
    invoke = LiveWatch.invoke

    def find_in_final(watch: LiveWatch, op: int, **more: Any) -> None:
        invoke(watch, op, **more)
        if more["invoked_ns"] >= final_ns:
            watch._find(watch._open[op], "op 2 is early")
            seen.append(watch.finding)

    monkeypatch.setattr(LiveWatch, "invoke", find_in_final)
    watched = simulate(replace(SHORT, stop_on_violation=True), 1)
    assert seen
    assert watched.stopped_early == ""
    assert watched.trace_hash == unwatched.trace_hash


def test_the_same_seed_stops_at_the_same_moment() -> None:
    first, second = simulate(WATCHED, 10), simulate(WATCHED, 10)
    assert first.trace_hash == second.trace_hash
    assert first.stopped_early == second.stopped_early


def test_what_the_watch_cannot_see_is_refused() -> None:
    with pytest.raises(UsageError, match="the workload 'transactions' records none"):
        replace(
            experiments.load(EXAMPLES / "transactions.toml"),
            stop_on_violation=True,
        )
    with pytest.raises(UsageError, match="the cleaner of a compacted topic removed"):
        replace(experiments.load(EXAMPLES / "compacted.toml"), stop_on_violation=True)
