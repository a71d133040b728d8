"""What a terminal and a file get: colours, whole ids, no control characters, no markup, no noise."""

import argparse
import contextlib
import os
import pty
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path

import pytest
from rich.console import RenderableType

from harness.cli.output import show
from harness.cli.progress import LOG_INTERVAL_S, StandardErrorProgress
from harness.cli.runs import run_parts
from results.tables import as_text, line, table
from tests.cli.cli_helpers import call

HOSTILE = "[red]x[/red] :smile: \x1b[2J\x07\r\n\x9b31m[link=file:///]y"


class Terminal(StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A terminal of 80 columns with colours."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def show_on(terminal: Terminal, *parts: RenderableType) -> str:
    with contextlib.redirect_stdout(terminal):
        show(*parts)
    return terminal.getvalue()


def rows_of(count: int) -> list[tuple[str, str]]:
    return [("invalid", f"experiment/{'x' * 120}-{number}") for number in range(count)]


def test_output_to_a_file_has_complete_ids_and_no_colour() -> None:
    text = as_text(table(("verdict", "run"), rows_of(2)), line("word " * 100))
    assert [row.split() for row in text.splitlines()[2:4]] == [list(row) for row in rows_of(2)]
    assert text.splitlines()[4] == ("word " * 100).rstrip()
    assert "\x1b" not in text
    assert not any(row.endswith(" ") for row in text.splitlines())


def test_output_to_a_terminal_has_colours_and_complete_ids_even_when_too_wide(
    terminal: Terminal,
) -> None:
    text = show_on(terminal, table(("verdict", "run"), rows_of(1)), line("valid"))
    assert "\x1b[1;31minvalid" in text
    assert f"experiment/{'x' * 120}-0" in text


def test_no_color_leaves_no_escape_sequence_at_all(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = show_on(terminal, table(("verdict", "run"), rows_of(1)))
    assert "invalid" in text
    assert "\x1b" not in text


def test_a_dumb_terminal_gets_the_lines_of_a_log(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    with StandardErrorProgress(stream=terminal) as progress:
        progress.update("runs", 0.25, "1/4")
    assert "runs 25% 1/4" in terminal.getvalue()
    assert "\x1b" not in show_on(terminal, table(("verdict", "run"), rows_of(1)))


def test_a_folding_column_makes_a_table_fit_the_terminal_without_losing_text(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    words = [f"word{number}" for number in range(60)]
    rows = [("some", " ".join(words))]
    part = table(("name", "text"), rows, header=False, folding={"text"})
    lines = show_on(terminal, part).splitlines()
    assert max(len(one) for one in lines) <= 80
    assert " ".join(lines).split() == ["some", *words]


@pytest.mark.parametrize("where", ["cell", "line"])
def test_hostile_text_neither_controls_the_terminal_nor_is_read_as_markup(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    part = table(("name",), [(HOSTILE,)]) if where == "cell" else line(HOSTILE)
    for text in (as_text(part), show_on(terminal, part)):
        shown = text.splitlines()[-1].rstrip()
        assert shown == (
            "[red]x[/red] :smile: \N{REPLACEMENT CHARACTER}[2J"
            + 3 * "\N{REPLACEMENT CHARACTER}"
            + "\N{REPLACEMENT CHARACTER}31m[link=file:///]y"
        )


def test_hostile_reasons_and_errors_do_not_control_the_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    summary = {"verdict": "invalid", "reasons": [HOSTILE], "report_error": HOSTILE}
    options = argparse.Namespace(results=str(tmp_path))
    text = as_text(*run_parts(options, tmp_path, summary))
    output = capsys.readouterr().err
    for shown in (text, output):
        assert "[red]x[/red]" in shown
        assert not set(shown) & {"\x1b", "\x07", "\r", "\x9b"}
    assert output.count("\n") == 1


def test_an_error_that_quotes_hostile_text_is_one_escaped_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    outcome = call(capsys, "run", tmp_path / "\x1b[2J\r.toml")
    assert outcome.code == 254
    assert outcome.err.count("\n") == 1
    assert not set(outcome.err) & {"\x1b", "\r"}


def test_a_log_gets_events_immediately_and_progress_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = [0.0]
    monkeypatch.setattr("harness.cli.progress.time.monotonic", lambda: now_s[0])
    log = StringIO()
    with StandardErrorProgress(stream=log) as progress:
        progress.message("began \x1b[2J")
        for done in range(40):
            now_s[0] = done * LOG_INTERVAL_S / 20
            progress.update("runs", done / 40, f"{done}/40")
        progress.message("done")
    lines = log.getvalue().splitlines()
    assert lines == [
        "[   0.0 s] began \N{REPLACEMENT CHARACTER}[2J",
        "[   0.0 s] runs 0% 0/40",
        "[  10.0 s] runs 50% 20/40",
        "[  19.5 s] done",
    ]


def test_a_terminal_gets_a_live_progress_bar_that_is_removed_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    with StandardErrorProgress(stream=stream) as progress:
        progress.update("runs", 0.25, "[b]1/4")
        progress.message("[red]a message")
        assert "25%" in stream.getvalue()
        assert "[b]1/4" in stream.getvalue()
        assert "[red]a message" in stream.getvalue()
        progress.update("final", 0.0)
    assert "final" in stream.getvalue()
    # The cursor is visible again, and the last line is erased.
    assert stream.getvalue().rstrip().endswith("\x1b[2K")
    assert stream.getvalue().count("\x1b[?25l") == stream.getvalue().count("\x1b[?25h") == 1


@pytest.mark.parametrize("stream", [StringIO(), Terminal()])
def test_quiet_writes_nothing(stream: StringIO) -> None:
    with StandardErrorProgress(quiet=True, stream=stream) as progress:
        progress.message("a")
        progress.update("b", 0.5)
    assert stream.getvalue() == ""


def test_a_run_on_a_real_terminal_keeps_json_on_standard_output(tmp_path: Path) -> None:
    """Standard error is a terminal and standard output a pipe, as in `laststand run --json | jq`."""
    leader, follower = pty.openpty()
    command = ("reproduce", "last-replica-standing", "--no-spark", "--json")
    chunks: list[bytes] = []

    def drain() -> None:
        while True:
            try:
                chunks.append(os.read(leader, 65536))
            except OSError:  # the other end is closed
                return

    reader = threading.Thread(target=drain)
    reader.start()
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli", *command, "--results", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=follower,
        env={**os.environ, "TERM": "xterm-256color"},
        check=False,
    )
    os.close(follower)
    reader.join()
    os.close(leader)
    assert done.returncode == 0
    assert done.stdout.startswith(b"{")
    assert done.stdout.count(b"\n") == 1
    seen = b"".join(chunks)
    assert b"simulated" in seen
    assert b"start" in seen
    assert b"\x1b[?25h" in seen
