"""Foreign histories of registers, stores, queues, sets and transactions: what is judged, and what that finds."""

import json

import pytest

from checkers.kernels.transactions.isolation import needs_order_in_time
from harness.errors import HistoryError, UsageError
from harness.history.foreign.read import Format, read_history
from harness.runs.foreign import JudgeOptions, judge_foreign
from harness.runs.foreign_clocks import NO_ORDER
from harness.runs.foreign_models import FIFO_ASSUMED, INITIAL_VALUES_MAX, NOT_STATED, ModelOptions


def edn(*calls):
    """Returns operations, one after the other, as EDN; each is (f, argument, type, result[, rest])."""
    lines = []
    for process, (function, argument, kind, result, *rest) in enumerate(calls):
        extra = "".join(rest)
        lines += [
            f"{{:process {process} :type :invoke :f :{function} :value {argument}{extra}}}",
            f"{{:process {process} :type :{kind} :f :{function} :value {result}{extra}}}",
        ]
    return "\n".join(lines)


@pytest.fixture
def judge(tmp_path):
    def judge(text, *, model="", promise="", **options):
        path = tmp_path / "history"
        path.write_text(text)
        history = read_history(path, model=model)
        judged = judge_foreign(
            history, JudgeOptions(model=ModelOptions(**options), promise=promise)
        )
        return str(judged.verdict.validity), judged

    return judge


WRITE_THEN_STALE = (
    "INFO  jepsen.util - 0\t:invoke\t:write\t1\nINFO  jepsen.util - 0\t:ok\t:write\t1\n"
)
STALE = "INFO  jepsen.util - 1\t:invoke\t:read\tnil\nINFO  jepsen.util - 1\t:ok\t:read\tnil\n"


def test_a_stale_read_in_a_log_of_jepsen_is_invalid_and_its_line_is_named(judge):
    validity, judged = judge(WRITE_THEN_STALE + STALE)
    assert (validity, judged.model) == ("invalid", "register")
    assert [(number, line) for number, line, _ in judged.named] == [(1, 3)]
    assert judge(STALE + WRITE_THEN_STALE)[0] == "valid"


def test_another_line_in_a_log_of_jepsen_leaves_the_verdict_unknown(judge):
    validity, judged = judge(STALE + "foo bar\n" + WRITE_THEN_STALE)
    assert validity == "unknown"
    assert 'line 3: "foo bar" is no line of jepsen.util' in judged.verdict.reasons


def test_a_log_of_jepsen_in_which_no_line_is_an_operation_is_bad_input(tmp_path):
    path = tmp_path / "history"
    for text in ("foo bar\n", "{:process 0 :type :invoke :f :read}\n", "INFO  jepsen.util - x\n"):
        path.write_text(text)
        with pytest.raises(HistoryError, match=r"holds no operation: no line has the form `INFO"):
            read_history(path, form=Format.JEPSEN_LOG)
    path.write_text("INFO  jepsen.util - :nemesis\t:info\t:start\tnil\n")
    assert read_history(path).operation_count == 0


READ_0 = ("read", "nil", "ok", "0")
CAS = ("cas", "[0 5]", "ok", "[0 5]")
READ_5 = ("read", "nil", "ok", "5")
READ_1 = ("read", "nil", "ok", "1")
READ_NIL = ("read", "nil", "ok", "nil")


@pytest.mark.parametrize(
    ("calls", "initial", "validity"),
    [
        ([READ_0, CAS, READ_5], 0, "valid"),
        ([READ_0, CAS, READ_0], 0, "invalid"),
        ([READ_0, READ_NIL, CAS], 0, "valid"),
        ([READ_5, ("write", "1", "ok", "1"), READ_1], None, "invalid"),
        ([READ_5, ("write", "1", "ok", "1"), READ_1], NOT_STATED, "unknown"),
        ([READ_NIL, ("write", "1", "ok", "1"), READ_1], None, "valid"),
        ([("write", "1", "ok", "1"), READ_NIL], None, "invalid"),
        ([READ_0, CAS, READ_5], NOT_STATED, "unknown"),
        ([READ_0, CAS, READ_0], NOT_STATED, "invalid"),
        ([READ_NIL, READ_0, CAS], NOT_STATED, "invalid"),
        ([("cas", "[0 5]", "fail", "[0 5]"), READ_NIL], NOT_STATED, "valid"),
        ([("cas", "[nil 5]", "info", ":timed-out"), READ_5], NOT_STATED, "valid"),
        ([("write", "3", "fail", "3"), ("read", "nil", "ok", "3")], NOT_STATED, "unknown"),
        (
            [READ_NIL, ("write", "3", "fail", "3"), ("read", "nil", "ok", "3")],
            NOT_STATED,
            "invalid",
        ),
        ([("write", "3", "info", "3"), ("read", "nil", "fail", "nil")], NOT_STATED, "unknown"),
    ],
)
def test_registers(judge, calls, initial, validity):
    found, judged = judge(edn(*calls), initial=initial)
    assert found == validity
    assert judged.model == ("cas-register" if any(c[0] == "cas" for c in calls) else "register")


def test_more_possible_initial_values_than_are_tried_leave_the_verdict_unknown(judge):
    reads = [("read", "nil", "ok", str(value)) for value in range(INITIAL_VALUES_MAX + 1)]
    validity, judged = judge(edn(*reads))
    assert validity == "unknown"
    assert "state it with --initial" in judged.verdict.reasons[-1]


def test_pairs_of_key_and_value_are_one_register_per_key(judge):
    calls = [
        ("write", "[:a 1]", "ok", "[:a 1]"),
        ("read", "[:b nil]", "ok", "[:b nil]"),
        ("cas", "[:a [1 2]]", "ok", "[:a [1 2]]"),
        ("read", "[:a nil]", "ok", "[:a 2]"),
    ]
    validity, judged = judge(edn(*calls))
    assert (validity, judged.model) == ("valid", "key-value")
    assert judge(edn(*calls, ("read", "[:a nil]", "ok", "[:a 1]")))[0] == "invalid"
    with pytest.raises(HistoryError, match="line 9: 5 is no pair"):
        judge(edn(*calls, ("write", "5", "ok", "5")))
    with pytest.raises(
        HistoryError, match=r"line 10: nil is no pair; .* with the key :a .* line 9"
    ):
        judge(edn(*calls, ("write", "[:a 5]", "ok", "nil")))


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        (
            [("write", "[:x 1]", "ok", "[:x 1]"), ("read", ":x", "ok", "1")],
            "line 3: read is asked with :x, and a read of a register is asked with nothing",
        ),
        ([("write", "1", "ok", "1"), ("read", ":some-key", "ok", "1")], "with :some-key, and"),
        ([("write", "1", "ok", "1"), ("read", "5", "fail", "nil")], "line 3: read is asked with 5"),
        ([("write", "{:x 1}", "ok", "nil"), ("read", "{:x nil}", "ok", "{:x 1}")], "line 3: .*{:x"),
        ([("read", ":x", "ok", "0"), ("cas", "[0 1]", "ok", "nil")], "--model cas-register if"),
        ([("add", "1", "ok", "1"), ("read", ":x", "ok", "#{1}")], "line 3: .* a read of a set is"),
    ],
)
def test_a_read_that_is_asked_with_something_shows_no_single_register_or_set(
    judge, calls, sentence
):
    with pytest.raises(HistoryError, match=sentence):
        judge(edn(*calls))


def test_a_read_may_be_asked_with_its_own_result(judge):
    """As in histories that Knossos completed, for example its cas-register-bug.edn."""
    calls = [("write", "4", "ok", "4"), ("read", "4", "ok", "4"), ("read", "nil", "info", "nil")]
    assert judge(edn(*calls))[0] == "valid"
    assert judge(edn(*calls, ("read", "3", "ok", "3")))[0] == "invalid"
    with pytest.raises(HistoryError, match="line 7: read is asked with 3"):
        judge(edn(*calls, ("read", "3", "ok", "4")))


def test_what_a_read_of_a_stated_register_is_asked_with_means_nothing(judge):
    calls = [("write", "1", "ok", "1"), ("read", ":some-key", "ok", "1")]
    assert judge(edn(*calls), model="register")[0] == "valid"
    assert judge(edn(*calls, ("read", ":x", "ok", "2")), model="register")[0] == "invalid"
    lines = [operation("write", 1, None, 0), operation("read", 5, 1, 2)]
    with pytest.raises(HistoryError, match="line 2: read is asked with 5, and a read of a reg"):
        judge("\n".join(lines))
    assert judge("\n".join(lines), model="register")[0] == "valid"


def store(function, key, argument, result):
    return function, argument, "ok", result, f' :key "{key}"'


def test_a_store_with_keys(judge):
    calls = [
        store("get", "k", "nil", '""'),
        store("put", "k", '"a"', '"a"'),
        store("append", "k", '"b"', '"b"'),
        store("get", "other", "nil", '""'),
    ]
    validity, judged = judge(edn(*calls, store("get", "k", "nil", '"ab"')))
    assert (validity, judged.model) == ("valid", "key-value")
    assert judge(edn(*calls, store("get", "k", "nil", '"a"')))[0] == "invalid"
    assert judge(edn(*calls, store("get", "k", "nil", '""')))[0] == "invalid"
    with pytest.raises(HistoryError, match="line 1: the operation has no :key"):
        judge(edn(("get", "nil", "ok", "nil")))
    lines = edn(*calls, store("get", "k", "nil", '"ab"')).splitlines()
    with pytest.raises(HistoryError, match=r"line 10: the completion has no :key; .* line 9"):
        judge("\n".join([*lines[:-1], lines[-1].replace(':key "k"', "")]))


def test_every_key_may_hold_another_value_at_first(judge):
    calls = [("read", "[:a nil]", "ok", "[:a 1]"), ("read", "[:b nil]", "ok", "[:b 2]")]
    assert judge(edn(*calls))[0] == "unknown"
    assert judge(edn(*calls, ("read", "[:b nil]", "ok", "[:b 3]")))[0] == "invalid"
    assert judge(edn(*calls), initial=1)[0] == "invalid"


def test_what_a_key_held_at_first_may_have_been_appended_to(judge):
    append = store("append", "k", '"b"', '"b"')
    assert judge(edn(append, store("get", "k", "nil", '"ab"')))[0] == "unknown"
    assert judge(edn(append, store("get", "k", "nil", '"ac"')))[0] == "invalid"
    put = store("put", "k", '"x"', '"x"')
    assert judge(edn(put, append, store("get", "k", "nil", '"ab"')))[0] == "invalid"


PUT_1 = store("put", "k", "1", "1")
APPEND_A = store("append", "k", '"a"', '"a"')


def test_text_that_is_appended_to_a_number_is_bad_input(judge):
    sentence = r"line 3: process 1 append .* may hold 1; text can be appended to text only"
    for got in ('"1a"', "1", "7"):
        with pytest.raises(HistoryError, match=sentence):
            judge(edn(PUT_1, APPEND_A, store("get", "k", "nil", got)))
    with pytest.raises(HistoryError, match=r"line 1: .* may hold 5; text can be appended"):
        judge(edn(APPEND_A, store("get", "k", "nil", '"5a"')), initial=5)


def test_an_append_to_a_number_that_decides_nothing_is_no_reason_to_refuse_a_history(judge):
    failed = ("append", '"a"', "fail", '"a"', ' :key "k"')
    unknown = ("append", '"a"', "info", '"a"', ' :key "k"')
    got_1, got_2 = store("get", "k", "nil", "1"), store("get", "k", "nil", "2")
    for append in (failed, unknown):
        assert judge(edn(PUT_1, append, got_1))[0] == "valid"
    assert judge(edn(PUT_1, failed, got_2))[0] == "invalid"
    assert judge(edn(PUT_1, got_2, APPEND_A))[0] == "invalid"
    text = store("put", "k", '"b"', '"b"')
    assert judge(edn(PUT_1, APPEND_A, text, store("get", "k", "nil", "3")))[0] == "invalid"
    assert judge(edn(text, APPEND_A, PUT_1, store("get", "k", "nil", '"ba"')))[0] == "invalid"


def test_sentences_have_values_in_edn(judge):
    value = '[:x #{sym} {:k 1/2} #inst "1985" "a" true nil]'
    calls = [("write", value, "ok", value), ("read", "nil", "ok", ":other")]
    _, judged = judge(edn(*calls), initial=0)
    assert judged.verdict.reasons[0].startswith("process 1 read -> :other has no place in any")
    ((_, _, text, state),) = judged.order
    assert text == f"process 0 write {value} -> ok"
    assert state == "[:x, {sym}, {:k: 1/2}, #inst \"1985\", 'a', true, nil]"
    with pytest.raises(HistoryError, match=r"process 0 cas :x -> ok needs the input .*, not :x"):
        judge(edn(("cas", ":x", "ok", ":x")), model="cas-register")


def test_queues_and_sets(judge):
    queue = [("enqueue", "1", "ok", "1"), ("enqueue", "2", "ok", "2")]
    assert judge(edn(*queue, ("dequeue", "nil", "ok", "1")))[0] == "valid"
    validity, judged = judge(edn(*queue, ("dequeue", "nil", "ok", "2")))
    assert (validity, judged.model) == ("invalid", "queue")
    added = [("add", "1", "ok", "1"), ("add", "2", "fail", "2")]
    assert judge(edn(*added, ("read", "nil", "ok", "#{1}")))[0] == "valid"
    validity, judged = judge(edn(*added, ("read", "nil", "ok", "#{1 2}")))
    assert (validity, judged.model) == ("invalid", "set")


def test_a_queue_that_was_guessed_may_be_one_without_order(judge):
    calls = [("enqueue", "1", "ok", "1"), ("enqueue", "2", "ok", "2")]
    _, judged = judge(edn(*calls, ("dequeue", "nil", "ok", "2")))
    assert judged.verdict.reasons[-1] == FIFO_ASSUMED
    _, judged = judge(edn(*calls, ("dequeue", "nil", "ok", "2")), model="queue")
    assert FIFO_ASSUMED not in judged.verdict.reasons
    _, judged = judge(edn(*calls, ("dequeue", "nil", "ok", "1")))
    assert judged.verdict.reasons == ()


A_QUEUE_PER_KEY = [
    ("enqueue", "[:x 1]", "ok", "[:x 1]"),
    ("enqueue", "[:y 2]", "ok", "[:y 2]"),
    ("dequeue", "[:y nil]", "ok", "[:y 2]"),
    ("dequeue", "[:x nil]", "ok", "[:x 1]"),
]


def test_dequeues_that_are_asked_with_a_key_are_of_one_queue_per_key(judge):
    validity, judged = judge(edn(*A_QUEUE_PER_KEY))
    assert (validity, judged.model) == ("valid", "keyed-queue")
    once_more = ("dequeue", "[:x nil]", "ok", "[:x 1]")
    assert judge(edn(*A_QUEUE_PER_KEY, once_more))[0] == "invalid"
    assert judge(edn(*A_QUEUE_PER_KEY, ("dequeue", "[:x nil]", "ok", "[:x nil]")))[0] == "valid"
    assert judge(edn(A_QUEUE_PER_KEY[0], ("dequeue", "[:y nil]", "ok", "[:y nil]")))[0] == "valid"
    failed = ("dequeue", "[:x nil]", "fail", ":empty")
    assert judge(edn(*A_QUEUE_PER_KEY, failed))[0] == "valid"
    # One queue may hold pairs, too.
    assert judge(edn(*A_QUEUE_PER_KEY), model="queue")[0] == "invalid"
    pairs = [*A_QUEUE_PER_KEY[:2], ("dequeue", "nil", "ok", "[:x 1]")]
    validity, judged = judge(edn(*pairs))
    assert (validity, judged.model) == ("valid", "queue")


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        ([*A_QUEUE_PER_KEY, ("enqueue", "5", "ok", "5")], "line 9: 5 is no pair"),
        (
            [*A_QUEUE_PER_KEY[:2], ("dequeue", "[:x nil]", "ok", "[:y 2]")],
            "line 6: process 2 completes dequeue of the key :y, but it invoked it of the key :x",
        ),
        (
            [*A_QUEUE_PER_KEY[:2], ("dequeue", ":x", "ok", "1")],
            "line 5: dequeue is asked with :x, and a dequeue of a queue is asked with nothing",
        ),
    ],
)
def test_other_values_of_queues_with_keys_are_refused(judge, calls, sentence):
    with pytest.raises(HistoryError, match=sentence):
        judge(edn(*calls))


def test_operations_of_queues_with_keys_need_the_name_of_their_model(judge):
    added = [operation("enqueue", ["x", 1], None, 0), operation("enqueue", ["y", 2], None, 2)]
    for asked, result in (("y", ["y", 2]), (["y", None], ["y", 2])):
        with pytest.raises(HistoryError, match=r"line 3: dequeue is asked with .*keyed-queue"):
            judge("\n".join([*added, operation("dequeue", asked, result, 4)]))
    taken = [*added, operation("dequeue", "y", 2, 4)]
    assert judge("\n".join(taken), model="keyed-queue")[0] == "valid"
    again = operation("dequeue", "y", 2, 6)
    assert judge("\n".join([*taken, again]), model="keyed-queue")[0] == "invalid"


def operation(function, given, output, at, end=None, process=0, outcome="ok"):
    return json.dumps(
        {
            "kind": "operation",
            "process": process,
            "f": function,
            "input": given,
            "output": output,
            "invoked_ns": at,
            "completed_ns": at + 1 if end is None else end,
            "outcome": outcome,
        }
    )


def test_operation_lines_are_passed_to_the_model_as_they_are(judge):
    lines = [operation("write", 1, None, 0), operation("cas", [1, 2], False, 10)]
    assert judge("\n".join(lines))[0] == "invalid"
    assert judge("\n".join([lines[0], operation("cas", [2, 3], False, 10)]))[0] == "valid"
    with pytest.raises(HistoryError, match=r"line 1: process 0 read .*has the function 'read'"):
        judge(operation("read", None, None, 0), model="queue")


def test_functions_without_a_model_and_models_without_a_value_are_refused(judge):
    with pytest.raises(UsageError, match="has the functions acquire, release, which show no model"):
        judge(edn(("acquire", "nil", "ok", "nil"), ("release", "nil", "ok", "nil")))
    with pytest.raises(UsageError, match=r"which show no model; name one with --model$"):
        judge(edn(("inc", "1", "ok", "1")))
    with pytest.raises(
        UsageError, match=r"list-append takes transactions of \[:append key value\]"
    ):
        judge(edn(("txn", "[[:w :x 1]]", "ok", "[[:w :x 1]]")))
    with pytest.raises(UsageError, match="no model is called 'frob'"):
        judge(edn(READ_NIL), model="frob")
    for initial in (3, None):
        with pytest.raises(UsageError, match="the model 'queue' has no initial value"):
            judge(edn(("dequeue", "nil", "ok", "nil")), initial=initial)
        with pytest.raises(UsageError, match="the model 'set' has no initial value"):
            judge(edn(("add", "1", "ok", "1")), initial=initial)


def test_an_event_without_a_function_shows_no_model(judge):
    lines = edn(READ_0, ("write", "1", "ok", "1")).replace(":f :write ", "")
    with pytest.raises(HistoryError, match="line 3: the event has no function"):
        judge(lines)


def test_a_history_in_which_nothing_succeeded_is_unknown(judge):
    assert judge(edn(("write", "3", "fail", "3")))[0] == "unknown"
    assert judge("{:process :nemesis :type :info :f :kill}")[0] == "unknown"


COUNTED = [("add", "1", "ok", "1"), ("add", "1", "ok", "1")]


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        (
            [*COUNTED, ("read", "nil", "ok", "2")],
            "line 6: read returned 2, and a read of a set returns a collection of its elements",
        ),
        (
            [("read", "nil", "ok", "nil"), *COUNTED],
            "line 2: read returned nil, and a read of a set",
        ),
        ([*COUNTED, ("read", "nil", "ok", "{0 2}")], "line 6: read returned {0 2}, and a read of"),
        ([*COUNTED, ("read", "nil", "ok", '"ab"')], 'line 6: read returned "ab", and a read of a'),
        (
            [("add", "[0 1]", "ok", "[0 1]"), ("read", "[0 nil]", "ok", "[0 #{1}]")],
            "line 3: read is asked with [0 nil], and a read of a set is asked with nothing",
        ),
    ],
)
def test_the_reads_of_a_counter_or_of_several_sets_are_not_guessed_to_be_of_a_set(
    judge, calls, sentence
):
    with pytest.raises(HistoryError) as caught:
        judge(edn(*calls))
    assert sentence in str(caught.value)
    assert "state it with --model" in str(caught.value)


@pytest.mark.parametrize("kind", ["fail", "info"])
def test_a_read_of_a_set_without_a_result_is_no_reason_to_refuse_the_guess(judge, kind):
    reads = [("read", "nil", kind, "nil"), ("read", "nil", "ok", "#{1}")]
    validity, judged = judge(edn(("add", "1", "ok", "1"), *reads))
    assert (validity, judged.model) == ("valid", "set")


@pytest.mark.parametrize(
    ("calls", "line"),
    [
        ([("read", "[[:r 0 nil] [:r 1 nil]]", "ok", "[[:r 0 1] [:r 1 nil]]")], 1),
        ([("read", "nil", "ok", "([:r 0 1] [:r 1 nil] [:r 2 nil])")], 2),
        ([READ_NIL, ("write", "[[:w 0 1]]", "ok", "[[:w 0 1]]")], 3),
        ([READ_NIL, ("write", '[["w" 0 1]]', "ok", '[["w" 0 1]]')], 3),
        ([("read", "[7 [[:r 0 nil] [:r 1 nil]]]", "ok", "[7 [[:r 0 1] [:r 1 nil]]]")], 1),
    ],
)
def test_transactions_on_registers_are_not_guessed_to_be_of_one_register(judge, calls, line):
    with pytest.raises(HistoryError, match=rf"line {line}: .*state it with --model"):
        judge(edn(*calls))


def test_transactions_on_lists_with_functions_of_a_register_name_their_model(judge):
    calls = [
        ("write", "[[:append :x 1]]", "ok", "[[:append :x 1]]"),
        ("read", "[[:r :x nil]]", "ok", "[[:r :x [1]]]"),
    ]
    with pytest.raises(HistoryError, match=r"on several lists, .* with --model list-append, or"):
        judge(edn(*calls))
    assert judge(edn(*calls), model="list-append")[0] == "valid"


def test_a_register_may_hold_lists_and_what_is_stated_is_not_refused(judge):
    lists = [("write", "[[1 2 3]]", "ok", "nil"), ("read", "nil", "ok", "[[1 2 3]]")]
    assert judge(edn(*lists))[0] == "valid"
    micro = [("write", "[[:w 0 1]]", "ok", "nil"), ("read", "nil", "ok", "[[:w 0 1]]")]
    assert judge(edn(*micro), model="register")[0] == "valid"


@pytest.mark.parametrize(
    ("calls", "validity"),
    [
        ([("write", "1", "ok", "1")], "unknown"),
        ([("write", "1", "ok", "1"), ("read", "nil", "info", "nil")], "unknown"),
        ([("write", "1", "ok", "1"), ("read", "nil", "ok", "1")], "valid"),
        ([("enqueue", "1", "ok", "1")], "unknown"),
        ([("enqueue", "1", "ok", "1"), ("dequeue", "nil", "ok", "1")], "valid"),
        (COUNTED, "unknown"),
        ([("add", "1", "ok", "true"), ("add", "1", "ok", "false")], "valid"),
        ([store("put", "k", "1", "1"), store("append", "j", '"a"', '"a"')], "unknown"),
    ],
)
def test_a_history_in_which_nothing_was_read_is_unknown(judge, calls, validity):
    found, judged = judge(edn(*calls))
    assert found == validity
    if validity == "unknown":
        assert judged.verdict.reasons == (
            "no operation that was ok read anything, so nothing was tested",
        )


SKEW = """
{:process 0 :type :invoke :f :txn :value [[:r :x nil] [:append :y 1]]}
{:process 1 :type :invoke :f :txn :value [[:r :y nil] [:append :x 1]]}
{:process 0 :type :ok :f :txn :value [[:r :x nil] [:append :y 1]]}
{:process 1 :type :ok :f :txn :value [[:r :y []] [:append :x 1]]}
{:process 2 :type :invoke :f :txn :value [[:r :x nil] [:r :y nil]]}
{:process 2 :type :ok :f :txn :value [[:r :x [1]] [:r :y [1]]]}
"""


@pytest.mark.parametrize("outcome", ["fail", "info"])
@pytest.mark.parametrize(
    ("later", "promise", "validity"),
    [
        ("[2]", "read-uncommitted", "valid"),
        ("[2]", "read-committed", "invalid"),
        ("[2 2]", "read-uncommitted", "invalid"),
    ],
)
def test_an_uncommitted_read_may_return_what_is_rolled_back(
    judge, outcome, later, promise, validity
):
    text = edn(
        ("txn", "[[:append :x 1]]", outcome, "[[:append :x 1]]"),
        ("txn", "[[:r :x nil]]", "ok", "[[:r :x [1]]]"),
        ("txn", "[[:append :x 2]]", "ok", "[[:append :x 2]]"),
        ("txn", "[[:r :x nil]]", "ok", f"[[:r :x {later}]]"),
    )
    assert judge(text, promise=promise)[0] == validity


def test_transactions_of_lists_are_judged_by_what_they_were_promised(judge):
    validity, judged = judge(SKEW)
    assert (validity, judged.model) == ("invalid", "list-append")
    assert {anomaly.id for anomaly in judged.verdict.anomalies} == {"G2-item"}
    assert [line for _, line, _ in judged.named] == [2, 3]
    assert judge(SKEW, promise="snapshot-isolation")[0] == "valid"


def test_an_aborted_append_that_was_read_is_g1a(judge):
    text = SKEW.replace("{:process 1 :type :ok", "{:process 1 :type :fail")
    validity, judged = judge(text, promise="read-committed")
    assert validity == "invalid"
    assert {anomaly.id for anomaly in judged.verdict.anomalies} == {"G1a"}


@pytest.mark.parametrize(
    ("micro", "problem"),
    [
        ("[:w :x 1]", "[:w :x 1] is neither [:append key value] nor [:r key list]"),
        ("[:r :x 5]", "[:r :x 5] is neither"),
        ("7", "7 is neither"),
    ],
)
def test_other_transactions_are_refused_with_their_line(judge, micro, problem):
    text = SKEW + (
        "{:process 2 :type :invoke :f :txn :value [[:append :x 9]]}\n"
        f"{{:process 2 :type :ok :f :txn :value [{micro}]}}"
    )
    with pytest.raises(HistoryError) as caught:
        judge(text)
    assert f"line 9: {problem}" in str(caught.value)
    text = SKEW + (
        f"{{:process 2 :type :invoke :f :txn :value [{micro}]}}\n"
        "{:process 2 :type :info :f :txn :value nil}"
    )
    with pytest.raises(HistoryError) as caught:
        judge(text)
    assert f"line 8: {problem}" in str(caught.value)


@pytest.mark.parametrize(
    ("appends", "sentence"),
    [
        (
            ["[:append :x 1]", "[:append :x 1]"],
            "line 3: 1 is appended to :x, as on line 1; append each",
        ),
        (['[:append :x 1] [:append :x "b"] [:append :x "b"]'], 'line 1: "b" is appended to :x, as'),
        (["[:append :x 1]", "[:append :y 1] [:append :x 2]", '[:append :x "1"]'], ""),
    ],
)
def test_a_value_that_is_appended_to_a_key_twice_is_bad_input(judge, appends, sentence):
    calls = [("txn", f"[{append}]", "ok", f"[{append}]") for append in appends]
    if not sentence:
        read = ("txn", "[[:r :x nil]]", "ok", '[[:r :x [1 2 "1"]]]')
        assert judge(edn(*calls, read))[0] == "valid"
        return
    with pytest.raises(HistoryError, match=sentence):
        judge(edn(*calls))


A_KEY = [("write", "[:a 1]", "ok", "[:a 1]"), ("read", "[:a nil]", "ok", "[:a 1]")]


@pytest.mark.parametrize(
    ("calls", "sentence"),
    [
        (
            [("write", "1", "ok", "2")],
            "line 2: process 0 completes write 2, but it invoked write 1",
        ),
        (
            [("write", "2", "ok", "1")],
            "line 2: process 0 completes write 1, but it invoked write 2",
        ),
        ([("write", "1", "ok", "false")], "line 2: process 0 completes write false, but"),
        ([READ_0, ("cas", "[0 5]", "ok", "[0 6]")], "line 4: process 1 completes cas"),
        ([READ_0, ("cas", "[0 5]", "ok", "false")], "line 4: process 1 completes cas false, but"),
        ([*A_KEY, ("write", "[:a 2]", "ok", "[:a 3]")], "line 6: process 2 completes write 3, but"),
        (
            [*A_KEY, ("write", "[:a 2]", "ok", "[:b 2]")],
            "line 6: process 2 completes write of the key :b, but it invoked it of the key :a on line 5",
        ),
        ([*A_KEY, ("read", "[:a nil]", "ok", "[:b 1]")], "line 6: process 2 completes read of the"),
        ([store("put", "k", "1", "2")], "line 2: process 0 completes put 2, but it invoked put 1"),
        ([store("append", "k", '"a"', '"b"')], "line 2: process 0 completes append"),
        ([("enqueue", "1", "ok", "2")], "line 2: process 0 completes enqueue 2, but it invoked"),
        ([("add", "1", "ok", "2")], "line 2: process 0 completes add 2, but it invoked add 1"),
        ([READ_0, ("write", "1", "info", "2")], "line 4: process 1 completes write 2, but it"),
        ([READ_0, ("write", "1", "info", "false")], "line 4: process 1 completes write false, but"),
        ([READ_0, ("write", "1", "fail", "true")], "line 4: process 1 completes write true, but"),
        ([READ_0, ("write", "1", "ok", ":timed-out")], "line 4: process 1 completes write :timed"),
        ([("enqueue", "1", "fail", "2")], "line 2: process 0 completes enqueue 2, but it invoked"),
        ([*A_KEY, ("write", "[:a 2]", "info", "[:a 3]")], "line 6: process 2 completes write 3"),
        ([*A_KEY, ("write", "[:a 2]", "info", "[:b 2]")], "line 6: process 2 completes write of"),
        ([*A_KEY, ("write", "[:a 2]", "fail", "3")], "line 6: process 2 completes write 3"),
        ([*A_KEY, ("read", "[:a nil]", "info", "[:b nil]")], "line 6: process 2 completes read of"),
    ],
)
def test_a_completion_with_another_value_or_key_is_bad_input(judge, calls, sentence):
    with pytest.raises(HistoryError, match=sentence):
        judge(edn(*calls))


def test_a_completion_with_another_key_of_a_store_is_bad_input(judge):
    first, second = edn(store("put", "k", "1", "1")).splitlines()
    got = edn(store("get", "k", "nil", "1")).replace(":process 0", ":process 1")
    assert judge(f"{first}\n{second}\n{got}")[0] == "valid"
    for outcome in ("fail", "info"):
        third, fourth = (
            edn(store("put", "k", "2", "nil"))
            .replace(":process 0", ":process 2")
            .replace(":ok", f":{outcome}")
            .splitlines()
        )
        for ended in (
            fourth,
            fourth.replace(':key "k"', ":key nil"),
            fourth.replace(' :key "k"', ""),
        ):
            assert judge(f"{first}\n{second}\n{got}\n{third}\n{ended}")[0] == "valid"
        with pytest.raises(HistoryError, match='line 6: process 2 completes put of the key "j"'):
            judge("\n".join([first, second, got, third, fourth.replace('"k"', '"j"')]))
    changed = second.replace(':key "k"', ':key "j"')
    with pytest.raises(HistoryError, match=r'line 2: .*of the key "j", but it invoked it of the'):
        judge(f"{first}\n{changed}")


@pytest.mark.parametrize(
    "calls",
    [
        [("write", "1", "ok", "nil"), ("read", "nil", "ok", "1")],
        [("write", "1", "ok", "true"), ("read", "nil", "ok", "1")],
        [("write", "1", "info", "nil"), ("read", "nil", "ok", "1")],
        [("write", "1", "info", ":timed-out"), ("read", "nil", "ok", "1")],
        [("write", "1", "ok", "1"), ("write", "2", "fail", "2"), ("read", "nil", "ok", "1")],
        [("read", "nil", "info", "7"), ("write", "1", "ok", "1"), ("read", "nil", "ok", "1")],
        [*A_KEY, ("write", "[:a 2]", "info", "nil"), ("read", "[:a nil]", "ok", "[:a 2]")],
        [*A_KEY, ("write", "[:a 2]", "info", "[:a nil]"), ("read", "[:a nil]", "ok", "[:a 2]")],
        [
            *A_KEY,
            ("read", "[:a nil]", "info", "[:a 7]"),
            ("read", "[:a nil]", "fail", ":timed-out"),
        ],
        [("write", "1", "ok", "1"), ("cas", "[2 1]", "fail", "false"), ("read", "nil", "ok", "1")],
        [("write", "1", "ok", "1"), ("cas", "[1 2]", "ok", "(1 2)"), ("read", "nil", "ok", "2")],
        [("enqueue", "1", "ok", "nil"), ("dequeue", "nil", "ok", "1")],
        [("add", "1", "ok", "true"), ("add", "1", "ok", "false"), ("read", "nil", "ok", "#{1}")],
        [("add", "1", "ok", "nil"), ("read", "nil", "ok", "#{1}")],
    ],
)
def test_a_completion_need_not_repeat_the_value(judge, calls):
    assert judge(edn(*calls))[0] == "valid"


@pytest.mark.parametrize(
    ("done", "is_same"),
    [
        ("[[:append :x 9] [:r :y [1]]]", True),
        ("([:append :x 9] [:r :y [1]])", True),
        ("[[:append :x 8] [:r :y [1]]]", False),
        ("[[:append :y 9] [:r :y [1]]]", False),
        ("[[:append :x 9] [:r :x [1]]]", False),
        ("[[:r :x [9]] [:r :y [1]]]", False),
        ("[[:append :x 9]]", False),
        ("[[:append :x 9] [:r :y [1]] [:r :x [1 9]]]", False),
    ],
)
@pytest.mark.parametrize("outcome", ["ok", "fail", "info"])
def test_a_transaction_completes_with_its_own_appends_and_reads(judge, done, is_same, outcome):
    text = SKEW + (
        "{:process 2 :type :invoke :f :txn :value [[:append :x 9] [:r :y nil]]}\n"
        f"{{:process 2 :type :{outcome} :f :txn :value {done}}}"
    )
    if is_same:
        assert judge(text, promise="read-committed")[0] == "valid"
        without = text.replace(" :value [[:append :x 9] [:r :y nil]]", "")
        if outcome == "ok":
            assert judge(without, promise="read-committed")[0] == "valid"
        else:
            timed_out = text.replace(done, ":timed-out")
            assert judge(timed_out, promise="read-committed")[0] == "valid"
        return
    with pytest.raises(HistoryError) as caught:
        judge(text)
    assert str(caught.value).endswith(
        "line 9: the appends and reads differ from those that process 2 invoked on line 8"
    )


@pytest.mark.parametrize(
    ("calls", "validity", "model"),
    [
        ([("write", "[0 1]"), ("cas", "[0 [1 2]]")], "valid", "key-value"),
        ([("write", "[0 1]"), ("cas", "[0 [3 2]]")], "invalid", "key-value"),
        ([("write", "0"), ("cas", "[0 [1 2]]")], "valid", "cas-register"),
        ([("write", "[1 2]"), ("cas", "[[1 2] [3 4]]")], "valid", "cas-register"),
        ([("write", "[0 1]"), ("cas", "[[0 1] 2]")], "valid", "cas-register"),
    ],
)
def test_values_without_any_read_have_keys_if_every_cas_has_one(judge, calls, validity, model):
    found, judged = judge(edn(*((f, value, "ok", value) for f, value in calls)))
    assert (found, judged.model) == (validity, model)


WROTE_1 = operation("write", 1, None, 0, end=10)


@pytest.mark.parametrize(
    ("lines", "initial", "invalid"),
    [
        ([operation("cas", [None, 1], False, 0)], 7, [operation("read", None, None, 5)]),
        (
            [operation("cas", [7, 8], False, 0), operation("read", None, 5, 5)],
            5,
            [operation("read", None, 6, 7)],
        ),
        (
            [WROTE_1, operation("read", None, 5, 10, end=12, process=1)],
            5,
            [operation("read", None, 5, 13)],
        ),
        (
            [
                operation("cas", [6, 9], False, 0),
                operation("cas", [5, 6], None, 0, process=1, outcome="info"),
                operation("read", None, 6, 2),
            ],
            5,
            [operation("read", None, 5, 4)],
        ),
    ],
)
def test_any_initial_value_that_may_explain_a_history_is_tried(judge, lines, initial, invalid):
    header = json.dumps({"kind": "history", "version": 1, "model": "cas-register"})
    text = "\n".join([header, *lines])
    assert judge(text)[0] == "unknown"
    assert judge(text, initial=initial)[0] == "valid"
    assert judge("\n".join([text, *invalid]))[0] == "invalid"


def test_the_value_that_explains_an_unsuccessful_cas_occurs_nowhere(judge):
    cas = operation("cas", [None, "another value"], False, 0)
    validity, judged = judge(cas)
    assert validity == "unknown"
    assert 'the value is "another value?" at first' in judged.verdict.reasons[-1]


def test_one_key_may_hold_empty_text_at_first_and_another_one_nothing(judge):
    calls = [
        store("get", "a", "nil", "nil"),
        store("get", "b", "nil", '""'),
        store("append", "b", '"x"', '"x"'),
        store("get", "b", "nil", '"x"'),
    ]
    assert judge(edn(*calls))[0] == "unknown"
    assert judge(edn(*calls, store("get", "b", "nil", '""')))[0] == "invalid"


def test_a_read_of_nothing_states_nothing_if_the_initial_value_is_stated(judge):
    lines = [operation("read", None, None, 0), operation("cas", [0, 1], True, 5)]
    assert judge("\n".join(lines), initial=0)[0] == "valid"
    assert judge("\n".join([*lines, operation("read", None, 0, 9)]), initial=0)[0] == "invalid"
    assert judge("\n".join(lines))[0] == "invalid"
    got = [store("get", "a", "nil", "nil")]
    assert judge(edn(*got), initial="")[0] == "unknown"
    assert judge(edn(*got, store("get", "a", "nil", '""')), initial="")[0] == "valid"
    assert judge(edn(*got, store("get", "a", "nil", '"x"')), initial="")[0] == "invalid"


@pytest.mark.parametrize(
    ("calls", "validity"),
    [
        ([("add", "false", "false"), ("read", "nil", "#{false}")], "valid"),
        ([("add", "true", "true"), ("add", "true", "true"), ("read", "nil", "#{true}")], "valid"),
        ([("add", "true", "true"), ("remove", "true", "true"), ("read", "nil", "#{}")], "valid"),
        ([("add", "false", "true"), ("add", "false", "true")], "invalid"),
        ([("add", "1", "true"), ("add", "1", "true")], "invalid"),
        ([("contains", "true", "true")], "invalid"),
    ],
)
def test_true_and_false_are_the_result_of_a_set_unless_they_repeat_the_element(
    judge, calls, validity
):
    assert judge(edn(*((f, given, "ok", result) for f, given, result in calls)))[0] == validity


def skewed(error_ns, *lines):
    header = {"kind": "history", "version": 1, "model": "register", "clock_error_ns": error_ns}
    return "\n".join([json.dumps(header), *lines])


def test_operations_of_a_model_that_are_closer_than_the_clock_error_are_concurrent(judge):
    lines = [
        operation("write", 1, None, 0, end=10, process=0),
        operation("write", 2, None, 20, end=30, process=1),
        operation("read", None, 1, 200, end=210, process=2),
    ]
    assert judge(skewed(10, *lines))[0] == "valid"
    assert judge(skewed(9, *lines))[0] == "invalid"


def test_operations_of_one_process_keep_their_order_whatever_the_clock_error_is(judge):
    mine = [
        operation("write", 1, None, 0, end=10),
        operation("write", 2, None, 20, end=30),
    ]
    read_1 = operation("read", None, 1, 200, end=210, process=1)
    assert judge(skewed(50, *mine, read_1))[0] == "unknown"
    assert judge(skewed(50, *mine, operation("read", None, 2, 200, end=210)))[0] == "valid"
    assert judge(skewed(50, *mine, operation("read", None, 3, 200, end=210)))[0] == "invalid"


@pytest.mark.parametrize("error_ns", [0, 5])
def test_an_operation_that_begins_when_its_process_ends_another_one_comes_after_it(judge, error_ns):
    """A clock of milliseconds shows both at one time."""
    write = operation("write", 1, None, 0, end=2)
    later = operation("read", None, 1, 20, end=30, process=1)
    for begin, end in ((2, 3), (2, 2), (3, 4)):
        stale = operation("read", None, 0, begin, end=end)
        expected = "unknown" if error_ns else "invalid"
        assert judge(skewed(error_ns, write, stale, later), initial=0)[0] == expected
        meanwhile = operation("read", None, 0, begin, end=end, process=2)
        expected = "invalid" if begin > 2 + error_ns else "valid"
        assert judge(skewed(error_ns, write, meanwhile, later), initial=0)[0] == expected


def test_another_process_may_come_between_close_operations_of_one_process(judge):
    """A write that was recorded after two others, within the clock error, may have been before both."""
    lines = [
        operation("write", 1, None, 0, end=10),
        operation("read", None, 1, 20, end=25),
        operation("write", 2, None, 28, end=29, process=1),
        operation("read", None, 1, 500, end=510, process=2),
    ]
    assert judge(skewed(0, *lines))[0] == "invalid"
    validity, judged = judge(skewed(100, *lines))
    assert validity == "unknown"
    assert "closer than clock_error_ns" in judged.verdict.reasons[-1]


STALE_READ = [
    operation("write", 1, None, 0, end=10),
    operation("read", None, 0, 200, end=210, process=1),
]


@pytest.mark.parametrize(
    ("error_ns", "validity"), [(0, "invalid"), (189, "invalid"), (190, "unknown"), (900, "unknown")]
)
def test_a_model_is_not_valid_if_the_clock_error_hides_every_order_of_processes(
    judge, error_ns, validity
):
    found, judged = judge(skewed(error_ns, *STALE_READ), initial=0)
    assert found == validity
    assert (NO_ORDER in judged.verdict.reasons) is (found == "unknown")


def test_the_clock_error_hides_no_order_that_processes_or_later_operations_show(judge):
    write, read = operation("write", 1, None, 0, end=10), operation("read", None, 1, 200)
    # One process has one clock, and what was concurrent anyway is not hidden.
    assert judge(skewed(900, write, read))[0] == "valid"
    meanwhile = operation("read", None, 1, 9, end=20, process=1)
    assert judge(skewed(900, write, meanwhile))[0] == "valid"
    other = operation("read", None, 1, 200, process=1)
    assert judge(skewed(900, write, other))[0] == "unknown"
    assert (
        judge(skewed(900, write, other, operation("read", None, 1, 911, process=2)))[0] == "valid"
    )
    # Neither an operation that failed nor one without a known end has a place in the order.
    failed = operation("write", 3, None, 911, process=2, outcome="fail")
    assert judge(skewed(900, write, other, failed))[0] == "unknown"
    unknown = operation("write", 3, None, -900, end=-800, process=2, outcome="info")
    assert judge(skewed(900, write, other, unknown))[0] == "unknown"
    # What contradicts the model in every order stays invalid.
    assert judge(skewed(900, write, operation("read", None, 7, 200, process=1)), initial=0)[0] == (
        "invalid"
    )


@pytest.mark.parametrize(
    ("promise", "validity"),
    [
        ("", "unknown"),
        ("strong-read-committed", "unknown"),
        ("strong-session-serializable", "valid"),
        ("serializable", "valid"),
    ],
)
def test_isolation_levels_that_need_the_order_in_time_do_not_hold_without_it(
    judge, promise, validity
):
    header = {"kind": "history", "version": 1, "model": "list-append", "clock_error_ns": 50}
    event = {"kind": "event", "process": 0, "f": "txn", "time": 0, "value": [["append", "x", 1]]}
    after = {**event, "process": 1, "value": [["r", "x", [1]]]}
    lines = [
        {**event, "type": "invoke"},
        {**event, "type": "ok", "time": 10},
        {**after, "type": "invoke", "time": 20, "value": [["r", "x", None]]},
        {**after, "type": "ok", "time": 30},
    ]
    text = "\n".join(map(json.dumps, [header, *lines]))
    found, judged = judge(text, promise=promise)
    assert (found, judged.verdict.reasons) == (validity, (NO_ORDER,) * (found == "unknown"))
    levels = judged.verdict.levels
    assert {level for level, state in levels.items() if state == "unknown"} == {
        level for level in levels if needs_order_in_time(level)
    }
    assert judge(text.replace('"clock_error_ns": 50', '"clock_error_ns": 9'), promise=promise)[
        0
    ] == ("valid")


def test_integers_and_other_numbers_are_different_values_of_edn(judge):
    for written, read in (
        ("1", "1.0"),
        ("1", "1M"),
        ("1.5", "1.5M"),
        ("1", "true"),
        ("0", "false"),
        ("#t {:a 1}", "#t {:a true}"),
        ("#t [1]", "#t [1.0]"),
    ):
        calls = [("write", written, "ok", "nil"), ("read", "nil", "ok", read)]
        assert judge(edn(*calls))[0] == "invalid"
        with pytest.raises(HistoryError, match="line 2: process 0 completes enqueue"):
            judge(edn(("enqueue", read, "ok", written)))
        assert judge(edn(("write", read, "ok", read), ("read", "nil", "ok", read)))[0] == "valid"
    same = [("write", "1", "ok", "1N"), ("read", "nil", "ok", "1N")]
    assert judge(edn(*same, ("write", "1.50M", "ok", "1.5M")))[0] == "valid"


@pytest.mark.parametrize("pair", [("1", "true"), ("1", "1.0"), ("1", "1M")])
def test_tagged_values_are_different_if_what_is_tagged_is(judge, pair):
    one, other = (f"#t {value}" for value in pair)
    keyed = [("write", f"[{one} 5]", "ok", f"[{one} 5]")]
    for key, validity in ((one, "invalid"), (other, "valid")):
        read_nothing = ("read", f"[{key} nil]", "ok", f"[{key} nil]")
        assert judge(edn(*keyed, read_nothing), initial=None)[0] == validity
    old = [("write", one, "ok", one), ("cas", f"[{other} 5]", "ok", f"[{other} 5]")]
    assert judge(edn(*old))[0] == "invalid"
    queue = [("enqueue", one, "ok", one), ("dequeue", "nil", "ok", other)]
    assert judge(edn(*queue))[0] == "invalid"
    elements = [("add", one, "ok", one), ("add", other, "ok", other)]
    both = ("read", "nil", "ok", f"#{{{one} {other}}}")
    assert judge(edn(*elements, both))[0] == "valid"
    assert judge(edn(*elements[:1], both))[0] == "invalid"


@pytest.mark.parametrize(
    ("one", "other"),
    [("1.0M", "1.00M"), ("0.0", "-0.0"), ("2", "4/2"), ("#t 1.0M", "#t 1.00M"), ("100M", "1E+2M")],
)
def test_equal_values_are_equal_for_models_and_transactions(judge, one, other):
    assert judge(edn(("write", one, "ok", other), ("read", "nil", "ok", other)))[0] == "valid"
    append, read = f"[[:append {one} {one}]]", f"[[:r {other} [{other}]]]"
    calls = [("txn", append, "ok", append), ("txn", f"[[:r {other} nil]]", "ok", read)]
    assert judge(edn(*calls))[0] == "valid"


def test_equal_numbers_of_json_are_one_value_however_they_are_written(judge):
    def text(written, read):
        lines = [operation("write", "W", None, 0), operation("read", None, "R", 5)]
        return "\n".join(lines).replace('"W"', written).replace('"R"', read)

    for pair in (
        ("10000000000000000", "1e16"),
        ("0.10", "1e-1"),
        ("9007199254740993", "9007199254740993.0"),
    ):
        assert judge(text(*pair), initial=None)[0] == "valid"
    assert judge(text("9007199254740993.0", "9007199254740992.0"), initial=None)[0] == "invalid"


def test_1_and_1_0_are_one_number_of_json(judge):
    lines = [operation("write", 1, None, 0), operation("read", None, 1.0, 5)]
    assert judge("\n".join(lines))[0] == "valid"
    assert judge("\n".join([*lines, operation("read", None, 1.5, 9)]))[0] == "invalid"


def test_a_value_that_is_no_number_repeats_itself(judge):
    nan = ("write", "##NaN", "ok", "##NaN")
    assert judge(edn(nan, ("read", "nil", "ok", "##NaN")))[0] == "valid"


def test_transactions_append_any_number(judge):
    for value in (2**63 - 1, 2**63, -(2**63), -(2**64), "##NaN", "1.5"):
        append = f"[[:append :x {value}]]"
        for read, validity in ((value, "valid"), (3, "invalid")):
            text = edn(
                ("txn", append, "ok", append), ("txn", "[[:r :x nil]]", "ok", f"[[:r :x [{read}]]]")
            )
            assert judge(text)[0] == validity
    with pytest.raises(HistoryError, match="line 2: the appends and reads differ"):
        judge(edn(("txn", "[[:append :x 1]]", "ok", "[[:append :x 1.0]]")))


@pytest.mark.parametrize(("begin", "end", "validity"), [(5, 5, "valid"), (5, 6, "invalid")])
def test_transactions_of_one_process_without_a_length_at_one_time_have_no_order(
    judge, begin, end, validity
):
    """A clock of milliseconds does not show which one came first; the order of lines means nothing."""
    append = operation("txn", [["append", "x", 1]], [["append", "x", 1]], 5, end=5)
    read = operation("txn", [["r", "x", None]], [["r", "x", []]], begin, end=end)
    later = operation("txn", [["r", "x", None]], [["r", "x", [1]]], 9, end=10, process=1)
    for lines in ([append, read, later], [later, read, append]):
        assert judge("\n".join(lines), model="list-append")[0] == validity
