"""The table of the comparison in README.md is what the demonstration prints."""

from pathlib import Path

import pytest

from tests.cli.cli_helpers import call

README = Path(__file__).parents[2] / "README.md"


@pytest.mark.long
def test_the_readme_shows_the_comparison_as_it_is_printed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    vary = ("--vary", "profile=kafka-4.0,kafka-4.1", "--seeds", "20")
    outcome = call(capsys, "compare", *vary, "--no-spark", "--results", str(tmp_path))
    shown = README.read_text(encoding="utf-8")
    printed = [line for line in outcome.out.splitlines() if line.startswith(("arm", "profile="))]
    assert len(printed) == 3
    for line in printed:
        assert f"    {line}\n" in shown
    assert "    McNemar's exact test, same seeds in every arm: p = 0.5\n" in shown
    assert "p = 0.5" in outcome.out
