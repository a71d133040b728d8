"""Every command with --json prints one object in the published envelope, also if it fails or is misused."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from harness.cli.commands import doctor
from harness.cli.commands import list as list_command
from harness.cli.main import build_parser, main
from harness.cli.options import CommandParser
from harness.cli.output import SCHEMA, print_json
from harness.cli.output_schema import OUTPUTS, json_schema
from harness.errors import HarnessFailure
from tests.cli.cli_helpers import call


def commands(parser: CommandParser) -> Iterator[str]:
    """Yields the words of every command that can be run."""
    if parser.get_default("action") is not None:
        yield parser.prog.partition(" ")[2]
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from commands(below)


EVERY = tuple(commands(build_parser()))


def test_the_schema_describes_every_command_and_no_other() -> None:
    Draft202012Validator.check_schema(json_schema())
    assert set(OUTPUTS) == set(EVERY)


@pytest.mark.parametrize("command", EVERY)
def test_a_misused_command_prints_its_error_in_the_envelope(
    capsys: pytest.CaptureFixture[str], command: str
) -> None:
    if command == "defects":
        return  # takes no options; its subcommands are tested
    outcome = call(capsys, *command.split(), "--json", "--no-such-option")
    envelope = outcome.envelope
    assert (envelope["schema"], envelope["command"], envelope["exit_code"]) == (
        SCHEMA,
        command,
        254,
    )
    assert envelope["error"] == outcome.err.rstrip("\n").removeprefix("laststand: ")


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("--json", "lsit"), ""),
        (("--json",), ""),
        (("cluster", "--json"), "cluster"),
        (("--json", "--results", "x", "explain", "latest"), "explain"),
        (("--results=x", "cluster", "status", "--json"), "cluster status"),
    ],
)
def test_errors_name_the_command_as_far_as_there_is_one(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], command: str
) -> None:
    assert call(capsys, *words).envelope["command"] == command


def test_a_result_has_the_envelope_and_no_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    envelope = call(capsys, "--json", "list", "--results", tmp_path).envelope
    assert envelope == {
        "schema": SCHEMA,
        "command": "list",
        "exit_code": 0,
        "error": None,
        "runs": [],
        "campaigns": [],
    }


@pytest.mark.parametrize(
    ("raised", "code", "sentence"),
    [
        (HarnessFailure("the disk is full"), 255, "harness failure: the disk is full"),
        (KeyboardInterrupt(), 255, "interrupted"),
        (ValueError("odd"), 255, "harness failure: ValueError: odd (traceback in "),
    ],
)
def test_a_failure_keeps_what_the_command_had_printed(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    raised: BaseException,
    code: int,
    sentence: str,
) -> None:
    def fail(_: argparse.Namespace) -> int:
        print_json({"runs": [1], "campaigns": []})
        raise raised

    monkeypatch.setattr(list_command, "list_runs", fail)
    outcome = call(capsys, "list", "--json")
    assert outcome.code == code
    assert outcome.envelope["error"].startswith(sentence)
    assert outcome.data["runs"] == [1]
    monkeypatch.undo()
    assert call(capsys, "list", "--json", "--limit", 0).data == {}


def test_a_result_that_explains_its_own_failure_has_that_as_its_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def examine(_: argparse.Namespace) -> int:
        print_json({"findings": [], "error": "not as it should be: Java"})
        return 255

    monkeypatch.setattr(doctor, "doctor", examine)
    outcome = call(capsys, "doctor", "--json")
    assert outcome.envelope["error"] == "not as it should be: Java"


def test_text_has_no_envelope(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", "run"]) == 0
    assert SCHEMA not in capsys.readouterr().out
    with pytest.raises(json.JSONDecodeError):
        json.loads(call(capsys, "help", "run").out)
