"""Verdicts on runs of the broker are compared with what is left on the disks of the last leaders."""

from dataclasses import replace

import pytest

from harness.contracts.verdict import Anomaly, Judgement, Validity, Verdict
from harness.history.writer import HistoryWriter
from harness.runs.simulated import SimulatedRun
from tests.evidence.broker_runs import STUCK_BELOW_MIN_ISR, compare, judged_run
from tests.evidence.kept_records import missing_records
from tests.evidence.kinds import (
    CLUSTER_CHANGES,
    KINDS,
    SECONDS,
    SECONDS_WITHOUT_ELR,
    TRANSACTIONS,
)
from tests.parts import parts

VALID = Verdict(validity=Validity.VALID)
INVALID = Verdict(validity=Validity.INVALID, unexcused_lost_records=2)
UNDECIDED = Anomaly(
    id="lost-acked-write",
    level="durability",
    topic="t",
    partition=0,
    count=1,
    judgement=Judgement.UNDECIDED,
    rule="",
    sentence="",
)
UNKNOWN = Verdict(validity=Validity.UNKNOWN, reasons=("why",))
SEED_WITH_A_LOSS = 19
"""Of `examples/cluster-changes.toml` with kafka-4.0."""


@pytest.mark.parametrize(
    ("verdict", "missing", "may_lose", "wrong", "reason"),
    [
        (VALID, 0, False, "", ""),
        (VALID, None, False, "", ""),
        (VALID, 1, False, "0 lost records, but 1 are missing", ""),
        (replace(VALID, excused_lost_records=1), 1, False, "", ""),
        (INVALID, 2, True, "", "invalid without ELR"),
        (INVALID, 2, False, "invalid: []", ""),
        # What the log end had shown, or a read of acks=1, is lost without ELR, too.
        (replace(INVALID, unexcused_lost_records=0), 0, True, "", "invalid without ELR"),
        (INVALID, 3, True, "2 lost records, but 3 are missing", ""),
        (replace(INVALID, anomalies=(UNDECIDED,)), 3, True, "", "invalid without ELR"),
        (UNKNOWN, 1, False, "", "why"),
    ],
)
def test_a_verdict_is_wrong_if_the_disks_contradict_it(
    verdict: Verdict, missing: int | None, may_lose: bool, wrong: str, reason: str
) -> None:
    found = compare(verdict, missing, may_lose=may_lose)
    assert [bool(one) for one in found] == [bool(wrong), bool(reason)]
    assert wrong in found[0]
    assert reason in found[1]


def test_records_that_a_last_leader_does_not_have_are_missing() -> None:
    lost = _run("kafka-4.0", SEED_WITH_A_LOSS)
    assert missing_records(lost)
    assert missing_records(_run("kafka-4.1", 0)) == 0
    for node in lost.world.nodes.values():
        node.disk.wipe()
    acknowledged = [
        row
        for row in lost.result.tables["operations"].to_pylist()
        if (row["kind"], row["outcome"], row["acks"]) == ("append", "ok", -1)
    ]
    assert missing_records(lost) == len(acknowledged)


def _run(profile: str, seed: int) -> SimulatedRun:
    run = SimulatedRun(CLUSTER_CHANGES.experiment(profile), seed, HistoryWriter(None))
    run.run()
    return run


@pytest.mark.parametrize("first", parts([0, 4], quick=1))
@pytest.mark.parametrize("kind", ["cluster-changes", "seconds"])
def test_a_few_runs_are_right(kind: str, first: int) -> None:
    assert KINDS[kind].judge(first, 4).wrong == []


def test_every_seed_runs_with_every_profile() -> None:
    assert SECONDS.experiment("kafka-4.0").duration_ms == 1_000
    assert SECONDS.experiment("kafka-4.1").profile == "kafka-4.1"
    assert "power" in TRANSACTIONS.experiment("kafka-4.1").nemesis.faults


@pytest.mark.parametrize(
    ("profile", "reason"), [("kafka-3.6", STUCK_BELOW_MIN_ISR), ("kafka-3.9", "")]
)
def test_a_release_that_asks_for_more_replicas_than_are_left_is_stuck(
    profile: str, reason: str
) -> None:
    planned = SECONDS_WITHOUT_ELR.experiment(profile)
    assert judged_run(planned, 91) == ("", reason)
