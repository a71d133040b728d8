"""The help of every command fits 80 columns and has examples that work; global options go on either side."""

import argparse
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.campaigns.files import NIGHT_PREFIX
from harness.cli.examples import examples_of
from harness.cli.main import build_parser
from harness.cli.options import CommandParser
from harness.cli.runs import command_for
from results.layout import DEFAULT_ROOT
from tests.cli.cli_helpers import call, refused
from workloads.registry import WORKLOADS

USAGE = 254


def parsers(parser: CommandParser) -> Iterator[CommandParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from parsers(below)


EVERY = tuple(parsers(build_parser()))


@pytest.mark.parametrize("parser", EVERY, ids=lambda one: str(one.prog).replace(" ", "-"))
def test_every_help_fits_80_columns_and_its_examples_are_parsed_by_their_command(
    parser: CommandParser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    text = parser.format_help()
    assert max(len(line) for line in text.splitlines()) <= 80
    examples = text.partition("examples:\n")[2].splitlines()
    assert examples
    for example in examples:
        name, *words = shlex.split(example)
        assert name == "laststand"
        options = build_parser().parse_args(words)
        assert options.parser.prog.startswith(parser.prog)
        assert callable(options.action)


def _parsed_examples(command: str) -> Iterator[argparse.Namespace]:
    for example in examples_of(f"laststand {command}").splitlines()[1:]:
        yield build_parser().parse_args(shlex.split(example)[1:])


def test_the_examples_have_what_their_commands_accept() -> None:
    for options in _parsed_examples("nightly"):
        assert options.resume is None or options.plan is None, "a night that goes on has its plan"
        assert options.resume is None or options.resume.startswith(NIGHT_PREFIX)
    for options in _parsed_examples("bundle spark"):
        assert options.output.suffix == ".zip"


def test_the_help_of_new_names_every_workload(capsys: pytest.CaptureFixture[str]) -> None:
    text = call(capsys, "help", "new").out
    for name in WORKLOADS.built_in:
        assert name in text


def test_help_prints_what_the_option_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for words in ((), ("run",), ("cluster",), ("cluster", "up")):
        outcome = call(capsys, "help", *words)
        with pytest.raises(SystemExit) as exit_:
            call(capsys, *words, "--help")
        assert (outcome.code, exit_.value.code) == (0, 0)
        assert outcome.out == capsys.readouterr().out
    assert call(capsys, "help", "run", "--json").data["of"] == "laststand run"
    assert "no command 'frob'" in refused(capsys, "help", "frob")


def test_a_family_of_commands_alone_shows_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    outcome = call(capsys, "cluster")
    assert outcome.code == USAGE
    assert outcome.out.startswith("usage: laststand cluster ")


@pytest.mark.parametrize(
    "words",
    [
        ("--json", "--results", "DIR", "list"),
        ("--results=DIR", "--json", "list"),
        ("list", "--json", "--results", "DIR"),
        ("--json", "list", "--results", "DIR"),
    ],
)
def test_global_options_work_before_and_after_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    outcome = call(capsys, *(word.replace("DIR", str(tmp_path)) for word in words))
    assert (outcome.code, outcome.data) == (0, {"runs": [], "campaigns": []})


def test_global_options_before_a_family_reach_its_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = ("--json", "cluster", "status", "--directory", tmp_path / "none")
    assert "none" in refused(capsys, *words)
    words = ("--json", "--quiet", "system", "list")
    assert call(capsys, *words).data == call(capsys, "system", "list", "--json").data


def test_printed_commands_name_the_store_unless_it_is_the_default(tmp_path: Path) -> None:
    name = "20260101T000000Z-1"
    inside = tmp_path / "a store" / "exp" / name
    options = argparse.Namespace(results=str(tmp_path / "a store"))
    command = command_for(options, inside, "explain", "lost-acked-write")
    assert shlex.split(command) == [
        *("laststand", "explain", f"exp/{name}", "lost-acked-write"),
        *("--results", options.results),
    ]
    parsed = build_parser().parse_args(shlex.split(command)[1:])
    assert (parsed.run, parsed.anomaly) == (f"exp/{name}", "lost-acked-write")
    assert command_for(options, tmp_path / "exp" / name, "replay").split()[2].startswith("/")
    default = argparse.Namespace(results=str(DEFAULT_ROOT))
    assert command_for(default, DEFAULT_ROOT / "exp" / name, "replay") == (
        f"laststand replay exp/{name}"
    )
    remote = argparse.Namespace(results="s3a://bucket/runs")
    assert command_for(remote, inside, "check") == (
        f"laststand check exp/{name} --results s3a://bucket/runs"
    )
