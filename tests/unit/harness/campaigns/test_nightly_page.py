"""docs/how-to/nightly.md: its file of known failures is read, and its commands are accepted."""

import re
import shlex
from pathlib import Path

import pytest

from harness.campaigns.known_failures import load_known_failures
from harness.cli.main import build_parser

PAGE = (Path(__file__).parents[4] / "docs/how-to/nightly.md").read_text(encoding="utf-8")
GC_COMMANDS = sorted(set(re.findall(r"laststand (gc[^\n`|#]*)", PAGE)))


def test_the_example_of_known_failures_can_be_read(tmp_path):
    blocks = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (block,) = (one for one in blocks if "[[failure]]" in one)
    path = tmp_path / "known-failures.toml"
    path.write_text(block.replace("SIGNATURE", "38e7a27b0eac"))
    (failure,) = load_known_failures(path).values()
    assert (failure.ticket, failure.expiry.isoformat()) == ("KAFKA-15332", "2027-03-31")


@pytest.mark.parametrize("command", GC_COMMANDS)
def test_the_commands_that_remove_old_nights_are_accepted(command):
    assert len(GC_COMMANDS) >= 2
    options = build_parser().parse_args(shlex.split(command))
    assert options.keep_nights == 30
