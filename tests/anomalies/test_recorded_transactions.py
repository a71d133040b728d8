"""Runs of the workload `transactions`: the smallest table with each anomaly, and a near miss that is valid."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.history import OFFSET_MAX
from checkers.kernels.transactions import checker
from harness.contracts.verdict import Judgement, Validity, Verdict
from harness.errors import HistoryError
from harness.history.schema import TABLES
from tests.anomalies.recorded_transactions import CONTEXT, A, B, Events, producer, valid_run


def judgements(verdict: Verdict) -> dict[str, Judgement]:
    return {one.id: one.judgement for one in verdict.anomalies}


def read_of_transaction(is_aborted: bool, isolation: str = "read_committed") -> Verdict:
    """A reader receives a record of a transaction."""
    events = Events()
    one = producer(events, 1)
    other = producer(events, 2, "q")
    value = events.send(one, 0, A, 0)
    kept = events.send(other, 0, B, 0)
    if is_aborted:
        events.abort(one)
    else:
        events.commit(one)
    events.commit(other)
    events.read(7, A, (0, value), isolation=isolation)
    events.closing(a=[] if is_aborted else [(0, value)], b=[(0, kept)])
    return events.verdict()


def early_read(is_early: bool, isolation: str = "read_committed") -> Verdict:
    """A reader receives a record before its commit is requested, or afterwards."""
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    if is_early:
        events.read(7, A, (0, value), isolation=isolation)
    events.commit(one)
    if not is_early:
        events.read(7, A, (0, value), isolation=isolation)
    events.closing(a=[(0, value)])
    return events.verdict()


def halves(is_torn: bool) -> Verdict:
    """The closing reads return one or both records of a transaction."""
    events = Events()
    one = producer(events, 1)
    first, second = events.send(one, 0, A, 0), events.send(one, 1, B, 0)
    events.commit(one)
    events.closing(a=[(0, first)], b=[] if is_torn else [(0, second)])
    return events.verdict()


def gone(is_lost: bool) -> Verdict:
    """The closing reads return nothing of a transaction that committed, or whose end is unknown."""
    events = Events()
    kept = producer(events, 2, "q")
    value = events.send(kept, 0, B, 0)
    events.commit(kept)
    one = producer(events, 1)
    events.send(one, 0, A, 0)
    events.note(one, "commit-asked")
    events.note(one, "committed" if is_lost else "unknown")
    events.closing(b=[(0, value)])
    return events.verdict()


def processed(positions: tuple[int, int], **tables: pa.Table) -> Verdict:
    """Two transactions of a group consume one record of two each; the second one begins where it is given."""
    events = Events()
    one = producer(events, 1)
    first, second = events.send(one, 0, A, 0), events.send(one, 1, A, 1)
    events.commit(one)
    outputs = []
    for process, position in enumerate(positions, 2):
        events.initialised(process, "processor")
        number = events.begin(
            process, transactional_id="processor", group="g", isolation="read_committed"
        )
        events.poll(number, 0, A, [(position, (first, second)[position])])
        outputs.append((len(outputs), events.send(number, 1, B, len(outputs))))
        events.note(number, "offset", A, number=2, offset=position + 1)
        events.commit(number)
    events.closing(a=[(0, first), (1, second)], b=outputs)
    return events.verdict(**tables)


def skipped(is_skipped: bool) -> Verdict:
    """A transaction commits a position beyond a record that it did, or did not, consume."""
    events = Events()
    one = producer(events, 1)
    first, second = events.send(one, 0, A, 0), events.send(one, 1, A, 1)
    third = events.send(one, 2, A, 2)
    events.commit(one)
    events.initialised(2, "processor")
    number = events.begin(2, transactional_id="processor", group="g", isolation="read_committed")
    events.poll(number, 0, A, [(0, first), (1, second)] if not is_skipped else [(0, first)])
    output = events.send(number, 1, B, 0)
    events.note(number, "offset", A, number=2, offset=2)
    events.commit(number)
    events.closing(a=[(0, first), (1, second), (2, third)], b=[(0, output)])
    return events.verdict()


def committed_elsewhere(events: Events, number: int) -> int:
    """Returns a record in B that another producer has committed, so that the run tests something."""
    kept = producer(events, number, "q")
    known = events.send(kept, 0, B, 0)
    events.commit(kept)
    return known


def zombie(is_after: bool) -> Verdict:
    """Another producer takes the id over before the commit is requested, or afterwards."""
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    if is_after:
        events.initialised(2, "p")
    events.commit(one)
    if not is_after:
        events.initialised(2, "p")
    events.closing(a=[(0, value)])
    return events.verdict()


def unanswered(
    is_after: bool,
    *,
    is_seen: bool = True,
    isolation: str = "read_committed",
    has_end: bool = True,
) -> Verdict:
    """As `zombie`, but the response to the commit is lost, and a reader receives the record or does not."""
    events = Events()
    known = committed_elsewhere(events, 3)
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    if is_after:
        events.initialised(2, "p")
    events.note(one, "commit-asked")
    if not is_after:
        events.initialised(2, "p")
    if has_end:
        events.note(one, "unknown")
    if is_seen and isolation == "read_uncommitted":
        events.read(7, A, (0, value), isolation=isolation)
    is_closing = is_seen and isolation == "read_committed"
    events.closing(a=[(0, value)] if is_closing else [], b=[(0, known)])
    return events.verdict()


def circle(is_circle: bool) -> Verdict:
    """Two transactions each consume a record of the other one, or only one does."""
    events = Events()
    numbers = []
    for process in (1, 2):
        identifier = f"processor-{process}"
        events.initialised(process, identifier)
        numbers.append(
            events.begin(
                process, transactional_id=identifier, group="g", isolation="read_committed"
            )
        )
    one, other = numbers
    first, second = events.send(one, 5, A, 0), events.send(other, 5, B, 0)
    # The requests to commit are open meanwhile, so neither poll alone is too early.
    events.note(one, "commit-asked")
    events.note(other, "commit-asked")
    if is_circle:
        events.poll(one, 0, B, [(0, second)])
    events.poll(other, 0, A, [(0, first)])
    events.note(one, "committed")
    events.note(other, "committed")
    events.closing(a=[(0, first)], b=[(0, second)])
    return events.verdict()


CASES: dict[str, tuple[Callable[[Any], Verdict], Any, Any]] = {
    "G1a": (read_of_transaction, True, False),
    "precommitted-read": (early_read, True, False),
    "torn-transaction": (halves, True, False),
    "lost-acked-write": (gone, True, False),
    "input-processed-twice": (processed, (0, 0), (0, 1)),
    "input-skipped": (skipped, True, False),
    "zombie-commit": (zombie, True, False),
    "circular-reads": (circle, True, False),
}


@pytest.mark.parametrize("identifier", CASES)
def test_the_smallest_table_has_the_anomaly_and_the_near_miss_is_valid(identifier: str) -> None:
    make, smallest, near_miss = CASES[identifier]
    found = make(smallest)
    assert judgements(found).get(identifier) is Judgement.FORBIDDEN, found.reasons
    assert found.validity is Validity.INVALID
    missed = make(near_miss)
    assert missed.validity is Validity.VALID, missed.reasons


@pytest.mark.parametrize(("has_end", "end"), [(True, "0.012 s"), (False, "...")])
def test_a_commit_of_a_zombie_may_have_no_response(has_end: bool, end: str) -> None:
    verdict = unanswered(True, has_end=has_end)
    assert judgements(verdict) == {"zombie-commit": Judgement.FORBIDDEN}
    (anomaly,) = verdict.anomalies
    assert anomaly.sentence.endswith("which reads committed records, received 8 at offset 0 of t-0")
    assert anomaly.witnesses[0].text.endswith(f"-> unknown [0.007 s, {end}]")


@pytest.mark.parametrize(
    "verdict",
    [
        # The coordinator may have committed before the other producer came, and the response was lost.
        partial(unanswered, False),
        partial(unanswered, True, is_seen=False),
        # Consumers with read_uncommitted receive records of aborted transactions as well.
        partial(unanswered, True, isolation="read_uncommitted"),
    ],
)
def test_a_commit_without_a_response_may_have_been_refused_or_in_time(
    verdict: Callable[[], Verdict],
) -> None:
    found = verdict()
    assert found.validity is Validity.VALID, found.reasons
    assert "zombie-commit" not in judgements(found)


def test_a_record_that_was_received_too_early_shows_no_commit_of_a_zombie() -> None:
    events = Events()
    known = committed_elsewhere(events, 3)
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.initialised(2, "p")
    events.read(7, A, (0, value))
    events.note(one, "commit-asked")
    events.note(one, "unknown")
    events.closing(b=[(0, known)])
    assert "precommitted-read" in judgements(events.verdict())
    assert "zombie-commit" not in judgements(events.verdict())


@pytest.mark.parametrize(("is_aborted", "found"), [(None, False), (True, True)])
def test_a_group_skips_nothing_before_the_first_record_that_it_consumed(
    is_aborted: bool | None, found: bool
) -> None:
    """The group begins at the second record; or at the first one, in a transaction that aborts."""
    events = Events()
    one = producer(events, 1)
    first, second = events.send(one, 0, A, 0), events.send(one, 1, A, 1)
    events.commit(one)
    events.initialised(2, "processor")
    begin = partial(
        events.begin, 2, transactional_id="processor", group="g", isolation="read_committed"
    )
    if is_aborted:
        number = begin()
        events.poll(number, 0, A, [(0, first)])
        events.send(number, 1, B, 0)
        events.note(number, "offset", A, number=2, offset=1)
        events.abort(number)
    number = begin()
    events.poll(number, 0, A, [(1, second)])
    output = events.send(number, 1, B, 2)
    events.note(number, "offset", A, number=2, offset=2)
    events.commit(number)
    events.closing(a=[(0, first), (1, second)], b=[(2, output)])
    assert ("input-skipped" in judgements(events.verdict())) == found


@pytest.mark.parametrize("identifier", CASES)
def test_an_anomaly_names_its_transactions(identifier: str) -> None:
    make, smallest, _ = CASES[identifier]
    (anomaly,) = (one for one in make(smallest).anomalies if one.id == identifier)
    assert anomaly.witnesses
    for witness in anomaly.witnesses:
        assert f"T{witness.op_index}" in anomaly.sentence
        assert f"T{witness.op_index}" in witness.text


def test_read_uncommitted_may_return_records_of_aborted_transactions() -> None:
    verdict = read_of_transaction(True, "read_uncommitted")
    assert judgements(verdict)["G1a"] is Judgement.ALLOWED
    assert verdict.validity is Validity.VALID, verdict.reasons


def test_read_uncommitted_may_return_records_of_open_transactions() -> None:
    verdict = early_read(True, "read_uncommitted")
    assert verdict.validity is Validity.VALID, verdict.reasons
    assert Judgement.FORBIDDEN not in judgements(verdict).values()


@pytest.mark.parametrize("is_early", [True, False])
def test_a_record_is_received_when_the_poll_returned_it_not_when_its_transaction_ends(
    is_early: bool,
) -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    if not is_early:
        events.commit(one)
    events.initialised(2, "processor")
    other = events.begin(2, transactional_id="processor", group="g", isolation="read_committed")
    events.poll(other, 0, A, [(0, value)])
    if is_early:
        events.commit(one)
    output = events.send(other, 1, B, 0)
    events.note(other, "offset", A, number=2, offset=1)
    events.commit(other)
    events.closing(a=[(0, value)], b=[(0, output)])
    verdict = events.verdict()
    assert verdict.validity is (Validity.INVALID if is_early else Validity.VALID)
    assert ("precommitted-read" in judgements(verdict)) == is_early


@pytest.mark.parametrize("events_of_it", [(), ("abort-asked",)])
def test_a_record_whose_commit_was_never_requested_must_not_be_received(
    events_of_it: tuple[str, ...],
) -> None:
    events = Events()
    known = committed_elsewhere(events, 2)
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    for event in events_of_it:
        events.note(one, event)
    events.read(7, A, (0, value))
    events.closing(a=[(0, value)], b=[(0, known)])
    verdict = events.verdict()
    assert judgements(verdict)["precommitted-read"] is Judgement.FORBIDDEN
    (anomaly,) = (a for a in verdict.anomalies if a.id == "precommitted-read")
    assert anomaly.sentence.endswith("never requested its commit")


def test_a_transaction_whose_record_an_aborted_consumer_received_has_committed() -> None:
    events = Events()
    known = committed_elsewhere(events, 2)
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.note(one, "commit-asked")
    events.note(one, "unknown")
    events.initialised(3, "processor")
    other = events.begin(3, transactional_id="processor", group="g", isolation="read_committed")
    events.poll(other, 0, A, [(0, value)])
    events.abort(other)
    events.closing(b=[(0, known)])
    verdict = events.verdict()
    assert judgements(verdict) == {"lost-acked-write": Judgement.FORBIDDEN}


def test_read_uncommitted_must_not_return_what_nobody_sent() -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    events.read(7, B, (5, value), isolation="read_uncommitted")
    events.closing(a=[(0, value)])
    verdict = events.verdict()
    assert judgements(verdict)["phantom-value"] is Judgement.FORBIDDEN
    assert verdict.validity is Validity.INVALID


def test_a_damaged_record_is_what_nobody_sent() -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    read = events.read(7, A, (0, value))
    events.rows[read + 1] |= {"value": -1, "status": "corrupt"}
    events.closing(a=[(0, value)])
    found = {one.id: one.sentence for one in events.verdict().anomalies}
    assert "a corrupt record at offset 0 of t-0" in found["phantom-value"]


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
    state |= {**lists, "topic": "__consumer_offsets", "flagged": False, "min_isr": min_isr}
    states = pa.Table.from_pylist([state], schema=TABLES["partition_states"])
    fault = power_fault(0) | {"can_lose_data": loses}
    faults = pa.Table.from_pylist([fault], schema=TABLES["faults"])
    verdict = processed((0, 0), partition_states=states, faults=faults)
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


REFUSED: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "repeated index": (lambda rows: rows[1].update(event_index=0), "event_index 0 is in row 0"),
    "unknown event": (lambda rows: rows[4].update(event="ended"), "event is 'ended'"),
    "unknown isolation": (lambda rows: rows[1].update(isolation="snapshot"), "isolation is"),
    "unknown status": (lambda rows: rows[6].update(status="fine"), "status is 'fine'"),
    "time that goes back": (lambda rows: rows[3].update(at_ns=0), "before that of the event"),
    "event of no transaction": (lambda rows: rows[2].update(transaction=0), "transaction is 0"),
    "event of another process": (lambda rows: rows[2].update(process=8), "of process 8"),
    "takeover in a transaction": (lambda rows: rows[0].update(transaction=1), "transaction is 1"),
    "value of a send": (lambda rows: rows[2].update(value=1), "value is 1"),
    "acknowledgement without a send": (lambda rows: rows[3].update(value=1), "value is 1"),
    "trusted record without a value": (lambda rows: rows[7].update(value=-1), "value is -1"),
    "polled record without an offset": (lambda rows: rows[7].update(offset=None), "offset of poll"),
    "second end": (lambda rows: rows[4].update(event="committed"), "had ended before"),
    "partition -2": (lambda rows: rows[2].update(partition=-2), "partition is -2"),
    "acknowledgement of another partition": (
        lambda rows: rows[3].update(partition=1),
        "sent of value 2 in t-1",
    ),
    "commit that was not asked for": (lambda rows: rows.pop(4), "committed of transaction 1"),
    "commit although the abort was asked for": (
        lambda rows: rows[4].update(event="abort-asked"),
        "committed of transaction 1",
    ),
}


def test_a_send_is_acknowledged_once_and_comes_before_the_request_for_the_end() -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.note(one, "sent", A, number=0, offset=5, value=value)
    events.commit(one)
    with pytest.raises(HistoryError, match=f"row 4: sent of value {value} in t-0"):
        events.verdict()
    events = Events()
    one = producer(events, 1)
    events.note(one, "commit-asked")
    late = events.send(one, 0, A, 0)
    events.note(one, "committed")
    with pytest.raises(HistoryError, match=f"row {late}: send of transaction {one}"):
        events.verdict()


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_no_run_can_have_recorded_is_refused(name: str) -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    events.closing(a=[(0, value)])
    assert events.verdict().validity is Validity.VALID
    change, sentence = REFUSED[name]
    change(events.rows)
    with pytest.raises(HistoryError, match=sentence) as refused:
        events.verdict()
    assert str(refused.value).startswith("transaction_events.parquet, row ")


@pytest.mark.parametrize(
    ("column", "number", "is_legal"),
    [
        ("value", 0, True),
        ("value", -1, False),
        ("offset", OFFSET_MAX, True),
        ("offset", OFFSET_MAX + 1, False),
        ("offset", -OFFSET_MAX, True),
        ("offset", -OFFSET_MAX - 1, False),
        ("offset", -(2**63), False),
    ],
)
def test_a_polled_record_has_a_value_from_0_and_an_offset_within_limits(
    column: str, number: int, is_legal: bool
) -> None:
    events = Events()
    one = producer(events, 1)
    value = events.send(one, 0, A, 0)
    events.commit(one)
    read = events.read(7, A, (0, value))
    events.rows[read + 1][column] = number
    if is_legal:
        events.verdict()
    else:
        with pytest.raises(HistoryError, match=rf"row {read + 1}: {column} .*is {number}"):
            events.verdict()


def test_a_search_for_cycles_that_kafka_allows_may_end_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A processor misses a record that is already there, and its output follows one of that transaction."""
    events = Events()
    old, new = producer(events, 1), producer(events, 2, "q")
    first = events.send(old, 0, A, 0)
    events.commit(old)
    second, output = events.send(new, 0, A, 2), events.send(new, 1, B, 0)
    events.commit(new)
    events.initialised(3, "processor")
    late = events.begin(3, transactional_id="processor", isolation="read_committed")
    events.poll(late, 0, A, [(0, first)])
    last = events.send(late, 1, B, 2)
    events.commit(late)
    events.closing(a=[(0, first), (2, second)], b=[(0, output), (2, last)])
    whole = events.verdict()
    assert (whole.validity, judgements(whole)) == (
        Validity.VALID,
        {"G-single": Judgement.ALLOWED},
    )
    without_search = partial(checker.check_log_transactions, search_steps_max=0)
    monkeypatch.setattr(checker, "check_log_transactions", without_search)
    short = events.verdict()
    assert (short.validity, short.reasons) == (Validity.VALID, ())
    assert judgements(short) == {"G2-item": Judgement.ALLOWED}
