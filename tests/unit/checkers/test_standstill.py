"""Transactions that make no progress after everything was healed are `stuck`; what may be lawful is not."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from checkers.kernels.transactions.checker import MAY_BE_LOST, TRANSACTIONS
from harness.contracts.checker import CheckerReport
from harness.contracts.run_context import RunContext
from harness.contracts.verdict import Judgement
from harness.history.schema import TABLES
from tests.anomalies.runs import broker, replica

S = 1_000_000_000
CONTEXT = RunContext(
    healed_ns=10 * S, ended_ns=30 * S, stuck_after_ms=10_000, final_phase_complete=False
)


def event(index: int, at_s: float, event: str, **values: Any) -> dict[str, Any]:
    row = {
        "event_index": index,
        "at_ns": int(at_s * S),
        "transaction": -1,
        "process": 9,
        "event": event,
        "number": -1,
        "transactional_id": "",
        "group": "",
        "isolation": "",
        "topic": "",
        "partition": -1,
        "offset": None,
        "value": -1,
        "status": "",
        "error_code": 0,
        "error": "",
        "final": True,
    }
    return {**row, **values}


COMMITTED = [
    event(0, 1, "begin", transaction=0, process=1, transactional_id="p", final=False),
    event(
        1,
        1,
        "send",
        transaction=0,
        process=1,
        topic="t",
        partition=0,
        number=0,
        value=1,
        final=False,
    ),
    event(
        2,
        1,
        "sent",
        transaction=0,
        process=1,
        topic="t",
        partition=0,
        number=0,
        offset=0,
        value=1,
        final=False,
    ),
    event(3, 1, "commit-asked", transaction=0, process=1, final=False),
    event(4, 1, "committed", transaction=0, process=1, final=False),
]


def reads(*times_s: float) -> list[dict[str, Any]]:
    """Closing reads that return nothing."""
    rows = []
    for number, at_s in enumerate(times_s):
        index = 100 + 2 * number
        rows.append(event(index, at_s, "begin", transaction=index, isolation="read_committed"))
        rows.append(event(index + 1, at_s + 0.1, "committed", transaction=index))
    return rows


def takeovers(*times_s: float, of: str = "p") -> list[dict[str, Any]]:
    return [
        event(1000 + int(10 * at_s), at_s, "not-initialised", transactional_id=of, error="timeout")
        for at_s in times_s
    ]


def record(read: int, at_s: float) -> dict[str, Any]:
    """A record that a closing read returned; the first read has the number 0."""
    return event(
        900,
        at_s,
        "poll",
        transaction=100 + 2 * read,
        topic="t",
        partition=0,
        offset=0,
        value=1,
        status="ok",
        number=0,
    )


def last_write(outcome: str) -> list[dict[str, Any]]:
    """The transaction of a producer in the final phase."""
    place = {"transaction": 500, "process": 1}
    return [
        event(500, 25, "begin", **place, transactional_id="p"),
        event(501, 25, "send", **place, topic="t", partition=0, number=0, value=501),
        event(502, 25, outcome, **place),
    ]


def state(at_s: float = 0, **values: Any) -> dict[str, Any]:
    names = TABLES["partition_states"].names
    row: dict[str, Any] = {
        "at_ns": int(at_s * S),
        "metadata_offset": int(at_s * 10),
        "topic": "t",
        "partition": 0,
        "leader": 1,
        "leader_epoch": 0,
        "partition_epoch": 0,
        "isr": [1, 2, 3],
        "elr": [],
        "last_known_elr": [],
        "replicas": [1, 2, 3],
        "leader_recovery_state": 0,
        "flagged": False,
        "min_isr": 2,
        "after_ns": None,
    }
    return {name: {**row, **values}[name] for name in names}


def checked(
    events: Sequence[Mapping[str, Any]],
    states: Sequence[Mapping[str, Any]] = (state(),),
    context: RunContext = CONTEXT,
    violations: Sequence[Mapping[str, Any]] = (),
) -> CheckerReport:
    rows = sorted(map(dict, [*COMMITTED, *events]), key=lambda row: row["at_ns"])
    numbered = {row["event_index"]: number for number, row in enumerate(rows)}
    for row in rows:
        for name in ("event_index", "transaction", "value"):
            if row["event"] != "poll" or name != "value":
                row[name] = numbered.get(row[name], row[name]) if row[name] >= 0 else row[name]
    tables = {
        "transaction_events": rows,
        "partition_states": states,
        "broker_states": [broker(number, number, "registered") for number in (1, 2, 3)],
        "replica_states": [
            {**replica(1, number, 1), "partition": partition}
            for partition in (0, 1)
            for number in (1, 2, 3)
        ],
        "operations": [],
        "faults": [],
        "violations": violations,
    }
    return TRANSACTIONS.check(
        {
            name: pa.Table.from_pylist(list(rows), schema=TABLES[name])
            for name, rows in tables.items()
        },
        context,
    )


def stuck(report: CheckerReport) -> list[Any]:
    return [one for one in report.findings if one.id == "stuck"]


@pytest.mark.parametrize("more", [[], reads(20.5, 22, 24, 26, 28, 29.5)], ids=["idle", "trying"])
@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"leader": -1}, "t-1: from 10.000 s until the run ended at 30.000 s there was no leader"),
        (
            {"isr": [1]},
            "t-1: from 10.000 s until the run ended at 30.000 s the ISR [1] stayed below",
        ),
    ],
)
def test_a_partition_that_is_not_served_is_stuck_itself(
    more: list[dict[str, Any]], values: dict[str, Any], words: str
) -> None:
    states = [state(), state(1, partition=1, **values)]
    (found,) = stuck(checked(more, states))
    assert found.judgement is Judgement.FORBIDDEN
    assert found.sentence.startswith(words)
    # What a cleaner removed, or an unclean election lost, does not keep a partition from being served.
    for context in (replace(CONTEXT, compacted=True), replace(CONTEXT, min_isr=1)):
        assert [one.judgement for one in stuck(checked(more, states, context))] == ["forbidden"]
    assert not stuck(checked(more, [state(), state(21, partition=1, **values)]))
    assert not stuck(checked(more, states, replace(CONTEXT, final_phase_complete=True)))
    by_another_checker = replace(CONTEXT, checkers=("transactions", "progress"))
    assert not stuck(checked(more, states, by_another_checker)), "each partition is reported once"


TIMES = (20.5, 22, 24, 26, 28, 29.5)


def test_broker_0_may_lead_while_closing_reads_return_nothing() -> None:
    found = stuck(checked(reads(*TIMES), [state(leader=0, isr=[0, 1])]))
    assert any("the closing reads received no record" in one.sentence for one in found)


def test_closing_reads_that_return_nothing_until_the_end_are_stuck() -> None:
    (found,) = stuck(checked(reads(*TIMES)))
    assert found.judgement is Judgement.FORBIDDEN
    assert "the closing reads received no record, although clients tried 6 times" in found.sentence
    assert found.count == 1
    assert [one.op_index for one in found.witnesses] == [
        5,
        15,
    ]  # the begins of the first and last read


def test_a_transactional_id_that_nobody_can_take_over_is_stuck() -> None:
    (found,) = stuck(checked(takeovers(*TIMES)))
    assert "no producer could take over p" in found.sentence
    assert "could not take over p (timeout)" in found.witnesses[0].text


@pytest.mark.parametrize(
    ("events", "keys"),
    [
        ([*reads(*TIMES), record(2, 25)], {}),
        ([*takeovers(*TIMES), event(950, 27, "initialised", transactional_id="p")], {}),
        ([{**one, "error_code": 50} for one in takeovers(*TIMES)], {}),
        (reads(20.5, 22, 29.5), {}),
        (reads(25), {}),
        ([*reads(*TIMES), *last_write("committed")], {}),
        (reads(*TIMES), {"states": [state(partition=number) for number in range(6)]}),
        (reads(*TIMES), {"states": (state(), state(21, leader=-1))}),
        (reads(*TIMES), {"context": replace(CONTEXT, final_phase_complete=True)}),
        (reads(*TIMES), {"context": replace(CONTEXT, stuck_after_ms=21_000)}),
        (reads(*TIMES), {"context": replace(CONTEXT, healed_ns=None)}),
        (
            reads(19.5, *TIMES),
            {
                "states": (state(19, leader=-1), state(19.9)),
                "context": replace(CONTEXT, clock_error_ns=S // 5),
            },
        ),
    ],
    ids=[
        "a record came",
        "an id was taken over",
        "refused for its timeout",
        "a pause",
        "too few attempts",
        "a transaction committed",
        "one attempt per partition",
        "no leader",
        "complete",
        "too short",
        "not known when healed",
        "clocks that differ",
    ],
)
def test_what_may_be_lawful_is_not_stuck(
    events: Sequence[Mapping[str, Any]], keys: dict[str, Any]
) -> None:
    assert stuck(checked(events, **keys)) == []


@pytest.mark.parametrize(
    ("events", "states"),
    [
        ([*reads(*TIMES), event(950, 20, "initialised", transactional_id="p")], [state()]),
        ([*reads(15, *TIMES), record(0, 15)], [state()]),
        ([*reads(19.9, *TIMES), record(0, 20)], [state()]),
        ([*reads(*TIMES), *last_write("aborted")], [state()]),
        (reads(*TIMES)[:-1], [state()]),
        (reads(22.5, 25, 27.5), [state()]),
        (reads(*TIMES), [state(partition=number) for number in range(5)]),
        (reads(*TIMES), [state(19, leader=-1), state(20)]),
        (reads(*TIMES), [state(leader=0, isr=[0, 1])]),
        (reads(*TIMES), [state(isr=[1], replicas=[1])]),
    ],
    ids=[
        "an id was taken over just before",
        "a record came before",
        "a record came just before",
        "a transaction aborted",
        "the last read did not end",
        "three attempts at equal distances",
        "one attempt more than partitions",
        "a leader just before",
        "min ISR",
        "all replicas, although min ISR is larger",
    ],
)
def test_what_is_no_excuse_is_stuck(
    events: Sequence[Mapping[str, Any]], states: Sequence[Mapping[str, Any]]
) -> None:
    assert stuck(checked(events, states))


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        (
            [*takeovers(20.5), *takeovers(22, 24, 26, 28, 29.5, of="q")],
            "no producer could take over p, although clients tried 6 times",
        ),
        (
            [*takeovers(20.5, 24, 28), *reads(22, 26, 29.5)],
            "the closing reads received no record, although clients tried 6 times",
        ),
    ],
    ids=["the first id", "as many reads as takeovers"],
)
def test_the_sentence_says_what_most_clients_tried(
    events: Sequence[Mapping[str, Any]], sentence: str
) -> None:
    (found,) = stuck(checked(events))
    assert sentence in found.sentence


def test_after_an_unclean_election_it_is_not_known() -> None:
    (found,) = stuck(checked(reads(*TIMES), states=(state(flagged=True),)))
    assert (found.judgement, found.rule) == (Judgement.UNDECIDED, MAY_BE_LOST)
