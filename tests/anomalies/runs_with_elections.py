"""Runs whose elections may excuse a loss: their options and verdicts, and two committed records."""

from typing import Any

from checkers.kernels.compose import judge_run
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement, Verdict
from tests.anomalies.runs import Call, append, heard, leads, run

CONTEXT = RunContext(elr_on=False, unclean_election_enabled=True)
FORBIDDEN, EXCUSED, UNDECIDED = Judgement.FORBIDDEN, Judgement.EXCUSED, Judgement.UNDECIDED


def judged(
    calls: list[Call],
    states: list[dict[str, Any]],
    *,
    replicas: list[dict[str, Any]] | None = None,
    **more: Any,
) -> Verdict:
    rows = heard(replicas or [], states)
    return judge_run(run(calls, states=states, replicas=rows, **more), CONTEXT)


def judgements(verdict: Verdict, identifier: str) -> dict[Judgement, int]:
    """Returns how many instances of an anomaly have each judgement."""
    return {a.judgement: a.count for a in verdict.anomalies if a.id == identifier}


FIRST_TWO = [append(0, 0, at=1), append(1, 1, at=3)]
LEADER_OF_TWO = [
    leads(1, 1, 1, hw=0, epoch=0, cause="append"),
    leads(3, 1, 2, hw=1, epoch=0, cause="append"),
    leads(4, 1, 2, hw=2, epoch=0, cause="high-watermark"),
]
"""Broker 1 writes and commits ops 0 and 1."""
