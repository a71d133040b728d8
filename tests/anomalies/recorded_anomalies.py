"""The smallest recorded transactions with each anomaly, and a near miss that is valid."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement, Verdict
from tests.anomalies.recorded_transactions import CONTEXT, A, B, Events, producer


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


def processed(
    positions: tuple[int, int], context: RunContext = CONTEXT, **tables: pa.Table
) -> Verdict:
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
    return events.verdict(context, **tables)


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
