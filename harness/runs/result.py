"""What one run left behind, in every environment."""

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from nemesis.fault import Fault


@dataclass(slots=True, kw_only=True)
class RunResult:
    """What one run left behind. Mutable during the run.

    Attributes:
        tables: The history, one Arrow table per name of `harness.history.schema.TABLES`.
        schedule: The faults as planned, and `resolved` the nodes that each affected.
        final_phase_complete: Whether everything was healed, appended to and read to its end in time.
        stuck: Why a phase did not end; empty when all did.
        stopped_early: What the live watch saw, so that the main phase was ended; empty when it was not.
        trace_hash: Of the whole run, the contents of messages and the tables included; empty where time is real.
        elapsed_ms: How long it lasted, in the run's own time.
        counters: What was counted: messages, callbacks and events of a simulation, operations elsewhere.
        drawn: What the seed drew from the experiment's space, by key; empty without a space.
        weather: Of a simulation.
        message_orders: Of a simulation: every mark with the class name of the message that had arrived last at its
            node.
        rule_decisions: Of a simulation that records them: the decisions of protocol rules
            (`harness.environments.simulated.rule_decisions`).
        environment: What a real environment reports about itself: how faults are done there, kernels of its hosts.
    """

    tables: dict[str, pa.Table] = field(default_factory=dict)
    schedule: tuple[Fault, ...] = ()
    resolved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    final_phase_complete: bool = False
    stuck: str = ""
    stopped_early: str = ""
    trace_hash: str = ""
    elapsed_ms: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    drawn: dict[str, Any] = field(default_factory=dict)
    weather: dict[str, Any] = field(default_factory=dict)
    message_orders: tuple[tuple[str, str], ...] = ()
    rule_decisions: tuple[str, ...] = ()
    environment: dict[str, Any] = field(default_factory=dict)

    @property
    def violations(self) -> list[str]:
        """Invariants that did not hold, and crashes of nodes, one sentence each; from the recorded table."""
        if "violations" not in self.tables:
            return []
        sentences: list[str] = self.tables["violations"].column("sentence").to_pylist()
        return sentences
