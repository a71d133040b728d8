"""Operations from events: pairs, order, and what cannot be interpreted."""

import pytest

from harness.errors import HistoryError
from harness.history.foreign.edn import read_forms
from harness.history.foreign.events import (
    PROBLEMS_KEPT_MAX,
    Pairing,
    Problems,
    events_of_forms,
)
from harness.history.foreign.jepsen_log import events_of_log


def operations(text):
    problems = Problems()
    pairing = Pairing(problems, "text")
    events = events_of_forms(read_forms([text], origin="text", unwrap=True), problems)
    return list(pairing.operations(events)), problems, pairing


def test_an_invocation_and_its_completion_are_one_operation():
    (one,), problems, _ = operations(
        """[{:process 3, :type :invoke, :f :cas, :value [1 2], :time 10, :index 0}
            #jepsen.history.Op{:process 3, :type :ok, :f :cas, :value [1 2], :time 25, :index 1}]"""
    )
    assert (one.process, one.function, one.outcome) == (3, "cas", "ok")
    assert (one.argument, one.result) == ((1, 2), (1, 2))
    assert (one.invoked_ns, one.completed_ns) == (10, 25)
    assert (one.line, one.completion_line) == (1, 2)
    assert one.extra == {"index": 1}
    assert problems.count == 0


def test_the_order_of_events_counts_where_recorded_times_tie_or_go_back():
    found, _, _ = operations(
        """{:process 0, :type :invoke, :f :read, :time 7}
           {:process 0, :type :ok, :f :read, :value 1, :time 7}
           {:process 1, :type :invoke, :f :read, :time 5}
           {:process 1, :type :ok, :f :read, :value 1}"""
    )
    assert [(one.invoked_ns, one.completed_ns) for one in found] == [(7, 8), (9, 10)]


def test_an_operation_without_completion_is_info_and_its_process_can_be_used_again():
    found, problems, _ = operations(
        """{:process 0, :type :invoke, :f :write, :value 1}
           {:process 0, :type :info, :f :write, :value 1, :error :timeout}
           {:process 0, :type :invoke, :f :write, :value 2}"""
    )
    assert [(one.argument, one.outcome) for one in found] == [(1, "info"), (2, "info")]
    assert found[1].completed_ns is None
    assert problems.count == 0


def test_events_of_the_nemesis_are_counted_not_judged():
    found, problems, pairing = operations(
        """{:process :nemesis, :type :info, :f :kill, :value nil}
           {:process :nemesis, :type :info, :f :kill, :value {"n1" :killed}}"""
    )
    assert found == []
    assert problems.count == 0
    assert pairing.not_clients == {("nemesis", "kill"): 2}


def test_a_nemesis_may_call_functions_that_a_client_cannot():
    _, problems, pairing = operations("{:process :nemesis, :type :info, :f [:storage :kill]}")
    assert (problems.count, pairing.not_clients) == (0, {("nemesis", "[:storage :kill]"): 1})
    _, problems, pairing = operations("{:process 0, :type :info, :f [:storage :kill]}")
    assert (problems.count, pairing.not_clients) == (1, {})


def test_times_may_begin_after_the_first_event():
    year_2026_ns = 1_780_000_000_000_000_000
    (one, other), _, _ = operations(
        f"""{{:process 0, :type :invoke, :f :read}}
            {{:process 0, :type :ok, :f :read, :time {year_2026_ns}}}
            {{:process 0, :type :invoke, :f :read, :time {year_2026_ns + 5}}}"""
    )
    assert (one.invoked_ns, one.completed_ns, other.invoked_ns) == (0, 1, 6)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("5", "line 1: 5 is not an operation; expected a map"),
        ("{:process 0 :f :read}", "line 1: an event needs the type invoke, ok, fail or info"),
        ("{:process 0 :type :maybe}", "line 1: an event needs the type"),
        ("{:process 1.5 :type :ok :f :read}", "line 1: 1.5 is no process; clients are numbers"),
        ("{:process 0 :type :ok :f 7}", "line 1: the function `f` is neither"),
        ("{:process 0 :type :ok :f :read :time 0.5}", "line 1: the time 0.5 is not a number"),
        ('{:type :ok "type" :fail}', "line 1: a key stands there twice"),
        (
            "\n{:process 4 :type :ok :f :read :value 1}",
            "line 2: process 4 completes an operation that it did not invoke",
        ),
        (
            "{:process 4 :type :invoke :f :read}\n{:process 4 :type :invoke :f :read}",
            "line 2: process 4 invokes an operation although its operation of line 1 is still open",
        ),
    ],
)
def test_what_cannot_be_interpreted_is_named_by_its_line(text, problem):
    _, problems, _ = operations(text)
    assert problems.count == 1
    assert problems.sentences[0].startswith(problem)


@pytest.mark.parametrize("kind", ["ok", "fail", "info"])
def test_a_completion_of_another_function_is_bad_input(kind):
    sentence = "text, line 2: process 4 completes 'write', but it invoked 'read' on line 1"
    with pytest.raises(HistoryError, match=sentence):
        operations(f"{{:process 4 :type :invoke :f :read}}\n{{:process 4 :type :{kind} :f :write}}")


@pytest.mark.parametrize("value", [1, 2])
def test_a_completion_of_one_of_two_open_operations_contradicts_neither(value):
    """As in a history without processes, whose operations overlap."""
    found, problems, _ = operations(
        "{:type :invoke :f :write :value 1}\n{:type :invoke :f :read}\n"
        f"{{:type :ok :f :write :value {value}}}\n"
        "{:type :invoke :f :write :value 3}\n{:type :ok :f :write :value 3}"
    )
    assert [one.argument for one in found] == [3]
    assert [sentence[:7] for sentence in problems.sentences] == ["line 2:", "line 3:"]
    assert "it is not known which of them this completes" in problems.sentences[1]


def test_many_problems_are_counted_and_the_first_ones_named():
    _, problems, _ = operations("7 " * 100)
    assert problems.count == 100
    assert len(problems.sentences) == PROBLEMS_KEPT_MAX


def test_log_lines_of_jepsen_are_events():
    lines = [
        "INFO  jepsen.util - 0\t:invoke\t:read\tnil",
        "INFO  jepsen.util - 12\t:invoke\t:cas\t[1 4]",
        "INFO  jepsen.util - :nemesis\t:info\t:start\tnil",
        "INFO  jepsen.util - 0\t:ok\t:read\t3",
        "INFO  jepsen.util - 12\t:info\t:cas\t:timed-out",
        "",
    ]
    problems = Problems()
    pairing = Pairing(problems, "text")
    found = list(pairing.operations(events_of_log(lines, problems)))
    assert [
        (one.process, one.function, one.argument, one.result, one.outcome) for one in found
    ] == [
        (0, "read", None, 3, "ok"),
        (12, "cas", (1, 4), None, "info"),
    ]
    assert pairing.not_clients == {("nemesis", "start"): 1}
    assert problems.count == 0


@pytest.mark.parametrize(
    "line",
    [
        "java.lang.Exception",
        "INFO  jepsen.util - hello",
        "INFO  jepsen.util - 0\t:invoke\t:read\t[1",
        "INFO  jepsen.util - 0\t:maybe\t:read\tnil",
    ],
)
def test_other_log_lines_are_named(line):
    problems = Problems()
    assert list(events_of_log(["", line], problems)) == []
    assert problems.count == 1
    assert problems.sentences[0].startswith("line 2: ")
