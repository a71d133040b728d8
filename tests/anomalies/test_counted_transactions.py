"""Which recorded transactions, positions and reads count, and which losses faults may explain."""

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from harness.contracts.verdict import Judgement, Validity
from harness.history.schema import TABLES
from tests.anomalies.recorded_anomalies import judgements, processed
from tests.anomalies.recorded_transactions import CONTEXT, A, B, Events, producer, valid_run


def test_without_a_commit_nothing_was_tested() -> None:
    events = Events()
    one = producer(events, 1)
    events.send(one, 0, A, 0)
    events.abort(one)
    events.closing()
    verdict = events.verdict()
    assert verdict.validity is Validity.UNKNOWN
    assert "no transaction committed in the whole run" in verdict.reasons


def test_what_an_incomplete_final_phase_did_not_read_is_not_lost() -> None:
    events = Events()
    one = producer(events, 1)
    first = events.send(one, 0, A, 0)
    events.send(one, 1, B, 0)
    events.commit(one)
    events.read(99, A, (0, first), final=True)
    verdict = events.verdict(replace(CONTEXT, final_phase_complete=False))
    assert verdict.validity is Validity.UNKNOWN
    assert not verdict.anomalies


def test_a_read_with_read_uncommitted_is_never_a_closing_read() -> None:
    events = Events()
    one = producer(events, 1)
    events.send(one, 0, A, 0)
    events.commit(one)
    events.read(99, A, isolation="read_uncommitted", final=True)
    verdict = events.verdict()
    assert verdict.validity is Validity.UNKNOWN
    assert "lost-acked-write" not in judgements(verdict)


def test_positions_count_if_their_transaction_committed() -> None:
    events = valid_run()
    coverage = events.verdict().coverage
    number = events.begin(3, transactional_id="processor", group="g", isolation="read_committed")
    events.note(number, "offset", A, number=0, offset=6)
    events.abort(number)
    assert coverage["positions_committed"] == 2
    assert events.verdict().coverage["positions_committed"] == 2


def test_an_unclean_election_makes_a_loss_undecided() -> None:
    state = dict.fromkeys(TABLES["partition_states"].names, 0)
    lists = {name: [1] for name in ("isr", "elr", "last_known_elr", "replicas")}
    row = {**state, **lists, "topic": "t", "flagged": True}
    states = pa.Table.from_pylist([row], schema=TABLES["partition_states"])
    events = Events()
    kept, one = producer(events, 2, "q"), producer(events, 1)
    value = events.send(kept, 0, B, 0)
    events.send(one, 0, A, 0)
    events.commit(kept)
    events.commit(one)
    events.closing(b=[(0, value)])
    assert judgements(events.verdict())["lost-acked-write"] is Judgement.FORBIDDEN
    verdict = events.verdict(partition_states=states)
    assert judgements(verdict)["lost-acked-write"] is Judgement.UNDECIDED
    assert verdict.validity is Validity.UNKNOWN


@pytest.mark.parametrize(
    ("min_isr", "loses", "judgement"),
    [
        (1, True, Judgement.UNDECIDED),
        (2, True, Judgement.FORBIDDEN),
        (1, False, Judgement.FORBIDDEN),
    ],
)
def test_a_destroyed_disk_makes_a_repetition_undecided_if_one_replica_may_commit_alone(
    min_isr: int, loses: bool, judgement: Judgement
) -> None:
    state = dict.fromkeys(TABLES["partition_states"].names, 0)
    lists = {name: [1] for name in ("isr", "elr", "last_known_elr", "replicas")}
    lists["replicas"] = [1, 2]
    state |= {**lists, "topic": "__consumer_offsets", "flagged": False, "min_isr": min_isr}
    states = pa.Table.from_pylist([state], schema=TABLES["partition_states"])
    fault = power_fault(0) | {"can_lose_data": loses}
    faults = pa.Table.from_pylist([fault], schema=TABLES["faults"])
    verdict = processed((0, 0), partition_states=states, faults=faults)
    assert judgements(verdict)["input-processed-twice"] is judgement


@pytest.mark.parametrize(
    ("changes", "judgement"),
    [
        ({"final_phase_complete": False}, Judgement.UNDECIDED),
        ({"final_phase_complete": False, "ended_ns": 10**12}, Judgement.FORBIDDEN),
        ({}, Judgement.FORBIDDEN),
    ],
)
def test_a_record_that_ends_early_may_lack_an_unclean_election(
    changes: dict[str, Any], judgement: Judgement
) -> None:
    state = dict.fromkeys(TABLES["partition_states"].names, 0)
    lists = {name: [1, 2] for name in ("isr", "elr", "last_known_elr", "replicas")}
    state |= {**lists, "topic": "t", "flagged": False, "min_isr": 2}
    states = pa.Table.from_pylist([state], schema=TABLES["partition_states"])
    verdict = processed((0, 0), replace(CONTEXT, **changes), partition_states=states)
    assert judgements(verdict)["input-processed-twice"] is judgement


@pytest.mark.parametrize(
    ("outcome", "shows_output", "anomaly"),
    [
        ("unknown", False, "input-skipped"),
        ("unknown", True, None),
        ("aborted", False, "input-skipped"),
        ("committed", False, "lost-acked-write"),
        ("committed", True, None),
    ],
)
def test_a_position_commits_with_the_outputs_or_not_at_all(
    outcome: str, shows_output: bool, anomaly: str | None
) -> None:
    """The first transaction of the group consumed record 0; the second one begins after it."""
    events = Events()
    source = producer(events, 1)
    values = [events.send(source, number, A, number) for number in range(3)]
    events.commit(source)
    options = {"transactional_id": "processor", "group": "g", "isolation": "read_committed"}
    events.initialised(3, "processor")
    first = events.begin(3, **options)
    events.poll(first, 0, A, [(0, values[0])])
    output = events.send(first, 1, B, 0)
    events.note(first, "offset", A, number=2, offset=1)
    events.note(first, "abort-asked" if outcome == "aborted" else "commit-asked")
    events.note(first, outcome)
    events.initialised(4, "processor")
    second = events.begin(4, **options)
    events.poll(second, 0, A, [(1, values[1]), (2, values[2])])
    other = events.send(second, 1, B, 2)
    events.note(second, "offset", A, number=2, offset=3)
    events.commit(second)
    outputs = [(0, output)] if shows_output else []
    events.closing(a=list(enumerate(values)), b=[*outputs, (2, other)])
    found = judgements(events.verdict())
    forbidden = {name for name, each in found.items() if each is Judgement.FORBIDDEN}
    assert forbidden == ({anomaly} if anomaly else set())


@pytest.mark.parametrize("end", ["aborted", "unknown"])
@pytest.mark.parametrize(("offset", "is_valid"), [(0, False), (1, True)])
def test_the_record_of_a_transaction_without_effect_keeps_its_offset(
    end: str, offset: int, is_valid: bool
) -> None:
    events = Events()
    first = producer(events, 1)
    events.send(first, 0, A, 0)
    events.note(first, "abort-asked" if end == "aborted" else "commit-asked")
    events.note(first, end)
    second = producer(events, 2, "q")
    value = events.send(second, 0, A, offset)
    events.commit(second)
    events.closing(a=[(offset, value)])
    assert set(judgements(events.verdict())) == (set() if is_valid else {"divergent-value"})


def test_what_is_visible_of_an_aborted_transaction_counts_if_nothing_committed() -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.abort(one)
    assert events.verdict().validity is Validity.UNKNOWN
    events.read(7, A, (0, value))
    verdict = events.verdict()
    assert verdict.validity is Validity.INVALID
    assert judgements(verdict) == {"G1a": Judgement.FORBIDDEN}


@pytest.mark.parametrize(("start", "validity"), [(0, Validity.INVALID), (2, Validity.UNKNOWN)])
def test_a_record_may_have_been_removed_from_the_start_of_its_log(
    start: int, validity: Validity
) -> None:
    events = Events()
    old, new = producer(events, 1), producer(events, 2, "q")
    events.send(old, 0, A, 0)
    events.commit(old)
    value = events.send(new, 0, A, 2)
    events.commit(new)
    events.closing(a=[(2, value)])
    assert events.verdict(replace(CONTEXT, log_start_offset=start)).validity is validity


def test_the_cleaner_may_have_removed_what_is_missing_in_a_compacted_topic() -> None:
    """Of three records of a transaction the second one is gone; keys are not recorded."""
    events = Events()
    one = producer(events, 1)
    values = [events.send(one, index, A, index) for index in range(3)]
    events.commit(one)
    left = [(0, values[0]), (2, values[2])]
    events.read(7, A, *left)
    events.closing(a=left)
    assert events.verdict().validity is Validity.INVALID
    verdict = events.verdict(replace(CONTEXT, compacted=True))
    assert verdict.validity is Validity.UNKNOWN
    assert set(judgements(verdict).values()) == {Judgement.UNDECIDED}
    assert "which records the cleaner removed" in str(verdict.reasons)


def power_fault(at_ns: int) -> dict[str, Any]:
    """A fault that took effect at a moment, and was healed ten seconds after the start."""
    lists = {name: ["b1"] for name in ("targets", "resolved", "cut_short")}
    fault: dict[str, Any] = {name: False for name in TABLES["faults"].names} | lists
    fault |= {"allows_unclean": [], "reconfigures": [], "fault_id": "f", "fault": "power"}
    fault |= {"params": "{}", "evidence": "{}", "took_effect": True, "elects_uncleanly": []}
    return fault | {"invoked_ns": at_ns, "completed_ns": at_ns, "healed_ns": 10**10}


def test_commits_during_faults_count() -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    events.closing(a=[(0, value)])
    during = pa.Table.from_pylist([power_fault(0)], schema=TABLES["faults"])
    assert events.verdict(faults=during).validity is Validity.VALID
    after = pa.Table.from_pylist([power_fault(10**9)], schema=TABLES["faults"])
    assert events.verdict(faults=after).validity is Validity.UNKNOWN
