"""Differences of observations: which fields, and what each side had."""

from typing import Any

from harness.conformance.comparison import Difference, Observation, differences
from harness.conformance.connection import CLOSED, RESPONSE, SILENT


def seen(response: Any = None, outcome: str = RESPONSE) -> Observation:
    return Observation(request="produce v11", outcome=outcome, response=response)


def found(kafka: list[Observation], reference: list[Observation]) -> list[tuple[str, str, str]]:
    return [
        (one.field, one.apache_kafka, one.reference)
        for one in differences("case", kafka, reference)
    ]


def test_equal_observations_have_no_difference():
    tree = {"a": [1, {"b": None}], "c": {}}
    assert found([seen(tree), seen(outcome=CLOSED)], [seen(tree), seen(outcome=CLOSED)]) == []


def test_every_field_that_differs_is_named_with_its_path():
    kafka = {"topics": {"d": {"error_code": "NONE", "ids": [1, 2]}}, "x": True}
    reference = {"topics": {"d": {"error_code": "INVALID_REQUEST", "ids": [1, 3]}}, "x": True}
    assert found([seen(kafka)], [seen(reference)]) == [
        ("1.topics.d.error_code", "NONE", "INVALID_REQUEST"),
        ("1.topics.d.ids.1", "2", "3"),
    ]


def test_an_element_that_one_side_has_is_one_difference():
    assert found([seen({"a": {"k": {"v": 1}}})], [seen({"a": {}})]) == [
        ("1.a.k", '{"v": 1}', "absent")
    ]
    assert found([seen({"a": [1]})], [seen({"a": []})]) == [("1.a", "[1]", "[]")]


def test_numbers_and_truth_values_are_not_the_same():
    assert found([seen({"a": 1})], [seen({"a": True})]) == [("1.a", "1", "true")]


def test_a_closed_connection_and_silence_are_outcomes():
    assert found([seen({"a": 1})], [seen(outcome=CLOSED)]) == [("1.outcome", RESPONSE, CLOSED)]
    assert found([seen(outcome=SILENT)], [seen({})]) == [("1.outcome", SILENT, RESPONSE)]


def test_a_request_that_only_one_side_got_is_a_difference():
    assert found([seen({}), seen({})], [seen({})]) == [("2.outcome", RESPONSE, "not sent")]


def test_the_id_of_the_case_is_in_every_difference():
    (one,) = differences("fetch/x", [seen(outcome=CLOSED)], [seen({})])
    assert one == Difference(
        request="fetch/x", field="1.outcome", apache_kafka=CLOSED, reference=RESPONSE
    )
