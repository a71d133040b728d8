"""Every command of docs/tutorial.md runs as it is printed, in its order, and does what the text states."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/tutorial.md"
LIMIT_S = 20 * 60
"""The time that the page promises."""

INVALID = (
    "laststand reproduce last-replica-standing --profile kafka-4.0",
    "laststand swarm",
    "laststand run",
    "laststand replay",
    "laststand shrink",
)
"""How commands begin that end with 1, as the text states."""

PROMISED = {
    "laststand reproduce last-replica-standing --profile kafka-4.0": "unexcused lost records  5",
    "laststand reproduce last-replica-standing --profile kafka-4.1": "unexcused lost records  0",
    "laststand reproduce last-replica-standing --profile kafka-4.0 --quiet": "report.html",
    "laststand explain latest": "decisive",
}
"""What the text promises of the output of a command."""


def commands() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    assert all(line.startswith("$ laststand ") for line in lines)
    return [line.removeprefix("$ ") for line in lines]


@pytest.mark.long
@pytest.mark.timeout(LIMIT_S)
def test_the_tutorial_can_be_followed_literally_in_twenty_minutes(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    typed = commands()
    assert len(typed) >= 12
    assert set(PROMISED) <= set(typed)
    for command in typed:
        done = subprocess.run(
            command,
            shell=True,
            cwd=tmp_path,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        if command == "laststand doctor":
            assert done.returncode in (0, 255), done  # what the machine lacks
            continue
        assert done.returncode == (1 if command.startswith(INVALID) else 0), done
        assert PROMISED.get(command, "") in done.stdout, done
    assert (tmp_path / "pages/index.html").is_file()
