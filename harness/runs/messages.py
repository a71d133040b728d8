"""The messages of a stored simulated run around a moment: the run is repeated and watched."""

from pathlib import Path
from typing import Any

from harness.environments.simulated.messages import MessageRecorder
from harness.errors import HarnessFailure, UsageError
from harness.history.writer import HistoryWriter
from harness.runs.replay import load_replay
from harness.runs.simulated import SimulatedRun


def record_messages(directory: Path, begin_ns: int, end_ns: int) -> list[dict[str, Any]]:
    """Repeats a stored run, and returns the messages that matter of a part of it, in the order of sending.

    Raises:
        HistoryError: The run cannot be replayed.
        UsageError: The run is not one of the simulation.
        HarnessFailure: The repeated run is not the same run.
    """
    experiment, seed, stored = load_replay(directory)
    if not experiment.environment.is_simulated:
        raise UsageError(
            f"only a simulated run can be repeated to see its messages, and {directory} ran on "
            f"{experiment.on!r}; its report shows what its nodes recorded, so leave --messages out"
        )
    run = SimulatedRun(experiment, seed, HistoryWriter(None))
    recorder = MessageRecorder(begin_ns, end_ns)
    run.world.watcher = recorder
    result = run.run()
    if result.trace_hash != stored["trace_hash"]:
        raise HarnessFailure(
            f"the repeated run has the trace hash {result.trace_hash}, not {stored['trace_hash']}; "
            f"`laststand replay` states the cause"
        )
    return recorder.rows()
