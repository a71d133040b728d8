"""The reference system against Apache Kafka itself: no difference that is not listed, and none listed in vain."""

import json
from typing import Any

import pytest

from harness.cli.main import main
from harness.conformance.catalogue import catalogue
from tests.kafka_jars import kafka_or_skip

VERSION = "4.1.2"


def compared(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, Any]]:
    kafka_or_skip(VERSION)
    against = f"apache-kafka:{VERSION}"
    code = main(["conformance", "--against", against, "--quiet", "--json", *words])
    summary: dict[str, Any] = json.loads(capsys.readouterr().out)
    return code, summary


@pytest.mark.long  # a minute, with twelve processes
@pytest.mark.timeout(900)
def test_every_difference_is_expected_and_every_expected_one_occurs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, summary = compared(capsys)
    assert (summary["new"], summary["gone"]) == ([], [])
    assert code == 0
    assert summary["cases"] == len(catalogue())
    assert summary["same"] > 0.8 * len(catalogue())
    assert summary["expected"]


@pytest.mark.long  # ten seconds, with twelve processes
@pytest.mark.timeout(600)
def test_a_produce_request_with_null_records_is_never_answered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    kafka_or_skip(VERSION)
    words = ["--system", f"apache-kafka:{VERSION}", "--quiet", "--json"]
    assert main(["reproduce", "kafka-bug", "--variant", "null-records", *words]) == 0
    assert json.loads(capsys.readouterr().out)["outcomes"] == ["blocked"]
