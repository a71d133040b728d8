"""Runs commands in this process, as a user would, and returns their output."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import main

USAGE = 254


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command did: exit code, standard output, standard error."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        lines = self.out.splitlines()
        assert len(lines) == 1, "exactly one line"
        data = json.loads(lines[0])
        assert isinstance(data, dict)
        return data


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
