"""Histories as JSON lines: what a line may contain, and what becomes of it."""

import json

import jsonschema
import pytest

from harness.errors import HistoryError
from harness.history.foreign.edn import EdnError
from harness.history.foreign.json_lines import json_schema, read_value
from harness.history.foreign.read import Format, Workload, read_history
from harness.runs.foreign import judge_foreign

HEADER = {"kind": "history", "version": 1}


def operation(kind, process, invoked_ns, **members):
    return {
        "kind": kind,
        "process": process,
        "topic": "t",
        "invoked_ns": invoked_ns,
        "completed_ns": invoked_ns + 1,
        "outcome": "ok",
    } | members


def append(value, invoked_ns, **members):
    return operation("append", 0, invoked_ns, value=value) | members


def poll(records, invoked_ns, **members):
    return operation("poll", 1, invoked_ns, position=0, records=records) | members


def latest(end_offset, invoked_ns, **members):
    return operation("latest", 1, invoked_ns, end_offset=end_offset) | members


LOG = [
    HEADER,
    poll([[0, "a"], [1, 7]], 20, end_offset=2, final=True),
    append("a", 0, offset=0),
    append(7, 10, offset=1, key="k"),
    {
        "kind": "latest",
        "process": 1,
        "topic": "t",
        "end_offset": 2,
        "invoked_ns": 14,
        "completed_ns": 15,
        "outcome": "ok",
    },
]
OPERATION = {
    "kind": "operation",
    "process": 0,
    "f": "cas",
    "input": [1, 2],
    "output": True,
    "invoked_ns": 1,
    "completed_ns": 2,
    "outcome": "ok",
}
EVENT = {"kind": "event", "type": "invoke", "process": 0, "f": "read", "value": None, "time": 5}


def nested(levels):
    """Returns a list with so many levels."""
    return [nested(levels - 1)] if levels > 1 else []


@pytest.fixture
def read(tmp_path):
    def read(*lines, **options):
        path = tmp_path / "history.jsonl"
        path.write_text(
            "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        )
        return read_history(path, **options)

    return read


def test_every_line_of_these_tests_follows_the_published_schema():
    validator = jsonschema.Draft202012Validator(json_schema())
    for line in [*LOG, OPERATION, EVENT]:
        validator.validate(line)
    for wrong in [{**EVENT, "type": "maybe"}, {**OPERATION, "f": ""}, {**LOG[2], "extra": 1}, {}]:
        assert not validator.is_valid(wrong)


def test_lines_of_a_log_become_tables_in_the_order_of_invocations(read):
    history = read(*LOG)
    assert (history.format, history.workload) == (Format.JSONL, Workload.LOG)
    assert history.log.lines.tolist() == [3, 4, 5, 2]
    rows = history.log.tables["operations"].to_pylist()
    assert [(row["kind"], row["process"], row["offset"], row["position"]) for row in rows] == [
        ("append", 0, 0, -1),
        ("append", 0, 1, -1),
        ("latest", 1, 2, -1),
        ("poll", 1, None, 0),
    ]
    assert [row["sequence"] for row in rows] == [0, 1, -1, -1]
    assert [(row["final"], row["end_offset"], row["record_count"]) for row in rows][3] == (
        True,
        2,
        2,
    )
    records = history.log.tables["records_read"].to_pylist()
    assert [(row["op_index"], row["offset"], row["value"], row["key"]) for row in records] == [
        (3, 0, 0, ""),
        (3, 1, 1, "k"),
    ]
    ends = history.log.tables["end_offsets_seen"].to_pylist()
    assert [(row["op_index"], row["end_offset"], row["source"]) for row in ends] == [
        (2, 2, "list_offsets"),
        (3, 2, "fetch"),
    ]
    assert str(judge_foreign(history).verdict.validity) == "valid"


def test_what_ends_when_another_operation_begins_comes_before_it_in_any_order_of_lines(read):
    """The clock is coarse: both polls began in one tick, and only one went on for another."""
    key = {"key": "k"}
    appends = [append(value, 2 * value, offset=value, key=f"k{value // 2}") for value in range(3)]
    last = append(3, 6, offset=3, **key)
    appends[2] |= key
    short = poll([[0, 0]], 20, completed_ns=20, final=True)
    long = poll([[1, 1], [2, 2], [3, 3]], 20, position=1, final=True)
    end = poll([], 21, position=4, end_offset=4, final=True)
    header = {**HEADER, "compacted": True}
    for polls in ([short, long, end], [long, short, end], [end, long, short]):
        history = read(header, *appends, last, *polls)
        positions = history.log.tables["operations"].column("position").to_pylist()
        assert [position for position in positions if position >= 0] == [0, 1, 4]
        assert judge_foreign(history).verdict.validity == "valid", polls
    # Appends of one tick were sent in the order of their lines.
    together = [append(0, 0, offset=0), append(1, 0, offset=1, completed_ns=0)]
    assert read(*together, end).log.lines.tolist() == [1, 2, 3]


def test_the_number_1_and_the_text_1_are_different_values(read):
    history = read(append(1, 0, offset=0), append("1", 10, offset=1), poll([[0, 1], [1, "1"]], 20))
    values = history.log.tables["records_read"].column("value").to_pylist()
    assert values == [0, 1]


@pytest.mark.parametrize("zero_ns", [-(10**9), 1_900_000_000_000_000_000])
def test_any_moment_can_be_0(read, zero_ns):
    moved = [
        line
        if line is HEADER
        else {**line, **{name: line[name] + zero_ns for name in ("invoked_ns", "completed_ns")}}
        for line in LOG
    ]
    history, plain = read(*moved), read(*LOG)
    assert history.log.tables["operations"] == plain.log.tables["operations"]
    assert str(judge_foreign(history).verdict.validity) == "valid"


@pytest.mark.parametrize(
    ("declared", "validity"),
    [({}, "invalid"), ({"sparse": True}, "valid"), ({"final_reads_complete": False}, "invalid")],
)
def test_a_gap_is_allowed_only_in_a_log_that_is_declared_sparse(read, declared, validity):
    history = read(
        {**HEADER, **declared},
        append("a", 0, offset=0),
        append("b", 10, offset=5),
        poll([[0, "a"], [5, "b"]], 20, final=True),
    )
    assert str(judge_foreign(history).verdict.validity) == validity


@pytest.mark.parametrize(
    ("more", "start", "sentence"),
    [
        (1, 0, "1 append was acknowledged without an offset and never read; it may be lost"),
        (2, 0, "2 appends were acknowledged without an offset and never read; they may be lost"),
        (
            1,
            3,
            "1 append was acknowledged without an offset and never read; it may be below the log"
            " start, or lost",
        ),
    ],
)
def test_an_append_that_nobody_shows_may_be_lost(read, more, start, sentence):
    """Where no log end was observed, or the log does not start at 0."""
    nowhere = [append(f"n{number}", 10 + number) for number in range(more)]
    known = append("a", 20 if start else 0, offset=start)
    final = poll([[start, "a"]], 30, position=start, final=True)
    verdict = judge_foreign(
        read({**HEADER, "log_start_offset": start}, *nowhere, known, final)
    ).verdict
    assert verdict.validity == "unknown"
    assert sentence in verdict.reasons


def test_acks_are_a_number_or_all(read):
    for acks, number in (("all", -1), (-1, -1), (0, 0), (1, 1)):
        history = read({**HEADER, "acks": 1}, append("a", 0, acks=acks))
        assert history.log.tables["operations"].column("acks").to_pylist() == [number]
        history = read({**HEADER, "acks": acks}, append("a", 0))
        assert history.log.tables["operations"].column("acks").to_pylist() == [number]
    with pytest.raises(HistoryError, match="acks"):
        read({**HEADER, "acks": "1"}, append("a", 0))


def test_acks_of_the_first_line_hold_for_every_append(read):
    lines = [append("a", 0, offset=0), append("b", 5, offset=1), poll([[1, "b"]], 20, final=True)]
    strict, relaxed = read(*lines), read({**HEADER, "acks": 1}, *lines)
    assert "lost-acked-write" in {one.id for one in judge_foreign(strict).verdict.anomalies}
    assert "lost-acked-write-acks1" in {one.id for one in judge_foreign(relaxed).verdict.anomalies}


def test_a_record_may_be_in_the_log_twice_only_if_producers_are_declared_at_least_once(read):
    lines = [append("a", 0, offset=1), poll([[0, "a"], [1, "a"]], 20, final=True)]
    for header, validity in ((HEADER, "invalid"), ({**HEADER, "at_least_once": True}, "valid")):
        verdict = judge_foreign(read(header, *lines)).verdict
        assert [one.id for one in verdict.anomalies] == ["duplicate"]
        assert str(verdict.validity) == validity


def test_a_second_copy_is_an_effect_of_its_append_and_not_before_it_was_invoked(read):
    twice = {**HEADER, "at_least_once": True}
    early = [poll([[0, "b"]], 0), append("b", 10, offset=1)]
    history = read(twice, *early, poll([[0, "b"], [1, "b"]], 20, final=True))
    assert "future-read" in {one.id for one in judge_foreign(history).verdict.anomalies}
    overtaken = [append("a", 0, offset=1), append("b", 10, offset=2)]
    history = read(twice, *overtaken, poll([[0, "b"], [1, "a"], [2, "b"]], 20, final=True))
    verdict = judge_foreign(history).verdict
    assert str(verdict.validity) == "invalid"
    assert "order-inversion" in {one.id for one in verdict.anomalies}


def test_an_offset_that_nobody_read_may_hold_a_copy(read):
    lines = [append("a", 0, offset=1)]
    for header, validity in ((HEADER, "invalid"), ({**HEADER, "at_least_once": True}, "unknown")):
        assert str(judge_foreign(read(header, *lines)).verdict.validity) == validity


def test_no_record_has_to_be_below_a_declared_log_start(read):
    lines = [append("a", 0, offset=0), append("b", 5, offset=1), poll([[1, "b"]], 20, final=True)]
    wrong = [append("c", 2, offset=0)]
    for start, more, validity in ((0, [], "invalid"), (1, [], "valid"), (1, wrong, "invalid")):
        history = read({**HEADER, "log_start_offset": start}, *lines, *more)
        assert str(judge_foreign(history).verdict.validity) == validity


def in_batch(value, line_ns=0, **members):
    return append(value, line_ns, completed_ns=9, batch="x", **members)


def batches(history):
    """Returns value and first value of every append that has a batch."""
    rows = history.log.tables["operations"].to_pylist()
    line = history.log.lines
    return [
        (int(line[r["op_index"]]), int(line[r["batch"]])) for r in rows if r["batch"] is not None
    ]


def test_appends_of_one_batch_name_the_first_one_in_the_order_of_invocations_and_lines(read):
    lines = [in_batch("c", 2), in_batch("a"), in_batch("b"), append("d", 5, batch="y")]
    assert batches(read(*lines)) == [(3, 2), (1, 2)]
    # A batch belongs to one process and one partition, and 1 is another name than "1".
    apart = [
        in_batch("a"),
        in_batch("b", process=2),
        in_batch("c", partition=1),
        in_batch("d", topic="u"),
        {**in_batch("e"), "batch": 1},
        {**in_batch("f"), "batch": "1"},
        {**in_batch("g"), "batch": None},
    ]
    assert batches(read(*apart)) == []


@pytest.mark.parametrize("outcome", ["ok", "info"])
@pytest.mark.parametrize("missing", range(3))
def test_a_batch_of_which_the_final_reads_show_a_part_is_torn(read, missing, outcome):
    sent = [in_batch(value, outcome=outcome) for value in "abc"]
    there = [[at, value] for at, value in enumerate("abc") if at != missing]
    lines = [
        *sent,
        append("z", 10, offset=3),
        poll([*there, [3, "z"]], 20, end_offset=4, final=True),
    ]
    verdict = judge_foreign(read({**HEADER, "sparse": True}, *lines)).verdict
    (torn,) = [one for one in verdict.anomalies if one.id == "torn-batch"]
    assert (str(verdict.validity), torn.count) == ("invalid", 1)
    assert [witness.op_index for witness in torn.witnesses] == [1 if missing == 0 else 0, missing]
    whole = [[0, "a"], [1, "b"], [2, "c"], [3, "z"]]
    lines[-1] = poll(whole, 20, end_offset=4, final=True)
    assert str(judge_foreign(read(*lines)).verdict.validity) == "valid"
    alone = [{**line, "batch": None} for line in sent]
    lines = [*alone, append("z", 10, offset=3), poll([*there, [3, "z"]], 20, final=True)]
    found = judge_foreign(read({**HEADER, "sparse": True}, *lines)).verdict.anomalies
    assert "torn-batch" not in {one.id for one in found}


def test_a_cleaner_may_remove_single_records_of_a_batch(read):
    sent = [in_batch("a", key="k", outcome="info"), in_batch("b", key="l", outcome="info")]
    last = [
        append("c", 10, key="k", offset=2),
        poll([[1, "b"], [2, "c"]], 20, end_offset=3, final=True),
    ]
    compacted = read({**HEADER, "compacted": True}, *sent, *last)
    assert str(judge_foreign(compacted).verdict.validity) == "valid"
    assert str(judge_foreign(read(*sent, *last)).verdict.validity) == "invalid"


def test_the_same_name_for_a_later_batch_is_refused(read):
    with pytest.raises(HistoryError) as caught:
        read(in_batch("a"), append("b", 3, batch="x"), in_batch("c", 8))
    assert str(caught.value).partition(", ")[2] == (
        'line 3: the append of batch "x" begins after that of line 2 in the same batch has ended; give every batch'
        " of a process to a partition a name of its own"
    )
    # An append without a response does not show when its batch was sent.
    read(in_batch("a"), append("b", 3, batch="x", outcome="info"), in_batch("c", 8))
    read(in_batch("a"), append("b", 3, batch="x"), in_batch("c", 4))


@pytest.mark.parametrize("offset", [-(2**63), -2, 2**62, 2**62 + 1, 2**63 - 1])
@pytest.mark.parametrize("where", ["acknowledged", "read", "end of a poll", "end"])
def test_an_impossible_offset_that_a_client_received_is_an_anomaly(read, where, offset):
    of_append = {"offset": offset} if where == "acknowledged" else {}
    first = [[offset, "b"]] if where == "read" else []
    end = {"end_offset": offset} if where == "end of a poll" else {}
    lines = [
        HEADER,
        append("a", 0, offset=0),
        append("b", 2, outcome="ok", **of_append),
        operation("poll", 2, 10, records=first, **end),
        latest(offset if where == "end" else 1, 20),
        poll([[0, "a"]], 30, end_offset=1, final=True),
    ]
    verdict = judge_foreign(read(*lines)).verdict
    assert str(verdict.validity) == "invalid"
    found = {anomaly.id for anomaly in verdict.anomalies}
    assert ("impossible-offset" in found) == (offset != 2**62)


def test_operations_and_events_of_other_objects_are_read(read):
    (one,) = read(OPERATION).operations
    assert (one.function, one.argument, one.result, one.outcome) == ("cas", [1, 2], True, "ok")
    (one,) = read(EVENT, {**EVENT, "type": "ok", "value": 3, "time": 9}).operations
    assert (one.function, one.result, one.invoked_ns, one.completed_ns) == ("read", 3, 5, 9)


def test_transactions_of_lists_are_recognised(read):
    assert read({**EVENT, "f": "txn", "value": [["r", 1, None]]}).workload == Workload.LIST_APPEND


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (['{"kind": "append"'], "line 1: Input data was truncated"),
        ([EVENT, "", "nonsense"], "line 3: JSON is malformed"),
        ([{**EVENT, "kind": "frob"}], "line 1: Invalid value 'frob' - at `$.kind`"),
        ([{**OPERATION, "process": "x"}], "line 1: Expected `int`, got `str` - at `$.process`"),
        ([{**OPERATION, "outcome": "maybe"}], "line 1: Invalid enum value 'maybe'"),
        ([{**OPERATION, "more": 1}], "line 1: Object contains unknown field `more`"),
        ([EVENT, HEADER], "line 2: a line of kind history can only be the first one"),
        ([EVENT, OPERATION], "line 2: a line of kind operation cannot follow"),
        ([append("a", 0), EVENT], "line 2: a line of kind event cannot follow"),
        (
            [{**OPERATION, "completed_ns": None}],
            "line 1: an operation that is ok needs completed_ns",
        ),
        ([append("a", 0, outcome="fail", completed_ns=None)], "that is fail needs completed_ns"),
        ([append("a", -(2**61)), append("b", 2**61)], "last more than 1152921504 seconds"),
        ([append("a", 2**63)], "line 1: Expected `int` <= 4611686018427387904"),
        ([{**OPERATION, "completed_ns": 0}], "line 1: completed_ns is before invoked_ns"),
        ([append("a", 0, batch=1.5)], "line 1: Expected `int | str | null`, got `float` - at"),
        ([{**LOG[4], "batch": "x"}], "line 1: Object contains unknown field `batch`"),
        ([append("a", 0, offset=-1)], "line 1: an append has the offset -1, with which Kafka"),
        ([append("a", 0, offset=2**63)], "line 1: "),
        ([poll([[2**63, "a"]], 0)], "line 1: "),
        ([append("a", 0), append("a", 5)], 'line 2: the value "a" is appended to t-0 again'),
        ([append("a", 0, topic="a\0b")], "line 1: Expected `str` matching regex"),
        ([{**EVENT, "f": "send"}], "describe a log by lines of kind append, poll and latest"),
        ([HEADER], "holds no operation"),
        ([{**HEADER, "version": 2}], "line 1: Invalid enum value 2"),
        (['{"kind": "event", "value": ' + "[" * 100_000], "line 1: "),
        (
            [append("a", 0, offset=0, outcome="fail")],
            "line 1: an append that is fail has no offset; leave it out",
        ),
        (
            [append("a", 0, offset=0, outcome="info", completed_ns=None)],
            "line 1: an append with an offset needs completed_ns",
        ),
        (
            [poll([[0, "a"]], 0, outcome="info", completed_ns=None)],
            "line 1: a poll with records needs completed_ns, the time of the response",
        ),
        (
            [poll([], 0, outcome="info", completed_ns=None, end_offset=1)],
            "line 1: a poll with an end_offset needs completed_ns",
        ),
        (
            [latest(1, 0, outcome="info", completed_ns=None)],
            "line 1: a latest with an end_offset needs completed_ns",
        ),
        (
            [EVENT, json.dumps(EVENT).replace('"f"', '"f": "write", "\\u0066"')],
            'line 2: an object has the member "f" twice; write it once',
        ),
        ([json.dumps(EVENT).replace("null", "1e400")], "line 1: Number out of range"),
        ([json.dumps(EVENT).replace("null", "1" * 5000)], "line 1: "),
        ([{**EVENT, "value": nested(65)}], "line 1: the value is nested too deeply; write at most"),
        ([{**OPERATION, "output": {"a": nested(64)}}], "line 1: the value is nested too deeply"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(read, lines, problem):
    with pytest.raises(HistoryError) as caught:
        read(*lines)
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_value_may_have_64_levels(read):
    for line in ({**EVENT, "value": nested(64)}, {**OPERATION, "input": nested(64)}):
        assert read(line).operations[0].argument == nested(64)


def numbers(read, *texts):
    (one,) = read(json.dumps(EVENT).replace("null", f"[{', '.join(texts)}]")).operations
    return list(map(repr, one.argument))


def test_a_whole_number_is_the_same_with_a_fraction_or_an_exponent(read):
    texts = ["1.0", "1e0", "1e2", "-0.0", "0e9", "1e16", "9007199254740993.0", "1e300"]
    whole = [1, 1, 100, 0, 0, 10**16, 2**53 + 1, 10**300]
    assert numbers(read, *texts) == list(map(str, whole))


def test_numbers_that_a_float_would_round_are_different(read):
    assert numbers(read, "2.5", "0.10", "25e-1", "5e-324") == ["2.5", "0.1", "2.5", "5e-324"]
    texts = ["0.10000000000000001", "9007199254740993.5", "1e-400", "2e-400"]
    assert len({*numbers(read, *texts, "0.1", "9007199254740994", "0.0")}) == 7
    # More digits than a context of decimal numbers has.
    assert numbers(read, f"{10**40}.5", f"{10**40 + 1}.0") == [
        f"Decimal('{10**40}.5')",
        str(10**40 + 1),
    ]


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e99999999999999999999"])
def test_a_number_out_of_range_is_refused(read, text):
    with pytest.raises(HistoryError, match="line 1: Number out of range"):
        numbers(read, text)


def test_a_stated_value_is_json_or_edn_with_the_numbers_of_json():
    texts = ["1.0", "[1e2, null]", '{"a": 1}', "nil", "[1e2 nil]", '{"a" 1.0}', "[0.5 1.]"]
    values = [1, [100, None], {"a": 1}, None, (100, None), {"a": 1}, (0.5, 1)]
    assert [read_value(text, origin="text") for text in texts] == values
    with pytest.raises(EdnError, match="text, line 1, column 2: '1e400' is out of range"):
        read_value("[1e400 1]", origin="text")
    with pytest.raises(EdnError, match="nested too deeply"):
        read_value("[" * 100_000, origin="text")


def latest(end_offset, invoked_ns, **members):
    line = {**LOG[4], "end_offset": end_offset, "invoked_ns": invoked_ns}
    return {**line, "completed_ns": invoked_ns + 1, "final": True} | members


A, B, C = append("a", 0, offset=0), append("b", 5, offset=1), append("c", 10, offset=3)


@pytest.mark.parametrize(
    ("lines", "validity"),
    [
        ([A, poll([[0, "a"]], 20), poll([], 30, position=2, end_offset=2), latest(2, 40)], "valid"),
        ([A, poll([[0, "a"]], 20), poll([], 30, position=1, end_offset=2)], "unknown"),
        ([A, poll([[0, "a"]], 20), latest(2, 40)], "unknown"),
        ([A, B, poll([[0, "a"]], 20), poll([], 30, position=3, end_offset=3)], "invalid"),
        ([A, C, poll([[0, "a"]], 20), poll([[3, "c"]], 30, position=3, end_offset=4)], "valid"),
        ([A, B, C, poll([[0, "a"]], 20), poll([[3, "c"]], 30, position=3)], "invalid"),
        ([poll([], 20), poll([], 30, position=2, end_offset=2)], "valid"),
    ],
    ids=[
        "a marker at the end",
        "the last poll is not at the end",
        "nothing was polled at the end",
        "a record is gone at the end",
        "a marker in the middle",
        "a record is gone in the middle",
        "nothing but markers",
    ],
)
def test_a_consumer_of_a_sparse_log_moves_past_what_is_no_record(read, lines, validity):
    final = [line | {"final": True} if line["kind"] == "poll" else line for line in lines]
    acked = append("z", 0, topic="other", offset=0)
    more = [acked, poll([[0, "z"]], 20, topic="other", end_offset=1, final=True)]
    verdict = judge_foreign(read({**HEADER, "sparse": True}, *final, *more)).verdict
    assert str(verdict.validity) == validity


@pytest.mark.parametrize(
    "second",
    [
        [poll([], 30, position=3, final=True, process=2)],
        [poll([], 25, position=1), poll([], 30, position=3, final=True)],
        [
            poll([], 25, position=1, outcome="fail", final=True),
            poll([], 30, position=3, final=True),
        ],
        [poll([], 20, position=3, final=True)],
        [poll([], 30, position=3, final=True, partition=1)],
    ],
    ids=["of another process", "after a poll", "after a failed poll", "meanwhile", "elsewhere"],
)
def test_only_polls_of_one_process_that_follow_each_other_show_what_lies_between(read, second):
    first = poll([[0, "a"]], 20, final=True)
    verdict = judge_foreign(read({**HEADER, "sparse": True}, A, B, first, *second)).verdict
    assert str(verdict.validity) == "unknown"
    assert [one.id for one in verdict.anomalies] == ["unseen"]


@pytest.mark.parametrize(
    ("acks", "end", "start", "validity"),
    [
        (1, {"end_offset": 1}, 0, "valid"),
        (1, {}, 0, "valid"),
        (-1, {"end_offset": 1}, 0, "invalid"),
        (-1, {}, 0, "unknown"),
        (-1, {"end_offset": 2}, 0, "unknown"),
        (-1, {"end_offset": 2}, 1, "unknown"),
        (1, {"end_offset": 2}, 1, "valid"),
    ],
)
def test_an_append_without_an_offset_is_lost_if_it_must_be_in_complete_final_reads(
    read, acks, end, start, validity
):
    # Retention may have removed it only if it was sent before the log was past its start.
    lines = [append("a", 0 if start else 8, acks=acks), append("b", 5, offset=start)]
    records = [[start, "b"]]
    last = poll(records, 20, position=start, final=True, **end)
    history = read({**HEADER, "log_start_offset": start, "sparse": True}, *lines, last)
    assert str(judge_foreign(history).verdict.validity) == validity


@pytest.mark.parametrize(
    ("final_ns", "late", "problem"),
    [
        (20, append("b", 30, offset=1), True),
        (20, append("b", 15, offset=1, completed_ns=25), True),
        (20, append("b", 15, completed_ns=25, outcome="info"), False),
        (20, append("b", 21, completed_ns=25, outcome="info"), True),
        (20, append("b", 20, offset=1), True),
        (22, append("b", 20, offset=1), False),
        (20, append("b", 30, offset=0, partition=1), False),
    ],
)
def test_a_final_read_before_the_end_of_an_append_is_refused(read, final_ns, late, problem):
    lines = [append("a", 0, offset=0), poll([[0, "a"]], final_ns, final=True), late]
    if not problem:
        read(*lines)
        return
    with pytest.raises(HistoryError) as caught:
        read(*lines)
    assert str(caught.value).endswith(
        "line 2: the final read of t-0 begins before the append of line 3 has ended; mark only reads after the"
        " last append as final"
    )
    clock_error = {**HEADER, "clock_error_ns": 100}
    assert read(clock_error, *lines).workload == Workload.LOG


@pytest.mark.parametrize("kind", ["poll", "latest"])
def test_any_read_that_is_final_comes_after_the_appends(read, kind):
    latest = {**LOG[4], "final": True, "end_offset": 0, "invoked_ns": 0, "completed_ns": 1}
    early = latest if kind == "latest" else poll([], 0, final=True)
    with pytest.raises(HistoryError, match="line 1: the final read of t-0 begins before"):
        read(early, append("a", 5, offset=0), poll([[0, "a"]], 20, final=True))


def test_the_offset_of_an_info_append_counts_once_its_value_was_read(read):
    lines = [append("a", 0, offset=0), append("b", 10, offset=2, outcome="info")]
    for records, validity in (
        ([[0, "a"], [2, "b"]], "valid"),
        ([[0, "a"], [1, "b"]], "invalid"),
        ([[0, "a"]], "valid"),
    ):
        history = read({**HEADER, "sparse": True}, *lines, poll(records, 20, final=True))
        assert str(judge_foreign(history).verdict.validity) == validity


COMPLETE = [
    append("a", 0, offset=0),
    append("b", 2, offset=1),
    latest(2, 20, final=True),
    poll([[0, "a"], [1, "b"]], 30, final=True),
]


@pytest.mark.parametrize(
    ("more", "if_ok"),
    [
        (latest(9, 10, process=2), "invalid"),
        (poll([], 10, process=2, end_offset=9), "invalid"),
        # The first record is skipped, or one below the position is returned.
        (poll([[1, "b"]], 10, process=2, position=0), "invalid"),
        (poll([[0, "a"]], 10, process=2, position=1), "invalid"),
        (latest(2, 10, process=2), "valid"),
    ],
)
def test_only_an_ok_request_shows_a_log_end_or_a_position(read, more, if_ok):
    for outcome, validity in (("ok", if_ok), ("fail", "valid"), ("info", "valid")):
        history = read(*COMPLETE, {**more, "outcome": outcome})
        assert judge_foreign(history).verdict.validity == validity
    without = {name: more[name] for name in more if name not in ("end_offset", "records")}
    history = read(*COMPLETE, {**without, "outcome": "info", "completed_ns": None})
    assert judge_foreign(history).verdict.validity == "valid"


@pytest.mark.parametrize("outcome", ["fail", "info"])
def test_a_final_read_that_is_not_ok_loses_nothing(read, outcome):
    appends = COMPLETE[:2]
    seen = poll([[0, "a"]], 30, final=True)
    history = read(*appends, latest(1, 20, final=True), seen)
    assert judge_foreign(history).verdict.validity == "invalid"
    history = read(*appends, latest(1, 20, final=True, outcome=outcome), seen)
    assert judge_foreign(history).verdict.validity == "unknown"
    # Nor is it refused because it was too early: it decides nothing.
    early = latest(0, 0, final=True, outcome=outcome, process=2)
    assert judge_foreign(read(*COMPLETE, early)).verdict.validity == "valid"


@pytest.mark.parametrize("outcome", ["ok", "fail", "info"])
def test_records_that_a_poll_received_count_whatever_its_outcome(read, outcome):
    received = poll([[0, "never sent"]], 10, outcome=outcome)
    assert judge_foreign(read(*COMPLETE, received)).verdict.validity == "invalid"


@pytest.mark.parametrize("model", ["cas-register", "list-append"])
@pytest.mark.parametrize("outcome", ["ok", "fail", "info"])
def test_a_process_that_calls_two_operations_of_an_object_at_a_time_is_refused(
    read, model, outcome
):
    header = {**HEADER, "model": model}
    first = {**OPERATION, "invoked_ns": 0, "completed_ns": 9, "outcome": outcome}
    with pytest.raises(HistoryError) as caught:
        read(header, {**OPERATION, "invoked_ns": 8, "completed_ns": 20}, first)
    assert "line 2: the operation of process 0 begins before its operation of line 3 has ended" in (
        str(caught.value)
    )
    assert "give concurrent ones processes of their own" in str(caught.value)
    # Another process, a touching operation, one without a length, and one after a call without an end.
    for near_miss in (
        {"process": 1, "invoked_ns": 8, "completed_ns": 20},
        {"invoked_ns": 9, "completed_ns": 20},
        {"invoked_ns": 9, "completed_ns": 9},
        {"invoked_ns": 0, "completed_ns": 0},
    ):
        assert read(header, first, {**OPERATION, **near_miss}).operation_count == 2
    still_open = {**first, "outcome": "info", "completed_ns": None}
    assert read(header, still_open, OPERATION).operation_count == 2


def swapped(first, second):
    """Returns a log on which process 0 appends `a` at offset 1 and `b` at offset 0, at these times."""
    return [
        append("a", first[0], completed_ns=first[1], offset=1),
        append("b", second[0], completed_ns=second[1], offset=0),
        latest(2, 100, final=True),
        poll([[0, "b"], [1, "a"]], 110, final=True),
    ]


def found(history):
    verdict = judge_foreign(history).verdict
    return str(verdict.validity), [one.id for one in verdict.anomalies]


def test_an_append_that_begins_when_the_one_before_ends_was_sent_after_it(read):
    assert found(read(*swapped((0, 5), (6, 9))))[0] == "invalid"
    assert found(read(*swapped((0, 5), (5, 9)))) == ("invalid", ["nonmonotonic-send"])
    assert found(read(*swapped((0, 5), (4, 9)))) == ("valid", ["reordered-send"])
    assert found(read(*swapped((5, 5), (5, 9)))) == ("valid", ["reordered-send"])
    lines = swapped((0, 5), (5, 9))
    assert found(read(lines[0], {**lines[1], "process": 2}, *lines[2:])) == ("valid", [])


def test_a_producer_with_several_appends_in_flight_may_have_sent_one_before_another_one_ended(read):
    lines = [
        *swapped((0, 5), (5, 9))[:2],
        latest(4, 100, final=True),
        poll([[0, "b"], [1, "a"], [2, "c"], [3, "d"]], 110, final=True),
    ]
    more = [append("c", 20, completed_ns=30, offset=2), append("d", 25, completed_ns=40, offset=3)]
    assert found(read(*lines, *more)) == ("valid", ["reordered-send"])
    # What was certainly sent after the acknowledgement stays in order.
    later = [lines[0], {**lines[1], "invoked_ns": 7}, *lines[2:]]
    assert "nonmonotonic-send" in found(read(*later, *more))[1]
    # Those of another process, or records of one batch, are no pipeline.
    other = [{**one, "process": 2} for one in more]
    assert found(read(*lines, *other))[1] == ["nonmonotonic-send"]
    batch = [{**one, "invoked_ns": 20, "completed_ns": 30, "batch": 1} for one in more]
    assert "nonmonotonic-send" in found(read(*lines, *batch))[1]
    # Without a batch nothing says that those that begin together were sent as one.
    assert found(read(*lines, *[{**one, "batch": None} for one in batch]))[0] == "valid"


def test_an_append_that_is_not_ok_shows_that_a_producer_has_several_in_flight(read):
    lines = swapped((0, 10), (10, 20))
    assert found(read(*lines))[1] == ["nonmonotonic-send"]
    other = append("c", 5, completed_ns=15)
    for outcome in ("fail", "info"):
        assert found(read(*lines, {**other, "outcome": outcome})) == ("valid", ["reordered-send"])
    # It began before the other one ended, and may have been sent before that.
    late = {**lines[1], "outcome": "info", "offset": None}
    again = append("c", 3, completed_ns=15, offset=2)
    reads = poll([[0, "b"], [1, "a"], [2, "c"]], 110, final=True)
    for end_ns in (20, None):
        text = read(
            lines[0], {**late, "completed_ns": end_ns}, again, latest(3, 100, final=True), reads
        )
        assert found(text)[0] == "valid"


@pytest.mark.parametrize("first_ns", [150, 160])
def test_which_of_two_final_polls_of_one_tick_came_first_is_not_known(read, first_ns):
    """The cleaner removed offsets 1 and 3. The polls began at 0, 1 and 5; lines may be in any order."""
    log = [
        append(value, at, key=key, offset=offset)
        for offset, (at, value, key) in enumerate(
            [(0, "x", "j"), (10, "a", "k"), (20, "y", "m"), (30, "b", "k"), (40, "c", "k")]
        )
    ]
    polls = [
        poll([[0, "x"]], first_ns, end_offset=5, final=True),
        poll([], 160, position=5, end_offset=5, final=True),
        poll([[2, "y"], [4, "c"]], 160, position=1, end_offset=5, final=True),
    ]
    header = {**HEADER, "compacted": True}
    text = read(header, *log, *[{**one, "completed_ns": 160} for one in polls])
    assert found(text) == ("valid", [])
    if first_ns < 160:
        # A poll that skipped a record is wrong whatever the order was.
        lacking = [polls[0], {**polls[2], "records": [[4, "c"]]}]
        text = read(
            header, *log, *[{**one, "completed_ns": 160 + n} for n, one in enumerate(lacking)]
        )
        assert found(text)[0] == "invalid"


def test_an_offset_without_a_response_is_refused(read):
    with pytest.raises(
        HistoryError, match="line 2: with acks 0 no response tells the producer an offset"
    ):
        read(append("a", 0), append("b", 10, acks=0, offset=1))
