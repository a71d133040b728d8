"""The columns of transactions, isolation levels, and what is said when a search is too long."""

from dataclasses import replace

import numpy as np
import pytest

from checkers.kernels.history import ABSENT, INF_NS, NONE, TIME_NS_MAX
from checkers.kernels.transactions import cycles, lists
from checkers.kernels.transactions.check import check_list_append, check_log_transactions
from checkers.kernels.transactions.columns import (
    Append,
    CommitOffset,
    Poll,
    Read,
    Transaction,
    Transactions,
    normalised,
    transactions_of,
)
from checkers.kernels.transactions.cycles import CycleSearch, Step, is_possible
from checkers.kernels.transactions.edges import RW, WR, WW, Edges, Graph
from checkers.kernels.transactions.isolation import (
    KAFKA_READ_COMMITTED,
    KAFKA_READ_UNCOMMITTED,
    LEVELS,
    breaks,
    judge_isolation,
    levels,
    levels_held,
)
from checkers.transaction_anomalies import TRANSACTION_ROWS
from harness.contracts.verdict import Judgement
from harness.errors import HistoryError, UsageError

ONE = Transaction(id=1, ops=(Append("x", 1),))
READER = Transaction(id=2, ops=(Read("x", (1,)),))
OF_TRANSACTIONS = (
    *("id", "process", "invoked_ns", "completed_ns", "commit_invoked_ns"),
    *("session", "group", "is_final", "outcome"),
)


# --- columns ---


def test_values_and_keys_keep_their_names() -> None:
    history = [
        Transaction(id=1, ops=(Append("x", "first"), Append(3, "second"))),
        Transaction(id=2, ops=(Read("x", ("second",)),)),
    ]
    t = transactions_of(history)
    assert t.key_names == ("3", "x")
    finding = check_list_append(t).findings[0]
    assert finding.id == "phantom-value"
    assert finding.sentence == "T2 read second in x, which no transaction wrote there"


def test_a_poll_of_two_partitions_is_one_micro_operation_in_two_rows() -> None:
    poll = Poll((("b", 4, 1), ("a", 0, 2), ("b", 5, 3)))
    t = transactions_of([Transaction(id=9, ops=(poll, CommitOffset("a", 1)))])
    assert t.op_number.tolist() == [0, 0, 1]
    assert [t.key_names[key] for key in t.op_key] == ["a", "b", "a"]
    assert t.element_offset.tolist() == [0, 4, 5, 1]


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ([ONE, ONE], "transaction 1 occurs twice"),
        ([replace(ONE, id=-4)], "transaction -4 has a negative id"),
        ([replace(ONE, outcome="perhaps")], "transaction 1: outcome 'perhaps' is none of"),
        ([replace(ONE, invoked_ns=5, completed_ns=4)], "transaction 1 completed before"),
        ([replace(ONE, invoked_ns=5, commit_invoked_ns=4)], "transaction 1 requested its commit"),
        ([replace(ONE, invoked_ns=2**70)], "does not fit in 64 bits"),
    ],
)
def test_a_history_that_cannot_be_is_refused_with_the_place(
    history: list[Transaction], message: str
) -> None:
    with pytest.raises(HistoryError, match=message):
        transactions_of(history)


@pytest.mark.parametrize("check", [check_list_append, check_log_transactions])
def test_one_value_written_twice_to_one_key_is_refused(check: object) -> None:
    t = transactions_of([ONE, replace(ONE, id=2)])
    with pytest.raises(HistoryError, match="transactions 1 and 2 both write 1 to x"):
        check(t)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"process": np.zeros(1, dtype=np.int64)}, "process has not one row per transaction"),
        ({"op_key": np.array([0, 1], dtype=np.int64)}, "transaction 2 has a micro-operation"),
        ({"op_kind": np.array([0, 3], dtype=np.int8)}, "transaction 2 has a micro-operation"),
        ({"op_is_known": np.array([True, False])}, "transaction 2 has a micro-operation"),
        ({"op_transaction": np.array([0, 2], dtype=np.int64)}, "belongs to no transaction"),
        ({"element_value": np.zeros(9, dtype=np.int64)}, "different lengths"),
        ({"op_count": np.array([2, 0], dtype=np.int64)}, "transaction 1 has a micro-operation"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(
    changed: dict[str, np.ndarray], message: str
) -> None:
    t = transactions_of([ONE, READER])
    with pytest.raises(HistoryError, match=message):
        check_list_append(replace(t, **changed))  # type: ignore[arg-type]


@pytest.mark.parametrize("beyond", [0, 1])
@pytest.mark.parametrize("times", [("invoked_ns", "completed_ns"), ("completed_ns",)])
def test_a_time_so_late_that_it_means_never_is_refused(times: tuple[str, ...], beyond: int) -> None:
    late = replace(ONE, **dict.fromkeys(times, TIME_NS_MAX + beyond))
    if not beyond:
        check_list_append(transactions_of([late]))
        return
    with pytest.raises(HistoryError, match="transaction 1 has a time beyond"):
        check_list_append(transactions_of([late]))


def test_two_micro_operations_in_one_place_are_refused() -> None:
    t = transactions_of([Transaction(id=5, ops=(Read("x", ()), Read("x", ())))])
    with pytest.raises(HistoryError, match="transaction 5 has two micro-operations"):
        check_list_append(replace(t, op_number=np.zeros(2, dtype=np.int64)))


@pytest.mark.parametrize("transactions", [(0, 1), (1, 0)])
@pytest.mark.parametrize("ops", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_columns_may_have_any_order(transactions: tuple[int, ...], ops: tuple[int, ...]) -> None:
    t = transactions_of([replace(ONE, ops=(Append("x", 1), Append("x", 2))), READER])
    rows, places = np.array(transactions), np.array(ops)
    columns = {name: getattr(t, name) for name in Transactions.__slots__}
    of_ops = {name: columns[name][places] for name in columns if name.startswith("op_")}
    of_elements = {name: columns[name][places] for name in columns if name.startswith("element_")}
    others = {name: columns[name][rows] for name in OF_TRANSACTIONS}
    of_ops["op_transaction"] = np.argsort(rows)[of_ops["op_transaction"]]
    found = normalised(replace(t, **of_ops, **of_elements, **others))
    for name, column in columns.items():
        assert np.array_equal(getattr(found, name), column), name


def test_what_a_transaction_leaves_out_is_the_earliest_time_and_its_own_number() -> None:
    t = transactions_of([replace(ONE, id=5)])
    assert (t.invoked_ns[0], t.commit_invoked_ns[0], t.completed_ns[0]) == (0, 0, INF_NS)
    assert (t.process[0], t.session[0], t.group[0]) == (5, 5, ABSENT)


def test_an_empty_history_tests_nothing() -> None:
    for check in (check_list_append, check_log_transactions):
        report = check(transactions_of([]))
        assert report.findings == ()
        assert "nothing was tested" in report.unknown_reasons[0]


def test_times_of_transactions_never_decide_without_a_completion() -> None:
    late = Transaction(id=2, ops=(Read("x", ()),), invoked_ns=1000, completed_ns=1001)
    assert check_list_append(transactions_of([ONE, late])).findings == ()
    early = replace(ONE, completed_ns=10)
    ids = [f.id for f in check_list_append(transactions_of([early, late])).findings]
    assert ids == ["G-single-realtime"]


def test_a_clock_error_hides_what_it_could_explain() -> None:
    history = [
        replace(ONE, completed_ns=10),
        Transaction(id=2, ops=(Read("x", ()),), invoked_ns=15, completed_ns=20),
    ]
    t = transactions_of(history)
    assert check_list_append(t, clock_error_ns=4).findings
    assert not check_list_append(t, clock_error_ns=5).findings


def test_without_a_clock_error_one_nanosecond_orders_two_transactions() -> None:
    late_read = Transaction(id=2, ops=(Read("x", ()),), invoked_ns=11, completed_ns=20)
    lists = transactions_of([replace(ONE, completed_ns=10), late_read])
    assert [f.id for f in check_list_append(lists).findings] == ["G-single-realtime"]
    assert not check_list_append(lists, clock_error_ns=1).findings
    first = Transaction(id=1, ops=(Append("a", 1, 1),), completed_ns=10)
    second = Transaction(id=2, ops=(Append("a", 0, 0),), invoked_ns=11, completed_ns=20)
    logs = transactions_of([first, second])
    found = {f.id for f in check_log_transactions(logs).findings}
    assert found == {"order-inversion", "G0-realtime"}
    assert not check_log_transactions(logs, clock_error_ns=1).findings


def test_transactions_are_counted_by_what_is_known_of_their_outcome() -> None:
    """T2 is proven by a read. T3 may have been committed, and T4 was not."""
    history = [
        ONE,
        Transaction(id=2, ops=(Append("x", 2),), outcome="unknown"),
        Transaction(id=3, ops=(Append("x", 3),), outcome="unknown"),
        Transaction(id=4, ops=(Append("x", 4),), outcome="aborted"),
        Transaction(id=5, ops=(Read("x", (1, 2)),)),
    ]
    coverage = check_list_append(transactions_of(history)).coverage
    assert coverage["transactions"] == 5
    assert coverage["transactions_committed"] == 2
    assert coverage["transactions_proven"] == 1


@pytest.mark.parametrize(
    ("anomaly", "history", "steps"),
    [
        (
            "G0",
            [
                Transaction(id=1, ops=(Append("x", 1), Append("y", 2))),
                Transaction(id=2, ops=(Append("x", 2), Append("y", 1))),
                Transaction(id=3, ops=(Read("x", (1, 2)), Read("y", (1, 2)))),
            ],
            ["T1 wrote 1 to x, before T2 wrote 2", "T2 wrote 1 to y, before T1 wrote 2"],
        ),
        (
            "G1c",
            [
                Transaction(id=1, ops=(Append("x", 1), Read("y", (2,)))),
                Transaction(id=2, ops=(Append("y", 2), Read("x", (1,)))),
            ],
            ["T2 read x at 1, which T1 wrote", "T1 read y at 2, which T2 wrote"],
        ),
        (
            "G2-item",
            [
                ONE,
                Transaction(id=2, ops=(Read("x", (1,)), Append("y", 1))),
                Transaction(id=3, ops=(Read("y", ()), Append("x", 2))),
                Transaction(id=4, ops=(Read("x", (1, 2)),)),
            ],
            ["T2 read x at 1, before T3 wrote 2", "T3 read y empty, before T2 wrote 1"],
        ),
    ],
    ids=["G0", "G1c", "G2-item"],
)
def test_a_cycle_says_why_each_transaction_comes_before_the_next_one(
    anomaly: str, history: list[Transaction], steps: list[str]
) -> None:
    (found,) = check_list_append(transactions_of(history)).findings
    assert found.id == anomaly
    assert [step["text"] for step in found.details["cycle"]] == steps


def _consumer(between: Transaction, session: int) -> list[str]:
    """Returns what is found if a consumer polled offset 0, ran a transaction, and then polled offset 2."""
    history = [
        Transaction(id=1, ops=tuple(Append("a", n, n) for n in range(3))),
        Transaction(id=2, ops=(Poll((("a", 0, 0),)),), invoked_ns=1, completed_ns=2, session=7),
        between,
        Transaction(
            id=4, ops=(Poll((("a", 2, 2),)),), invoked_ns=5, completed_ns=6, session=session
        ),
    ]
    return [f.id for f in check_log_transactions(transactions_of(history)).findings]


def test_a_consumer_of_unknown_position_skips_nothing() -> None:
    between = Transaction(id=3, ops=(), invoked_ns=3, completed_ns=4, session=7)
    assert "session-poll-skip" in _consumer(between, 7)
    assert "session-poll-skip" in _consumer(replace(between, outcome="aborted"), 7)
    assert "session-poll-skip" not in _consumer(replace(between, outcome="unknown"), 7)
    assert "session-poll-skip" not in _consumer(between, 8)


def test_polls_during_an_assignment_are_in_no_order() -> None:
    history = [
        Transaction(id=1, ops=tuple(Append("a", n, n) for n in range(3))),
        Transaction(id=2, ops=(Poll((("a", 2, 2),)), Poll((("a", 0, 0),)))),
    ]
    ids = [f.id for f in check_log_transactions(transactions_of(history)).findings]
    assert "int-nonmonotonic-poll" in ids
    history[1] = replace(history[1], session=-1)
    ids = [f.id for f in check_log_transactions(transactions_of(history)).findings]
    assert "int-nonmonotonic-poll" not in ids


@pytest.mark.parametrize(("begin", "is_lost"), [(9, False), (10, True)])
def test_closing_reads_prove_nothing_about_a_transaction_that_had_not_ended(
    begin: int, is_lost: bool
) -> None:
    history = [
        Transaction(id=1, ops=(Append("a", 1, 0),), completed_ns=10),
        Transaction(
            id=2, ops=(Poll(()),), invoked_ns=begin, completed_ns=begin + 50, is_final=True
        ),
    ]
    ids = [f.id for f in check_log_transactions(transactions_of(history)).findings]
    assert ("lost-acked-write" in ids) == is_lost


def test_an_own_last_append_is_followed_by_ww_only() -> None:
    """T2 read up to its own append, and T1 appended later, which no read returned: no anti-dependency."""
    history = [
        Transaction(id=1, ops=(Append("x", 1), Append("y", 1))),
        Transaction(id=2, ops=(Append("x", 2), Read("x", (2,)), Append("y", 2))),
        Transaction(id=3, ops=(Read("y", (1, 2)),)),
    ]
    ids = [f.id for f in check_list_append(transactions_of(history)).findings]
    assert ids == ["G0"]


UNSURE = (
    Transaction(id=1, ops=(Append("x", 1), Read("y", (3,)))),
    Transaction(id=2, ops=(Append("x", 2),)),
    Transaction(id=3, ops=(Read("x", (1,)), Append("y", 3))),
    Transaction(id=4, ops=(Read("x", (2,)),)),
)
"""T3 and T4 contradict each other about x; T1 and T3 depend on each other by what they read."""


def _found(*history: Transaction) -> list[str]:
    return [f.id for f in check_list_append(transactions_of(history)).findings]


def test_what_reads_returned_last_is_known_without_an_order() -> None:
    assert _found(*UNSURE) == ["incompatible-order", "G1c"]


@pytest.mark.parametrize(
    ("history", "ids"),
    [
        (
            (
                replace(UNSURE[0], ops=(Append("x", 1),)),
                replace(UNSURE[1], ops=(Append("x", 2), Append("y", 2))),
                replace(UNSURE[2], ops=(Read("x", (1,)),)),
                replace(UNSURE[3], ops=(Read("x", (2,)), Read("y", (2,)))),
            ),
            ["incompatible-order"],
        ),
        (
            (ONE, UNSURE[1], Transaction(id=3, ops=(Read("x", (1, 2, 1)),))),
            ["duplicate-elements"],
        ),
        (
            (
                ONE,
                Transaction(id=2, ops=(Append("x", 2), Read("y", (5,)))),
                Transaction(id=3, ops=(Read("x", (1,)),)),
                Transaction(id=4, ops=(Read("x", (2,)),)),
                Transaction(id=5, ops=(Read("x", ()), Append("y", 5))),
            ),
            ["incompatible-order"],
        ),
        (
            (
                ONE,
                Transaction(id=2, ops=(Read("y", (3,)), Append("z", 2))),
                Transaction(id=3, ops=(Read("x", (9,)), Append("y", 3))),
                Transaction(id=4, ops=(Read("x", (1,)),)),
            ),
            ["incompatible-order", "phantom-value"],
        ),
    ],
    ids=["two orders", "a repeated value", "an empty read", "a value that nobody wrote"],
)
def test_a_list_without_a_usable_order_gives_no_more_dependencies(
    history: tuple[Transaction, ...], ids: list[str]
) -> None:
    assert _found(*history) == ids


def test_values_are_read_although_no_transaction_wrote_any() -> None:
    readers = [Transaction(id=number, ops=(Read("x", (number,)),)) for number in (1, 2)]
    assert _found(*readers) == ["incompatible-order", "phantom-value"]
    polls = [Transaction(id=1, ops=(Poll((("a", 0, 1),)),))]
    logs = check_log_transactions(transactions_of(polls))
    assert [f.id for f in logs.findings] == ["phantom-value"]


@pytest.mark.parametrize(("pairs_max", "is_complete"), [(2, True), (1, False)])
def test_too_many_anti_dependencies_on_appends_that_no_read_returned_are_left_out(
    monkeypatch: pytest.MonkeyPatch, pairs_max: int, is_complete: bool
) -> None:
    monkeypatch.setattr(lists, "PAIRS_MAX", pairs_max)
    later = [Transaction(id=number, ops=(Append("x", number),)) for number in (3, 4)]
    report = check_list_append(transactions_of([ONE, READER, *later]))
    assert report.coverage["dependencies_rw"] == (2 if is_complete else 0)
    assert report.unknown_reasons == (
        ()
        if is_complete
        else (
            "2 anti-dependencies on appends that no read returned are too many; those of 1 reads were left out",
        )
    )


# --- levels ---


@pytest.mark.parametrize("identifier", [row[0] for row in TRANSACTION_ROWS])
def test_every_level_judges_every_anomaly(identifier: str) -> None:
    for promise in levels():
        judged = judge_isolation(identifier, promise)
        assert judged.judgement in (Judgement.FORBIDDEN, Judgement.ALLOWED)
        assert judged.rule
    broken = [level for level in LEVELS if breaks(identifier, level)]
    assert identifier == "int-send-skip" or "strong-serializable" in broken


@pytest.mark.parametrize(
    ("identifier", "allowed", "forbidden"),
    [
        ("G0", None, "read-uncommitted"),
        ("G0-process", "serializable", "strong-session-read-uncommitted"),
        ("G0-realtime", "strong-session-serializable", "strong-read-uncommitted"),
        ("G1a", "strong-read-uncommitted", "read-committed"),
        ("fractured-read", "strong-read-committed", "read-atomic"),
        ("G-single", "strong-read-atomic", "snapshot-isolation"),
        ("G2-item", "strong-snapshot-isolation", "serializable"),
        ("G2-item-realtime", "strong-session-serializable", "strict-serializable"),
        ("G1c", KAFKA_READ_COMMITTED, "read-committed"),
        ("G1a", KAFKA_READ_UNCOMMITTED, KAFKA_READ_COMMITTED),
        ("circular-reads-realtime", KAFKA_READ_UNCOMMITTED, KAFKA_READ_COMMITTED),
        ("lost-acked-write", None, KAFKA_READ_UNCOMMITTED),
    ],
)
def test_an_anomaly_breaks_a_level_and_not_the_one_below(
    identifier: str, allowed: str | None, forbidden: str
) -> None:
    assert judge_isolation(identifier, forbidden).judgement == Judgement.FORBIDDEN
    if allowed is not None:
        assert judge_isolation(identifier, allowed).judgement == Judgement.ALLOWED


@pytest.mark.parametrize("level", LEVELS)
def test_records_of_others_between_those_of_a_transaction_break_no_level(level: str) -> None:
    assert judge_isolation("int-send-skip", level).judgement == Judgement.ALLOWED


def test_an_unknown_level_is_refused_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'serializable'"):
        check_list_append(transactions_of([ONE]), promise="serialisable")


def test_the_levels_that_hold_are_named() -> None:
    skew = [
        Transaction(id=1, ops=(Read("x", ()), Append("y", 1))),
        Transaction(id=2, ops=(Read("y", ()), Append("x", 2))),
    ]
    report = check_list_append(transactions_of(skew), promise="snapshot-isolation")
    assert [f.judgement for f in report.findings] == [Judgement.ALLOWED]
    held = levels_held(report.findings, report.unknown_reasons)
    assert held["read-atomic"] == held["strong-read-atomic"] == "holds"
    assert held["serializable"] == held["strong-serializable"] == "broken"
    # G2-item may be one of the cycles that snapshot isolation forbids too.
    assert held["snapshot-isolation"] == "unknown"
    valid = check_list_append(transactions_of([ONE, READER]))
    assert set(levels_held(valid.findings, valid.unknown_reasons).values()) == {"holds"}
    assert set(levels_held((), ("a reason",)).values()) == {"unknown"}


# --- searches ---


def _graph(edges: list[tuple[int, int, int]], count: int) -> Graph:
    columns = np.array(edges, dtype=np.int64).reshape(-1, 3)
    none = np.full(len(edges), NONE, dtype=np.int64)
    return Graph(
        edges=Edges(
            source=columns[:, 0],
            target=columns[:, 1],
            kind=columns[:, 2].astype(np.int8),
            key=none,
            before=none,
            after=none,
        ),
        is_node=np.ones(count, dtype=np.bool_),
        invoked_ns=np.zeros(count, dtype=np.int64),
        ended_ns=np.full(count, INF_NS, dtype=np.int64),
    )


def test_a_search_that_is_too_long_is_unknown_and_still_breaks_serializability() -> None:
    # 0 -rw-> 1 -ww-> 2 -rw-> 3 -ww-> 0, and 2 -ww-> 0: the first anti-dependency has a way back without a second.
    graph = _graph([(2, 3, RW), (3, 0, WW), (0, 1, RW), (1, 2, WW), (2, 0, WW)], 4)
    whole = CycleSearch(graph).report()
    assert [cycle.id for cycle in whole.cycles] == ["G-single"]
    assert whole.unknown_reasons == ()
    short = CycleSearch(graph, search_steps_max=0).report()
    assert [cycle.id for cycle in short.cycles] == ["G2-item"]
    assert "ended after 0 steps" in short.unknown_reasons[0]


def _timed(graph: Graph, times: list[tuple[int, int]]) -> Graph:
    """Returns the graph with times, as (invoked, ended); an end of 0 stands for an unknown one."""
    return replace(
        graph,
        invoked_ns=np.array([invoked for invoked, _ in times], dtype=np.int64),
        ended_ns=np.array([ended or INF_NS for _, ended in times], dtype=np.int64),
    )


IN_TURN = _graph([(0, 1, RW), (1, 0, WW), (2, 3, RW), (3, 2, WW)], 4)
"""Two cycles; the search for each takes two steps."""
BY_TIME = _timed(
    _graph([(0, 1, RW), (1, 2, WW), (3, 4, RW)], 5),
    [(10, 0), (0, 0), (0, 5), (30, 0), (20, 25)],
)
"""Two cycles; 2 and 4 were complete before 0 and 3 began. The search for the first cycle takes three steps."""


@pytest.mark.parametrize(
    ("graph", "steps_max", "ids"),
    [
        (_graph([(0, 1, WW), (1, 0, WW), (0, 1, RW)], 2), 0, ["G0", "G-single"]),
        (_graph([(0, 1, RW), (1, 0, WW)], 2), 1, ["G-single"]),
        (IN_TURN, 3, ["G-single"]),
        (IN_TURN, 2, ["G-single", "G2-item"]),
        (BY_TIME, 4, ["G-single-realtime"]),
        (BY_TIME, 3, ["G-single-realtime", "G2-item-realtime"]),
    ],
    ids=["no search", "one search", "enough", "too short", "enough in time", "too short in time"],
)
def test_a_search_goes_on_as_long_as_a_step_is_left(
    graph: Graph, steps_max: int, ids: list[str]
) -> None:
    report = CycleSearch(graph, search_steps_max=steps_max).report()
    assert [cycle.id for cycle in report.cycles] == ids
    assert bool(report.unknown_reasons) == (len(ids) > 1 and steps_max > 0)


FOUR_WITH_THREE = [(0, 1, WW), (1, 2, WW), (2, 3, WW), (3, 0, WW), (3, 1, WW)]
"""A cycle of four with one of three; the search from the first dependency takes five steps."""


@pytest.mark.parametrize(
    ("edges", "count", "size"),
    [
        ([(n, (n + 1) % 6, WW) for n in range(6)], 6, 6),
        ([*((n, (n + 1) % 6, WW) for n in range(6)), (2, 0, WW)], 6, 3),
        (FOUR_WITH_THREE, 4, 3),
        ([(0, 1, WW), (1, 2, WW), (2, 0, WW), (2, 1, WW)], 3, 2),
    ],
)
def test_the_example_is_the_smallest_cycle(
    edges: list[tuple[int, int, int]], count: int, size: int
) -> None:
    (cycle,) = CycleSearch(_graph(edges, count)).report().cycles
    assert len(cycle.steps) == size
    assert cycle.is_smallest


@pytest.mark.parametrize(("steps_max", "size"), [(5, 3), (4, 4)])
def test_an_example_that_took_too_long_may_not_be_the_smallest(
    monkeypatch: pytest.MonkeyPatch, steps_max: int, size: int
) -> None:
    monkeypatch.setattr(cycles, "EXAMPLE_STEPS_MAX", steps_max)
    (cycle,) = CycleSearch(_graph(FOUR_WITH_THREE, 4)).report().cycles
    assert (len(cycle.steps), cycle.is_smallest) == (size, False)


@pytest.mark.parametrize(
    ("graph", "steps"),
    [
        (_graph([(0, 1, WW), (1, 0, WR)], 2), (Step(1, 0, 1), Step(0, 1, 0))),
        (_timed(_graph([(1, 0, WW)], 2), [(0, 1), (2, 0)]), (Step(1, 0, 0), Step(0, 1, -1))),
    ],
    ids=["values", "time"],
)
def test_a_cycle_names_its_dependencies(graph: Graph, steps: tuple[Step, ...]) -> None:
    (cycle,) = CycleSearch(graph).report().cycles
    assert cycle.steps == steps


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (Step(0, 1, 0), True),
        (Step(2, 1, 0), False),
        (Step(0, 2, 0), False),
        (Step(2, 1, -1), True),
        (Step(2, 0, -1), False),
        (Step(0, 1, -1), False),
    ],
)
def test_a_step_is_a_dependency_of_the_graph_or_follows_from_two_times(
    step: Step, expected: bool
) -> None:
    graph = _timed(_graph([(0, 1, WW)], 3), [(5, 0), (6, 0), (0, 5)])
    assert is_possible(graph, step) == expected


def test_what_leads_from_one_cycle_to_another_one_is_in_none() -> None:
    """T1 and T2 are a cycle, and so are T4 and T5; what T4 wrote reaches T1 through T3."""
    history = [
        Transaction(id=1, ops=(Append("a", 1), Read("b", (2,)), Read("c", (3,)))),
        Transaction(id=2, ops=(Append("b", 2), Read("a", (1,)))),
        Transaction(id=3, ops=(Append("c", 3), Read("d", (4,)))),
        Transaction(id=4, ops=(Append("d", 4), Read("e", (5,)))),
        Transaction(id=5, ops=(Append("e", 5), Read("d", (4,)))),
    ]
    report = check_list_append(transactions_of(history))
    assert [(found.id, found.count) for found in report.findings] == [("G1c", 2)]
    assert report.coverage["transactions_in_cycles"] == 4


def test_all_that_was_complete_before_a_transaction_comes_before_it() -> None:
    """T2 wrote first to both lists, and was invoked after T1 and T3 had ended at different times."""
    history = [
        Transaction(id=1, ops=(Append("x", 1),), completed_ns=5),
        Transaction(id=2, ops=(Append("x", 2), Append("y", 2)), invoked_ns=10, completed_ns=20),
        Transaction(id=3, ops=(Append("y", 3),), completed_ns=7),
        Transaction(id=4, ops=(Read("x", (2, 1)), Read("y", (2, 3)))),
    ]
    report = check_list_append(transactions_of(history))
    assert [found.id for found in report.findings] == ["G0-realtime"]
    assert report.coverage["transactions_in_cycles"] == 3


def test_a_long_chain_of_stale_reads_is_decided_too() -> None:
    """Every transaction reads what the one invoked after it wrote, so times help nothing."""
    count = 300
    history = [
        Transaction(
            id=n,
            ops=(Append(n, 1), Read(n + 1, (1,))) if n < count else (Append(n, 1),),
            invoked_ns=n * 10,
            completed_ns=n * 10 + 100_000,
        )
        for n in range(count + 1)
    ]
    assert check_list_append(transactions_of(history)).findings == ()
    last = replace(history[-1], ops=(Append(count, 1), Read(0, (1,))))
    report = check_list_append(transactions_of([*history[:-1], last]))
    assert [f.id for f in report.findings] == ["G1c"]
    assert len(report.findings[0].details["cycle"]) == count + 1
    assert len(report.findings[0].witnesses) == 3


LONG_FORK = (
    Transaction(id=1, ops=(Append("x", 1),)),
    Transaction(id=2, ops=(Append("y", 1),)),
    Transaction(id=3, ops=(Read("x", (1,)), Read("y", ()))),
    Transaction(id=4, ops=(Read("x", ()), Read("y", (1,)))),
)
SKEW_OF_WRITES = (
    Transaction(id=1, ops=(Read("x", ()), Append("y", 1))),
    Transaction(id=2, ops=(Read("y", ()), Append("x", 2))),
)


@pytest.mark.parametrize("strength", ["", "strong-session-", "strong-"])
@pytest.mark.parametrize(
    ("history", "judgement"),
    [(LONG_FORK, Judgement.FORBIDDEN), (SKEW_OF_WRITES, Judgement.ALLOWED)],
)
def test_snapshots_forbid_a_cycle_whose_anti_dependencies_do_not_follow_each_other(
    history: tuple[Transaction, ...], judgement: Judgement, strength: str
) -> None:
    history = tuple(replace(one, process=one.id) for one in history)
    report = check_list_append(transactions_of(history), promise=f"{strength}snapshot-isolation")
    assert [(one.id, one.judgement) for one in report.findings] == [("G2-item", judgement)]


@pytest.mark.parametrize(
    ("promise", "is_forbidden"),
    [
        ("snapshot-isolation", False),
        ("strong-session-snapshot-isolation", True),
        ("strong-snapshot-isolation", True),
    ],
)
def test_an_order_between_transactions_may_separate_anti_dependencies(
    promise: str, is_forbidden: bool
) -> None:
    """A long fork whose readers are two processes with one read in each transaction."""
    history = [
        Transaction(id=1, process=1, ops=(Read("x", (1,)),), invoked_ns=0, completed_ns=1),
        Transaction(id=2, process=1, ops=(Read("y", ()),), invoked_ns=2, completed_ns=3),
        Transaction(id=3, process=2, ops=(Append("y", 1),), invoked_ns=0, completed_ns=1),
        Transaction(id=4, process=2, ops=(Append("x", 1),), invoked_ns=0, completed_ns=3),
        Transaction(id=5, process=3, ops=(Read("y", (1,)),), invoked_ns=0, completed_ns=1),
        Transaction(id=6, process=3, ops=(Read("x", ()),), invoked_ns=2, completed_ns=3),
    ]
    report = check_list_append(transactions_of(history), promise=promise)
    assert (Judgement.FORBIDDEN in {one.judgement for one in report.findings}) == is_forbidden


def test_an_order_in_time_separates_nothing_in_a_session() -> None:
    stale = [
        Transaction(id=3, ops=(Append("z", 3),), completed_ns=1),
        Transaction(id=4, ops=(Read("z", ()),), invoked_ns=2),
    ]
    report = check_list_append(
        transactions_of([*SKEW_OF_WRITES, *stale]), promise="strong-session-snapshot-isolation"
    )
    assert {one.id: one.judgement for one in report.findings} == {
        "G-single-realtime": Judgement.ALLOWED,
        "G2-item": Judgement.ALLOWED,
    }


@pytest.mark.parametrize("is_fractured", [True, False])
def test_a_write_skew_stays_allowed_beside_a_cycle_that_snapshots_forbid(
    is_fractured: bool,
) -> None:
    """T4 reads one append of T3 and misses the other one."""
    history = [
        Transaction(id=1, process=1, ops=(Read("x", ()), Append("y", 1))),
        Transaction(id=2, process=2, ops=(Read("y", ()), Append("x", 2))),
        Transaction(id=3, process=3, ops=(Append("p", 1), Append("q", 1))),
        Transaction(
            id=4, process=4, ops=(Read("p", (1,)), Read("q", () if is_fractured else (1,)))
        ),
        Transaction(id=5, process=5, ops=(Read("x", (2,)), Read("y", (1,)), Read("q", (1,)))),
    ]
    report = check_list_append(transactions_of(history), promise="snapshot-isolation")
    found = {finding.id: finding.judgement for finding in report.findings}
    assert found["G2-item"] is Judgement.ALLOWED
    assert (found.get("G-single") is Judgement.FORBIDDEN) == is_fractured
