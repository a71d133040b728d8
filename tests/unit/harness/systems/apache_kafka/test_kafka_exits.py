"""Why a node ended. The logs have the form that `properties.logging_text` gives them; the texts are made up."""

import pytest

from harness.systems.apache_kafka.exits import exit_reason


def _line(level: str, message: str, logger: str = "kafka.server.X") -> str:
    return f"[2026-01-02 03:04:05,678] {level} {message} ({logger})"


STARTUP = "\n".join(
    (
        _line("INFO", "Registered kafka:type=kafka.Log4jController MBean", "kafka.utils.L"),
        _line("INFO", "starting", "kafka.server.S"),
    )
)
TRACE = """\
java.lang.IllegalStateException: directory is locked
\tat kafka.log.A.lock(A.scala:12)
\tat kafka.Kafka.main(Kafka.scala)
Caused by: java.io.IOException: other
\t... 12 more"""


def test_a_log_without_errors_gives_no_reason() -> None:
    assert exit_reason("") == ""
    assert exit_reason(STARTUP + "\n" + _line("WARN", "ERROR is only a word here")) == ""


def test_the_first_error_is_reported_with_its_exception_and_not_the_last_line() -> None:
    log = "\n".join((STARTUP, _line("ERROR", "Cannot lock"), TRACE, _line("ERROR", "later")))
    assert exit_reason(log) == "Cannot lock: IllegalStateException: directory is locked"


def test_an_exception_without_a_message_is_named() -> None:
    log = _line("ERROR", "Failed") + "\njava.lang.NullPointerException\n\tat a.B.c(D.java:1)"
    assert exit_reason(log) == "Failed: NullPointerException"


def test_a_line_that_announces_the_end_counts_more_than_an_earlier_error() -> None:
    log = "\n".join(
        (
            _line("ERROR", "A connection failed"),
            "java.net.ConnectException: refused",
            _line("ERROR", "Exiting Kafka due to fatal exception", "kafka.Kafka$"),
            TRACE,
        )
    )
    assert exit_reason(log) == (
        "Exiting Kafka due to fatal exception: IllegalStateException: directory is locked"
    )


def test_an_end_without_an_exception_gets_that_of_the_error_before_it() -> None:
    log = "\n".join(
        (
            _line("ERROR", "Error while writing to /d/data"),
            "java.io.IOException: Input/output error",
            "\tat java.base/sun.nio.ch.A.b(Native Method)",
            _line("ERROR", "Shutdown broker because all log dirs in /d/data have failed"),
        )
    )
    assert exit_reason(log) == (
        "Shutdown broker because all log dirs in /d/data have failed: IOException: Input/output error"
    )


def test_memory_that_ran_out_is_the_reason_of_the_line_before_it() -> None:
    log = (
        _line("ERROR", "Encountered fatal fault")
        + "\njava.lang.OutOfMemoryError: Java heap space\n"
    )
    assert exit_reason(log) == "Encountered fatal fault: OutOfMemoryError: Java heap space"


def test_an_exception_that_the_line_names_is_not_repeated() -> None:
    log = _line("ERROR", "Fatal: IOException: full") + "\njava.io.IOException: full"
    assert exit_reason(log) == "Fatal: IOException: full"


def test_errors_of_an_earlier_start_do_not_count() -> None:
    first = "\n".join((STARTUP, _line("FATAL", "died")))
    assert exit_reason(first) == "died"
    assert exit_reason("\n".join((first, STARTUP))) == ""
    assert exit_reason("\n".join((first, STARTUP, _line("ERROR", "now")))) == "now"


@pytest.mark.parametrize(
    "text",
    [
        "Error: Could not find or load main class kafka.Kafka",
        "Error occurred during initialization of VM",
        'Exception in thread "main" java.lang.ExceptionInInitializerError',
        "Unrecognized VM option 'UseX'",
        "# A fatal error has been detected by the Java Runtime Environment",
        "java.lang.OutOfMemoryError: Java heap space",
    ],
)
def test_what_the_jvm_itself_prints_is_a_reason(text: str) -> None:
    assert exit_reason(text + "\n\tat a.B.c(D.java:1)\nmore") == text
    assert exit_reason(STARTUP + "\n" + text) == text


def test_a_reason_has_a_limited_length() -> None:
    assert len(exit_reason(_line("ERROR", "x" * 10_000))) == 300


def test_an_error_of_the_jvm_belongs_to_the_line_before() -> None:
    log = """\
[2026-11-22 11:39:52,010] INFO Registered kafka:type=kafka.Log4jController MBean (kafka.utils.Log4jController)
[2026-11-22 11:39:53,195] ERROR Encountered fatal fault: Error starting LogManager (org.apache.kafka.server.Fault)
java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.nio.HeapByteBuffer.<init>(HeapByteBuffer.java:64) ~[?:?]
"""
    assert exit_reason(log) == (
        "Encountered fatal fault: Error starting LogManager: OutOfMemoryError: Java heap space"
    )
