"""docs/how-to/ci.md: its plan can be read, its commands are accepted, and its tables have what exists."""

import re
import shlex
from pathlib import Path

import pytest

from harness import exit_codes
from harness.campaigns.nightly_plan import loads_nightly
from harness.cli.main import build_parser
from results.layout import CAMPAIGN_FILES

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "examples"
PAGE = (ROOT / "docs/how-to/ci.md").read_text(encoding="utf-8")
COMMANDS = sorted(
    {
        command.strip()
        for command in re.findall(
            r"laststand ((?:nightly|run|check|site|doctor) [^\n`#|;)]*)", PAGE.replace("\\\n", " ")
        )
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_are_accepted(command: str) -> None:
    assert len(COMMANDS) >= 5
    assert build_parser().parse_args(shlex.split(command))


def test_the_plan_can_be_read() -> None:
    (plan,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    fixed, drawn = loads_nightly(plan, origin="plan.toml", folder=EXAMPLES)
    assert fixed.experiment == drawn.experiment
    assert (fixed.seeds, drawn.seeds) == ((7, 19), ())


def test_the_recipes_are_yaml_and_run_the_plan() -> None:
    yaml = pytest.importorskip("yaml")
    blocks = [yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
    (github,) = (one for one in blocks if isinstance(one, dict) and "jobs" in one)
    (gitlab,) = (one for one in blocks if isinstance(one, dict) and "laststand" in one)
    steps = [step.get("run", "") for step in github["jobs"]["laststand"]["steps"]]
    for lines in (steps, gitlab["laststand"]["script"]):
        assert any(line.startswith("laststand nightly ci/plan.toml") for line in lines)
    assert gitlab["laststand"]["allow_failure"] == {"exit_codes": exit_codes.UNKNOWN}


def test_the_tables_have_every_exit_code_and_only_files_that_are_written() -> None:
    for code in exit_codes.MEANINGS:
        assert f"| {code} |" in PAGE
    kept = re.findall(r"^\| `([\w./]+)` \|", PAGE, re.MULTILINE)
    assert len(kept) == 4
    assert set(kept) <= set(CAMPAIGN_FILES)
