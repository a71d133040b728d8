"""`laststand system` and `laststand doctor --system`."""

import json
from pathlib import Path

import pytest

from harness.cli import system_findings
from harness.cli.main import main
from harness.cli.system_findings import examine_system
from harness.errors import HarnessFailure, UsageError
from harness.java import JavaRuntime
from harness.systems.apache_kafka import archive, java
from harness.systems.apache_kafka.cache import version_cache
from harness.systems.apache_kafka.fetch import Fetched
from harness.systems.apache_kafka.versions import SUPPORTED, parse_version

JAVA = JavaRuntime(home=Path("/opt/java"), version="17.0.1", source="PATH")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LASTSTAND_CACHE", str(tmp_path))
    monkeypatch.setattr(system_findings, "find_kafka_java", lambda _: JAVA)
    monkeypatch.setattr(java, "find_kafka_java", lambda _: JAVA)
    return tmp_path


def _pretend_fetched(version: str) -> None:
    cache = version_cache(parse_version(version))
    cache.lib.mkdir(parents=True)
    for jar in cache.jars:
        with open(cache.lib / jar.file_name, "wb") as file:
            file.truncate(jar.bytes)


def test_list_reports_every_version_and_what_is_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    _pretend_fetched("4.0.2")
    assert main(["system", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["systems"]
    # Systems of installed plugins are listed, too.
    rows = [row for row in listed if row["system"] == "apache-kafka"]
    assert [row["version"] for row in rows] == [str(version) for version in SUPPORTED]
    assert [row["version"] for row in rows if row["is_fetched"]] == ["4.0.2"]
    assert main(["system", "list"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "apache-kafka" in line]
    assert any("kafka-3.6" in line for line in lines)
    assert sum(line.endswith(" no") for line in lines) == len(SUPPORTED) - 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["apache-kafk", "4.1.2"],
            "no system that can be fetched is called 'apache-kafk'; did you mean",
        ),
        (["reference", "1"], "no system that can be fetched is called 'reference'"),
        (["apache-kafka", "4.1.9"], "no supported version of Apache Kafka is called '4.1.9'"),
        (["apache-kafka", "4.1.2", "--repository", "x"], "a repository is an address such as"),
    ],
)
def test_what_cannot_be_fetched_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["system", "fetch", *words]) == 254
    assert sentence in capsys.readouterr().err


def test_a_fetch_succeeds_with_a_notice_if_the_archive_cannot_be_made(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> Path:
        raise HarnessFailure("it hangs")

    monkeypatch.setattr("harness.systems.apache_kafka.fetch.fetch", lambda *_, **__: Fetched())
    monkeypatch.setattr(archive, "make_archive", fails)
    assert main(["system", "fetch", "apache-kafka", "4.1.2", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("apache-kafka 4.1.2: ")
    assert "notice: it hangs; nodes start without a class-data archive" in out
    assert main(["system", "fetch", "apache-kafka", "4.1.2", "--quiet", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["archive"] is None
    assert data["notice"] == "it hangs"
    assert main(["system", "fetch", "apache-kafka", "4.1.2", "--quiet", "--no-archive"]) == 0
    assert "notice" not in capsys.readouterr().out


def test_doctor_names_what_is_missing_and_the_command_that_gets_it(tmp_path: Path) -> None:
    jars, java_finding, archived, clock = examine_system("apache-kafka:4.1.2")
    assert not jars.is_good
    assert jars.hint == "`laststand system fetch apache-kafka 4.1.2`"
    assert java_finding.text == "17.0.1 from PATH (/opt/java)"
    assert archived.is_good
    assert clock.is_good
    assert archived.hint == clock.hint == jars.hint
    _pretend_fetched("4.1.2")
    cache = version_cache(parse_version("4.1.2"))
    cache.archive(JAVA).write_bytes(b"x" * (3 << 20))
    jars, _, archived, _ = examine_system("apache-kafka:4.1.2")
    assert jars.is_good
    assert jars.hint == archived.hint == ""
    assert archived.text.startswith("3 MiB")


def test_doctor_refuses_a_java_that_does_not_suit(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: object) -> JavaRuntime:
        raise UsageError("needs Java 17")

    monkeypatch.setattr(system_findings, "find_kafka_java", none)
    findings = examine_system("apache-kafka:4.1.2")
    assert [finding.is_good for finding in findings] == [False, False]
    assert findings[1].text == "needs Java 17"


def test_doctor_lists_versions_without_failing() -> None:
    _pretend_fetched("4.0.2")
    findings = examine_system("apache-kafka")
    assert all(finding.is_good for finding in findings)
    assert [f.name for f in findings if f.state != "--"] == ["apache-kafka:4.0.2"]
    assert [finding.name for finding in examine_system("reference")] == ["reference"]


@pytest.mark.parametrize("name", ["kafka", "reference:1", "apache-kafka:", "apache-kafka:9"])
def test_doctor_refuses_an_unknown_system_or_version(name: str) -> None:
    with pytest.raises(UsageError, match="is called"):
        examine_system(name)
