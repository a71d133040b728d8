"""What a run leaves on a host: its owner is recorded from the start."""

from pathlib import Path
from typing import Any

import pytest

from nemesis.agent import state


def test_a_run_that_is_just_starting_is_not_a_leftover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[list[str]] = []
    mkdir = Path.mkdir

    def look_after(path: Path, *arguments: Any, **options: Any) -> None:
        mkdir(path, *arguments, **options)
        seen.append(state.leftovers(tmp_path))

    monkeypatch.setattr(Path, "mkdir", look_after)
    state.begin_run(tmp_path / "run")
    assert seen
    assert not any(seen)
