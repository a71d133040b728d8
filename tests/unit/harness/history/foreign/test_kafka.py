"""Jepsen's Kafka workload: what its operations become in our tables, and how small histories are judged."""

import gzip

import pytest

from harness.history.foreign.read import Format, Stated, Workload, read_history
from harness.runs.foreign import judge_foreign

FINAL = """
{:process 9 :type :invoke :f :assign :value [:x] :seek-to-beginning? true}
{:process 9 :type :ok :f :assign :value [:x] :seek-to-beginning? true}
{:process 9 :type :invoke :f :poll :value [[:poll]]}
{:process 9 :type :ok :f :poll :value [[:poll {:x RECORDS}]]}
"""


def sent(process, value, completion, kind="ok", function="send"):
    """One send of a value to :x; `completion` is what stands behind the key when it completes."""
    return (
        f"{{:process {process} :type :invoke :f :{function} :value [[:send :x {value}]]}}\n"
        f"{{:process {process} :type :{kind} :f :{function} :value [[:send :x {completion}]]}}\n"
    )


def polled(process, records, kind="ok"):
    return (
        f"{{:process {process} :type :invoke :f :poll :value [[:poll]]}}\n"
        f"{{:process {process} :type :{kind} :f :poll :value [[:poll {{:x {records}}}]]}}\n"
    )


def assigned(process, function="assign", kind="ok", extra=""):
    return (
        f"{{:process {process} :type :invoke :f :{function} :value [:x]{extra}}}\n"
        f"{{:process {process} :type :{kind} :f :{function} :value [:x]{extra}}}\n"
    )


def final(records):
    return FINAL.replace("RECORDS", records)


@pytest.fixture
def read(tmp_path):
    def read(text, **options):
        path = tmp_path / "history.edn"
        path.write_text(text)
        return read_history(path, **options)

    return read


@pytest.fixture
def judged(read):
    def judged(text):
        verdict = judge_foreign(read(text)).verdict
        return str(verdict.validity), {
            anomaly.id for anomaly in verdict.anomalies if anomaly.judgement == "forbidden"
        }

    return judged


def test_an_operation_becomes_one_row_for_every_send_and_every_polled_key(read):
    history = read(
        """{:process 0 :type :invoke :f :txn :value [[:send :x 1] [:poll] [:send 7 1]] :time 5}
           {:process 0 :type :ok :f :txn :time 9
            :value [[:send :x [4 1]] [:poll {:x [[2 8] [4 1]], :y [[0 3]]}] [:send 7 1]]}"""
    )
    assert history.workload == Workload.LOG
    rows = history.log.tables["operations"].to_pylist()
    columns = ("kind", "topic", "offset", "outcome", "record_count", "invoked_ns", "completed_ns")
    assert [tuple(row[name] for name in columns) for row in rows] == [
        ("append", ":x", 4, "ok", 0, 5, 9),
        ("poll", ":x", None, "ok", 2, 5, 9),
        ("poll", ":y", None, "ok", 1, 5, 9),
        ("append", "7", None, "ok", 0, 5, 9),
    ]
    records = history.log.tables["records_read"].to_pylist()
    assert [(row["op_index"], row["offset"], row["value"]) for row in records] == [
        (1, 2, 4),
        (1, 4, 0),
        (2, 0, 5),
    ]
    assert history.log.phantoms == {4: "8", 5: "3"}
    assert history.log.lines.tolist() == [1, 1, 1, 1]


def test_operations_are_numbered_in_the_order_of_their_invocations(read):
    history = read(
        """{:process 0 :type :invoke :f :send :value [[:send :x 1]]}
           {:process 1 :type :invoke :f :send :value [[:send :x 2]]}
           {:process 1 :type :ok :f :send :value [[:send :x [0 2]]]}
           {:process 0 :type :ok :f :send :value [[:send :x [1 1]]]}"""
    )
    rows = history.log.tables["operations"].to_pylist()
    assert [(row["op_index"], row["process"], row["offset"]) for row in rows] == [
        (0, 0, 1),
        (1, 1, 0),
    ]
    assert history.log.lines.tolist() == [1, 2]


def test_a_history_that_ends_with_complete_reads_is_valid(judged):
    text = sent(0, 1, "[0 1]") + sent(0, 2, "[2 2]", function="txn") + final("[[0 1] [2 2]]")
    assert judged(text) == ("valid", set())


def test_without_final_reads_the_verdict_is_unknown(judged):
    text = sent(0, 1, "[0 1]") + polled(1, "[[0 1]]")
    assert judged(text) == ("unknown", set())


def test_a_record_that_final_reads_went_past_is_lost(judged):
    text = sent(0, 1, "[0 1]") + sent(0, 2, "[1 2]") + final("[[1 2]]")
    assert judged(text) == ("invalid", {"lost-acked-write", "lost-record"})


def test_final_reads_that_end_too_early_leave_the_rest_unknown(judged):
    text = sent(0, 1, "[0 1]") + sent(0, 2, "[1 2]") + final("[[0 1]]")
    assert judged(text) == ("unknown", set())


def test_a_record_that_was_read_beyond_the_final_reads_leaves_the_verdict_unknown(judged):
    text = (
        sent(0, 1, "[0 1]")
        + sent(0, 2, "2", "info")
        + polled(1, "[[0 1] [1 2]]")
        + final("[[0 1]]")
    )
    assert judged(text) == ("unknown", set())


def test_reads_from_the_beginning_before_the_last_append_are_not_final(judged):
    text = sent(0, 1, "[0 1]") + final("[[0 1]]") + sent(0, 2, "[1 2]")
    assert judged(text) == ("unknown", set())


def test_an_acknowledgement_without_offset_of_a_record_that_nobody_read_is_unknown(judged):
    text = sent(0, 1, "[0 1]") + sent(0, 2, "2") + final("[[0 1]]")
    assert judged(text) == ("unknown", set())


def test_an_acknowledgement_without_offset_of_a_record_that_was_read_is_valid(judged):
    text = sent(0, 1, "1") + sent(0, 2, "[1 2]") + final("[[0 1] [1 2]]")
    assert judged(text) == ("valid", set())


def test_a_record_of_a_failed_send_is_an_aborted_read(judged):
    text = sent(0, 1, "1", "fail") + sent(0, 2, "[1 2]") + final("[[0 1] [1 2]]")
    assert judged(text) == ("invalid", {"failed-append-visible"})


def test_two_records_at_one_offset_are_a_conflict(judged):
    text = sent(0, 1, "[0 1]") + sent(1, 2, "[0 2]") + final("[[0 2]]")
    validity, found = judged(text)
    assert validity == "invalid"
    assert "two-acks-one-offset" in found


def test_one_record_at_two_offsets_is_a_duplicate(judged):
    text = sent(0, 1, "[0 1]") + final("[[0 1] [1 1]]")
    assert judged(text) == ("invalid", {"duplicate"})


INFO_SEND = """
{:process 0 :type :invoke :f :txn :value [[:send :x 1] [:send :y 1]]}
{:process 0 :type :info :f :txn :value [[:send :x [0 1]] [:send :y 1]]}
"""


def test_what_an_unknown_operation_learned_does_not_count(judged):
    text = INFO_SEND + sent(1, 2, "[0 2]") + final("[[0 2]]")
    assert judged(text) == ("valid", set())


def test_what_an_unknown_operation_learned_counts_once_one_of_its_values_was_read(judged):
    text = (
        INFO_SEND
        + sent(1, 2, "[0 2]")
        + "{:process 2 :type :invoke :f :poll :value [[:poll]]}\n"
        + "{:process 2 :type :ok :f :poll :value [[:poll {:y [[5 1]]}]]}\n"
        + final("[[0 2]]")
    )
    validity, found = judged(text)
    assert validity == "invalid"
    assert "two-acks-one-offset" in found


def test_a_read_by_an_unknown_operation_proves_nothing_about_another_one(judged):
    text = (
        INFO_SEND
        + sent(1, 2, "[0 2]")
        + "{:process 2 :type :invoke :f :poll :value [[:poll]]}\n"
        + "{:process 2 :type :info :f :poll :value [[:poll {:y [[5 1]]}]]}\n"
        + final("[[0 2]]")
    )
    assert "two-acks-one-offset" not in judged(text)[1]


TWO = sent(0, 1, "[0 1]") + sent(0, 2, "[1 2]") + sent(0, 3, "[2 3]")
ALL = "[[0 1] [1 2] [2 3]]"


def test_an_assigned_consumer_must_not_skip_between_two_polls(judged):
    text = TWO + assigned(1) + polled(1, "[[0 1]]") + polled(1, "[[2 3]]") + final(ALL)
    assert judged(text) == ("invalid", {"lost-record"})


def test_an_assigned_consumer_must_not_go_back(judged):
    text = TWO + assigned(1) + polled(1, "[[0 1] [1 2]]") + polled(1, "[[0 1]]") + final(ALL)
    assert judged(text) == ("invalid", {"nonmonotonic-poll"})


@pytest.mark.parametrize(
    "between",
    [
        pytest.param(assigned(1, "subscribe"), id="subscribe"),
        pytest.param(
            "{:process 1 :type :invoke :f :crash}\n{:process 1 :type :info :f :crash}\n", id="crash"
        ),
        pytest.param(polled(1, "[[1 2]]", "fail"), id="a failed poll of the key"),
        pytest.param(
            "{:process 1 :type :invoke :f :assign :value [:z]}\n"
            "{:process 1 :type :ok :f :assign :value [:z]}\n" + assigned(1),
            id="another assignment",
        ),
    ],
)
def test_a_consumer_may_be_elsewhere_after_its_position_was_lost(judged, between):
    text = TWO + assigned(1) + polled(1, "[[0 1]]") + between + polled(1, "[[2 3]]") + final(ALL)
    assert judged(text) == ("valid", set())


@pytest.mark.parametrize("kind", ["info", "fail"])
def test_a_poll_that_is_not_ok_is_judged_within_itself_only(judged, kind):
    def text(before, records):
        return TWO + assigned(1) + polled(1, before) + polled(1, records, kind) + final(ALL)

    assert judged(text("[[0 1]]", "[[2 3]]")) == ("valid", set())
    assert judged(text("[[0 1] [1 2]]", "[[0 1]]")) == ("valid", set())
    assert judged(text("[[0 1]]", "[[0 1] [2 3]]")) == ("invalid", {"lost-record"})
    assert judged(text("[[0 1]]", "[[1 2] [0 1]]")) == ("invalid", {"unordered-poll"})


@pytest.mark.parametrize("kind", ["ok", "info", "fail"])
@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        ("[[1 2]]", "[[0 1]]", {"nonmonotonic-poll"}),
        ("[[0 1]]", "[[0 1]]", {"nonmonotonic-poll"}),
        ("[[0 1]]", "[[2 3]]", {"lost-record"}),
        ("[[0 1]]", "[[1 2]]", set()),
    ],
)
def test_polls_of_one_operation_follow_each_other_whatever_its_outcome(
    judged, kind, first, second, found
):
    text = (
        TWO
        + "{:process 1 :type :invoke :f :poll :value [[:poll] [:poll]]}\n"
        + f"{{:process 1 :type :{kind} :f :poll :value [[:poll {{:x {first}}}] [:poll {{:x {second}}}]]}}\n"
        + final(ALL)
    )
    assert judged(text) == ("invalid" if found else "valid", found)


def test_a_history_without_records_tests_nothing(judged):
    validity, found = judged(final("[]").replace(":x []", ""))
    assert (validity, found) == ("unknown", set())


def test_an_assignment_that_keeps_a_key_keeps_its_position(judged):
    text = (
        TWO + assigned(1) + polled(1, "[[0 1]]") + assigned(1) + polled(1, "[[2 3]]") + final(ALL)
    )
    assert judged(text) == ("invalid", {"lost-record"})


def test_two_polls_of_one_operation_follow_each_other_unless_partitions_moved(judged):
    def text(extra):
        return (
            TWO
            + "{:process 1 :type :invoke :f :txn :value [[:poll] [:poll]]}\n"
            + "{:process 1 :type :ok :f :txn :value [[:poll {:x [[0 1]]}] [:poll {:x [[2 3]]}]]"
            + f"{extra}}}\n"
            + final(ALL)
        )

    def one_poll(extra):
        return (
            text(extra)
            .replace("[:poll] [:poll]]", "[:poll]]")
            .replace("[[0 1]]}] [:poll {:x [[2 3]]}]", "[[0 1] [2 3]]}]")
        )

    assert judged(text("")) == ("invalid", {"lost-record"})
    assert judged(one_poll("")) == ("invalid", {"lost-record"})
    moved = " :rebalance-log [{:type :assign, :keys [:x]}]"
    assert judged(text(moved)) == ("valid", set())
    assert judged(one_poll(moved)) == ("valid", set())


@pytest.mark.parametrize(
    ("moved", "may_skip"),
    [
        ("[{:keys [:x]}]", True),
        ("[{:keys [:y]} {:keys #{:y :x}}]", True),
        ('[{"keys" (:x)}]', True),
        ("[{:partitions [0]}]", True),
        ("[{:keys [:y]} 5]", True),
        ("[{:keys 5}]", True),
        ("true", True),
        ("[{:keys [:y]}]", False),
        ("[{:keys [] :partitions [0]}]", False),
        ("[]", False),
        ("nil", False),
    ],
)
@pytest.mark.parametrize("records", ["[[0 1] [2 3]]", "[[1 2] [0 1]]"])
def test_only_keys_that_were_assigned_anew_may_be_skipped_or_repeated(
    judged, records, moved, may_skip
):
    line = polled(1, records).replace("}]]}\n", f"}}]] :rebalance-log {moved}}}\n")
    assert judged(TWO + line + final(ALL))[0] == ("valid" if may_skip else "invalid")


def test_a_key_that_was_not_assigned_anew_keeps_its_position(judged):
    def text(key):
        extra = f" :rebalance-log [{{:keys [{key}]}}]"
        first = polled(1, "[[0 1]]").replace("}]]}\n", f"}}]]{extra}}}\n")
        return TWO + assigned(1, extra=SOUGHT) + first + polled(1, "[[2 3]]") + final(ALL)

    assert judged(text(":x")) == ("valid", set())
    assert judged(text(":y")) == ("invalid", {"lost-record"})


@pytest.mark.parametrize("offset", [-(2**63), -1, 2**62, 2**63 - 1])
def test_an_impossible_offset_that_was_read_is_an_anomaly(judged, offset):
    text = TWO + assigned(1) + polled(1, f"[[{offset} 3]]") + polled(1, "[[0 1]]") + final(ALL)
    validity, found = judged(text)
    assert validity == "invalid"
    assert "impossible-offset" in found or offset == 2**62


@pytest.mark.parametrize("offset", [-(2**63), -2, 2**62, 2**63 - 1])
def test_an_impossible_offset_that_a_send_received_is_an_anomaly(judged, offset):
    validity, found = judged(sent(5, 33, f"[{offset} 33]") + TWO + final(ALL))
    assert validity == "invalid"
    assert "impossible-offset" in found or offset == 2**62


def test_an_impossible_offset_is_no_place_in_the_order_of_sends(read):
    """The other send of the transaction is after it, wherever it is."""
    text = (
        "{:process 0 :type :invoke :f :txn :value [[:send :x 1] [:send :x 2]]}\n"
        f"{{:process 0 :type :ok :f :txn :value [[:send :x [{2**62 + 1} 1]] [:send :x [0 2]]]}}\n"
    )
    assert read(text).log.contradictions == ()
    (one,) = read(text.replace(str(2**62 + 1), "1")).log.contradictions
    assert one.id == "nonmonotonic-send"


@pytest.mark.parametrize("function", ["send", "txn", "poll"])
@pytest.mark.parametrize("kind", ["ok", "info", "fail"])
def test_what_an_operation_without_a_value_did_is_not_known(read, function, kind):
    text = (
        f"{{:process 3 :type :invoke :f :{function} :value nil}}\n"
        f"{{:process 3 :type :{kind} :f :{function} :value nil}}\n"
    )
    problems = read(text + TWO + final(ALL)).problems
    if kind == "ok":
        assert problems.sentences == [
            "line 2: it is ok, but has no value, so what it did is not known"
        ]
    elif kind == "info" and function != "poll":
        assert problems.sentences == [
            "line 1: it has no value, so what it may have sent is not known"
        ]
    else:
        assert problems.count == 0


def test_an_object_that_clojure_prints_is_read_in_every_field(judged):
    thing = '#object[jepsen.client$fn__1$reify__2 0x1b2c3d "jepsen.client$fn__1@1b2c3d"]'
    text = (TWO + final(ALL)).replace("}\n", f" :error [:unknown {thing}] :client {thing}}}\n")
    assert judged(text) == ("valid", set())
    assert judged(text.replace(":value", f":cause {thing} :value")) == ("valid", set())


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{:process 0 :type :invoke :f :frob}", "the Kafka workload has no function 'frob'"),
        ("{:process 0 :type :invoke :f :send :value 5}", "5 is no list of sends and polls"),
        (
            "{:process 0 :type :invoke :f :send :value [[:send :x]]}",
            "a send needs a key and a value",
        ),
        (
            "{:process 0 :type :invoke :f :assign :value 5}\n{:process 0 :type :ok :f :assign :value 5}",
            "assign names no list of keys",
        ),
        (
            "{:process 0 :type :invoke :f :assign :value [:x]}\n{:process 0 :type :ok :f :assign :value [:y]}",
            "assign names other keys than on line 1",
        ),
        (sent(0, 5, "[0 6]"), "a send of 5 completes as [0 6]; expected [offset value]"),
        (sent(0, 5, "[-1 5]"), "-1 is no offset"),
        (
            sent(0, 5, "5").replace("[[:send :x 5]]}", "[[:send :y 5]]}", 1),
            "the sends and polls differ",
        ),
        (polled(0, "[[0 1] 7]"), "[[0 1] 7] is no list of records [offset value]"),
        (polled(0, "7"), "7 is no list of records"),
        (polled(0, "7").replace("{:x 7}", "7"), "7 is no map from keys to records"),
    ],
)
def test_what_cannot_be_interpreted_makes_the_verdict_unknown_and_is_named(read, line, problem):
    history = read(TWO + final(ALL) + line)
    judged = judge_foreign(history)
    assert str(judged.verdict.validity) == "unknown"
    assert problem in " ".join(history.problems.sentences)
    assert history.problems.sentences[0].startswith("line 1")


def test_a_value_that_is_appended_twice_is_refused_with_both_lines(read):
    with pytest.raises(
        Exception, match=r"line 3: the value 1 is appended to :x-0 again \(first on line 1\)"
    ):
        read(sent(0, 1, "[0 1]") + sent(0, 1, "[1 1]"))


def test_a_compressed_vector_is_the_same_history(read, tmp_path):
    text = TWO + final(ALL)
    path = tmp_path / "history.edn.gz"
    path.write_bytes(gzip.compress(f"; vector\n[{text}]".encode()))
    packed, plain = read_history(path), read(text)
    assert packed.format == Format.EDN
    assert packed.log.tables == plain.log.tables


def test_operations_without_facts_and_events_of_the_nemesis_are_counted(read):
    history = read(
        "{:process :nemesis :type :info :f :kill}\n"
        "{:process 0 :type :invoke :f :crash}\n{:process 0 :type :info :f :crash}\n" + TWO
    )
    assert history.not_clients == {("nemesis", "kill"): 1}
    assert history.silent == {"crash": 1}


SOUGHT = " :seek-to-beginning? true"
FIRST_TWO = sent(0, 1, "[0 1]") + sent(0, 2, "[1 2]")


@pytest.mark.parametrize(
    ("function", "extra"), [("assign", SOUGHT), ("subscribe", ""), ("txn", ""), ("send", "")]
)
def test_a_position_is_unknown_after_any_operation_that_failed(judged, function, extra):
    failed = (
        sent(1, 3, "3", "fail", function)
        if function in ("txn", "send")
        else assigned(1, function, "fail", extra)
    )
    before = FIRST_TWO + assigned(1, extra=SOUGHT) + polled(1, "[[0 1] [1 2]]")
    end = polled(1, "[[0 1] [1 2]]") + final("[[0 1] [1 2]]")
    assert judged(before + failed + end) == ("valid", set())
    assert judged(before + end) == ("invalid", {"nonmonotonic-poll"})


def test_a_failed_transaction_may_have_read_records(judged):
    failed = (
        "{:process 1 :type :invoke :f :txn :value [[:poll]]}\n"
        "{:process 1 :type :fail :f :txn :value [[:poll]]}\n"
    )
    before = FIRST_TWO + assigned(1, extra=SOUGHT)
    end = polled(1, "[[1 2]]") + final("[[0 1] [1 2]]")
    assert judged(before + failed + end) == ("valid", set())
    assert judged(before + end) == ("invalid", {"lost-record"})


def test_after_a_failure_final_reads_continue_where_they_were_or_decide_nothing(judged):
    assign, complete = FINAL.strip().splitlines()[:2], "[[0 1] [1 2]]"
    before = FIRST_TWO + "\n".join(assign) + "\n" + polled(9, "[]", "fail")
    assert judged(before + polled(9, complete)) == ("valid", set())
    assert judged(before + polled(9, "[[0 1]]") + polled(9, "[[1 2]]")) == ("valid", set())
    assert judged(before + polled(9, "[[1 2]]")) == ("unknown", set())
    assert judged(before + polled(9, "[[1 2]]") + final(complete)) == ("valid", set())
    gone = before + polled(9, "[[1 2]]") + final("[[1 2]]")
    assert judged(gone) == ("invalid", {"lost-acked-write", "lost-record"})


def test_a_send_that_completes_with_a_value_of_another_type_is_named(read):
    history = read(sent(0, 1, "[0 true]") + sent(0, 2, "2.0") + sent(0, "##NaN", "[2 ##NaN]"))
    assert history.problems.sentences == [
        "line 2: a send of 1 completes as [0 true]; expected [offset value]",
        "line 4: a send of 2 completes as 2.0; expected [offset value]",
    ]


def done(asked, result, kind="ok", function="txn"):
    return (
        f"{{:process 3 :type :invoke :f :{function} :value [{asked}]}}\n"
        f"{{:process 3 :type :{kind} :f :{function} :value [{result}]}}\n"
    )


POLL_THEN_SEND = "[:poll {:x RECORDS}] [:send :x [1 2]]"


@pytest.mark.parametrize(
    ("result", "kind", "validity"),
    [
        (POLL_THEN_SEND.replace("RECORDS", "[[0 1] [1 2]]"), "ok", "invalid"),
        (POLL_THEN_SEND.replace("RECORDS", "[[0 1]]"), "ok", "valid"),
        (POLL_THEN_SEND.replace("RECORDS", "[[0 1] [1 2]]"), "info", "invalid"),
        (POLL_THEN_SEND.replace("RECORDS", "[[0 1]]"), "info", "valid"),
        ("[:poll {:x [[0 1] [1 2]]}] [:send :x 2]", "fail", "invalid"),
        (POLL_THEN_SEND.replace("[:poll {:x RECORDS}]", "[:poll {:y [[1 2]]}]"), "ok", "invalid"),
    ],
    ids=[
        "its own later record",
        "an earlier record",
        "info",
        "info, an earlier record",
        "fail",
        "another key",
    ],
)
def test_an_operation_cannot_poll_what_it_sends_afterwards(read, result, kind, validity):
    text = sent(0, 1, "[0 1]") + done("[:poll] [:send :x 2]", result, kind)
    verdict = judge_foreign(read(text + final("[[0 1] [1 2]]"))).verdict
    assert str(verdict.validity) == validity
    is_other_key = ":y" in result
    assert ("future-read" in {one.id for one in verdict.anomalies}) == (
        validity == "invalid" and not is_other_key
    )


@pytest.mark.parametrize(
    ("one", "other"), [("1", "true"), ("1", "1.0"), ("1", "1M"), ("#t 1", "#t true")]
)
def test_partitions_whose_keys_python_considers_equal_have_positions_of_their_own(
    judged, one, other
):
    def after_assignment(second_poll):
        text = "".join(
            f"{{:process 0 :type :{kind} :f :send :value [[:send {key} {value}]]}}\n"
            for key, value in ((one, 1), (one, 2), (other, 3))
            for kind in ("invoke", "ok")
        )
        polls = (f"{{{one} [[0 1] [1 2]]}}", second_poll)
        return text + "".join(
            f"{{:process 1 :type :invoke :f :{function} :value {asked}{seek}}}\n"
            f"{{:process 1 :type :ok :f :{function} :value {result}{seek}}}\n"
            for function, asked, result, seek in (
                ("assign", f"[{one} {other}]", f"[{one} {other}]", " :seek-to-beginning? true"),
                *(("poll", "[[:poll]]", f"[[:poll {polled}]]", "") for polled in polls),
            )
        )

    assert judged(after_assignment(f"{{{other} [[0 3]]}}")) == ("valid", set())
    assert judged(after_assignment(f"{{{one} [[0 1]]}}")) == ("invalid", {"nonmonotonic-poll"})


def test_an_operation_may_poll_what_it_has_sent(judged):
    text = done("[:send :x 2] [:poll]", "[:send :x [0 2]] [:poll {:x [[0 2]]}]")
    assert judged(text + final("[[0 2]]")) == ("valid", set())


def test_a_txn_is_no_transaction_so_others_may_receive_its_records_before_it_ends(judged):
    first = (
        "{:process 3 :type :invoke :f :txn :value [[:send :x 1] [:poll]]}\n",
        "{:process 3 :type :ok :f :txn :value [[:send :x [0 1]] [:poll {:x [[1 2]]}]]}\n",
    )
    second = done("[:send :x 2] [:poll]", "[:send :x [1 2]] [:poll {:x [[0 1]]}]")
    text = first[0] + second.replace(":process 3", ":process 4") + first[1]
    assert judged(text + final("[[0 1] [1 2]]")) == ("valid", set())


def test_what_contradicts_the_order_inside_of_an_operation_is_named(read):
    text = done(
        "[:poll] [:send :x 1] [:send :x 2] [:send :x 3]",
        "[:poll {:x [[2 1]]}] [:send :x [2 1]] [:send :x [0 2]] [:send :x [1 3]]",
    ) + final("[[0 2] [1 3] [2 1]]")
    judged = judge_foreign(read(text))
    verdict = judged.verdict
    forbidden = [one for one in verdict.anomalies if one.judgement == "forbidden"]
    assert [(one.id, one.topic, one.partition, one.count, one.sentence) for one in forbidden] == [
        (
            "future-read",
            ":x",
            0,
            1,
            "op 0 polled the record at offset 2, and the same operation sent it only afterwards, as op 1",
        ),
        (
            "nonmonotonic-send",
            ":x",
            0,
            2,
            "op 1 is at offset 2; the same transaction then sent op 2, which is at offset 0",
        ),
    ]
    assert verdict.reasons[0].startswith("future-read in :x-0 (1): op 0 polled")
    assert verdict.levels["order"] == "broken"
    assert [(number, line) for number, line, _ in judged.named][:3] == [(0, 1), (1, 1), (2, 1)]
    below = judge_foreign(read(text, stated=Stated(log_start_offset=3))).verdict
    found = {one.id: one.count for one in below.anomalies if one.judgement == "forbidden"}
    assert found == {"future-read": 1, "nonmonotonic-send": 2}


@pytest.mark.parametrize(
    ("function", "offsets", "stated", "validity"),
    [
        ("txn", (1, 0), Stated(), "invalid"),
        ("txn", (0, 1), Stated(), "valid"),
        ("send", (1, 0), Stated(), "invalid"),
        ("send", (0, 1), Stated(), "valid"),
        ("send", (1, 0), Stated(at_least_once=True), "valid"),
        ("txn", (1, 0), Stated(acks=1), "valid"),
        ("txn", (1, 0), Stated(at_least_once=True), "valid"),
    ],
)
def test_a_transaction_does_not_reorder_what_it_sends(read, function, offsets, stated, validity):
    one, other = offsets
    text = done(
        "[:send :x 1] [:send :x 2]", f"[:send :x [{one} 1]] [:send :x [{other} 2]]", "ok", function
    )
    records = sorted([(one, 1), (other, 2)])
    text += final("[" + " ".join(f"[{offset} {value}]" for offset, value in records) + "]")
    verdict = judge_foreign(read(text, stated=stated)).verdict
    assert str(verdict.validity) == validity


def test_only_offsets_of_one_key_can_be_out_of_order(judged):
    text = done("[:send :y 1] [:send :x 2]", "[:send :y [1 1]] [:send :x [0 2]]") + final("[[0 2]]")
    assert "nonmonotonic-send" not in judged(text)[1]


@pytest.mark.parametrize("kind", ["ok", "info"])
@pytest.mark.parametrize(
    ("first", "second"), [("1", "[0 2]"), ("[1 1]", "2"), ("1", "2"), ("[1 1]", "[0 2]")]
)
def test_reads_show_where_a_transaction_sent_what_has_no_offset(judged, kind, first, second):
    text = done("[:send :x 1] [:send :x 2]", f"[:send :x {first}] [:send :x {second}]", kind)
    assert "nonmonotonic-send" in judged(text + final("[[0 2] [1 1]]"))[1]
    # Nobody read the first one, and without any read the transaction may not have happened.
    unread = done("[:send :x 1] [:send :x 2]", "[:send :x 1] [:send :x 2]", kind)
    assert "nonmonotonic-send" not in judged(unread + final("[[0 2]]"))[1]


def test_a_read_of_another_offset_than_the_response_says_is_not_taken_for_the_order(judged):
    text = done("[:send :x 1] [:send :x 2]", "[:send :x 1] [:send :x 2]")
    twice = final("[[0 1] [1 2] [2 1]]")
    assert judged(text + twice) == ("invalid", {"duplicate"})


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("[[:poll {:x [[0 1]]} {:x [[0 99]]}]]", "a poll has one map from keys to records"),
        ("nil", "it is ok, but has no value"),
    ],
)
def test_a_poll_that_says_too_much_or_nothing_is_named(read, value, sentence):
    text = sent(0, 1, "[0 1]") + (
        "{:process 1 :type :invoke :f :poll :value [[:poll]]}\n"
        f"{{:process 1 :type :ok :f :poll :value {value}}}\n"
    )
    verdict = judge_foreign(read(text + final("[[0 1]]"))).verdict
    assert str(verdict.validity) == "unknown"
    assert any(sentence in reason for reason in verdict.reasons)
