"""Runs commands in this process, as a user would, and returns their output."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from harness.cli.main import main
from harness.cli.output import ENVELOPE
from harness.cli.output_schema import json_schema

USAGE = 254
_VALIDATOR = Draft202012Validator(json_schema())


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def envelope(self) -> dict[str, Any]:
        """The one JSON object on standard output, which agrees with the published schema."""
        lines = self.out.splitlines()
        assert len(lines) == 1, "exactly one line"
        data = json.loads(lines[0])
        _VALIDATOR.validate(data)
        assert data["exit_code"] == self.code
        assert isinstance(data, dict)
        return data

    @property
    def data(self) -> dict[str, Any]:
        """The result on standard output without its envelope."""
        return {key: value for key, value in self.envelope.items() if key not in ENVELOPE}


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> Outcome:
    """Runs one command."""
    capsys.readouterr()
    code = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return Outcome(code, out, err)


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Runs a command that must be refused; returns the sentence with the reason."""
    outcome = call(capsys, *arguments)
    assert outcome.code == USAGE, outcome
    if "--json" in arguments:
        assert outcome.envelope["error"] == outcome.err.rstrip("\n").removeprefix("laststand: ")
        assert outcome.data == {}
    else:
        assert outcome.out == ""
    assert "Traceback" not in outcome.err
    lines = outcome.err.splitlines()
    assert len(lines) == 1, outcome.err
    assert lines[0].startswith("laststand: ")
    return lines[0].removeprefix("laststand: ")


def write(path: Path, text: str) -> Path:
    """Writes a text file and returns its path."""
    path.write_text(text, encoding="utf-8")
    return path
