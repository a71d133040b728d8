"""Every command of docs/tutorial.md runs, in its order, with the exit code that the text states."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.cli_helpers import call

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
INVALID = (
    "reproduce last-replica-standing --profile kafka-4.0",
    "swarm",
    "run",
    "replay",
    "shrink",
)
"""How commands begin that end with 1, as the text states."""


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ laststand ") for line in lines)
    return [line.removeprefix("$ laststand ") for line in lines]


@pytest.mark.long
def test_the_tutorial_can_be_followed_literally(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    typed = commands()
    assert len(typed) >= 12
    for command in typed:
        outcome = call(capsys, *shlex.split(command))
        if command == "doctor":
            assert outcome.code in (0, 255)  # what the machine lacks
            continue
        expected = 1 if command.startswith(INVALID) else 0
        assert outcome.code == expected, (command, outcome)
    assert (tmp_path / "pages/index.html").is_file()
