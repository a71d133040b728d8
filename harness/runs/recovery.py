"""How long a run took to recover after everything was healed, compared with the same seed without faults."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from harness.contracts.run_context import context_from_facts
from harness.runs.code_version import code_version
from harness.runs.experiment import NemesisConfig
from harness.runs.replay import load_replay
from harness.runs.simulated import simulate

MS = 1_000_000
LATE = frozenset({"stuck", "slow-recovery"})
"""Anomalies of a run that recovered too late or not at all."""


def recovery_ms(tables: Mapping[str, pa.Table]) -> float | None:
    """Returns the time from healing everything to the end of the final phase.

    Returns:
        None if the final phase did not end as planned, or if it is not known when everything was healed.
    """
    context = context_from_facts(tables["run_facts"])
    if context is None or not context.final_phase_complete:
        return None
    if context.healed_ns is None or context.ended_ns is None:
        return None
    return (context.ended_ns - context.healed_ns) / MS


def compared_recovery(directory: Path, tables: Mapping[str, pa.Table]) -> str:
    """Returns one sentence that compares the recovery of a stored run with that of its seed without faults.

    Args:
        directory: The run.
        tables: Its table `run_facts`.

    Returns:
        "" if the seed cannot be run without faults: the run is of another environment, another version of the
        code, or a scenario.

    Raises:
        HistoryError: The run cannot be replayed.
    """
    experiment, seed, data = load_replay(directory)
    if not experiment.environment.is_simulated or experiment.scenario:
        return ""
    if data["code"] != code_version():
        return ""
    calm = simulate(replace(experiment, nemesis=NemesisConfig(), schedule=()), seed)
    return (
        f"after everything was healed, the final phase {_words(recovery_ms(tables))}; with the same seed and no"
        f" faults it {_words(recovery_ms(calm.tables))}"
    )


def _words(took_ms: float | None) -> str:
    return "did not end as planned" if took_ms is None else f"took {took_ms:.0f} ms"
